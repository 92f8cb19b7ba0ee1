"""Schemas in detail: fields and effect of a version, how two versions differ, registries.

Every query raises `Refused` where the control store cannot be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from listeners.sample import StreamState
from pipeline.api import versions
from pipeline.api.environment import OpenEnvironment
from pipeline.api.versions import GameVersions, Version, VersionReport
from pipeline.base.errors import Refused, first_line
from pipeline.base.names import GameKey, shown
from pipeline.control.registering.requests import SchemaRequest, list_requests
from pipeline.data.contracts.catalogue.condition import (
    Catalogue,
    GameWriters,
    RegistryView,
    read_catalogue,
    read_writers,
)
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.catalogue.differences import Line, changes, summary, table_steps, text_diff
from pipeline.data.contracts.catalogue.fields import FieldLine, fields_of, remarks_on
from pipeline.data.contracts.plans import Step
from pipeline.data.contracts.schemas import Schema
from pipeline.health.facts.fleet import Fleet
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.usage import SchemaRows, Usage, usage
from pipeline.store.database.engine import reading

__all__ = [
    "UNREADABLE",
    "Catalogue",
    "Comparison",
    "FieldLine",
    "GameWriters",
    "Line",
    "OneVersion",
    "Overview",
    "RegistryView",
    "SchemaDiff",
    "SchemaReport",
    "SchemaRequest",
    "SchemaRows",
    "Step",
    "Usage",
    "change_text",
    "compare",
    "diff",
    "one_version",
    "overview",
    "show",
    "used",
    "writers",
]

UNREADABLE: Final = "cannot be read"
_MOST_STEPS: Final = 200  # an enum may have a hundred thousand values, and each is a step


@dataclass(frozen=True, slots=True)
class Overview:
    """All games with their schemas, read at one moment (Unix seconds)."""

    catalogue: Catalogue
    rates: Mapping[str, float | None]  # rows per second that land, by game key; None: nothing current is known
    live: Mapping[str, StreamState]  # what drivers report of games, where it describes the present
    requested: tuple[SchemaRequest, ...]  # those that wait first
    read_at: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two versions of a game differ."""

    changes: tuple[Step, ...]  # the first ones
    more_changes: int
    text: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class OneVersion:
    """A version's fields, and what the game's table got from it."""

    fields: tuple[FieldLine, ...]
    effect: tuple[Step, ...]  # the first ones, those that break something before the others
    more_effect: int


@dataclass(frozen=True, slots=True)
class WriterReport:
    """A registry's id of a schema."""

    registry: str
    id: str


@dataclass(frozen=True, slots=True)
class SchemaReport(VersionReport):
    """One schema version with its fields, as `turnout schemas show` prints it."""

    fields: tuple[FieldLine, ...]
    steps: tuple[Step, ...]  # what the game's table got from it
    writers: tuple[WriterReport, ...]
    notes: tuple[str, ...]  # on the definition itself


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """One change between two versions."""

    path: str
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class LineReport:
    """One line of the text of two versions."""

    mark: str  # `-`: only the first has it, `+`: only the second, empty: both
    text: str


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """What changes from one version of a game to another, as `turnout schemas diff` prints it."""

    from_: VersionReport
    to: VersionReport
    changes: tuple[ChangeReport, ...]
    text: tuple[LineReport, ...]


@reading()
def overview(environment: OpenEnvironment, fleet: Fleet) -> Overview:
    """Read all games with their versions, registries, needs and requests; `fleet` has the rates."""
    seen = read_catalogue(environment.engine, environment.settings.registries)
    requested = tuple(list_requests(environment.engine))
    rates = {row.game_key: None if row.live is None else row.live.rows_per_second for row in fleet.rows}
    live = {row.game_key: row.live for row in fleet.rows if row.live is not None}
    return Overview(seen, rates, live, requested, seen.read_at)


@reading()
def writers(environment: OpenEnvironment, game: GameVersions) -> GameWriters:
    """Read what registries say of a game."""
    return read_writers(environment.engine, game)


def used(environment: OpenEnvironment, key: str) -> Usage:
    """Count a game's rows by schema in its table; none where it has no table yet.

    Raises:
        Refused: its table cannot be read.
    """
    folder = environment.paths.table(GameKey(key))
    try:
        return usage(open_table(folder), folder, f"The table of {key}")
    except TableNotFoundError:
        return Usage({}, 0)
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(f"The table of {key} cannot be read: {first_line(error)}. Streams are not affected.") from error


@reading()
def compare(environment: OpenEnvironment, first: Version, second: Version) -> Comparison:
    """Compare two versions of a game.

    Raises:
        Refused: a definition cannot be read.
    """
    before, after = _definitions(environment, first, second)
    steps = changes(before, after)
    return Comparison(steps[:_MOST_STEPS], max(0, len(steps) - _MOST_STEPS), text_diff(before, after))


@reading()
def one_version(environment: OpenEnvironment, game: GameVersions, version: Version) -> OneVersion:
    """Read one version's fields and effect.

    Raises:
        Refused: a definition cannot be read.
    """
    known = _known_to(environment, game, version)
    fields = fields_of(known[version.schema_id], version.placement)
    steps = sorted(table_steps(game, version, known), key=lambda step: not step.breaks)
    return OneVersion(fields, tuple(steps[:_MOST_STEPS]), max(0, len(steps) - _MOST_STEPS))


@reading()
def change_text(environment: OpenEnvironment, game: GameVersions) -> str:
    """Say in a few words what the newest version changed in the game's table, or why that is not known."""
    newest = game.newest
    if newest is None:
        return ""
    if newest.version == 1:
        return "first version"
    known = _known_to(environment, game, newest)
    try:
        return summary(table_steps(game, newest, known))
    except Refused as refused:
        return f"{UNREADABLE}: {first_line(refused)}"


@reading()
def show(environment: OpenEnvironment, game: str, number: int | None = None) -> SchemaReport:
    """Read one version of a game (name or key), by default the newest.

    Raises:
        Refused: the game or the version does not exist, or a definition cannot be read.
    """
    found = versions.find_game(environment, game)
    version = found.newest if number is None else found.version(number)
    if version is None:
        raise Refused(f"The game {shown(found.game)} has no schema yet. See `turnout schemas register`.")
    known = _known_to(environment, found, version)
    schema, its_writers = known[version.schema_id], read_writers(environment.engine, found).known
    named = versions.report(found, version)
    return SchemaReport(
        **{name: getattr(named, name) for name in VersionReport.__slots__},
        fields=fields_of(schema, version.placement),
        steps=table_steps(found, version, known),
        writers=tuple(WriterReport(registry, id_) for registry, id_, of in its_writers if of == version.schema_id),
        notes=remarks_on(schema),
    )


@reading()
def diff(environment: OpenEnvironment, game: str, first: int, second: int) -> SchemaDiff:
    """Compare two versions of a game (name or key), all of them.

    Raises:
        Refused: the game or a version does not exist, or a definition cannot be read.
    """
    found = versions.find_game(environment, game)
    one, other = found.version(first), found.version(second)
    before, after = _definitions(environment, one, other)
    return SchemaDiff(
        versions.report(found, one),
        versions.report(found, other),
        tuple(ChangeReport(each.path, each.kind, each.what) for each in changes(before, after)),
        tuple(LineReport(each.mark.strip(), each.text) for each in text_diff(before, after)),
    )


def _known_to(environment: OpenEnvironment, game: GameVersions, version: Version) -> Mapping[int, Schema]:
    """Read the schemas of a version and of those that landed before it."""
    ids = {version.schema_id, *(each.schema_id for each in game.landing_before(version))}
    return read_definitions(environment.engine, ids)


def _definitions(environment: OpenEnvironment, first: Version, second: Version) -> tuple[Schema, Schema]:
    known = read_definitions(environment.engine, {first.schema_id, second.schema_id})
    return known[first.schema_id], known[second.schema_id]
