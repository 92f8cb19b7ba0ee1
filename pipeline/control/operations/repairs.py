"""Replays and rebuilds as operations: the work is done in a thread of the controller, and begun again after a kill.

A replay lands each row once and a rebuild replaces one generation once, both by the tables' compare-and-set; so a
controller that was killed, and even two at once, do no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Engine

from listeners.sample import Lane
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey, plain, stream_app_id
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    RETIRED,
    Change,
    ControlContext,
    Level,
    Offer,
    OperationDefinition,
    StepDefinition,
    StepResult,
    intent_of,
    of_one_game,
)
from pipeline.control.operations.facts import GameFacts
from pipeline.control.operations.tries import looked, worked
from pipeline.control.roles import Role
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair import asking, damaged_log, stale_quarantine
from pipeline.data.repair.quarantined import Selection, opened
from pipeline.data.repair.rebuild import GenerationConflict, rebuild
from pipeline.data.repair.refusals import unreadable
from pipeline.data.repair.replay import KILLS_WORKER, Replayed, replay_all
from pipeline.data.repair.report import render_rebuilt
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.incidents.own import lacks_space
from pipeline.lake.delta import generation
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.quarantine import REASONS
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Paths
from pipeline.store.assignments import GameAssignment, read_assignments, reported_cursors
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, known_names, record_generation, registered_keys, retired_games
from pipeline.store.operation_events import TargetEvent, note_events
from pipeline.store.operations import Intent, Operation, steps
from pipeline.store.stream_control import StreamControl, decided, submit_retry

_WORK_SECONDS: Final = 6 * 3600.0  # a game's whole bronze may be read, and others may be before it
_SEEN_SECONDS: Final = 300.0
_NOTHING: Final = StreamControl()


@dataclass(frozen=True, slots=True)
class Subject:
    """One game as a repair finds it."""

    game: str
    schemas: int  # registered versions
    generation: int | None  # of its table; None: it has none, or it cannot be opened
    retired: bool
    unreadable: str | None = None  # why its table cannot be opened


def observe(
    paths: Paths, environment: str, engine: Engine, keys: Sequence[str], kind: str = OperationKind.REPLAY
) -> dict[str, Subject]:
    """Look at these games; those nobody knows are left out. For a rebuild, of a damaged log is taken what is left."""
    known, schemas, retired = known_names(engine), registered_keys(engine), retired_games(engine)
    had_table = reported_cursors(engine) if kind == OperationKind.REBUILD else {}
    subjects = {}
    for key in (key for key in keys if key in known):
        newest, why = None, None
        try:
            newest = _observed_generation(paths, environment, key, kind)
            newest = 1 if newest is None and key in had_table else newest  # it was removed, and is made again
        except Refused as refused:
            why = str(refused)
        subjects[key] = Subject(known[key], schemas.get(key, 0), newest, key in retired, why)
    return subjects


def _observed_generation(paths: Paths, environment: str, key: str, kind: str) -> int | None:
    try:
        return newest_generation(paths, environment, key)
    except (DeltaError, OSError) as error:
        if kind != OperationKind.REBUILD:
            raise unreadable(key, error) from error
        remains = damaged_log.read(paths.table(GameKey(key)), key, error)
        return generation.newest(remains.transaction_version, environment, GameKey(key))


def plan(kind: str, keys: Sequence[str], subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """Return what a repair is about: game key → the generation to replace, or for a replay how many schemas it has.

    Raises:
        Refused: as `require_possible`.
    """
    unique_keys = require_possible(kind, keys, subjects)
    is_rebuild = kind == OperationKind.REBUILD
    return {key: subjects[key].generation if is_rebuild else subjects[key].schemas for key in unique_keys}


def require_possible(kind: str, keys: Sequence[str], subjects: Mapping[str, Subject]) -> list[str]:
    """Return these games, each once and in order, if each can be repaired.

    Raises:
        Refused: a game does not exist, is retired, has no schema or, but for a replay, no table; or that cannot be
            opened.
    """
    unique_keys = sorted(set(keys))
    unknown = [key for key in unique_keys if key not in subjects]
    if unknown:
        raise Refused(f"No such game: {join_limited(unknown)}. `turnout games list` shows those there are.")
    for key in unique_keys:
        if (why := why_not(kind, subjects[key])) is not None:
            raise Refused(f"{key}: {why}")
    return unique_keys


def why_not(kind: str, subject: Subject) -> str | None:
    """Return why a game cannot be repaired, as its table and the control store say."""
    if subject.retired:
        return RETIRED
    return subject.unreadable or _lacks(kind, has_schema=subject.schemas > 0, has_table=subject.generation is not None)


def _lacks(kind: str, *, has_schema: bool, has_table: bool) -> str | None:
    if not has_schema:
        return "No schema is registered for it: all its rows would be refused. Register one first."
    if kind != OperationKind.REPLAY and not has_table:
        return "It has no table yet. Its stream makes one from bronze."
    return None


def replayable(paths: Paths, engine: Engine, choice: Mapping[str, str | None]) -> list[str]:
    """Return the games of a replay of all: each that has such rows, but those retired or without a schema."""
    known, schemas, retired = known_names(engine), registered_keys(engine), retired_games(engine)
    with opened(paths, known, selection(choice, {}), twins=True) as quarantined:
        names = set(quarantined.games())
    return sorted(key for key, name in known.items() if name in names and schemas.get(key) and key not in retired)


def intent(kind: str, facts: Mapping[str, Any], actor: str, reason: str, choice: Mapping[str, str | None]) -> Intent:
    """Return the operation to ask for; `choice` is which rows a replay takes, see `selection`."""
    submitted = intent_of("game", OperationKind(kind), facts, actor, reason)
    return replace(submitted, parameters={**submitted.parameters, **choice})


def choice(refused_for: str | None, since: datetime | None, until: datetime | None) -> dict[str, str | None]:
    """Return the rows that a person chose for a replay as an operation's parameters have them.

    Raises:
        Refused: rows are refused for no such reason, or none can be both since the one moment and before the other.
    """
    if refused_for is not None and refused_for not in REASONS:
        raise Refused(f"{refused_for!r} is no reason for a refusal; there are {', '.join(REASONS)}.")
    if since is not None and until is not None and since >= until:
        raise Refused(f"No row is first seen since {since.isoformat()} and before {until.isoformat()}.")
    moments = {"since": since, "until": until}
    return {"refused_for": refused_for, **{name: each.isoformat() if each else None for name, each in moments.items()}}


def render_preview(kind: str, facts: Mapping[str, Any], choice: Mapping[str, str | None] | None = None) -> list[str]:
    """Return what an operation does, as lines for people; `choice` is which rows a replay takes, all where None."""
    what = {
        OperationKind.REBUILD: "The old tables serve until one commit replaces their files. No other table is touched.",
        OperationKind.REPLAY: "Rows that decode today go into their tables and leave quarantine; the others stay.",
    }
    now = "generation" if kind == OperationKind.REBUILD else "schemas:"
    lines = [f"{key}: {now} {value}" for key, value in facts.items()]
    return [*lines, f"{len(facts)} to {kind}. {what[OperationKind(kind)]}", *_narrowed(choice or {})]


def _narrowed(choice: Mapping[str, str | None]) -> list[str]:
    phrases = {"refused_for": "refused for", "since": "first seen at or after", "until": "first seen before"}
    only = [f"{words} {choice[name]}" for name, words in phrases.items() if choice.get(name)]
    warning = ["Such a row may kill the controller, which begins it three times at most."]
    return [
        *([f"Only rows {' and '.join(only)}."] if only else []),
        *(warning if choice.get("refused_for") == KILLS_WORKER else []),
    ]


def selection(choice: Mapping[str, Any], known: Mapping[str, str]) -> Selection:
    """Return the rows that a replay's parameters choose: `refused_for`, `since` and `until`; all where None."""
    only = [Game(GameKey(key), name) for key, name in known.items()]
    since, until = (datetime.fromisoformat(choice[name]) if choice.get(name) else None for name in ("since", "until"))
    return Selection(only[0] if len(only) == 1 else None, choice.get("refused_for"), since, until)


def newest_generation(paths: Paths, environment: str, key: str) -> int | None:
    """Return the generation in the log of a game's table, None without a table."""
    table = CursorTable.open(paths.table(GameKey(key)), stream_app_id(environment, GameKey(key), 1))
    return None if table is None else generation.newest(table.transaction_version, environment, GameKey(key))


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    keys = operation.parameters["games"]
    subjects = observe(context.paths, context.settings.environment, context.engine, keys, operation.kind)
    return plan(operation.kind, keys, subjects)


def _rebuild(context: ControlContext, operation: Operation) -> StepResult:
    work = partial(_rebuild_all, context, operation)
    return worked(context, operation, work, f"{len(operation.preview)} being rebuilt; the old tables serve meanwhile.")


def _replay(context: ControlContext, operation: Operation) -> StepResult:
    work = partial(_replay_all, context, operation)
    return worked(context, operation, work, f"Rows of {len(operation.preview)} are being decoded.")


def _rebuild_all(context: ControlContext, operation: Operation) -> str:
    schemas, known = context.registry.snapshot, known_names(context.engine)
    messages, failed = [], []
    for key, replaces in sorted(operation.preview.items()):
        try:
            messages.append(_rebuild_one(context, schemas, Game(GameKey(key), known[key]), replaces))
            _note(context, operation, {key: messages[-1]})
            _retry_stream(context, key, operation.actor)
        except (Refused, Transient, DeltaError, OSError, pa.ArrowException) as error:
            failed.append(f"{key}: {first_line(error)}")
    if failed:
        others = f" The other {len(messages)} are rebuilt." if messages else ""
        raise Refused(f"{join_limited(failed)}{others}")
    return f"{join_limited(messages)}."


def _rebuild_one(context: ControlContext, schemas: Callable[[], SchemaSet], game: Game, replaces: int) -> str:
    try:
        done = rebuild(context.paths, context.settings.environment, context.engine, schemas, game, replaces)
    except GenerationConflict:  # a controller was killed right after the switch: what it left undone is done here
        number = newest_generation(context.paths, context.settings.environment, game.key) or replaces
        record_generation(context.engine, game.key, number)
        stale_quarantine.remove(context.paths, context.settings.environment, game)
        return f"{game.key}: generation {number} was there already"
    newest = newest_generation(context.paths, context.settings.environment, game.key)
    if newest is None or newest < done.generation:
        raise Refused(f"Its table is of generation {newest}, not {done.generation}: look at its Delta history.")
    return render_rebuilt(done)


def _retry_stream(context: ControlContext, key: str, actor: str) -> None:
    """Let a stream that is parked or waits run again: what it failed of was about the old table, or it fails again."""
    if decided(context.engine).get(key, _NOTHING).failures:
        submit_retry(context.engine, key, actor)


def _replay_all(context: ControlContext, operation: Operation) -> str:
    schemas, known = context.registry.snapshot, _chosen(context, operation)
    chosen = selection(operation.parameters, known)
    ask = partial(asking.ask_drivers, context.engine)
    environment, reported = context.settings.environment, reported_cursors(context.engine)
    note = partial(context.background_tasks.note, operation.operation_id)
    done = replay_all(
        context.paths, environment, schemas, known, chosen, dry_run=False, ask=ask, reported=reported, note=note
    )
    message = _counted([each.done for each in done])
    _note(
        context, operation, {each.game_key: plain(each.error) if each.error else _counted([each.done]) for each in done}
    )
    failed = [f"{each.game_key}: {plain(each.error)}" for each in done if each.error]
    if failed:
        raise Refused(f"{join_limited(failed)}. Of the others {message}")
    return message


def _note(context: ControlContext, operation: Operation, said: Mapping[str, str]) -> None:
    """Note what became of games (by key), while others of the operation are still being worked on."""
    events = (TargetEvent(f"game:{key}", operation.kind, detail) for key, detail in said.items())
    note_events(context.engine, [(operation.operation_id, each) for each in events])


def _chosen(context: ControlContext, operation: Operation) -> dict[str, str]:
    known = known_names(context.engine)
    return {key: known[key] for key in operation.preview}


def _counted(done: Sequence[Replayed]) -> str:
    counts = {
        "landed": sum(each.landed for each in done),
        "there already": sum(each.present for each in done),
        "still refused": sum(sum(each.refused.values()) for each in done),
        "waiting for their stream": sum(each.waiting for each in done),
        "not in bronze": sum(each.not_in_bronze for each in done),
        "taken out of quarantine": sum(each.removed for each in done),
    }
    return f"{', '.join(f'{count:,} {name}' for name, count in counts.items())}."


def _see_replayed(context: ControlContext, operation: Operation, *, keep: bool = False) -> StepResult:
    """Count what is left of the chosen rows; quarantine may be large, so that is done in a thread, too."""
    look = partial(_left, context, operation)
    return looked(context, operation, look, "The controller counts the rows left in quarantine.", keep=keep)


def _left(context: ControlContext, operation: Operation) -> str:
    known, left = _chosen(context, operation), 0
    with opened(context.paths, known, selection(operation.parameters, known)) as quarantined:
        left = sum(quarantined.places(name).num_rows for name in known.values())
    return f"{left:,} of such rows are in quarantine now."


def _see_rebuilt(context: ControlContext, operation: Operation) -> StepResult:
    """Look whether the driver of each goes on with the new table; where none runs, the table itself is looked at."""
    journal = steps(context.engine, operation.operation_id)
    switched = max(each.ended_at or 0.0 for each in journal if each.name == "rebuild")
    assignments, groups, decisions = (
        read_assignments(context.engine),
        read_group_liveness(context.engine, context.settings.metrics),
        decided(context.engine),
    )
    waiting, alone, parked = [], [], []
    for key in operation.preview:
        assignment = assignments.get(key)
        group = groups.get(assignment.group or "") if assignment is not None else None
        if assignment is None or group is None or not group.liveness.is_live:
            alone.append(key)  # its table has been seen: the work ended with a look at it
        elif assignment.reported_group != assignment.group or (assignment.reported_at or 0.0) <= switched:
            waiting.append(key)
        elif (decision := decisions.get(key, _NOTHING)).parked_at is not None:
            parked.append(key)
        elif assignment.lane != Lane.PAUSED and (
            assignment.lane == Lane.QUARANTINED or decision.failures or not _is_past(context, assignment)
        ):
            waiting.append(key)
    if waiting:
        late = f"The drivers of {len(waiting)} do not go on with the new table yet: {join_limited(waiting)}."
        return StepResult("waiting", late)
    parts = ["The drivers go on with the new tables."] if len(alone) < len(operation.preview) else []
    parts += [f"Parked again, to be tried again by `turnout repair retry`: {join_limited(parked)}."] if parked else []
    parts += [f"No driver carries {join_limited(alone)} now."] if alone else []
    return StepResult("done", " ".join(parts))


def _is_past(context: ControlContext, assignment: GameAssignment) -> bool:
    """Return whether a driver has come as far as the new table: a cursor below its own is the old generation's."""
    newest = newest_generation(context.paths, context.settings.environment, assignment.game_key) or 1
    app_id = stream_app_id(context.settings.environment, GameKey(assignment.game_key), newest)
    table = CursorTable.open(context.paths.table(GameKey(assignment.game_key)), app_id)
    return table is not None and assignment.cursor_seq is not None and assignment.cursor_seq >= (table.cursor or 0)


def _done(verb: str, operation: Operation) -> str:
    return f"{verb}: {join_limited(sorted(operation.preview))}."


def _weigh_replay(intent: Intent) -> Level:
    """Weigh the rows that have killed a worker more: what reads such a row may die of it."""
    return of_one_game(2 if intent.parameters.get("refused_for") == KILLS_WORKER else 1)(intent)


def _obstacle_to_replay(facts: GameFacts) -> str | None:
    why = _obstacle_by_space(facts) or _lacks(
        OperationKind.REPLAY, has_schema=facts.has_schema, has_table=facts.has_table
    )
    if why is not None or facts.quarantined is None:
        return why  # where nobody has counted, the replay will
    if not sum(facts.quarantined.values()):
        return f"Quarantine holds no {'such row' if any(facts.rows.values()) else 'row'} of it."
    if set(facts.quarantined) == {KILLS_WORKER} and facts.rows.get("refused_for") is None:
        return (
            "All its rows in quarantine have killed a worker, and may kill the controller: only "
            "`turnout repair replay --quarantine-reason kills_worker` takes them."
        )
    return None


def _replayed_rows(facts: GameFacts) -> str:
    count = None if facts.quarantined is None else sum(facts.quarantined.values())
    of_all = "the chosen of its rows in quarantine" if any(facts.rows.values()) else "its rows in quarantine"
    rows = f"{of_all} and counts them" if count is None else f"{count:,} rows in quarantine"
    return f"Decodes {rows}: what decodes goes into its table, the rest stays."


def obstacle_by_table(kind: OperationKind, facts: GameFacts) -> str | None:
    """Return why a repair that reads or replaces a game's table is not possible."""
    is_there = facts.has_table or (kind == OperationKind.REBUILD and facts.had_table)
    return _obstacle_by_space(facts) or _lacks(kind, has_schema=facts.has_schema, has_table=is_there)


def _obstacle_by_space(facts: GameFacts) -> str | None:
    """Return why nothing can write to a game's table: its last commit found no space, and none has landed since."""
    decision = facts.decision
    if not decision.failures or not lacks_space(decision.evidence or ""):
        return None
    return "Its commits fail for lack of space. Free space first, and retry."


def _rebuilt(intended: Intent) -> list[Change]:
    return [
        Change(f"game:{key}", f"generation {number}", f"generation {number + 1}, made from bronze")
        for key, number in intended.preview.items()
    ]


REPLAY: Final = OperationDefinition(
    OperationKind.REPLAY,
    Role.OPERATOR,
    _weigh_replay,
    (
        StepDefinition("replay", _replay, _WORK_SECONDS, reports=True),
        StepDefinition(
            "verify", _see_replayed, _SEEN_SECONDS, verifies=True, reports=True, seen=partial(_see_replayed, keep=True)
        ),
    ),
    _facts,
    partial(_done, "Replayed"),
    of_game=Offer(_obstacle_to_replay, _replayed_rows, (OperationKind.RETRY,), repairs=True),
    takes_rows=True,
)
REBUILD: Final = OperationDefinition(
    OperationKind.REBUILD,
    Role.OPERATOR,
    of_one_game(2),
    (
        StepDefinition("rebuild", _rebuild, _WORK_SECONDS, reports=True),
        StepDefinition("verify", _see_rebuilt, _SEEN_SECONDS, verifies=True, reports=True, seen=_see_rebuilt),
    ),
    _facts,
    partial(_done, "Rebuilt"),
    of_game=Offer(
        partial(obstacle_by_table, OperationKind.REBUILD),
        "Reads all its bronze and replaces all files of its table in one commit; until then the old ones serve.",
        (OperationKind.REPLAY, OperationKind.RETRY),
        repairs=True,
    ),
    changes=_rebuilt,
)
