"""The versions of a game's tables that one look at its days reads, and what forbids to classify by them.

The order of reading makes it safe without a lock: the pairs of `through` first, then silver, the game's table at the
version that silver has read, and bronze; quarantine before and after the game's table, as a replay takes rows from one
to the other.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import MALFORMED, bronze_app_id, silver_key, stream_app_id
from pipeline.base.texts import join_limited
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.flat import chosen_type
from pipeline.data.derived.source_log import StartOver, commit_number, number_of, read_on
from pipeline.data.ingest.identity import describe_gap
from pipeline.data.ingest.through.through_time import through_of
from pipeline.lake.delta import accepted_gaps, generation, lost_seqs
from pipeline.lake.delta.bronze import text
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import files_with, paths_of
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.quarantine import UNKNOWN_GAME
from pipeline.lake.delta.through import ThroughPair, read_pairs
from pipeline.settings.tree import Paths
from pipeline.store.games import Game
from pipeline.store.sources import AcceptedGap

_ALL_ROWS: Final = 2**62


@dataclass(frozen=True, slots=True)
class ReadSilver:
    """A silver table of the game, as far as it has read."""

    definition: SilverDefinition
    position: int  # the version of the game's table that it has read
    version: int
    types: tuple[str, ...]  # that its rows have in the game's table
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that a source lost before ingest had read them, or rows that bronze lost."""

    after: float  # the source had taken them after this time, Unix seconds
    before: float
    what: str  # raw texts are in it
    seqs: range = range(0)  # of bronze


@dataclass(frozen=True, slots=True)
class ReadTables:
    """What one look reads: all versions are fixed, rows are read later."""

    game: Game
    table: DeltaTable
    files: tuple[str, ...]  # of the game's table
    cursor: int  # rows of bronze up to it are classified
    pairs: tuple[ThroughPair, ...]  # those that count
    next_seq: int | None  # the first seq with a row that the table lacks; None: it has all of bronze
    silvers: tuple[ReadSilver, ...]
    bronze: tuple[str, ...]  # files that may have rows of the game
    quarantine: tuple[str, ...]
    losses: tuple[Loss, ...]

    @property
    def of_game(self) -> pc.Expression:
        """Which rows of bronze are the game's: also those that were refused as its name was not known yet."""
        was_unknown = (text("refused") == UNKNOWN_GAME) & (text("game") == self.game.name)
        return (pc.field("seq") <= self.cursor) & ((text("game_key") == self.game.key) | was_unknown)

    @property
    def of_quarantine(self) -> pc.Expression:
        """Which rows of quarantine are the game's."""
        was_unknown = (text("reason") == UNKNOWN_GAME) & (text("game") == self.game.name)
        return (pc.field("seq") <= self.cursor) & ((text("game_key") == self.game.key) | was_unknown)


def pin(
    paths: Paths,
    environment: str,
    game: Game,
    definitions: Sequence[SilverDefinition],
    schemas: SchemaSet,
    now: float,
    lost: Sequence[tuple[AcceptedGap, int]] = (),
) -> ReadTables:
    """Fix the versions of a game's tables.

    Args:
        paths: of the environment.
        environment: its name.
        game: whose tables.
        definitions: of its silver tables.
        schemas: the newest schema set.
        now: by the control store's clock, Unix seconds.
        lost: what sources lost, each with the last seq before ingest went on behind it.

    Raises:
        Refused: the rows of the game cannot be classified now, with the reason.
    """
    try:
        return _pin(paths, environment, game, definitions, schemas, now, lost)
    except TableNotFoundError as error:
        raise Refused(f"{game.key} has no table yet.") from error
    except (DeltaError, OSError) as error:
        raise Refused(f"A table that classifies rows of {game.key} cannot be opened: {first_line(error)}.") from error


def _pin(
    paths: Paths,
    environment: str,
    game: Game,
    definitions: Sequence[SilverDefinition],
    schemas: SchemaSet,
    now: float,
    lost: Sequence[tuple[AcceptedGap, int]],
) -> ReadTables:
    pairs = read_pairs(paths.through)
    quarantine = _quarantine_files(paths)
    silvers = tuple(_read_silver(paths, environment, each, schemas) for each in definitions)
    place = paths.table(game.key)
    table = open_table(place, min((each.position for each in silvers), default=None))
    _require_one_history(paths, game, table, silvers)
    number = generation.newest(table.transaction_version, environment, game.key)
    cursor = table.transaction_version(stream_app_id(environment, game.key, number)) or 0
    files = paths_of(table, f"the table of {game.key}")
    quarantine |= _quarantine_files(paths)
    bronze = open_table(paths.bronze)
    through = through_of(paths, environment, game.key, pairs, cursor, now)
    losses = lost_seqs.read(bronze.transaction_version, environment)
    head = bronze.transaction_version(bronze_app_id(environment)) or 0
    if (why := lost_seqs.problem(game.key, cursor, head, losses)) is not None:
        raise Refused(f"{game.key}: {why}")
    gaps = [
        range(above + 1, last + 1)
        for above, last in accepted_gaps.read(table.transaction_version, environment, game.key)
    ]
    gaps += [range(each.after + 1, each.before) for each in losses]
    return ReadTables(
        game, table, files, cursor, through.pairs, through.next_seq, silvers,
        tuple(files_with(bronze, paths.bronze, "seq", range(cursor + 1), [game.key, MALFORMED])),
        tuple(sorted(quarantine)), (*_lost_seqs(gaps, through.pairs), *_lost_records(lost, through.pairs)),
    )  # fmt: skip


def _lost_seqs(gaps: Iterable[range], pairs: Sequence[ThroughPair]) -> Iterator[Loss]:
    """Yield when sources had taken what bronze lost: between the last pair before it and the first one behind."""
    for gap in gaps:
        after = max((pair.at for pair in pairs if pair.seq < gap.start), default=-math.inf)
        before = min((pair.at for pair in pairs if pair.seq >= gap.stop), default=math.inf)
        yield Loss(after, before, f"Bronze lost the seqs {gap.start} to {gap.stop - 1}", gap)


def _lost_records(lost: Iterable[tuple[AcceptedGap, int]], pairs: Sequence[ThroughPair]) -> Iterator[Loss]:
    """Yield when sources had taken what they lost: after the last pair before it, as bronze had all through that."""
    found: dict[tuple[str, float, float], list[str]] = {}
    for gap, seq in lost:
        known = (pair.at for pair in pairs if pair.seq <= seq and pair.at < gap.accepted_at)
        where = gap.source, max(known, default=-math.inf), gap.accepted_at
        found.setdefault(where, []).append(describe_gap(gap.partition, gap.first, gap.last))
    for (source, after, before), gaps in found.items():
        yield Loss(after, before, f"{source} lost {join_limited(gaps, 3)}")


def _read_silver(paths: Paths, environment: str, definition: SilverDefinition, schemas: SchemaSet) -> ReadSilver:
    """Return a silver table as it is; refuse a position in another table, or rows by another definition."""
    name, place = definition.name, paths.table(definition.game_key)
    try:
        silver = open_table(paths.silver / name)
    except TableNotFoundError as error:
        raise Refused(f"silver {name} has not read the game's table yet") from error
    app = stream_app_id(
        environment, silver_key(name), generation.newest(silver.transaction_version, environment, silver_key(name))
    )
    position = silver.transaction_version(app)
    if position is None:
        raise Refused(f"silver {name} has not read the game's table yet")
    try:
        source = open_table(place, position)
        commit = commit_number(place, position)
    except DeltaError as error:
        raise Refused(f"silver {name} has read a version of the game's table that its log no longer has") from error
    counts_in = number_of(str(source.metadata().id), definition.digest)
    known = silver.transaction_version(f"{app}/commit") or 0
    if silver.transaction_version(f"{app}/source") != counts_in or commit not in {0, known}:
        raise Refused(f"silver {name} has not begun a new generation for another table or definition yet")
    types = chosen_type(schemas, definition.game_key, definition.game, definition.type).names
    return ReadSilver(definition, position, silver.version(), types, paths_of(silver, f"silver {name}"))


def _require_one_history(paths: Paths, game: Game, table: DeltaTable, silvers: Sequence[ReadSilver]) -> None:
    """Go on only where each silver has the rows of this version: none was removed up to the version that it read."""
    place, begin = paths.table(game.key), int(table.version())
    for each in silvers:
        at = begin
        try:
            while at < each.position:
                found = read_on(place, at, 0, each.position, _ALL_ROWS)
                at = each.position if found is None else found.version
        except StartOver as error:
            raise Refused(f"silver {each.definition.name} is being made again: {error}") from error


def _quarantine_files(paths: Paths) -> set[str]:
    try:
        return set(paths_of(open_table(paths.quarantine), "quarantine"))
    except TableNotFoundError:
        return set()


def types_of(tables: ReadTables) -> dict[str, int]:
    """Return the number of the silver table that tells the duplicates of each event type, by the type's names.

    Of several it is the first one that leaves rows out.
    """
    found: dict[str, int] = {}
    for number, each in sorted(enumerate(tables.silvers), key=lambda one: one[1].definition.within is None):
        for name in each.types:
            found.setdefault(name, number)
    return found
