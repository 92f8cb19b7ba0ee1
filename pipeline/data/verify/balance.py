"""The balance: every row of bronze is in its game's table, in quarantine, or pending, and nothing else is there.

Judges the entries that `readings` has read, for `turnout verify`. Shares no code with the path that writes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from pipeline.base.names import MALFORMED
from pipeline.data.verify import readings, replayable, routing, rules, sources
from pipeline.data.verify.held import HeldRecords, compare_held
from pipeline.data.verify.routing import key_of
from pipeline.data.verify.values import Values, Wanted, compare
from pipeline.lake.delta.scratch import Database
from pipeline.settings.tree import Paths, Settings

FAULTS: Final = (
    "lost", "duplicated", "misrouted", "phantom", "early", "broken_chain", "bronze_holes", "bronze_duplicates",
    "source_duplicates", "beyond_bronze",
)  # fmt: skip
"""The counts that must be 0, worst first."""

EVIDENCE_ROWS: Final = 5
"""Most offending places named per kind of fault."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Row counts of one game or of all; docs/verify.md defines each."""

    bronze_rows: int = 0
    landed: int = 0
    quarantined: int = 0
    pending: int = 0
    lost: int = 0
    duplicated: int = 0
    misrouted: int = 0
    phantom: int = 0
    early: int = 0
    broken_chain: int = 0  # seqs
    bronze_holes: int = 0  # of an unknown game
    bronze_duplicates: int = 0
    source_duplicates: int = 0
    beyond_bronze: int = 0  # games
    stale_twins: int = 0  # this one and those below: information only
    quarantine_copies: int = 0
    ahead: int = 0
    accepted_gaps: int = 0  # broken chain links over gaps in bronze that an operator has accepted
    retired: int = 0  # like pending, but of games that no group carries: they wait in bronze

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTED))

    @property
    def faults(self) -> int:
        """The sum of the counts that must be 0."""
        return sum(getattr(self, name) for name in FAULTS)


COUNTED: Final = tuple(item.name for item in fields(Counts))


@dataclass(frozen=True, slots=True)
class GameBalance:
    """One game's counts; `game` is None when bronze has no name for the key."""

    game_key: str
    game: str | None
    cursor: int | None  # None: no commit has moved it yet, or the game has no table
    counts: Counts

    @property
    def is_game(self) -> bool:
        """False for malformed wrappers: they are counted under a key without a game."""
        return self.game_key != MALFORMED


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """One place of a fault."""

    kind: str  # one of FAULTS
    game_key: str | None  # None: of a place that bronze lacks
    game: str | None
    seq: int | None  # None: the row has none
    pos: int | None  # None: the row has none, or the fault is about all of the game's rows of the seq
    detail: str


@dataclass(frozen=True, slots=True)
class Balance:
    """The result of one verification."""

    games: tuple[GameBalance, ...]  # by game key; malformed wrappers have a key of their own
    totals: Counts
    by_reason: Mapping[str, int]  # the quarantined rows
    problems: tuple[FaultPlace, ...]  # at most EVIDENCE_ROWS per kind
    bronze_version: int
    values: Values | None = None  # None: only places were compared
    lagging: sources.Lagging | None = None  # None: the source was not observed
    held: HeldRecords | None = None  # None: the records of brokers were not compared
    is_ingested: bool = True  # bronze has a commit of ingest: an empty bronze proves nothing
    replayable: Mapping[str, int] = field(default_factory=dict)  # refused rows whose schemas land today, by game key

    @property
    def ok(self) -> bool:
        """No faults; rows may still be pending."""
        lacking = 0 if self.lagging is None else self.lagging.records or 0
        other = 0 if self.held is None else self.held.faults
        return self.totals.faults + lacking + other == 0 and (self.values is None or self.values.mismatches == 0)

    @property
    def complete(self) -> bool:
        """No faults, nothing pending, ingest has run, and brokers gave what verify compares."""
        rests = self.is_ingested and self.totals.pending == 0 and self.totals.ahead == 0
        return self.ok and rests and not self.not_compared

    @property
    def not_compared(self) -> tuple[str, ...]:
        """What the comparison with brokers left out, one sentence each."""
        return () if self.held is None else self.held.not_compared


def verify(
    paths: Paths,
    environment: str,
    generations: Mapping[str, int] | None = None,
    retired: Collection[str] = (),
    wanted: Wanted | None = None,
    known: sources.Sources | None = None,
    landing: Callable[[], replayable.LandingToday] | None = None,
    brokers: Settings | None = None,
) -> Balance:
    """Compare bronze with every game table and quarantine, row by row.

    Args:
        paths: where the environment keeps its tables; nothing is written there.
        environment: its name, part of the cursors' transaction ids.
        generations: the generation of each game's table by game key; by default the newest one with a cursor.
        retired: the keys of games that no group carries: their rows above the cursor are not pending.
        wanted: compare values, too.
        known: compare with the source, too; it must have been observed before this is called.
        landing: count the refused rows that a replay would decode, too; returns the schemas whose rows land today.
        brokers: compare bronze with the records that the brokers of these settings still hold, too; needs `known`.

    Raises:
        Refused: nothing is ingested yet, or a table cannot be read.
    """
    reading = readings.pin(paths, environment, generations or {})
    with readings.opened(reading) as database:
        routing.reassign_rows(database, reading.bronze, key_of)
        once = reading.quarantine_before == reading.quarantine_after
        database.execute(rules.ODD, {"once": once, "head": reading.bronze.cursor})
        database.execute(rules.BROKEN)
        database.execute(rules.TWICE)
        database.execute(rules.HOLES)
        database.execute(rules.BEYOND, [reading.bronze.cursor])
        lagging = _compare_source(database, reading.bronze, known)
        counts = {key: _at_rest(each) if key in retired else each for key, each in _counts(database).items()}
        (holes,) = database.execute(rules.COUNT_HOLES).fetchall()[0]
        games = _games(database)
        problems = _problems(database, games)
        for key, game, rows in _wrong_keys(database):
            counts[key] += Counts(misrouted=rows)
            problems += _wrong_key_problems(database, reading.bronze, key, game)
        reasons = dict(database.execute(rules.REASONS).fetchall())
        records = None
        if brokers is not None and known is not None and reading.bronze.paths:
            records = compare_held(database, reading.bronze, brokers, known)
        compared = None if wanted is None else compare(database, reading, wanted)
        decodable = {} if landing is None else replayable.count(database, reading, landing())
    totals = sum(counts.values(), Counts(bronze_holes=holes))
    return Balance(
        games=tuple(GameBalance(key, game, cursor, counts[key]) for key, (game, cursor) in sorted(games.items())),
        totals=totals,
        by_reason=reasons,
        problems=_bounded(problems),
        bronze_version=reading.bronze.version,
        values=compared,
        lagging=lagging,
        held=records,
        is_ingested=reading.bronze.cursor is not None or totals.bronze_rows > 0,
        replayable=decodable,
    )


def _compare_source(
    database: Database, bronze: readings.TableSnapshot, known: sources.Sources | None
) -> sources.Lagging | None:
    if known is None or not bronze.paths:
        database.execute(rules.NO_RECORDS)
    else:
        sources.load_periods(database, known)
        sql = rules.READ_TWICE_CUT if known.cuts else rules.READ_TWICE
        readings.execute(database, sql, bronze, bronze)
    return None if known is None else sources.judge(database, bronze, known)


def _games(database: Database) -> dict[str, tuple[str | None, int | None]]:
    """Return each game's name and cursor by its key."""
    rows = database.execute(
        "SELECT game_key, min(game), any_value(cursor) FROM places LEFT JOIN titles USING (game_key) GROUP BY game_key"
    ).fetchall()
    return {key: (None if key == MALFORMED else game, cursor) for key, game, cursor in rows}


def _counts(database: Database) -> dict[str, Counts]:
    places = database.execute("SELECT game_key FROM places").fetchall()
    counted: dict[str, dict[str, int]] = {key: {} for (key,) in places}
    for sql in rules.COUNTS:
        cursor = database.execute(sql)
        _, *names = (column[0] for column in cursor.description or ())
        for key, *values in cursor.fetchall():
            counted[key] |= {name: int(value) for name, value in zip(names, values, strict=True)}
    return {key: Counts(**values) for key, values in counted.items()}


def _at_rest(counts: Counts) -> Counts:
    return replace(counts, pending=0, retired=counts.pending)


def _problems(database: Database, games: Mapping[str, tuple[str | None, int | None]]) -> list[FaultPlace]:
    rows = database.execute(rules.PROBLEMS, [EVIDENCE_ROWS]).fetchall()
    return [
        _problem(kind, key, games[key][0] if key in games else None, seq, pos, detail)
        for kind, key, seq, pos, detail in rows
    ]


def _problem(kind: str, key: str | None, game: str | None, seq: int | None, pos: int | None, detail: str) -> FaultPlace:
    """Make a problem; the negative stand-ins of missing positions become None."""
    known_seq = None if seq is None or seq < 0 else seq
    return FaultPlace(kind, key, game, known_seq, None if pos is None or pos < 0 else pos, detail)


def _wrong_keys(database: Database) -> list[tuple[str, str | None, int]]:
    """Return (key, name, rows) of bronze rows whose key is not their name's.

    Refused rows may have the malformed key whatever their name: it has no table. There may be millions of such names,
    so they are not even read.
    """
    sql = "SELECT game_key, game, rows FROM titles WHERE game_key <> ? OR NOT refused ORDER BY ALL"
    rows = database.execute(sql, [MALFORMED]).fetchall()
    return [
        (key, game, count)
        for key, game, count in rows
        if not (key == MALFORMED and game is None) and (game is None or key_of(game) != key)
    ]


def _wrong_key_problems(
    database: Database, bronze: readings.TableSnapshot, key: str, game: str | None
) -> list[FaultPlace]:
    rows = readings.execute(database, rules.PLACES_OF_NAME, bronze, bronze, key, game, EVIDENCE_ROWS)
    detail = "bronze row without a game name" if game is None else f"bronze row whose name has the key {key_of(game)}"
    return [_problem("misrouted", key, game, seq, pos, detail) for seq, pos in rows]


def _bounded(problems: Sequence[FaultPlace]) -> tuple[FaultPlace, ...]:
    """Return the first problems of each kind, the worst kind first."""
    return tuple(
        problem for kind in FAULTS for problem in [each for each in problems if each.kind == kind][:EVIDENCE_ROWS]
    )
