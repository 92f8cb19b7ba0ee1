"""Each game's schema versions as the control store has them, and who registered each; for pages and commands.

Nothing here writes or reads definitions, so a list loads no library of formats.
"""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, select

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.data.contracts.stored_registrations import placement_after
from pipeline.store.database.tables import placements, registrations, schemas


@dataclass(frozen=True, slots=True)
class Version:
    """One registration of a game."""

    game_key: GameKey
    game: str  # the exact name
    version: int  # counts the game's registrations: 1, 2, …
    schema_id: int
    format: str
    message: str  # full name
    created_at: float  # Unix seconds
    placement: FieldPlacement = PLAIN
    policies: Policies = DEFAULTS
    registered_by: str | None = None  # a person, or `registry NAME`; None: nobody, such as a simulation

    @property
    def is_undeclared(self) -> bool:
        """Whether its columns follow from documents that no schema declares."""
        return self.format == UNDECLARED

    @property
    def quarantined(self) -> str | None:
        """Why all rows of the schema go to quarantine; None: they land."""
        return self.placement.quarantined


@dataclass(frozen=True, slots=True)
class GameVersions:
    """A game with its versions, oldest first; none where it waits for its first schema."""

    key: GameKey
    game: str
    versions: tuple[Version, ...]

    @property
    def newest(self) -> Version | None:
        """The version that was registered last."""
        return self.versions[-1] if self.versions else None

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that it may send, that of the newest version first."""
        return tuple(dict.fromkeys(each.format for each in reversed(self.versions)))

    @property
    def quarantined(self) -> tuple[Version, ...]:
        """The versions whose rows go to quarantine now, by the last registration of each schema.

        Withdrawn declarations are left out: their types' supersets read documents again.
        """
        last = {each.schema_id: each for each in self.versions}
        return tuple(each for each in last.values() if each.quarantined is not None and not each.placement.undeclared)

    def version(self, number: int) -> Version:
        """Return one version.

        Raises:
            Refused: the game does not have it.
        """
        found = next((each for each in self.versions if each.version == number), None)
        if found is None:
            have = f"it has {len(self.versions)}" if self.versions else "it has none"
            raise Refused(f"The game {shown(self.game)} has no version {number}: {have}. See `turnout schemas list`.")
        return found

    def landing_before(self, version: Version) -> tuple[Version, ...]:
        """Return the versions with columns in the table when this one was registered, in the order of their schemas."""
        held: dict[int, Version] = {}
        for each in self.versions:
            if each.version < version.version:
                held.pop(each.schema_id, None)
                held[each.schema_id] = each
        return tuple(each for each in held.values() if each.quarantined is None)


def read_versions(engine: Engine, key: str | None = None) -> dict[GameKey, GameVersions]:
    """Return the versions of one game or of all, by key, in the order of the games' names."""
    columns = (registrations, schemas.c.format, schemas.c.message)
    kept = tuple(each for each in placements.c if each.name not in {"registration_id", "plan_hash"})
    joined = registrations.join(schemas).join(placements, isouter=True)
    query = select(*columns, *kept).select_from(joined).order_by(registrations.c.game, registrations.c.version)
    if key is not None:
        query = query.where(registrations.c.game_key == key)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    found: dict[GameKey, list[Version]] = {}
    last: dict[tuple[str, int], FieldPlacement] = {}
    for row in rows:
        own = row.game_key, row.schema_id
        last[own] = placement_after(last.get(own), row)
        found.setdefault(GameKey(row.game_key), []).append(_version(row, last[own]))
    return {each: GameVersions(each, held[-1].game, tuple(held)) for each, held in found.items()}


def _version(row: Row[Any], placement: FieldPlacement) -> Version:
    policies = DEFAULTS if row.names is None else Policies(tuple(sorted(json.loads(row.policies).items())))
    return Version(
        GameKey(row.game_key),
        row.game,
        row.version,
        row.schema_id,
        row.format,
        row.message,
        row.created_at,
        placement,
        policies,
        row.actor if row.registry is None else f"registry {row.registry}",
    )
