"""Pauses, resumes and repairs single derived streams: it is decided, and done when their drivers report it.

A repair names the generation that it replaces, so the driver that carries the stream begins one new generation, however
often it is killed: a generation that is there already has another id.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
)
from pipeline.control.roles import Role
from pipeline.store.database.states import OperationKind
from pipeline.store.derived import pause_within, read_streams, replace_within, resume_within
from pipeline.store.operations import Intent, Operation, lock_operation
from pipeline.store.rows import DerivedStream

_SEEN_SECONDS: Final = 900.0  # a driver may be within a commit with all rows of a new generation
_REPAIR_SECONDS: Final = 6 * 3600.0
_REPAIR: Final = OperationKind.REPAIR_DERIVED
_DOES: Final[Mapping[str, str]] = {
    OperationKind.PAUSE_DERIVED: (
        "Its driver ends a running commit; then nothing lands in its table until it is resumed. Its game goes on."
    ),
    OperationKind.RESUME_DERIVED: "It goes on from its table's position; no other stream is touched.",
    _REPAIR: "All rows come again in one commit; readers see the old ones until then.",
}


def plan(kind: str, names: Sequence[str], streams: Mapping[str, DerivedStream]) -> dict[str, str]:
    """Return what an operation is about: streams, by name, that it would change.

    Each has its state, `running` or `paused`, and of a repair the id of the generation that it replaces.

    Raises:
        Refused: a stream is not in force, or cannot be repaired now.
    """
    unknown = sorted(set(names) - streams.keys())
    if unknown:
        raise Refused(f"No such derived stream: {join_limited(unknown)}. `turnout derived list` shows those in force.")
    chosen = [streams[name] for name in sorted(set(names))]
    if kind == _REPAIR:
        return {each.name: _replaced(each) for each in chosen}
    is_left = kind == OperationKind.RESUME_DERIVED
    now = "paused" if is_left else "running"
    return {each.name: now for each in chosen if each.control.is_paused is is_left}


def _replaced(stream: DerivedStream) -> str:
    found = None if stream.state is None else stream.state.generation_id
    if stream.control.is_paused:
        raise Refused(f"Derived stream {stream.name} is paused: resume it, then repair it.")
    if found is None:
        raise Refused(f"Derived stream {stream.name} has no table yet, as far as a driver has reported.")
    return found


def render_preview(kind: str, facts: Mapping[str, str], streams: Mapping[str, DerivedStream]) -> list[str]:
    """Return what an operation does, as lines for people."""
    lines = [_line(kind, streams[name], streams) for name in facts]
    return [*lines, f"{len(facts)} to {_verb(kind)}. {_DOES[kind]}"] if facts else []


def _line(kind: str, stream: DerivedStream, streams: Mapping[str, DerivedStream]) -> str:
    where = "no group" if stream.group is None else f"group {stream.group}"
    said = f"{stream.name}: of {stream.game_key}, {where}"
    if kind == _REPAIR and stream.state is not None:
        said += f", generation {stream.state.generation} with {stream.state.rows:,} rows"
    if kind == OperationKind.RESUME_DERIVED:
        said += f", paused by {stream.control.paused_by}: {stream.control.reason or 'no reason given'}"
    golds = sorted(each.name for each in streams.values() if each.source and each.source.name == stream.name)
    if not golds:
        return said
    follow = {
        OperationKind.PAUSE_DERIVED: "wait meanwhile", OperationKind.RESUME_DERIVED: "go on",
        _REPAIR: "are computed again then, with the same closing seqs",
    }  # fmt: skip
    return f"{said}; its gold tables {follow[OperationKind(kind)]}: {join_limited(golds)}"


def propose_derived(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str = "", undoes: str | None = None
) -> OperationProposal:
    """Plan an operation on derived streams that are named; those that it would not change are left out.

    Raises:
        Refused: as `plan`.
    """
    streams = read_streams(engine)
    facts = plan(kind, names, streams)
    targets = tuple(f"derived:{name}" for name in facts)
    about = {"streams": list(facts), "games": sorted({streams[name].game_key for name in facts})}
    intent = Intent(kind, targets, actor, reason, about, facts, undoes=undoes)
    return OperationProposal(intent, render_preview(kind, facts, streams))


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    return plan(operation.kind, operation.parameters["streams"], context.read(read_streams))


def _decide(context: ControlContext, operation: Operation) -> StepResult:
    with context.engine.begin() as connection:
        lock_operation(connection, operation)
        for name, now in operation.preview.items():
            match operation.kind:
                case OperationKind.PAUSE_DERIVED:
                    pause_within(connection, name, operation.actor, operation.reason)
                case OperationKind.RESUME_DERIVED:
                    resume_within(connection, name)
                case _:
                    replace_within(connection, name, now)
    return StepResult("done", f"Decided for {len(operation.preview)}.")


def _verify(context: ControlContext, operation: Operation) -> StepResult:
    streams = context.read(read_streams)
    gone = sorted(operation.preview.keys() - streams.keys())
    if gone:
        return StepResult("failed", f"Not in force any more: {join_limited(gone)}. The decision stays.")
    unseen = [name for name in operation.preview if not _is_seen(operation, streams[name])]
    if unseen:
        return StepResult("waiting", f"No driver has reported {len(unseen)} yet: {join_limited(unseen)}.")
    if operation.kind != _REPAIR:
        return StepResult("done", "Their drivers report it.")
    states = [state for name in operation.preview if (state := streams[name].state) is not None]
    said = (f"{each.name} has generation {each.generation} with {each.rows:,} rows" for each in states)
    return StepResult("done", f"{join_limited(list(said), text=str)}.")


def _is_seen(operation: Operation, stream: DerivedStream) -> bool:
    state = stream.state
    if state is None or state.reported_at <= operation.requested_at or state.group_name != stream.group:
        return False
    if operation.kind == _REPAIR:
        return state.generation_id not in {None, operation.preview[stream.name]}
    return bool(state.is_paused) is (operation.kind == OperationKind.PAUSE_DERIVED)


def _verb(kind: str) -> str:
    return kind.removesuffix("-derived")


def _define(
    kind: OperationKind, verb: str, unchanged: str, seconds: float, inverse: OperationKind | None = None
) -> OperationDefinition:
    steps = (
        StepDefinition("decide", _decide, 30.0),
        StepDefinition("verify", _verify, seconds, verifies=True, looks=True, reports=kind == _REPAIR),
    )
    return OperationDefinition(
        kind,
        Role.OPERATOR,
        lambda intent: 3 if len(intent.targets) > 1 else 2 if kind == _REPAIR else 1,
        steps,
        _facts,
        lambda operation: f"{verb}: {join_limited(sorted(operation.preview))}.",
        inverse,
        propose=partial(propose_derived, kind),
        unchanged=unchanged,
        verb=lambda _: _verb(kind),
        counts="derived stream",
    )


PAUSE: Final = _define(
    OperationKind.PAUSE_DERIVED, "Paused", "is paused already", _SEEN_SECONDS, OperationKind.RESUME_DERIVED
)
RESUME: Final = _define(
    OperationKind.RESUME_DERIVED, "Resumed", "is not paused", _SEEN_SECONDS, OperationKind.PAUSE_DERIVED
)
REPAIR: Final = _define(_REPAIR, "Repaired", "is repaired already", _REPAIR_SECONDS)
