"""Several sources in one query: topics and landing tables, each with its own profile, identity, position and gaps.

Spark reads one stream for each and unions them, so one task gives seqs to the rows of all. The streams have the order
of their descriptions; another set of sources is another generation of ingest with a checkpoint of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest import identity
from pipeline.data.ingest.identity import (
    Commits,
    LandingObservation,
    Observations,
    Offsets,
    Position,
    Positions,
    SourceObservation,
    SourceProblem,
    SourceRecord,
    TopicObservation,
)
from pipeline.data.ingest.sources.kind import (
    HEADERS,
    INPUT,
    SOURCE,
    Backlog,
    Begin,
    Ends,
    Probe,
    RowsOf,
    SampledRecord,
    SourceKind,
)
from pipeline.data.ingest.sources.waiting import Waiting
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.location import Location
from pipeline.settings.source import Source, sources_described
from pipeline.settings.tree import Ingest
from pipeline.store.sources import Identity

_T = TypeVar("_T")
_ABSENT: Final[Mapping[str, str]] = {
    "key": "binary", "value": "binary", "partition": "int", "offset": "bigint", "source_time": "timestamp",
    "source_clock": "string",
}  # fmt: skip

_SCHEMA: Final = pa.schema([
    *(pa.field("value", pa.binary()) if name == "value" else BRONZE.field(name) for name in INPUT),
    pa.field(SOURCE, pa.string()),
])  # fmt: skip


class Union:
    """The sources of `[sources.NAME]`."""

    landing = None
    is_several = True

    def __init__(self, named: Mapping[str, SourceKind]) -> None:
        """Keep the sources by name; asks nothing yet."""
        ordered = sorted(named.items(), key=lambda each: each[1].description)
        self._names = tuple(name for name, _ in ordered)
        self._members = tuple(member for _, member in ordered)

    @property
    def settings(self) -> tuple[Source, ...]:
        """The settings of each source, in the order of the streams."""
        return tuple(each for member in self._members for each in member.settings)

    @property
    def members(self) -> tuple[SourceKind, ...]:
        """The sources, in the order of the streams."""
        return self._members

    @property
    def description(self) -> str:
        """One line that names all of them."""
        return sources_described(self.settings)

    @property
    def beginning(self) -> Position:
        """The position before the first record of each."""
        return _positions({each.description: each.beginning for each in self._members})

    def file_prefix(self) -> str:
        """Return nothing: each source has its own."""
        return ""

    def owns(self, described: str) -> bool:
        """Return whether a description is of one of the sources."""
        return any(member.owns(described) for member in self._members)

    def is_namesake(self, description: str, own: str) -> bool:
        """Return whether it names another source, whose rows in bronze look like those of `own`."""
        return any(member.is_namesake(description, own) for member in self._members if member.owns(own))

    def check(self) -> None:
        """Check each source; the sentence of a refusal begins with the source's name."""
        self._each(lambda member: member.check())

    def observe(self, position: Position | None) -> SourceObservation | None:
        """Observe each source.

        Raises:
            Refused: two of them are the same, or topics of one name, or one cannot be asked, so that what bronze has
                of it is unknown.
            Transient: one of them does not answer.
        """
        of: dict[str, TopicObservation | LandingObservation] = {}
        for name, member, seen in self._each(lambda member: member.observe(_own(member, position))):
            if seen is None:
                raise Refused(
                    f"Source {name} cannot be checked with its kafka_options, which several sources need "
                    f"(docs/kafka.md, Security)."
                )
            for described, each in identity.each_source(member.description, seen).items():
                ids = {known.id: other for other, known in of.items() if known.id is not None}
                same = described if described in of else ids.get(each.id or "")
                if same is not None:
                    raise Refused(f"Two sources read the same: {described} and {same}. Remove one from the settings.")
                namesake = next((other for other in of if member.is_namesake(other, described)), None)
                if namesake is not None:
                    raise Refused(
                        f"Two sources read topics of one name, whose rows bronze cannot tell apart: {described} and "
                        f"{namesake}. Remove one from the settings, or read it in another environment."
                    )
                of[described] = each
        return Observations(of)

    def judge(self, known: SourceRecord, position: Position, seen: SourceObservation) -> SourceProblem | None:
        """Compare each source with what was read of it."""
        found: dict[str, SourceProblem] = {}
        for name, member in zip(self._names, self._members, strict=True):
            own_seen, own = _seen(member, seen), _own(member, position)
            of = {described: each for described, each in known.of.items() if member.owns(described)}
            record = SourceRecord(of=of) if member.is_several else of.get(member.description, SourceRecord())
            problem = member.judge(record, member.beginning if own is None else own, own_seen)
            if problem is not None:
                named = replace(problem, sentence=f"Source {name}: {problem.sentence}")
                found[member.description] = named
        return _joined(found, position)

    def first(self, seen: SourceObservation | None) -> Position | None:
        """Return where a first start begins in each."""
        if seen is None:
            return None
        return _positions({each.description: each.first(_seen(each, seen)) for each in self._members})

    def passed(self, offset: Mapping[str, Any] | None) -> Position | None:
        """Return the position of each source in Spark's checkpoint."""
        if offset is None:
            return None
        pairs = zip(self._members, offset["sources"], strict=True)
        return _positions({member.description: member.passed(each) for member, each in pairs})

    def id_in(self, offset: Mapping[str, Any] | None) -> str | None:  # noqa: ARG002 - the kinds' signature
        """Return None: each source has its own id."""
        return None

    def begin_behind(self, start: Position | None, seen: SourceObservation | None) -> Mapping[str, Any] | None:
        """Return the offset of all sources where one of them begins at a place that does not exist yet."""
        if start is None or seen is None:
            return None
        if not any(each.begin_behind(_own(each, start), _seen(each, seen)) for each in self._members):
            return None
        return self.offset_at(start, seen)

    def offset_at(self, position: Position, seen: SourceObservation) -> Mapping[str, Any]:
        """Return the position of each source as Spark's offset."""
        return {
            "sources": [
                each.offset_at(_own(each, position) or each.beginning, _seen(each, seen)) for each in self._members
            ]
        }

    def require_readable(self, position: Position, seen: SourceObservation) -> None:
        """Raise `Transient` where something open hides the position of one source for now."""
        for each in self._members:
            own = _own(each, position)
            if own is not None:
                each.require_readable(own, _seen(each, seen))

    def end_of_bronze(
        self, bronze: Location, known: Mapping[str, Identity], seen: SourceObservation,
        checkpointed: Callable[[], Position | None],
    ) -> tuple[Position, SourceObservation]:  # fmt: skip
        """Return the position of each source after its last record in bronze."""
        ends: dict[str, Position | None] = {}
        of: dict[str, TopicObservation | LandingObservation] = {}
        for each in self._members:
            own = {described: one for described, one in known.items() if each.owns(described)}
            end, own_seen = each.end_of_bronze(
                bronze, own, _seen(each, seen), partial(_own_checkpointed, each, checkpointed)
            )
            ends[each.description] = end
            of.update(identity.each_source(each.description, own_seen))
        return _positions(ends), Observations(of)

    def read(self, spark: SparkSession, ingest: Ingest, begin: Begin) -> tuple[DataFrame, RowsOf]:
        """Return the union of all streams with the column `SOURCE`; each gets its share of `ingest.max_rows`."""
        share = replace(ingest, max_rows=max(1, ingest.max_rows // len(self._members)))
        frames, rows_of = [], []
        for number, each in enumerate(self._members):
            own_seen = None if begin.seen is None else _seen(each, begin.seen)
            frame, rows = each.read(spark, share, Begin(_own(each, begin.position), own_seen, begin.resumes))
            frames.append(_filled(frame, number))
            rows_of.append(rows)
        return reduce(DataFrame.union, frames), partial(_rows_of_each, each=tuple(rows_of))

    def poll_seconds(self, trigger_seconds: float) -> float:
        """Return the same: at each look, Spark's own reader begins a batch if there are rows."""
        return trigger_seconds

    def backlog(self) -> "UnionBacklog":
        """Return what measures each source's backlog."""
        return UnionBacklog(dict(zip(self._names, self._members, strict=True)))

    def read_again(
        self, spark: SparkSession, start: Mapping[str, Any] | None, end: Mapping[str, Any], begin: Begin
    ) -> DataFrame:
        """Return the records of each source between two offsets."""
        starts = [None] * len(self._members) if start is None else start["sources"]
        frames = []
        for number, (each, own_start, own_end) in enumerate(zip(self._members, starts, end["sources"], strict=True)):
            own_seen = None if begin.seen is None else _seen(each, begin.seen)
            own = Begin(_own(each, begin.position), own_seen, begin.resumes)
            frames.append(_filled(each.read_again(spark, own_start, own_end, own), number))
        return reduce(DataFrame.union, frames)

    def witness(self) -> None:
        """Return None: the members have theirs."""

    def arrival_times(self) -> None:
        """Return None: the members have them."""

    def sample(self, most: int) -> list[SampledRecord]:  # noqa: ARG002 - the kinds' signature
        """Refuse: a profile is proposed for one source.

        Raises:
            Refused: always.
        """
        raise Refused(f"Name one of the sources with --name: {', '.join(sorted(self._names))}.")

    def prober(self, described: str) -> Probe | None:
        """Return what asks one of the sources for records between two offsets."""
        owner = next((each for each in self._members if each.owns(described)), None)
        return None if owner is None else owner.prober(described)

    def _each(self, call: Callable[[SourceKind], _T]) -> Iterator[tuple[str, SourceKind, _T]]:
        return iter(
            [(name, each, _naming(name, call, each)) for name, each in zip(self._names, self._members, strict=True)]
        )


@dataclass(slots=True)
class UnionBacklog:
    """Measures the backlog of each source: rows count together, and the oldest of all counts."""

    members: Mapping[str, SourceKind]
    _open: list[tuple[str, SourceKind, Backlog]] = field(default_factory=list)

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return the backlog of all sources, with that of each by name."""
        of = {
            name: backlog.look(own, _own(member, begin)) for (name, member, backlog), own in self._with_offsets(offset)
        }
        rows = [each.rows for each in of.values()]
        known = [each for each in rows if each is not None]
        unknown = [f"{name}: {each.reason}" for name, each in of.items() if each.reason is not None]
        oldest = min((each.oldest_at for each in of.values() if each.oldest_at is not None), default=None)
        return Waiting(
            sum(known) if len(known) == len(rows) else None,
            None if unknown else oldest,
            "; ".join(unknown) or None,
            of,
        )

    def ends(self) -> Ends | None:
        """Return where each source ends; None where one cannot be asked."""
        return _all(backlog.ends() for (_, _, backlog), _ in self._with_offsets(None))

    def reached(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Ends | None:
        """Return up to where everything lies before the offset of each source; None where that of one is unknown."""
        pairs = self._with_offsets(offset)
        return _all(backlog.reached(own, _own(member, begin)) for (_, member, backlog), own in pairs)

    def _with_offsets(
        self, offset: Mapping[str, Any] | None
    ) -> list[tuple[tuple[str, SourceKind, Backlog], Mapping[str, Any] | None]]:
        if not self._open:
            self._open = [(name, each, each.backlog()) for name, each in self.members.items()]
        offsets = [None] * len(self._open) if offset is None else offset["sources"]
        return list(zip(self._open, offsets, strict=True))

    def close(self) -> None:
        """Close the connections."""
        for _, _, backlog in self._open:
            backlog.close()


def _all(each: Iterable[Ends | None]) -> Ends | None:
    found: dict[str, Mapping[int, int]] = {}
    for of in each:
        if of is None:
            return None
        found.update(of)
    return found


def _naming(name: str, call: Callable[[SourceKind], _T], member: SourceKind) -> _T:
    """Call, and let a refusal begin with the source's name."""
    try:
        return call(member)
    except (Refused, Transient) as error:
        raise type(error)(f"Source {name}: {error}") from error


def _own(member: SourceKind, position: Position | None) -> Position | None:
    """Return a source's part of the position in all; None where it has none."""
    of = identity.each_position("", position)
    own = {described: each for described, each in of.items() if member.owns(described)}
    if member.is_several:
        return Positions(own) if own else None
    return own.get(member.description)


def _own_checkpointed(member: SourceKind, checkpointed: Callable[[], Position | None]) -> Position | None:
    return _own(member, checkpointed())


def _seen(member: SourceKind, seen: SourceObservation) -> SourceObservation:
    """Return one source's part of an observation of all."""
    own = {described: each for described, each in identity.each_source("", seen).items() if member.owns(described)}
    return Observations(own) if member.is_several else own[member.description]


def _positions(of: Mapping[str, Position | None]) -> Positions:
    """Return the positions of sources as one; a source that is unknown is absent."""
    found: dict[str, Offsets | Commits] = {}
    for described, each in of.items():
        found.update(identity.each_position(described, each))
    return Positions(found)


def _joined(found: Mapping[str, SourceProblem], position: Position) -> SourceProblem | None:
    """Return the problems of all sources as one; a vanished topic is not in the position that goes on."""
    if not isinstance(position, Positions):
        raise TypeError(f"a position {position} does not belong to several sources")
    gone = {gap.source for problem in found.values() for gap in problem.gaps if gap.source is not None}
    kept = {described: each for described, each in position.of.items() if described not in gone}
    return identity.join_problems(found, Positions(kept))


def _filled(frame: DataFrame, number: int) -> DataFrame:
    """Return a stream with all columns of `INPUT`, and its number."""
    absent = {name: F.lit(None).cast(kind) for name, kind in _ABSENT.items() if name not in frame.columns}
    if "headers" not in frame.columns:  # no null, see `INPUT`
        absent["headers"] = F.array().cast(HEADERS)
    return frame.withColumns({**absent, SOURCE: F.lit(str(number))}).select(*INPUT, SOURCE)


def _rows_of_each(batches: Iterator[pa.RecordBatch], each: tuple[RowsOf, ...]) -> Iterator[pa.RecordBatch]:
    """Convert the rows of each source by its own function; a batch may have rows of several."""
    for batch in batches:
        numbers = batch.column(SOURCE)
        for number in sorted(map(int, pc.unique(numbers).to_pylist())):
            own = batch.filter(pc.equal(numbers, str(number)))
            for rows in each[number](iter([own])):
                # Spark and files name the elements of a list in two ways, and a table of both needs one.
                columns = [rows.column(name).cast(_SCHEMA.field(name).type) for name in INPUT]
                yield pa.record_batch([*columns, pa.repeat(str(number), rows.num_rows)], schema=_SCHEMA)
