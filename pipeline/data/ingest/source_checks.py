"""Checks before reading: does the source still fit its generation's record, and from where does reading continue.

Called by the ingest query at each start. A mismatch is refused in one sentence with the way out.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.base import names
from pipeline.base.errors import Refused
from pipeline.data.ingest import bronze_progress, checkpoint, identity, parting, restored
from pipeline.data.ingest.bronze_progress import plan_of
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.evidence.marks import LastRecord, Mark
from pipeline.data.ingest.identity import Commits, Offsets, Position, SourceObservation, SourceProblem
from pipeline.data.ingest.lineage import OwnRows, generations_of, own_rows
from pipeline.data.ingest.parting import COMMIT, Last
from pipeline.data.ingest.sources.kind import Begin, SourceKind
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.lake.delta import lost_seqs
from pipeline.lake.delta.log import exists, settle_commits
from pipeline.lake.delta.marks import marked
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.settings.source import named_topic
from pipeline.settings.tree import Paths, Settings
from pipeline.store import sources

_log = logging.getLogger("turnout")

CLOSED: Final = 2**52
"""Added to a seq: the batch that `adopt` writes for a generation that it closes."""

WAY_OUT: Final = "To continue without these records, run `turnout ingest adopt --accept-loss`: it records the gap."


def verify_source(
    settings: Settings,
    paths: Paths,
    engine: Engine,
    generation: int,
    bronze: CursorTable,
    query: Location,
    landed: LandedBatches,
) -> Begin:
    """Check bronze, the source and the checkpoint of a generation, and record the source.

    Raises:
        Refused: something is missing, changed or made again; the sentence names it exactly and says how to go on.
        Transient: the broker does not answer, or an open transaction hides where to go on.
    """
    source = configured_source(settings, paths)
    refuse_closed(generation, landed.bronze)
    known = sources.identity(engine, generation)
    if known is not None and known.bronze_id != bronze.table_id:
        raise Refused(
            f"Bronze was deleted and recreated since this source was last read: the id of {bronze.path} is "
            f"{bronze.table_id}, it was {known.bronze_id}. Restore the old one, or use another --env-dir."
        )
    restored.require_newest(paths, settings.environment, engine, bronze)
    if known is not None and known.actor is not None:
        # A late writer of the previous generation may have left some.
        forget_refused(paths.quarantine, known.since_seq, known.since_seq)
    streams = len(source.members)
    batch_app = names.ingest_app_id(settings.environment, generation)
    checkpoint.mend(query, landed, streams, partial(plan_of, bronze, batch_app))
    checkpoint.require_bronze(query, landed, bronze.table_id)
    read = checkpoint.passed_offset(query, landed, streams)
    start = identity.parse(known.start) if known and known.start else None
    position = source.passed(read) or start
    seen = source.observe(position or source.beginning)
    kept = KeptMarks(query.parent).read(landed.bronze)
    last: Last = {}
    owns = _owns(settings, engine, generation, bronze, source, known, seen)
    if known is None and landed.bronze is None and seen is not None:
        _refuse_known_elsewhere(engine, generation, source, seen)
    if position is None and landed.bronze is None:
        start = position = source.first(seen)
    if seen is not None and position is not None:
        ids = {source.description: source.id_in(read), **{name: mark.id for name, mark in kept.items() if mark.id}}
        recorded = identity.with_ids(identity.record_of(known), source.description, ids)
        problem = source.judge(recorded, position, seen)
        if problem is None:
            last = _last_records(source, kept, bronze.path, owns, start, position)
            problem = parting.judge(source, bronze.path, owns, last, position, seen)
        if problem is not None:
            raise refusal(problem)
        source.require_readable(position, seen)
    if seen is not None and seen.clock == "producer":
        _log.info(
            "the topic has message.timestamp.type=CreateTime: latency is measured from the producer's clock "
            "(docs/kafka.md, What a topic may hold)"
        )
    since = 0 if landed.bronze is not None else bronze.cursor or 0
    sources.record_identity(engine, _identity(generation, known, seen, bronze.table_id, since, start))
    resumes = read is not None or _begin_at_the_end(query, source, start, seen)
    checkpoint.keep_bronze(query, bronze.table_id)
    return Begin(start, seen, resumes=resumes, last=last, owns=owns)


def refusal(problem: SourceProblem) -> Refused:
    """Return a problem of a source as an error with the way out."""
    return Refused(f"{problem.sentence} {WAY_OUT if problem.gaps else parting.ADOPT}")


def _owns(
    settings: Settings, engine: Engine, generation: int, bronze: CursorTable, source: SourceKind,
    known: sources.Identity | None, seen: SourceObservation | None,
) -> dict[str, OwnRows]:  # fmt: skip
    """Return for each recorded source its rows in bronze."""
    if known is None or seen is None:
        return {}
    losses = lost_seqs.read(bronze.transaction_version, settings.environment)
    ids = {name: each.id for name, each in identity.each_source(source.description, seen).items()}
    return {
        name: own_rows(generations_of(engine, name, generation, ids.get(name), bronze.cursor or 0, losses))
        for name in [part.source for part in known.parts] or [source.description]
    }


def _last_records(
    source: SourceKind,
    kept: Mapping[str, Mark],
    bronze: Location,
    owns: Mapping[str, OwnRows],
    start: Position | None,
    position: Position,
) -> Last:
    """Return the last records of each source: those kept, or where none are, what bronze or an adoption knows."""
    begun = identity.each_position(source.description, start)
    found: dict[str, Mapping[int, LastRecord]] = {}
    for described, at in identity.each_position(source.description, position).items():
        mark, before = kept.get(described), begun.get(described)
        if mark is not None and mark.last:
            found[described] = mark.last
        elif isinstance(at, Offsets) and described in owns:
            found[described] = last_read(bronze, described, owns[described], at)
        elif isinstance(before, Commits) and before.before is not None:
            found[described] = {COMMIT: LastRecord((before.version or 0) - 1, None, None, before.before)}
    return found


def last_read(bronze: Location, described: str, own: OwnRows, at: Offsets) -> dict[int, LastRecord]:
    """Return the last record in bronze of each partition of a topic of which something was read."""
    read = {number for number, offset in at.next.items() if offset > own.begun.get(number, 0)}
    return bronze_progress.last_records(bronze, named_topic(described), own, read)


def record_parts(engine: Engine, generation: int, source: SourceKind) -> SourceObservation | None:
    """Record sources that a pattern has found while ingest runs, before a row of them lands; return what was seen.

    Raises:
        Refused: one of the sources is not there.
        Transient: the broker does not answer.
    """
    known = sources.identity(engine, generation)
    seen = source.observe(None)
    if known is not None and seen is not None:
        sources.record_identity(engine, _identity(generation, known, seen, known.bronze_id, known.since_seq, None))
    return seen


def _begin_at_the_end(
    query: Location, source: SourceKind, start: Position | None, seen: SourceObservation | None
) -> bool:
    """Let reading start at a place that does not exist yet and that no option of Spark can name."""
    offset = source.begin_behind(start, seen)
    if offset is not None:
        checkpoint.begin_behind(query, offset)
    return offset is not None


def _refuse_known_elsewhere(engine: Engine, generation: int, source: SourceKind, seen: SourceObservation) -> None:
    """Refuse a source that another generation has read under another name: bronze would get it twice."""
    ids = {each.id for each in identity.each_source(source.description, seen).values()} - {None}
    for number, text, known in sources.sources_of(engine):
        if number < generation and known in ids:
            raise Refused(
                f"Ingest generation {number} has already read this source as {text!r}: its id is {known}. Set the "
                f"source back to that, or run `turnout ingest adopt` to continue from the end of bronze."
            )


def refuse_closed(generation: int, batch: int | None) -> None:
    """Refuse to write for a generation that was replaced, or whose replacement was interrupted."""
    if batch is not None and batch >= CLOSED:
        raise Refused(
            f"`turnout ingest adopt` has closed ingest generation {generation}. "
            "If it was interrupted, run it again; then start ingest."
        )


def forget_refused(quarantine: Location, first: int, last: int | None = None) -> None:
    """Delete the refused rows of seqs that bronze lacks, from `first` on up to `last`, or all."""
    if not exists(quarantine):
        return
    table = open_table(quarantine)
    stats = pa.table(table.get_add_actions(flatten=True))
    if "max.seq" in stats.column_names:
        newest = pc.max(pc.fill_null(stats.column("max.seq"), first)).as_py()
        if newest is None or newest < first:
            return
    where = f"seq >= {first}" if last is None else f"seq >= {first} AND seq <= {last}"
    version = table.version()
    table.delete(where, commit_properties=marked("refused rows removed"))
    settle_commits(quarantine, version)


def _identity(
    generation: int, known: sources.Identity | None, seen: SourceObservation | None, bronze_id: str, since: int,
    start: Position | None,
) -> sources.Identity:  # fmt: skip
    """Return the new record: the earlier one stays, with new partitions added."""
    begin = None if start is None else start.render()
    if known is None:
        source_id, partitions, clock = (seen.id, seen.partitions, seen.clock) if seen else (None, None, None)
        parts = identity.parts_seen(seen)
        return sources.Identity(
            generation, source_id, partitions, bronze_id, since, begin, source_clock=clock, parts=parts
        )
    return replace(
        known,
        source_id=known.source_id or (seen.id if seen else None),
        partitions=(seen.partitions if seen else None) or known.partitions,
        start=identity.with_new(known.start or begin, seen),
        source_clock=seen.clock if seen else None,
        parts=identity.parts_seen(seen, known),
    )
