"""`turnout ingest adopt`: starts a new ingest generation of a source where bronze ends.

For a missing or damaged checkpoint, for bronze restored from an older copy, and, with `--accept-loss`, for a source
that lost unread records. The order makes it safe to kill and run again: close the old generation in bronze, find
bronze's end, record the new generation.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from pipeline import names
from pipeline.actor import current_user
from pipeline.delta import lost_seqs
from pipeline.delta.bronze import BRONZE
from pipeline.delta.environment import require_own
from pipeline.delta.lost_seqs import LostSeqs
from pipeline.delta.table import CursorTable, TableConflict
from pipeline.errors import Refused, Transient
from pipeline.ingest import bronze_progress, checkpoint, identity, landing_log, restored, source, source_checks
from pipeline.ingest.batch_attempts import give_up_open, left_behind
from pipeline.ingest.checkpoint import Landed
from pipeline.ingest.identity import (
    Commits,
    Offsets,
    Position,
    SourceObservation,
    SourceProblem,
    SourceRecord,
    TopicObservation,
)
from pipeline.ingest.last_seqs import read_last_seqs
from pipeline.names import GameKey
from pipeline.settings import Paths, Settings
from pipeline.store import sources
from pipeline.store.games import reset_last_seqs
from pipeline.store.processes.drivers import forget_commits

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

    known: sources.Identity
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
    source.check(settings.source, paths.landing)
    described = source.describe(settings.source)
    number = sources.generation(engine, described)
    if number is None or not (paths.bronze / "_delta_log").exists():
        raise Refused(f"Ingest never read {described} here, so there is nothing to adopt. Start ingest.")
    bronze = CursorTable.create(paths.bronze, BRONZE, names.bronze_app_id(settings.environment))
    batches = names.ingest_app_id(settings.environment, number)
    finding = _find(settings, paths, engine, number, bronze)
    _refuse_loss(finding.problem, accept_loss=accept_loss)
    cursors = restored.game_cursors(paths, settings.environment, engine)
    top = restored.highest(paths, engine, bronze, cursors).seq
    unread = bronze.transaction_version(batches) is None and top <= (bronze.cursor or 0)
    recorded = sources.identity(engine, number) is not None or finding.known.generation == number
    if unread and recorded and finding.problem is None and not (paths.checkpoints / "ingest" / str(number)).exists():
        held = restored.holding_lost_rows(cursors, _losses(settings, bronze))
        return Adopted(number, finding.position, (), new=False, rebuild=tuple(held))
    if top <= (bronze.cursor or 0):  # of an older copy: every seq above its end is forgotten below
        _give_up_others(settings, paths, engine, number, bronze)
    left = left_behind(paths.quarantine, batches)
    seq = _close(bronze, batches, settings.environment, top, left[1])
    _forget(settings, paths, engine, bronze, seq, left)
    finding = _find(settings, paths, engine, number, bronze)
    _refuse_loss(finding.problem, accept_loss=accept_loss)
    if not recorded:  # read under another name before: verify compares by the id
        sources.record_identity(engine, replace(finding.known, generation=number))
    adopted = _replace(engine, described, number, finding, bronze.table_id, seq)
    held = restored.holding_lost_rows(cursors, _losses(settings, bronze))
    return replace(adopted, rebuild=tuple(held))


def describe(adopted: Adopted) -> str:
    """Return an adoption as text."""
    if isinstance(adopted.position, Offsets):
        each = sorted(adopted.position.next.items())
        where = "offsets " + ", ".join(f"{number}: {offset}" for number, offset in each)
    elif adopted.position.version is None:
        where = "a snapshot of the table"
    else:
        where = f"commit {adopted.position.version}"
        if adopted.position.skip:
            where += f", without {len(adopted.position.skip)} of its files, which are in bronze"
    verb = "goes on" if adopted.new else "was ready"
    lines = [f"ingest generation {adopted.generation} {verb} from {where}"]
    lines += [f"accepted gap: {identity.describe_accepted(gap)}" for gap in adopted.gaps]
    if adopted.rebuild:
        keys = " ".join(adopted.rebuild)
        lines.append("Games with rows that bronze lost wait for a rebuild. Start ingest, then run:")
        lines.append(f'turnout repair rebuild {keys} --reason "bronze was restored"')
    return "\n".join(map(names.plain, lines))


def _find(settings: Settings, paths: Paths, engine: Engine, number: int, bronze: CursorTable) -> _Finding:
    """Find the end of bronze for a generation, and judge the source from there."""
    seen = source_checks.observe_source(settings.source, paths.landing, None)
    known = _identity(settings, engine, number, bronze, None if seen is None else seen.id)
    if known.bronze_id != bronze.table_id:
        raise Refused(
            f"Bronze was deleted and recreated: the id of {bronze.path} is {bronze.table_id}, it was "
            f"{known.bronze_id}. It has no position to continue from. Restore the old one, or use another --env-dir."
        )
    start = identity.parse(known.start) if known.start else None
    if seen is None:
        raise Refused(
            "The broker cannot be checked with these source.kafka_options, so its offsets are unknown. Add the missing "
            "options for the check (docs/kafka.md, Security)."
        )
    position: Position
    if isinstance(seen, TopicObservation):
        _refuse_namesakes(settings, engine, bronze, seen)
        position = _topic_position(paths.bronze, known, start, seen)
    elif known.source_id not in {None, seen.id}:
        position = _read_of_old(settings, paths, number) or start or Commits(0)
    else:
        position = _landing_position(paths, known, start)
        seen = source_checks.observe_source(settings.source, paths.landing, position) or seen
    problem = identity.judge(SourceRecord(known.source_id, known.partitions), position, seen)
    return _Finding(known, seen, position, problem)


def _identity(
    settings: Settings, engine: Engine, number: int, bronze: CursorTable, source_id: str | None
) -> sources.Identity:
    """Return the record of the source by the last generation with rows in bronze.

    The source may have had another name, such as another broker address; its id identifies it. An older copy of bronze
    may end before the last adoption: an earlier generation read its rows then.
    """
    ours = source.describe(settings.source)
    numbers = [
        each
        for each, text, its_id in sources.generations(engine)
        if each <= number and (sources.is_of(text, ours) or (its_id is not None and its_id == source_id))
    ]
    recorded = [sources.identity(engine, each) for each in sorted(numbers, reverse=True)]
    known = [each for each in recorded if each is not None]
    losses = _losses(settings, bronze)
    reached = [
        each
        for each in known
        if each.since_seq <= (bronze.cursor or 0) and not any(each.since_seq in lost for lost in losses)
    ]
    return next(iter(reached or known[-1:]), sources.Identity(number, None, None, bronze.table_id, 0, None))


def _refuse_loss(problem: SourceProblem | None, *, accept_loss: bool) -> None:
    if problem is not None and not accept_loss:
        raise Refused(f"{problem.sentence} To continue without these records, add --accept-loss: it records the gap.")


def _refuse_namesakes(settings: Settings, engine: Engine, bronze: CursorTable, seen: TopicObservation) -> None:
    """Refuse when bronze has rows of another cluster's topic with this name: the offsets are ambiguous."""
    ours = source.describe(settings.source)
    for number, text, source_id in sources.generations(engine):
        named_alike = text.startswith(source.describe_topic(seen.name)) and not text.startswith(ours)
        batches = names.ingest_app_id(settings.environment, number)
        if named_alike and source_id != seen.id and bronze.transaction_version(batches) is not None:
            raise Refused(
                f"Bronze also has rows of another topic of this name ({text}), so the position in this one is unknown. "
                f"Restore the checkpoint, or use another --env-dir."
            )


def _topic_position(bronze: Path, known: sources.Identity, start: Position | None, seen: TopicObservation) -> Offsets:
    """Return for each partition the offset after the last one in bronze; without rows in bronze, its first offset."""
    same = known.source_id in {None, seen.id}
    begun = dict(start.next) if isinstance(start, Offsets) else {}
    written = {number for number, end in seen.latest.items() if end > begun.get(number, 0)}
    wanted = written if same else set(range(known.partitions or 0))
    last = bronze_progress.last_offsets(bronze, seen.name, known.since_seq, wanted)
    if start is None and same:  # its first offset is unknown: a partition without rows in bronze begins where it can
        begun = dict(seen.earliest)
    return Offsets({**begun, **{number: offset + 1 for number, offset in last.items()}})


def _landing_position(paths: Paths, known: sources.Identity, start: Position | None) -> Commits:
    """Return the commit after the last one in bronze; for a partly landed commit, itself without the landed files."""
    begun = start if isinstance(start, Commits) else Commits(0)
    if begun.version is None:  # a snapshot is not read in the order of commits: the file names show what has landed
        every = bronze_progress.last_commit(paths.bronze, known.since_seq, {})
        done = begun.skip | (every.files if every else frozenset())
        if done <= landing_log.files_now(paths.landing):
            return Commits(None, done)
    files = landing_log.files_by_commit(paths.landing)
    commit_of = {name: version for version, names in files.items() for name in names}
    last = bronze_progress.last_commit(paths.bronze, known.since_seq, commit_of)
    if last is None:
        return begun
    done = last.files | begun.skip
    if last.version >= 0:
        here = set(files[last.version])
        return Commits(last.version, done & here) if here - done else Commits(last.version + 1)
    return Commits(None, done)  # the log has lost the commit of the last file; the names of all landed files do instead


def _read_of_old(settings: Settings, paths: Paths, number: int) -> Position | None:
    """Return the position up to which a deleted landing table was read, None when its checkpoint lacks it.

    Used only to name the start of the gap: bronze has file names, and this table no longer has a log with their
    commits.
    """
    query = paths.checkpoints / "ingest" / str(number) / "query"
    try:
        return source_checks.passed(settings.source, checkpoint.passed_offset(query, Landed(None, None)))
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


def _close(bronze: CursorTable, batches: str, environment: str, top: int, left: int) -> int:
    """End a generation in bronze by a commit without rows, and return that commit's seq.

    A late writer of it either came before, and is visible from now on, or finds the seq taken (law L4). Where seqs up
    to `top` were given and bronze ends before, the commit follows all of them and records them as lost. An attempt that
    was killed may have left quarantined rows up to seq `left`.
    """
    for _ in range(100):
        bronze.refresh()
        batch = bronze.transaction_version(batches)
        if batch is not None and batch >= source_checks.CLOSED:
            return batch - source_checks.CLOSED
        expected = bronze.cursor
        head = expected or 0
        seq, lost = max(head + 1, left), {}
        if top > head:
            seq = max(top + _MARGIN_SEQS, left)
            number = len(lost_seqs.read(bronze.transaction_version, environment)) + 1
            lost = dict(lost_seqs.transactions(environment, number, LostSeqs(head, seq)))
        try:
            bronze.commit([], expected, seq, also={batches: source_checks.CLOSED + seq, **lost})
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


def _replace(engine: Engine, described: str, before: int, finding: _Finding, bronze_id: str, seq: int) -> Adopted:
    """Record the new generation, and the gaps before it."""
    actor, now = current_user(), time.time()
    problem = finding.problem
    position = finding.position if problem is None else problem.onward
    missing = () if problem is None else problem.gaps
    reason = "" if problem is None else problem.reason
    gaps = tuple(
        sources.AcceptedGap(0, described, gap.partition, gap.first, gap.last, reason, actor, now) for gap in missing
    )
    new = sources.Identity(
        0, finding.seen.id, source_checks.partitions(finding.seen), bronze_id, seq, identity.render_position(position),
        actor, source_checks.clock(finding.seen),
    )  # fmt: skip
    number = sources.replace_generation(engine, described, before, new, gaps)
    return Adopted(number, position, tuple(sources.AcceptedGap(number, *_rest(gap)) for gap in gaps), new=True)


def _rest(gap: sources.AcceptedGap) -> tuple[str, int | None, int, int | None, str, str, float]:
    return gap.source, gap.partition, gap.first, gap.last, gap.reason, gap.actor, gap.accepted_at
