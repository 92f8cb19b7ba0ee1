"""Variations of JSON that no schema declares: what each event type of a game had that was new. No values of users.

Every query raises `Refused` where the control store cannot be read.
"""

import time
from dataclasses import dataclass
from typing import Final

from pipeline.api import versions
from pipeline.api.environment import OpenEnvironment
from pipeline.api.versions import GameVersions, Version
from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.declared_types import FORMAT
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.merging import columns_of_keys
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.store.database.engine import reading
from pipeline.store.variations import Variation, read_variations

__all__ = ["UndeclaredType", "VariationReport", "VariationsReport", "of_game", "read"]

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class VariationReport:
    """One variation: what a document had beyond all earlier ones of its event type."""

    type: str
    fingerprint: str
    facts: tuple[str, ...]  # `path:kind`; of very many the first ones, and then how many more
    first_seen: float  # Unix seconds
    last_seen: float
    count: int  # rows that landed by its version, with all variations of that version; a statistic
    version: int | None  # the game's schema version that opened its columns; None: the store lacks it
    schema_id: int
    producer: str | None
    new_today: bool  # first seen within the last 24 hours
    refused: bool  # its rows go to quarantine, as a person chose


@dataclass(frozen=True, slots=True)
class UndeclaredType:
    """An event type whose columns follow from its documents."""

    type: str
    version: int  # the game's newest schema version of it
    schema_id: int
    columns: int
    most_columns: int
    variations: int
    most_variations: int
    new_today: int
    pinned: bool  # what has something new goes to quarantine
    closed: bool  # a limit was reached: what has something new lands whole as text
    refused: int  # variations
    sided: tuple[str, ...]  # columns with side columns, as paths in the type
    declared: bool  # a schema of the type is declared: it gets no further columns by itself


@dataclass(frozen=True, slots=True)
class VariationsReport:
    """All event types of a game whose columns follow from documents, with their variations, the newest first."""

    game: str
    game_key: str
    types: tuple[UndeclaredType, ...]
    variations: tuple[VariationReport, ...]
    read_at: float


@reading()
def read(environment: OpenEnvironment, game: str, event_type: str | None = None) -> VariationsReport:
    """Read the variations of a game (name or key), or of one of its event types.

    Raises:
        Refused: the game does not exist, or no type of that name has columns that follow from documents.
    """
    found = of_game(environment, versions.find_game(environment, game), most=1_000_000)
    if event_type is None:
        return found
    types = tuple(each for each in found.types if each.type == event_type)
    if not types:
        known = join_limited([shown(each.type) for each in found.types], 10) or "none"
        raise Refused(f"{shown(event_type)} is no undeclared event type of {shown(found.game)}. Such are: {known}.")
    listed = tuple(each for each in found.variations if each.type == event_type)
    return VariationsReport(found.game, found.game_key, types, listed, found.read_at)


@reading()
def of_game(environment: OpenEnvironment, game: GameVersions, most: int = 5_000) -> VariationsReport:
    """Read the variations of a game whose versions are known, the newest `most` of them."""
    now = time.time()
    chains: dict[str, list[Version]] = {}
    for each in game.versions:
        if each.is_undeclared:
            chains.setdefault(each.message, []).append(each)
    newest = {name: chain[-1] for name, chain in chains.items()}
    definitions = read_definitions(environment.engine, {each.schema_id for each in newest.values()})
    supersets = {name: superset_of(definitions[each.schema_id]) for name, each in newest.items()}
    by_id = {each.schema_id: each for chain in chains.values() for each in reversed(chain)}
    stored = read_variations(environment.engine, game.key, most=most)
    listed = tuple(_variation(each, by_id.get(each.schema_id), supersets, now) for each in stored)
    last = {each.schema_id: each for each in game.versions}.values()
    declared = {event_type(each.message) for each in last if each.format == FORMAT and each.quarantined is None}
    types = tuple(
        _type(each, supersets[name], [one for one in listed if one.type == name], event_type(name) in declared)
        for name, each in sorted(newest.items())
    )
    return VariationsReport(game.game, str(game.key), types, listed, now)


def _variation(each: Variation, version: Version | None, supersets: dict[str, Superset], now: float) -> VariationReport:
    name = each.type if version is None else version.message
    superset = supersets.get(name)
    refused = superset is not None and each.fingerprint in dict(superset.refused)
    return VariationReport(
        type=name,
        fingerprint=each.fingerprint,
        facts=tuple(each.form.split("\n")[1:]),
        first_seen=each.first_seen,
        last_seen=each.last_seen,
        count=each.count,
        version=None if version is None else version.version,
        schema_id=each.schema_id,
        producer=each.producer,
        new_today=each.first_seen > now - _DAY,
        refused=refused,
    )


def _type(newest: Version, superset: Superset, listed: list[VariationReport], is_declared: bool) -> UndeclaredType:
    return UndeclaredType(
        type=newest.message,
        version=newest.version,
        schema_id=newest.schema_id,
        columns=superset.columns(),
        most_columns=superset.caps.columns,
        variations=superset.variations,
        most_variations=superset.caps.variations,
        new_today=sum(each.new_today for each in listed),
        pinned=bool(superset.pinned),
        closed=bool(superset.closed),
        refused=len(superset.refused),
        sided=tuple(sorted(each.path for each in columns_of_keys(superset) if len(each.slots) > 1)),
        declared=is_declared,
    )
