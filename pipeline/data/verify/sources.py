"""Compares bronze with its source: does bronze hold each record once, and all that ingest has passed.

`observe` reads the source before any table is pinned, so that bronze, read later, holds all that ingest had passed by
then; `judge` compares. Parts that cannot be compared are reported. Shares no code with ingest.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import Engine

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.texts import first_lines
from pipeline.data import query_log
from pipeline.data.verify import readings
from pipeline.lake.delta import parquet
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import commit_file, commits_after, listed_commits
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.scratch import Database
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source, source_described, sources_described, topic_described
from pipeline.settings.tree import Paths, Settings
from pipeline.store import sources as store

Probe = Callable[[int, int, int], bool | None]
"""Whether the topic's partition has a committed record from one offset to another; None: unknown."""

_MAX_RANGES: Final = 50  # offset ranges that bronze lacks, longest first, for which to ask the broker
_MAX_NAMED: Final = 5
_LANDING: Final = ""
_ELSEWHERE: Final = "landing table /"
_NEVER_READ: Final = ("kafka topics ", "sources ")  # of which none was looked at
_TOPIC: Final = re.compile(r"kafka topic (\S+) at ")
_REPLACED: Final = re.compile(r" \(until generation \d+ was replaced\)$")


@dataclass(frozen=True, slots=True)
class SourcePeriod:
    """The seq from which rows of a topic come from a source; a recreated topic is another source."""

    topic: str  # empty for the landing table
    since_seq: int  # its rows have a larger seq
    identity: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A topic's log was cut and has grown again: from offset `first` on, rows above seq `since` are other records."""

    topic: str
    partition: int
    first: int
    since: int


@dataclass(frozen=True, slots=True)
class PassedFiles:
    """The files of the landing table that ingest has passed, each with its number of rows."""

    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PassedOffsets:
    """The offsets of a topic that ingest has passed: by partition, the first and the next offset."""

    topic: str
    described: str  # the line that names topic and brokers
    since_seq: int
    begun: Mapping[int, int]
    next: Mapping[int, int]
    accepted: tuple[tuple[int, int, int], ...]  # gaps that an operator accepted: partition, first and last offset
    probe: Probe | None  # None: the broker cannot be queried


@dataclass(frozen=True, slots=True)
class Sources:
    """The known facts about bronze's sources."""

    periods: tuple[SourcePeriod, ...]
    mixed: frozenset[str]  # topics of this name on several clusters: the rows of each are unknown
    passed: PassedFiles | PassedOffsets | tuple[PassedFiles | PassedOffsets, ...] | None
    why_not: str | None  # why the passed part is unknown, as a sentence; None: it is known
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class Lagging:
    """The passed records that bronze lacks."""

    records: int | None  # rows of landing files, or offsets; None: not compared
    problems: tuple[str, ...]  # the first places
    not_compared: tuple[str, ...]  # one sentence each


def observe(
    settings: Settings, paths: Paths, engine: Engine, prober: Callable[[str], Probe | None] = lambda _: None
) -> Sources:
    """Read the source and ingest's position in it; `prober` gives what asks the broker of a topic's description."""
    generations = [each for each in store.sources_of(engine) if not each[1].startswith(_NEVER_READ)]
    homes: dict[str, set[str]] = {}
    ids: dict[str, set[str | None]] = {}
    periods = []
    for number, text, source_id in sorted(generations):
        identity = store.identity(engine, number)
        if identity is None:  # it is recorded before the first row
            continue
        topic, base = _topic(text, source_id), _REPLACED.sub("", text)
        homes.setdefault(topic, set()).add(base)
        ids.setdefault(topic, set()).add(source_id)
        periods.append(SourcePeriod(topic, identity.since_seq, source_id or f"{base} (unknown id)"))
    apart = {topic for topic, source_ids in ids.items() if len(source_ids) > 1 or None in source_ids}
    mixed = frozenset(topic for topic, names in homes.items() if len(names) > 1 and topic in apart)
    cuts = tuple(_cuts(engine))
    try:
        passed = _passed(settings, paths, engine, prober)
    except (Refused, Transient, DeltaError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last three: a checkpoint, a row or a log entry has an unexpected form.
        reason = first_line(error)
        return Sources(tuple(periods), mixed, None, f"The source cannot be read: {reason}", cuts)
    unknown = [each for each in passed if isinstance(each, str)]
    known = tuple(each for each in passed if not isinstance(each, str))
    return Sources(tuple(periods), mixed, known or None, " ".join(unknown) or None, cuts)


def _cuts(engine: Engine) -> Iterator[Cut]:
    """Yield where a person has accepted that a topic's log was cut."""
    for gap in store.accepted_gaps(engine):
        identity = store.identity(engine, gap.generation)
        if gap.reason == "truncated" and gap.partition is not None and identity is not None:
            yield Cut(_topic(gap.source, None), gap.partition, gap.first, identity.since_seq)


def load_periods(database: Database, sources: Sources) -> None:
    """Create the tables `eras` and `cuts` for `rules.READ_TWICE`, without rows of topics with unknown eras."""
    database.execute('CREATE TABLE cuts (topic VARCHAR, "partition" INTEGER, first BIGINT, since BIGINT)')
    if sources.cuts:
        rows = [[each.topic, each.partition, each.first, each.since] for each in sources.cuts]
        database.executemany("INSERT INTO cuts VALUES (?, ?, ?, ?)", rows)
    database.execute("CREATE TABLE eras (source VARCHAR, since BIGINT, identity VARCHAR)")
    known = [each for each in sources.periods if each.topic not in sources.mixed]
    if known:
        columns = [
            [each.topic for each in known],
            [each.since_seq for each in known],
            [each.identity for each in known],
        ]
        database.execute(
            "INSERT INTO eras SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::VARCHAR[])", columns
        )


def judge(database: Database, bronze: readings.TableSnapshot, sources: Sources) -> Lagging:
    """Compare bronze with the part of its source that ingest has passed."""
    notes = tuple(
        f"Topic {topic!r} was read from several clusters, so records that were read twice cannot be found."
        for topic in sorted(sources.mixed)
    )
    if sources.passed is None:
        return Lagging(None, (), (*notes, sources.why_not or "The source was not read."))
    each = sources.passed if isinstance(sources.passed, tuple) else (sources.passed,)
    found = [
        _lagging_files(database, bronze, one, ())
        if isinstance(one, PassedFiles)
        else _lagging_offsets(database, bronze, one, ())
        for one in each
    ]
    if sources.why_not is not None:
        found.append(Lagging(None, (), (sources.why_not,)))
    known = [one.records for one in found if one.records is not None]
    return Lagging(
        sum(known) if len(known) == len(found) or any(known) else None,
        tuple(problem for one in found for problem in one.problems),
        (*notes, *(note for one in found for note in one.not_compared)),
    )


def _topic(text: str, source_id: str | None) -> str:
    """Return what the rows of a source have in common: the topic, or what stands before names of landing files."""
    if text.startswith(_ELSEWHERE) and source_id is not None:
        return _prefix(source_id)
    match = _TOPIC.match(text)
    return match[1] if match else _LANDING


def _prefix(table_id: str) -> str:
    return f"delta:{table_id}/"


def _passed(
    settings: Settings, paths: Paths, engine: Engine, prober: Callable[[str], Probe | None]
) -> list[PassedFiles | PassedOffsets | str]:
    """Return the part that ingest has passed of each source, or why it is unknown, as a sentence."""
    every = sorted(settings.every_source.values(), key=source_described)
    described = source_described(every[0]) if len(every) == 1 else sources_described(every)
    number = store.generation(engine, described)
    known = None if number is None else store.identity(engine, number)
    if number is None or known is None:
        return [f"The control store has no record of {described}."]
    start = json.loads(known.start) if known.start else None
    query = paths.ingest / str(number) / "query"
    done = query_log.batches(query / "commits")
    if not done:
        return [f"Ingest's checkpoint {query} has no finished batch, so ingest's position is unknown."]
    offset = query_log.offset(query / "offsets" / str(done[-1]), len(every))
    if offset is None:
        return [f"Ingest's checkpoint {query} has no readable position."]
    gaps = store.accepted_gaps(engine)
    found: list[PassedFiles | PassedOffsets | str] = []
    for source, own in zip(every, [offset] if len(every) == 1 else offset["sources"], strict=True):
        found += _PASSED[source.kind](_Record(source, paths.landing, known, start, own, gaps, prober))
    return found


@dataclass(frozen=True, slots=True)
class _Record:
    """Facts of the control store and the checkpoint about one source."""

    source: Source
    landing: Location
    known: store.Identity
    start: dict[str, Any] | None
    offset: dict[str, Any]
    gaps: Sequence[store.AcceptedGap]  # of all sources
    prober: Callable[[str], Probe | None]


def _passed_offsets(record: _Record) -> Iterator[PassedOffsets]:
    """Return what ingest has passed of each topic."""
    start = record.start or {}
    for topic, after in sorted(record.offset.items()):
        described = topic_described(topic, record.source)
        begun = start.get("sources", {}).get(described, start).get("offsets", {})
        accepted = tuple(
            (gap.partition, gap.first, gap.first + 2**62 if gap.last is None else gap.last)
            for gap in record.gaps
            if gap.source == described and gap.partition is not None
        )
        yield PassedOffsets(
            topic,
            described,
            record.known.since_seq,
            {int(number): at for number, at in begun.items()},
            {int(number): at for number, at in after.items()},
            accepted,
            record.prober(described),
        )


def _passed_files(record: _Record) -> Iterator[PassedFiles | str]:
    """Return the files of the landing commits that ingest has passed, as far as the table's log still has them."""
    yield _files(record, source_described(record.source))


def _files(record: _Record, described: str) -> PassedFiles | str:
    landing = located(record.source.path) if record.source.path else record.landing
    start, offset = record.start, record.offset
    if start is not None and "sources" in start:
        start = start["sources"].get(described)
    table = open_table(landing)
    table_id = str(table.metadata().id)
    ids = {part.source: part.source_id for part in record.known.parts}
    if table_id != ids.get(described, record.known.source_id):
        return "The landing table is not the one that ingest has been reading."
    begun = 0 if start is None else start["version"]
    if begun is None:
        return "Ingest began with a snapshot of the landing table, whose files are unknown."
    if offset["isStartingVersion"]:
        return "Ingest still reads the landing table's snapshot of its first start."
    skipped = set() if start is None else set(start["skip"])
    end = offset["reservoirVersion"]
    versions = listed_commits(landing)
    first = table.version()
    # A listing of a growing log may show a commit but not the one before it, so a gap is looked up by name.
    while first > begun and (first - 1 in versions or commit_file(landing, first - 1).exists()):
        first -= 1
    left_out = [
        (gap.first, table.version() if gap.last is None else gap.last)
        for gap in record.gaps
        if gap.source == described and gap.partition is None
    ]
    rows: dict[str, int] = {}
    prefix = _prefix(table_id) if record.source.path else ""
    for version, actions in commits_after(landing, max(begun, first) - 1):
        if version >= end:
            break
        if any(low <= version <= high for low, high in left_out):
            continue
        rows |= {prefix + name: count for name, count in _added(landing, actions) if name not in skipped}
    return PassedFiles(rows)


_PASSED: Final[Mapping[str, Callable[[_Record], Iterator[PassedFiles | PassedOffsets | str]]]] = {
    "kafka": _passed_offsets,
    "delta": _passed_files,
}
"""Finds what ingest has passed of a kind of source; a text says why that is unknown."""


def _added(landing: Location, actions: Iterable[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield name and rows of each file that a commit added with new rows."""
    for add in (action["add"] for action in actions if "add" in action):
        if not add.get("dataChange", True):
            continue
        name = unquote(add["path"])
        rows = json.loads(add["stats"]).get("numRecords") if add.get("stats") else None
        if rows is None:
            rows = parquet.metadata(landing / name).num_rows
        inside = name.partition(f"{landing}/")[2] or name
        yield inside.rsplit("/", 1)[-1] if re.match(r"/|[A-Za-z][A-Za-z0-9+.-]*:/", inside) else inside, int(rows)


def _lagging_files(
    database: Database, bronze: readings.TableSnapshot, passed: PassedFiles, notes: tuple[str, ...]
) -> Lagging:
    sql = 'SELECT topic, count(DISTINCT "offset") FROM files(?) WHERE "partition" IS NULL GROUP BY topic'
    in_bronze = dict(readings.execute(database, sql, bronze, bronze))
    missing = {name: rows - in_bronze.get(name, 0) for name, rows in passed.rows.items()}
    missing = {name: rows for name, rows in missing.items() if rows > 0}
    named = [
        f"landing file {name}: bronze lacks {missing[name]:,} of {passed.rows[name]:,} rows"
        for name in list(missing)[:_MAX_NAMED]
    ]
    return Lagging(sum(missing.values()), tuple(named), notes)


_HOLES: Final = """
SELECT "partition", before + 1, "offset" - 1, count(*) OVER () FROM (
    SELECT "partition", "offset", seq, lag("offset") OVER one AS before, lag(seq) OVER one AS seq_before
    FROM files(?) WHERE topic = ? AND seq > ? AND "partition" IS NOT NULL
    WINDOW one AS (PARTITION BY "partition" ORDER BY "offset")
) WHERE "offset" > before + 1 AND seq <> seq_before ORDER BY "offset" - before DESC, "partition", "offset" LIMIT ?
"""
_ENDS: Final = """
SELECT "partition", min("offset"), max("offset") FROM files(?)
WHERE topic = ? AND seq > ? AND "partition" IS NOT NULL GROUP BY "partition"
"""


def _lagging_offsets(
    database: Database, bronze: readings.TableSnapshot, passed: PassedOffsets, notes: tuple[str, ...]
) -> Lagging:
    """Find offsets that ingest has passed and bronze lacks; gaps of transactions and compaction are fine."""
    holes = readings.execute(database, _HOLES, bronze, bronze, passed.topic, passed.since_seq, _MAX_RANGES)
    ranges = list(_lacking(database, bronze, passed, [hole[:3] for hole in holes]))
    if holes and (hole_count := holes[0][3]) > len(holes):
        notes = (
            *notes,
            f"Holes in the offsets of {passed.topic!r}: {len(holes)} of {hole_count:,} checked, the largest.",
        )
    if not ranges:
        return Lagging(0, (), notes)
    if passed.probe is None:
        return Lagging(
            None, (), (*notes, f"Bronze lacks offsets of {passed.topic!r}, and the broker cannot be queried.")
        )
    lost, unknown = [], []
    for partition, first, last in ranges:
        has_records = passed.probe(partition, first, last)
        text = f"partition {partition} offsets {first} to {last}"
        if has_records:
            lost.append((text, last - first + 1))
        elif has_records is None:
            unknown.append(text)
    if unknown:
        offsets = "; ".join(first_lines(unknown, _MAX_NAMED))
        notes = (
            *notes,
            f"Bronze lacks {offsets} of {passed.topic!r}; the broker does not report whether they had records.",
        )
    named = tuple(f"{passed.topic}: bronze lacks {text}, which have records" for text, _ in lost[:_MAX_NAMED])
    if not lost and unknown:
        return Lagging(None, (), notes)
    return Lagging(sum(count for _, count in lost), named, notes)


def _lacking(
    database: Database,
    bronze: readings.TableSnapshot,
    passed: PassedOffsets,
    holes: Sequence[tuple[int, int, int]],
) -> Iterator[tuple[int, int, int]]:
    rows = readings.execute(database, _ENDS, bronze, bronze, passed.topic, passed.since_seq)
    ends = {partition: (low, high) for partition, low, high in rows}
    ranges = []
    for partition, after in sorted(passed.next.items()):
        begun = passed.begun.get(partition, 0)
        low, high = ends.get(partition, (after, after - 1))
        ranges += [(partition, begun, min(low, after) - 1), (partition, max(high + 1, begun), after - 1)]
    for partition, first, last in (*ranges, *holes):
        covered = any(each == partition and low <= first and last <= high for each, low, high in passed.accepted)
        if first <= last and not covered:
            yield partition, first, last
