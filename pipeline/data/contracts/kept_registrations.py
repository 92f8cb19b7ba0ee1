"""The registrations that games ever had, with the columns of each: small files in `registrations`, beside bronze.

A game's table has rows in these columns for ever. A control store that is an older copy would plan a lost registration
again, on top of others, and give its rows other columns. So each registration is kept here, before the store has it,
and keeps its columns in whatever store. Called by what registers schemas.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, select

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.origins import Origin
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.store.database.tables import placements, registrations, schemas

PREFIX: Final = "placed-"

_MOST_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Kept:
    """A game's registration of one schema."""

    game_key: GameKey
    schema_id: int
    fingerprint: str
    message: str  # full name, for people
    placement: FieldPlacement
    given_up: bool = False  # a person accepted its loss: it keeps no other schema waiting
    origin: Origin | None = field(default=None, compare=False)  # of a schema that nobody declared

    @property
    def lands(self) -> bool:
        """Whether its rows lie in the table."""
        return self.placement.quarantined is None


REMARK: Final = "the control store is older than bronze: what the game registered before keeps its columns"

NOTHING: Final[Mapping[str, Kept]] = MappingProxyType({})


class KeptRegistrations:
    """The registrations of one environment as the files have them, each file those of one transaction."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.files: Mapping[int, tuple[Kept, ...]] = {}
        self.by_game: Mapping[GameKey, Mapping[str, Kept]] = {}
        """The last registration of each schema, by fingerprint, in the order of the first ones."""
        self.origins: Mapping[GameKey, Mapping[str, Origin]] = {}
        """What the schemas of each game were computed from that nobody declared, by fingerprint."""

    @property
    def next_file(self) -> int:
        """The number of the next file; of processes that want it at the same time, one gets it."""
        return max([0, *self.files]) + 1

    def adopt(self, files: Mapping[int, tuple[Kept, ...]]) -> None:
        """Take up files that were read or written."""
        self.files = {**self.files, **files}
        found: dict[GameKey, dict[str, Kept]] = {}
        origins: dict[GameKey, dict[str, Origin]] = {}
        for each in (each for _, held in sorted(self.files.items()) for each in held):
            found.setdefault(each.game_key, {})[each.fingerprint] = each
            if each.origin is not None:
                origins.setdefault(each.game_key, {})[each.fingerprint] = each.origin
        self.by_game, self.origins = found, origins

    def new(self, kept: Iterable[Kept]) -> tuple[Kept, ...]:
        """Return those that are not kept like this."""
        return tuple(each for each in kept if self.by_game.get(each.game_key, NOTHING).get(each.fingerprint) != each)


def in_older_store(
    game: str, fingerprint: str, kept: Mapping[str, Kept], held: Mapping[int, FieldPlacement], *, unattended: bool
) -> FieldPlacement | None:
    """Return the columns of a schema's fields where an older store may not decide about them; None: it may.

    A registration that was lost keeps its columns. While one is lost, a schema that the game never had waits: whether
    it continues or replaces a field of the lost one is not known.

    Args:
        game: its name.
        fingerprint: of the schema.
        kept: what the game ever registered, by fingerprint.
        held: the placements that the store has for the game, by schema id.
        unattended: nobody is there to decide: what has to wait goes to quarantine.

    Raises:
        Refused: it has to wait, and a person is there.
    """
    own = kept.get(fingerprint)
    if own is not None and (own.lands or (unattended and own.schema_id not in held)):
        return own.placement
    if not (lost := lost_of(kept, held)):
        return None
    why = shown_lost_of(game, lost)
    if unattended:
        return FieldPlacement(quarantined=f"needs a person: {why}")
    raise Refused(f"Nothing was registered: {why}.")


def lost_of(kept: Mapping[str, Kept], held: Mapping[int, FieldPlacement]) -> list[Kept]:
    """Return the registrations of a game by which rows landed and that the store lacks.

    Args:
        kept: the game's, by fingerprint.
        held: the placements that the store has for the game, by schema id.
    """
    return [
        each
        for each in kept.values()
        if each.lands and not each.given_up and ((at := held.get(each.schema_id)) is None or at.quarantined is not None)
    ]


def shown_lost_of(game: str, lost: Collection[Kept]) -> str:
    """Return for people why a schema that a game never had is not registered, and what to do."""
    named = join_limited([f"{each.schema_id} ({shown(each.message)})" for each in lost], _MOST_SHOWN)
    return (
        f"the control store has lost schema {named} of the game {shown(game)}, so the columns of a further one are not "
        f"known: restore its newest copy, or register the lost again, then this one. If nobody has them, run "
        f"`turnout schemas accept-loss` for the game first"
    )


def lacks_any(connection: Connection, wanted: Collection[tuple[GameKey, str]]) -> bool:
    """Return whether the store lacks one of these registrations by which rows land, of (game, fingerprint)."""
    games = {key for key, _ in wanted}
    query = (
        select(registrations.c.game_key, schemas.c.fingerprint)
        .join(schemas, schemas.c.schema_id == registrations.c.schema_id)
        .outerjoin(placements, placements.c.registration_id == registrations.c.registration_id)
        .where(placements.c.quarantined.is_(None))
    )
    if len(games) == 1:
        query = query.where(registrations.c.game_key == next(iter(games)))
    return not set(wanted) <= {(GameKey(row.game_key), row.fingerprint) for row in connection.execute(query)}


def stored_registrations(connection: Connection) -> list[Kept]:
    """Return the store's registrations in their order, the last of each game and schema."""
    columns = (
        registrations.c.game_key, registrations.c.schema_id, schemas.c.fingerprint, schemas.c.message,
        placements.c.names, placements.c.quarantined, placements.c.other_type, placements.c.continues,
        placements.c.struct,
    )  # fmt: skip
    query = (
        select(*columns)
        .join(schemas, schemas.c.schema_id == registrations.c.schema_id)
        .outerjoin(placements, placements.c.registration_id == registrations.c.registration_id)
        .order_by(registrations.c.registration_id)
    )
    found: dict[tuple[GameKey, int], Kept] = {}
    for row in connection.execute(query):
        at = PLAIN
        if row.names is not None:
            names = tuple(sorted(json.loads(row.names).items()))
            at = FieldPlacement(names, row.quarantined, bool(row.other_type), row.continues, row.struct)
        own = GameKey(row.game_key)
        found[own, row.schema_id] = Kept(own, row.schema_id, row.fingerprint, row.message, at)
    return list(found.values())


def as_line(each: Kept) -> str:
    """Return a registration as a line of a file."""
    at = each.placement
    values = {
        "game": each.game_key, "id": each.schema_id, "fingerprint": each.fingerprint, "message": each.message,
        "names": dict(at.names), "quarantined": at.quarantined, "other_type": at.other_type,
        "continues": at.continues, "struct": at.struct, "given_up": each.given_up,
    }  # fmt: skip
    if each.origin is not None:
        values |= {"origin": each.origin.as_json()}
    return json.dumps(values, ensure_ascii=True)


def of_line(line: str) -> Kept:
    """Return the registration of a line.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is damaged.
    """
    kept = json.loads(line)
    names = tuple(sorted((str(path), str(name)) for path, name in kept["names"].items()))
    at = FieldPlacement(names, kept["quarantined"], bool(kept["other_type"]), kept["continues"], kept.get("struct"))
    game_key, number = GameKey(str(kept["game"])), int(kept["id"])
    origin = None if "origin" not in kept else Origin.of_json(kept["origin"])
    return Kept(game_key, number, str(kept["fingerprint"]), str(kept["message"]), at, bool(kept["given_up"]), origin)
