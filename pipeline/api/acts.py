"""Acts of people: previews of operations, planned as commands plan them, and their submission; the controller acts.

A preview carries its own key, so however often it is submitted, it is one operation. The caller has verified the actor;
`gate` checks their role again. Previews raise `Refused` where the control store cannot be read, acts where it does not
answer; then nothing is written.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from pipeline.api.checks import Check, checks
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused, first_line
from pipeline.base.texts import first_lines, visible
from pipeline.control import gate, group_proposals
from pipeline.control.capabilities import read_all_facts, with_quarantined
from pipeline.control.group_proposals import GroupProposal
from pipeline.control.operations import executor, registry
from pipeline.control.operations.definition import Change, OperationProposal
from pipeline.control.proposals import PlacementView, propose, undo
from pipeline.control.repair_proposals import RepairPlanner
from pipeline.data.repair.quarantined import moment
from pipeline.health.verdicts.placement.capacity import GroupLoad, Loads
from pipeline.health.verdicts.placement.planner import lines_of
from pipeline.store import operations
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind
from pipeline.store.groups import Group
from pipeline.store.operations import Intent, Operation, OperationConflict
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_versions import newest_registrations

__all__ = [
    "Check",
    "Follows",
    "GroupProposal",
    "Preview",
    "Submit",
    "Waiting",
    "cancel",
    "close",
    "moment",
    "plan_group",
    "preview_drain",
    "preview_move",
    "preview_named",
    "preview_proposed",
    "preview_repair",
    "preview_undo",
    "resume",
    "submit",
    "touched",
    "waiting_rows",
    "write_group",
    "writing",
]

Submit: TypeAlias = Callable[[OpenEnvironment, Intent], Operation | str]
"""Submits an intent as its actor; a text says what was done at once, without an operation."""


@contextmanager
def writing() -> Iterator[None]:
    """Turn a failed write into a reason for people."""
    try:
        yield
    except OperationConflict as stale:
        raise Refused("This operation was changed after you opened it. Reload it.") from stale
    except SQLAlchemyError as error:
        raise Refused(
            f"The control store did not answer: {first_line(error)}. Try again. Confirming twice submits one operation."
        ) from error


@writing()
def submit(environment: OpenEnvironment, intent: Intent) -> Operation:
    """Submit one operation as the intent's actor; the same intent submitted again is the same operation.

    Raises:
        Refused: the actor has not the role for it, it disturbs and has no reason, or one of its targets belongs to
            another open operation.
    """
    return gate.submit(environment.settings, environment.engine, intent)


@dataclass(frozen=True, slots=True)
class Follows:
    """An operation that is of use once an act is done, on these games."""

    kind: OperationKind
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be submitted, and what a person is shown of it."""

    intent: Intent
    lines: tuple[str, ...]  # raw names are in them: draw them as text
    games: int  # that it touches, those of its groups included; of a change of access the cells
    seen_at: float  # Unix seconds
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)  # more lines, which may be many, under a title
    submit: Submit = submit
    needs: str | None = None  # the act whose role it takes; None: the intent's kind. Empty: anybody may
    label: str | None = None  # of the button that asks for it
    diff: tuple[tuple[str, str], ...] = ()  # what changes: (+ or -, a line), raw names in it
    checks: tuple[Check, ...] = ()
    amount: str | None = None  # of what is acted on, such as "7,980 rows"; None: games or groups are counted
    follows: Follows | None = None  # what is of use once it is done
    groups: tuple[tuple[GroupLoad, GroupLoad], ...] = ()  # before and after: the load of those that it changes

    @property
    def act(self) -> str | None:
        """The act whose role it takes; None: anybody may."""
        return (self.intent.kind if self.needs is None else self.needs) or None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows in quarantine that an operation could take now."""

    rows: int
    why_not_yet: str | None = None  # None: now


def touched(intent: Intent, assignments: Mapping[str, GameAssignment]) -> int:
    """Count the games that an intent touches: those it is about, and all of the groups it is about."""
    about = {target.partition(":")[2] for target in intent.targets if target.startswith("game:")}
    names = {target.partition(":")[2] for target in intent.targets if target.startswith("group:")}
    return len(about | {key for key, assignment in assignments.items() if assignment.group in names})


# --------------------------------------------------------------------------------------------------------------- places


@reading()
def preview_move(environment: OpenEnvironment, actor: str, keys: Sequence[str], group: str | None) -> Preview:
    """Plan to move games, by their keys, to a group.

    Raises:
        Refused: it cannot be, or there is nothing to move.
    """
    if not keys or group is None:
        raise Refused("Choose the games to move and their new group.")
    view = PlacementView(environment.settings, environment.engine)
    proposal = view.move(keys, group, actor)
    if not proposal.intent.targets:
        raise Refused(f"Nothing to move: choose games that are not in group {group} already.")
    left = [f"left out: {key} is in group {group} already" for key in proposal.unchanged(keys)]
    return _with_loads(_preview(environment, proposal, view.assignments, left), view.loads)


@reading()
def preview_drain(environment: OpenEnvironment, actor: str, group: str) -> Preview:
    """Plan to drain a group: move all its games where they fit, and assign no more to it.

    Raises:
        Refused: they do not fit, or the group is drained and empty already.
    """
    view = PlacementView(environment.settings, environment.engine)
    proposal = view.drain(group, actor)
    if not proposal.intent.targets:
        raise Refused(f"Nothing to drain: group {group} is drained and empty.")
    return _with_loads(_preview(environment, proposal, view.assignments), view.loads)


@reading()
def preview_proposed(environment: OpenEnvironment, actor: str) -> Preview:
    """Plan as one move the games that must leave their group and the moves that balance the load.

    Raises:
        Refused: there are none.
    """
    view = PlacementView(environment.settings, environment.engine)
    placed, rebalanced = view.best()
    proposal = view.rebalance(placed, rebalanced, actor)
    lines = lines_of(placed, rebalanced, view.trigger_seconds)
    if not proposal.intent.targets:
        named = [_named(line, view.assignments) for line in lines]
        why = "no group has room for the games that must move, and no move improves the balance."
        raise Refused("\n".join([f"Nothing to move: {why}", *named]))
    said = replace(proposal, lines=proposal.lines[-1:])  # the lines of the moves say why
    return _with_loads(_preview(environment, said, view.assignments, lines), view.loads)


@reading()
def plan_group(environment: OpenEnvironment, seen: Group | None, then: Group) -> GroupProposal:
    """Plan to change a group's settings as seen, or to create the group.

    Raises:
        Refused: the change is impossible or empty, or another person was faster.
    """
    settings, store = environment.settings, environment.engine
    if seen is None:
        return group_proposals.make(settings, store, then)
    return group_proposals.change(settings, store, seen, then)


@writing()
def write_group(environment: OpenEnvironment, proposal: GroupProposal, actor: str, reason: str) -> str:
    """Create or change the group at once, without an operation, and return the outcome.

    Raises:
        Refused: as `group_proposals.write`.
    """
    return group_proposals.write(environment.settings, environment.engine, proposal, actor, reason)


# -------------------------------------------------------------------------------------------------------------- streams


@reading()
def preview_named(environment: OpenEnvironment, actor: str, kind: str, names: Sequence[str]) -> Preview:
    """Plan an operation (`kind`) on games or groups that are named, by their keys or names.

    Raises:
        Refused: one of them does not exist or does not allow it, or nothing would change.
    """
    proposal = propose(environment.engine, kind, names, actor)
    assignments = read_assignments(environment.engine)
    known = registry.find(kind)
    left = [f"{name} {known.unchanged}" for name in proposal.unchanged(names)] if known is not None else []
    if not proposal.intent.targets:
        raise Refused(f"Nothing to {kind}: {'; '.join(first_lines(left)) or 'none is chosen'}.")
    return _preview(environment, proposal, assignments, [f"left out: {each}" for each in first_lines(left)])


@reading()
def preview_repair(
    environment: OpenEnvironment,
    actor: str,
    kind: str,
    keys: Sequence[str] | None,
    choice: Mapping[str, str | None] | None = None,
) -> Preview:
    """Plan a retry, a replay, a dedupe or a rebuild (`kind`) of those of these games for which it is possible now.

    `keys` of None are, for a replay, all games that have rows in quarantine which `choice` takes, see `repairs.choice`.

    Raises:
        Refused: it is possible for none, which says why for each and what is instead; it would change nothing; or
            something cannot be read.
    """
    if keys is not None and not keys:
        raise Refused(f"Nothing to {kind}: no game is chosen.")
    store = environment.engine
    assignments = read_assignments(store)
    with _naming(assignments):
        planner = RepairPlanner(environment.settings, environment.paths, store, briefly=True)
        proposal = planner.plan(kind, keys, actor, choice=choice)
    left = [f"left out: {_named(each, assignments)}" for each in first_lines(proposal.left_out)]
    preview = _preview(environment, proposal, assignments, left)
    if not proposal.intent.targets:
        is_empty = keys is None and not left
        why = ": no active game with a schema has such rows in quarantine" if is_empty else ""
        raise Refused("\n".join([f"Nothing to {kind}{why}.", *preview.lines]))
    return preview


@contextmanager
def _naming(assignments: Mapping[str, GameAssignment]) -> Iterator[None]:
    """Put the names of games before the lines of a refusal that begin with their keys; of many, only the first ones."""
    try:
        yield
    except Refused as refused:
        title, *lines = str(refused).splitlines()
        named = [_named(each, assignments) for each in first_lines(lines)]
        raise Refused("\n".join([title, *named])) from refused


# ----------------------------------------------------------------------------------------------------------- operations


@reading()
def preview_undo(environment: OpenEnvironment, actor: str, operation_id: str) -> Preview:
    """Plan the inverse of an operation.

    Raises:
        Refused: it has none, or it cannot be any more.
    """
    store = environment.engine
    done = operations.operation(store, operation_id)
    proposal = undo(environment.settings, store, done, actor)
    assignments = read_assignments(store)
    if not proposal.intent.targets:
        raise Refused(f"Nothing to undo: operation {done.operation_id[:8]} has no effect left.")
    return _preview(environment, proposal, assignments)


@reading()
def waiting_rows(environment: OpenEnvironment, follows: Follows) -> Waiting:
    """Count the rows in quarantine that a replay could take, and say why it would come too soon.

    Raises:
        Refused: quarantine cannot be read.
    """
    store, paths = environment.engine, environment.paths
    now, metrics = store_time(store), environment.settings.metrics
    facts = read_all_facts(store, paths, follows.keys, now, metrics=metrics)
    rows = sum(sum((with_quarantined(each, paths).quarantined or {}).values()) for each in facts.values())
    assignments, numbers = read_assignments(store), newest_registrations(store)
    old = [
        key
        for key in facts
        if (each := assignments.get(key)) is not None
        and each.schema_set is not None
        and each.schema_set < numbers.get(key, 0)
    ]
    return Waiting(rows, "Its driver still writes by the earlier schemas; it takes the new ones soon." if old else None)


@writing()
def resume(environment: OpenEnvironment, actor: str, seen: Operation, reason: str = "") -> Operation:
    """Let an operation that needs a person go on, if it is as it was seen.

    Raises:
        Refused: it does not wait for a person, or has changed since.
    """
    return executor.resume(environment.engine, seen, actor, reason)


@writing()
def close(environment: OpenEnvironment, actor: str, seen: Operation, reason: str) -> Operation:
    """End an operation that needs a person, if it is as it was seen.

    Raises:
        Refused: it does not wait for a person, or has changed since.
    """
    return executor.close(environment.engine, seen, actor, reason)


@writing()
def cancel(environment: OpenEnvironment, actor: str, seen: Operation, reason: str) -> Operation:
    """End an operation before it is done, if it is as it was seen.

    Raises:
        Refused: it has ended, waits for a person, cannot be stopped now or has changed since.
    """
    return executor.cancel(environment.engine, seen, actor, reason)


def _preview(
    environment: OpenEnvironment, proposal: OperationProposal, assignments: Mapping[str, GameAssignment],
    left: Sequence[str] = (),
) -> Preview:  # fmt: skip
    intent, known = proposal.intent, registry.find(proposal.intent.kind)
    changes = proposal.changes or (() if known is None else known.changes(intent))
    names = {each.target: _short(each.target, assignments) for each in changes}
    shown = {each.target.partition(":")[2] for each in changes}
    lines = [*(each for each in proposal.lines if _about(each) not in shown), *left]
    first = sorted(lines, key=lambda line: line.partition(":")[0] in assignments)  # the sum, then each game
    wide = min(max((len(each) for each in names.values()), default=0), _MOST_WIDE)
    return Preview(
        intent, tuple(_named(line, assignments) for line in first), touched(intent, assignments), time.time(),
        diff=tuple(line for each in changes for line in _diff(names[each.target].ljust(wide), each)),
        checks=checks(environment, intent, assignments), amount=proposal.amount,
    )  # fmt: skip


_MOST_WIDE: Final = 32  # characters of names that are aligned


def _about(line: str) -> str:
    """Return the game or group that a line begins with."""
    return line.partition(":")[0].removeprefix("group ")


def _short(target: str, assignments: Mapping[str, GameAssignment]) -> str:
    kind, _, name = target.partition(":")
    return visible(assignments[name].game, 60) if kind == "game" and name in assignments else f"{kind} {name}"


def _diff(name: str, change: Change) -> list[tuple[str, str]]:
    note = f", {change.note}" if change.note else ""
    return [("-", f"{name}  {change.was}"), ("+", f"{name}  {change.then}{note}")]


def _with_loads(preview: Preview, loads: Loads) -> Preview:
    """Add the loads of the groups that lose or get games."""
    after = loads.after(preview.intent.parameters.get("assignments", {}))
    changed = [(group, after[name]) for name, group in loads.groups.items() if after[name] != group]
    return replace(preview, groups=tuple(changed))


def _named(line: str, assignments: Mapping[str, GameAssignment]) -> str:
    """Put a game's name before a line that begins with its key."""
    key = line.partition(":")[0]
    return f"{visible(assignments[key].game, 60)} · {line}" if key in assignments else line
