"""`turnout ingest adopt`: starts a new ingest generation of a source where bronze ends.

For a missing or damaged checkpoint, for bronze restored from an older copy, and, with `--accept-loss`, for a source
that lost unread records. The order makes it safe to kill and run again: close the old generation in bronze, find
bronze's end, record the new generation.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlalchemy import Engine

from pipeline.base import names
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused, Transient
from pipeline.base.names import GameKey
from pipeline.data.ingest import checkpoint, generation_numbers, identity, parting, restored, source_checks
from pipeline.data.ingest.batch_attempts import give_up_open, left_behind
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.data.ingest.evidence.marks import LastRecord
from pipeline.data.ingest.identity import (
    Commits,
    Offsets,
    Position,
    Positions,
    SourceObservation,
    SourceProblem,
    SourceRecord,
)
from pipeline.data.ingest.last_seqs import read_last_seqs
from pipeline.data.ingest.lineage import generations_of, own_rows, same_source
from pipeline.data.ingest.parting import COMMIT
from pipeline.data.ingest.sources.kind import SourceKind
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.lake.delta import lost_seqs
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.settings.tree import Paths, Settings
from pipeline.store import sources
from pipeline.store.games import reset_last_seqs
from pipeline.store.processes.drivers import forget_commits

_UNASKED: Final = "The broker cannot be checked with these source.kafka_options, so its offsets are unknown."
_MARGIN_SEQS: Final = 100  # by which a running driver may be ahead of its last report


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of an adoption."""

    generation: int
    position: Position
    gaps: tuple[sources.AcceptedGap, ...]
    new: bool  # False: the source was ready already
    rebuild: tuple[GameKey, ...] = ()  # games whose tables have rows of seqs that bronze lost


@dataclass(frozen=True, slots=True)
class _Finding:
    """The end of bronze for this source, and the source's problem there."""

    known: Mapping[str, sources.Identity]  # of each source by its description, absent for a new one
    seen: SourceObservation
    position: Position
    problem: SourceProblem | None


def adopt(settings: Settings, paths: Paths, engine: Engine, *, accept_loss: bool) -> Adopted:
    """Continue ingest from the end of bronze, in a new generation; no row is lost or landed twice.

    Without `accept_loss`, a source that has lost unread records is refused; with it, the loss is recorded. Idempotent,
    also after a kill.

    Raises:
        Refused: this source was never ingested, bronze is another environment's, something would be lost, or the broker
            cannot be asked.
        Transient: the broker does not answer, or another process writes to bronze all the time.
    """
    require_own(paths.bronze, settings.environment)
    source = configured_source(settings, paths)
    source.check()
    described = source.description
    number = sources.generation(engine, described)
    if number is None or not exists(paths.bronze):
        raise Refused(f"Ingest never read {described} here, so there is nothing to adopt. Start ingest.")
    bronze = CursorTable.create(paths.bronze, BRONZE, names.bronze_app_id(settings.environment))
    batches = names.ingest_app_id(settings.environment, number)
    finding = _find(settings, source, paths, engine, number, bronze)
    _refuse_loss(finding.problem, accept_loss=accept_loss)
    cursors = restored.game_cursors(paths, settings.environment, engine)
    top = restored.highest(paths, engine, bronze, cursors).seq
    unread = bronze.transaction_version(batches) is None and top <= (bronze.cursor or 0)
    recorded = sources.identity(engine, number) is not None or any(
        each.generation == number for each in finding.known.values()
    )
    if unread and recorded and finding.problem is None and not (paths.ingest / str(number)).is_folder():
        held = restored.holding_lost_rows(cursors, _losses(settings, bronze))
        return Adopted(number, finding.position, (), new=False, rebuild=tuple(held))
    if top <= (bronze.cursor or 0):  # of an older copy: every seq above its end is forgotten below
        _give_up_others(settings, paths, engine, number, bronze)
    left = left_behind(paths.quarantine, batches)
    others = _sharing(engine, source, number, finding.seen)
    seq = _close(bronze, [batches, *_apps(settings, others)], settings.environment, top, left[1])
    _forget(settings, paths, engine, bronze, seq, left)
    finding = _find(settings, source, paths, engine, number, bronze)
    _refuse_loss(finding.problem, accept_loss=accept_loss)
    if not recorded and not others and described in finding.known:
        # Read under another name before: verify compares by the id.
        sources.record_identity(engine, replace(finding.known[described], generation=number))
    adopted = _replace(engine, paths, source, number, finding, bronze.table_id, seq, others)
    held = restored.holding_lost_rows(cursors, _losses(settings, bronze))
    return replace(adopted, rebuild=tuple(held))


def take_over(settings: Settings, paths: Paths, engine: Engine, source: SourceKind) -> int:
    """Return the generation of the configured sources; a new set of them begins behind what bronze has of each.

    The generations that read them before, in another set, are closed. Idempotent, also after a kill.

    Raises:
        Refused: a source has lost unread records, or cannot be asked.
        Transient: a broker does not answer, or another process writes to bronze all the time.
    """
    number = generation_numbers.open_generation(paths, engine, source.description)
    is_new = sources.identity(engine, number) is None and exists(paths.bronze)
    if not is_new or not (source.is_several or sources.has_parts(engine)):
        return number
    seen = source.observe(None)
    if seen is None:
        if len(sources.generations(engine)) > 1:
            raise Refused(f"{_UNASKED} Without it another set of sources cannot go on behind bronze.")
        return number
    if _sharing(engine, source, number, seen):
        return adopt(settings, paths, engine, accept_loss=False).generation
    return number


def describe(adopted: Adopted) -> str:
    """Return an adoption as text."""
    verb = "goes on" if adopted.new else "was ready"
    lines = [f"ingest generation {adopted.generation} {verb} from {adopted.position.describe()}"]
    lines += [f"accepted gap: {identity.describe_accepted(gap)}" for gap in adopted.gaps]
    if adopted.rebuild:
        keys = " ".join(adopted.rebuild)
        lines.append("Games with rows that bronze lost wait for a rebuild. Start ingest, then run:")
        lines.append(f'turnout repair rebuild {keys} --reason "bronze was restored"')
    return "\n".join(map(names.plain, lines))


def _find(
    settings: Settings, source: SourceKind, paths: Paths, engine: Engine, number: int, bronze: CursorTable
) -> _Finding:
    """Find the end of bronze for a generation, and judge the source from there."""
    seen = source.observe(None)
    ids = {source.description: None} if seen is None else {
        name: each.id for name, each in identity.each_source(source.description, seen).items()
    }  # fmt: skip
    losses, head = _losses(settings, bronze), bronze.cursor or 0
    found = {name: generations_of(engine, name, number, each, head, losses) for name, each in ids.items()}
    known = {name: each[0] for name, each in found.items() if each}
    owns = {name: own_rows(each) for name, each in found.items() if each}
    if not source.is_several and not known:
        known = {source.description: sources.Identity(number, None, None, bronze.table_id, 0, None)}
    for each in known.values():
        if each.bronze_id != bronze.table_id:
            raise Refused(
                f"Bronze was deleted and recreated: the id of {bronze.path} is {bronze.table_id}, it was "
                f"{each.bronze_id}. It has no position to continue from. Restore the old one, or use another --env-dir."
            )
    if seen is None:
        raise Refused(f"{_UNASKED} Add the missing options for the check (docs/kafka.md, Security).")
    _refuse_namesakes(settings, source, engine, bronze, seen)
    whole = known | _parted_tables(source, found)
    position, seen = source.end_of_bronze(paths.bronze, whole, seen, partial(_checkpointed, source, paths, number))
    records = {name: SourceRecord(each.source_id, each.partitions) for name, each in known.items()}
    record = SourceRecord(of=records) if source.is_several else records[source.description]
    problem = source.judge(record, position, seen)
    # A landing table needs no last record: file names show where it parted.
    last = {
        name: source_checks.last_read(paths.bronze, name, owns[name], at)
        for name, at in identity.each_position(source.description, position).items()
        if isinstance(at, Offsets) and name in owns
    }
    of = identity.each_source(source.description, seen)
    both = {name: (each.source_id, of[name].id) for name, each in known.items() if name in of}
    anew = [name for name, (before, now) in both.items() if None not in {before, now} and before != now]
    problem = parting.judge(source, paths.bronze, owns, last, position, seen, problem, anew)
    return _Finding(known, seen, position, problem)


def _parted_tables(
    source: SourceKind, generations: Mapping[str, Sequence[sources.Identity]]
) -> dict[str, sources.Identity]:
    """Return landing tables with another commit before the place where their generation began, each as first read.

    Bronze's file names then tell the place, also those of earlier generations.
    """
    found = {}
    for member in source.members:
        of = generations.get(member.description)
        start = identity.parse(of[0].start) if of and of[0].start else None
        if not of or not isinstance(start, Commits) or start.before is None:
            continue
        witness = member.witness()
        before = LastRecord((start.version or 0) - 1, None, None, start.before)
        if witness is not None and parting.is_other_commit(witness, member.description, {COMMIT: before}):
            oldest = same_source(of)[-1]
            found[member.description] = replace(of[0], since_seq=oldest.since_seq, start=oldest.start)
    return found


def _with_last_commits(source: SourceKind, position: Position) -> Position:
    """Return a position with the evidence of the last commit read from each landing table."""
    of = dict(identity.each_position(source.description, position))
    for member in source.members:
        at = of.get(member.description)
        witness = member.witness() if isinstance(at, Commits) and at.version else None
        if isinstance(at, Commits) and at.version and witness is not None:
            there = witness.records(member.description, {COMMIT: at.version - 1}).get(COMMIT)
            of[member.description] = replace(at, before=None if there is None else there.value)
    return Positions(of) if source.is_several else of[source.description]


def _sharing(engine: Engine, source: SourceKind, number: int, seen: SourceObservation) -> list[int]:
    """Return the other generations that read one of these sources, where they or this one read several."""
    own = identity.each_source(source.description, seen)
    ids = {each.id for each in own.values() if each.id is not None}
    found = {
        other
        for other, text, source_id in sources.sources_of(engine)
        if other != number and (source_id in ids or any(sources.is_of(text, name) for name in own))
    }
    if not source.is_several:
        found = {each for each in found if (known := sources.identity(engine, each)) is not None and known.parts}
    return sorted(found)


def _apps(settings: Settings, numbers: Iterable[int]) -> list[str]:
    return [names.ingest_app_id(settings.environment, number) for number in numbers]


def _refuse_loss(problem: SourceProblem | None, *, accept_loss: bool) -> None:
    if problem is not None and not accept_loss:
        raise Refused(f"{problem.sentence} To continue without these records, add --accept-loss: it records the gap.")


def _refuse_namesakes(
    settings: Settings, source: SourceKind, engine: Engine, bronze: CursorTable, seen: SourceObservation
) -> None:
    """Refuse when bronze has rows of another cluster's topic with this name: the offsets are ambiguous."""
    own = identity.each_source(source.description, seen)
    for number, text, source_id in sources.sources_of(engine):
        batches = names.ingest_app_id(settings.environment, number)
        is_namesake = any(source.is_namesake(text, name) and source_id != each.id for name, each in own.items())
        if is_namesake and bronze.transaction_version(batches) is not None:
            raise Refused(
                f"Bronze also has rows of another topic of this name ({text}), so the position in this one is unknown. "
                f"Restore the checkpoint, or use another --env-dir."
            )


def _checkpointed(source: SourceKind, paths: Paths, number: int) -> Position | None:
    """Return the position up to which a generation's checkpoint says the source was read, None when it lacks it."""
    query = paths.ingest / str(number) / "query"
    try:
        return source.passed(checkpoint.passed_offset(query, LandedBatches(None, None), len(source.members)))
    except Refused:
        return None


def _give_up_others(settings: Settings, paths: Paths, engine: Engine, number: int, bronze: CursorTable) -> None:
    """Abandon the unfinished batches of other sources: the seq that closes this generation may be one of theirs."""
    others = [each for each, _, _ in sources.generations(engine) if each != number]
    apps = [names.ingest_app_id(settings.environment, each) for each in others]
    quarantine = CursorTable.open(paths.quarantine, names.ingest_app_id(settings.environment, number))
    if quarantine is None:
        return
    try:
        give_up_open(quarantine, bronze, apps)
    except TableConflict as error:
        raise Transient("Another process keeps writing to bronze. Stop ingest, then adopt again.") from error


def _close(bronze: CursorTable, apps: Sequence[str], environment: str, top: int, left: int) -> int:
    """End generations in bronze by a commit without rows, and return that commit's seq.

    A late writer of it either came before, and is visible from now on, or finds the seq taken (law L4). Where seqs up
    to `top` were given and bronze ends before, the commit follows all of them and records them as lost. An attempt that
    was killed may have left quarantined rows up to seq `left`.
    """
    for _ in range(100):
        bronze.refresh()
        closed = [batch for app in apps if (batch := bronze.transaction_version(app) or 0) >= source_checks.CLOSED]
        if len(closed) == len(apps):
            return closed[0] - source_checks.CLOSED
        expected = bronze.cursor
        head = expected or 0
        seq, lost = max(head + 1, left), {}
        if top > head:
            seq = max(top + _MARGIN_SEQS, left)
            number = len(lost_seqs.read(bronze.transaction_version, environment)) + 1
            lost = dict(lost_seqs.transactions(environment, number, LostSeqs(head, seq)))
        try:
            bronze.commit([], expected, seq, also={**dict.fromkeys(apps, source_checks.CLOSED + seq), **lost})
        except TableConflict:
            continue
        return seq
    raise Transient("Another process keeps writing to bronze. Stop ingest, then adopt again.")


def _losses(settings: Settings, bronze: CursorTable) -> tuple[LostSeqs, ...]:
    return lost_seqs.read(bronze.transaction_version, settings.environment)


def _forget(
    settings: Settings, paths: Paths, engine: Engine, bronze: CursorTable, seq: int, left: tuple[int, int]
) -> None:
    """Delete the quarantined rows of seqs up to `seq`, which closed a generation, that bronze lacks.

    `left` are the first and the last seq of its last batch with refused rows, which bronze may have or not.
    """
    lost = next((each for each in _losses(settings, bronze) if each.before == seq), None)
    last_seqs = read_last_seqs(bronze, restored.snapshot_file(paths), _losses(settings, bronze))
    if lost is None:
        first = max(left[0], max(last_seqs.values(), default=0) + 1) if left[1] == seq else seq
        source_checks.forget_refused(paths.quarantine, first, seq)
        return
    source_checks.forget_refused(paths.quarantine, lost.after + 1, seq)
    reset_last_seqs(engine, last_seqs, lost.after)
    forget_commits(engine, lost.after)


def _replace(
    engine: Engine,
    paths: Paths,
    source: SourceKind,
    before: int,
    finding: _Finding,
    bronze_id: str,
    seq: int,
    others: Sequence[int],
) -> Adopted:
    """Record the new generation, and the gaps before it."""
    actor, now, described = current_user(), time.time(), source.description
    problem = finding.problem
    position = _with_last_commits(source, finding.position if problem is None else problem.onward)
    missing = () if problem is None else problem.gaps
    reason = "" if problem is None else problem.reason
    gaps = tuple(
        sources.AcceptedGap(0, gap.source or described, gap.partition, gap.first, gap.last, reason, actor, now)
        for gap in missing
    )
    new = sources.Identity(
        0, finding.seen.id, finding.seen.partitions, bronze_id, seq, position.render(),
        actor, finding.seen.clock, identity.parts_seen(finding.seen),
    )  # fmt: skip
    taken = generation_numbers.take(paths, engine, described)
    number = sources.replace_generation(engine, described, before, new, gaps, others, taken)
    return Adopted(number, position, tuple(sources.AcceptedGap(number, *_rest(gap)) for gap in gaps), new=True)


def _rest(gap: sources.AcceptedGap) -> tuple[str, int | None, int, int | None, str, str, float]:
    return gap.source, gap.partition, gap.first, gap.last, gap.reason, gap.actor, gap.accepted_at
