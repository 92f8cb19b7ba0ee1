"""Checks before reading: does the source still fit its generation's record, and from where does reading continue.

Called by the ingest query at each start. A mismatch is refused in one sentence with the way out.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.delta.opening import open_table
from pipeline.delta.table import CursorTable
from pipeline.errors import Refused, Transient
from pipeline.ingest import checkpoint, identity, landing_log, landing_source, restored, topic
from pipeline.ingest.checkpoint import Landed
from pipeline.ingest.identity import (
    Commits,
    LandingObservation,
    Offsets,
    Position,
    SourceObservation,
    SourceRecord,
    TopicObservation,
)
from pipeline.settings import Paths, Settings, Source
from pipeline.store import sources

_log = logging.getLogger("turnout")

CLOSED: Final = 2**52
"""Added to a seq: the batch that `adopt` writes for a generation that it closes."""

_WAY_OUT: Final = "To continue without these records, run `turnout ingest adopt --accept-loss`: it records the gap."


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the query begins, or began."""

    position: Position | None  # None: unknown, as the broker could not be asked; Spark reads the setting itself
    seen: SourceObservation | None
    resumes: bool  # its checkpoint holds a later place, which wins


def verify_source(
    settings: Settings, paths: Paths, engine: Engine, generation: int, bronze: CursorTable, query: Path, landed: Landed
) -> Begin:
    """Check bronze, the source and the checkpoint of a generation, and record the source.

    Raises:
        Refused: something is missing, changed or made again; the sentence names it exactly and says how to go on.
        Transient: the broker does not answer, or an open transaction hides where to go on.
    """
    source = settings.source
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
    checkpoint.mend(query, landed)
    checkpoint.require_bronze(query, landed, bronze.table_id)
    read = checkpoint.passed_offset(query, landed)
    start = identity.parse(known.start) if known and known.start else None
    position = passed(source, read) or start
    seen = observe_source(source, paths.landing, position or Commits(0))
    if known is None and landed.bronze is None and seen is not None:
        _refuse_known_elsewhere(engine, generation, seen.id)
    if position is None and landed.bronze is None:
        start = position = _first(source, seen)
    if seen is not None and position is not None:
        recorded = SourceRecord(_source_id(source, read, known), known.partitions if known else None)
        problem = identity.judge(recorded, position, seen)
        if problem is not None:
            raise Refused(f"{problem.sentence} {_WAY_OUT}")
        _await_transactions(position, seen)
    if clock(seen) == "producer":
        _log.info(
            "the topic has message.timestamp.type=CreateTime: latency is measured from the producer's clock "
            "(docs/kafka.md, What a topic may hold)"
        )
    since = 0 if landed.bronze is not None else bronze.cursor or 0
    sources.record_identity(engine, _identity(generation, known, seen, bronze.table_id, since, start))
    resumes = read is not None or _begin_at_the_end(query, start, seen)
    checkpoint.keep_bronze(query, bronze.table_id)
    return Begin(start, seen, resumes=resumes)


def _begin_at_the_end(query: Path, start: Position | None, seen: SourceObservation | None) -> bool:
    """Let reading start at a landing commit that does not exist yet, which no Spark option allows."""
    if not isinstance(start, Commits) or not isinstance(seen, LandingObservation) or (start.version or 0) <= seen.last:
        return False
    checkpoint.begin_behind(query, landing_source.offset(seen.id, start.version or 0))
    return True


def _refuse_known_elsewhere(engine: Engine, generation: int, source_id: str) -> None:
    """Refuse a source that another generation has read under another name: bronze would get it twice."""
    for number, text, known in sources.generations(engine):
        if number < generation and known == source_id:
            raise Refused(
                f"Ingest generation {number} has already read this source as {text!r}: its id is {source_id}. Set the "
                f"source back to that, or run `turnout ingest adopt` to continue from the end of bronze."
            )


def refuse_closed(generation: int, batch: int | None) -> None:
    """Refuse to write for a generation that was replaced, or whose replacement was interrupted."""
    if batch is not None and batch >= CLOSED:
        raise Refused(
            f"`turnout ingest adopt` has closed ingest generation {generation}. "
            "If it was interrupted, run it again; then start ingest."
        )


def forget_refused(quarantine: Path, first: int, last: int | None = None) -> None:
    """Delete the refused rows of seqs that bronze lacks, from `first` on up to `last`, or all."""
    if not (quarantine / "_delta_log").exists():
        return
    table = open_table(quarantine)
    stats = pa.table(table.get_add_actions(flatten=True))
    if "max.seq" in stats.column_names:
        newest = pc.max(pc.fill_null(stats.column("max.seq"), first)).as_py()
        if newest is None or newest < first:
            return
    table.delete(f"seq >= {first}" if last is None else f"seq >= {first} AND seq <= {last}")


def observe_source(source: Source, landing: Path, position: Position | None) -> SourceObservation | None:
    """Observe the source; None when the broker cannot be asked with the given options."""
    if source.kind == "kafka":
        return topic.observe_topic(source)
    return landing_log.observe_landing(landing, position if isinstance(position, Commits) else None)


def partitions(seen: SourceObservation | None) -> int | None:
    """Return how many partitions a topic has."""
    return len(seen.earliest) if isinstance(seen, TopicObservation) else None


def clock(seen: SourceObservation | None) -> str | None:
    """Return whose time the source's records have: broker, producer or landing; None when unknown."""
    return seen.clock if isinstance(seen, TopicObservation) else "landing" if seen is not None else None


def passed(source: Source, offset: Mapping[str, Any] | None) -> Position | None:
    """Return the position after the last finished batch of Spark's checkpoint; None at its beginning."""
    if offset is None:
        return None
    if source.kind == "kafka":
        return Offsets({int(number): at for number, at in offset[source.topic].items()})
    # A snapshot is followed by the commit after it.
    return Commits(offset["reservoirVersion"] + bool(offset["isStartingVersion"]))


def _first(source: Source, seen: SourceObservation | None) -> Position | None:
    if isinstance(seen, TopicObservation):
        return identity.first_offsets(source.starting_offsets, seen)
    if isinstance(seen, LandingObservation):
        # A table with other changes than appends begins with a snapshot.
        return Commits(0 if seen.first == 0 and not seen.changed and not seen.missing else None)
    return None


def _source_id(source: Source, read: Mapping[str, Any] | None, known: sources.Identity | None) -> str | None:
    """Return the recorded id; the checkpoint on a landing table has it, too."""
    if known is not None and known.source_id is not None:
        return known.source_id
    return str(read["reservoirId"]) if read is not None and source.kind == "delta" else None


def _identity(
    generation: int, known: sources.Identity | None, seen: SourceObservation | None, bronze_id: str, since: int,
    start: Position | None,
) -> sources.Identity:  # fmt: skip
    """Return the new record: the earlier one stays, with new partitions added."""
    begin = None if start is None else identity.render_position(start)
    if known is None:
        source_id = seen.id if seen else None
        return sources.Identity(
            generation, source_id, partitions(seen), bronze_id, since, begin, source_clock=clock(seen)
        )
    return replace(
        known,
        source_id=known.source_id or (seen.id if seen else None),
        partitions=partitions(seen) or known.partitions,
        start=known.start or begin,
        source_clock=clock(seen),
    )


def _await_transactions(position: Position, seen: SourceObservation) -> None:
    """Refuse for now to continue at a position that an open transaction hides; Spark would see a loss."""
    if not isinstance(position, Offsets) or not isinstance(seen, TopicObservation):
        return
    hidden = identity.open_transactions(position, seen)
    if hidden is not None:
        raise Transient(
            f"The Kafka topic {seen.name!r} has an open transaction, and ingest cannot pass the records that it has "
            f"read of it before it ends: {hidden}. Wait until its producer or its transaction.timeout.ms ends it."
        )
