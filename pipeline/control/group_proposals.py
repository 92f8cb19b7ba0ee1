"""A cluster group that is made or changed: first what it would be and whom that disturbs, then the write.

Called by `turnout groups create | set` and by the page Groups. It is written at once, without an operation, if nobody
was faster.
"""

import time
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.control import gate, group_changes
from pipeline.control.acts import DirectAct
from pipeline.health.facts.loads import read_loads
from pipeline.health.facts.placing import placing_by
from pipeline.settings.tree import Settings
from pipeline.store import groups
from pipeline.store.assignments import read_assignments
from pipeline.store.backends import backend_kind
from pipeline.store.groups import Group, read_groups, validate, validate_settings
from pipeline.store.processes.leases import store_time


@dataclass(frozen=True, slots=True, eq=False)
class GroupProposal:
    """A group as it would be, beside what a person saw of it."""

    seen: Group | None  # None: it is made
    then: Group
    lines: tuple[str, ...]  # for people; raw texts are in them
    effects: tuple[str, ...]  # what it does to the group's driver and games; with any, a reason is needed
    seen_at: float  # Unix seconds

    @property
    def act(self) -> DirectAct:
        """What it does."""
        return DirectAct.CREATE_GROUP if self.seen is None else DirectAct.CHANGE_GROUP


def make(settings: Settings, engine: Engine, group: Group) -> GroupProposal:
    """Plan to make a group.

    Raises:
        Refused: its name or a setting is invalid, or there is a group of this name.
    """
    validate(group)
    if group.name in read_groups(engine):
        raise groups.taken(group.name)
    waiting = sum(each.group is None and each.retired_at is None for each in read_assignments(engine).values())
    lines = (
        f"group {group.name}",
        *group_changes.render_changes(None, group, settings.spark.master),
        "The controller starts its driver."
        if backend_kind(group.backend).starts
        else f"turnout does not start its driver. Run `turnout groups run {group.name}`.",
        f"{waiting} games wait for a group, and may go there." if waiting else "No game moves there by itself.",
    )
    return GroupProposal(None, group, lines, (), time.time())


def change(settings: Settings, engine: Engine, seen: Group, then: Group) -> GroupProposal:
    """Plan a change of a group's settings, from those that the person saw.

    Raises:
        Refused: a setting is invalid, nothing changes, or another person has changed the group since it was seen.
    """
    validate_settings(then)
    now, master = read_groups(engine).get(seen.name), settings.spark.master
    if now is None or now.version != seen.version:
        differs = [] if now is None else what_changed(seen, now, master)
        raise Refused("\n".join([str(groups.overtaken(seen)), *differs]))
    lines = group_changes.render_changes(seen, then, master)
    if not lines:
        raise Refused(f"Nothing to change: group {seen.name} is already in that state.")
    max_games = settings.placement.max_games_per_group
    loads = read_loads(engine, store_time(engine), max_games, settings.metrics)
    effects = tuple(group_changes.effects(seen, then, loads.groups.get(seen.name)))
    return GroupProposal(seen, then, (f"group {seen.name}", *lines, *effects), effects, time.time())


def what_changed(seen: Group, now: Group, own_master: str) -> list[str]:
    """Return what another person has changed of a group since it was seen, "was → is" in a line each."""
    state = [f"state: {seen.desired} → {now.desired}"] if seen.desired != now.desired else []
    return [*state, *group_changes.render_changes(seen, now, own_master)]


def write(settings: Settings, engine: Engine, proposal: GroupProposal, actor: str, reason: str) -> str:
    """Make the group or change it, with its audit entry, and return what was done.

    Raises:
        Refused: the actor has not the role for it, it disturbs and has no reason, there is one of this name, or another
            person has changed the group since it was seen. Then nothing is written.
    """
    gate.permit(settings, engine, actor, proposal.act, reason, proposal.effects)
    if proposal.seen is None:
        groups.create(engine, proposal.then, actor, reason, placing_by(settings))
        return f"Group {proposal.then.name} is made."
    now = change(settings, engine, proposal.seen, proposal.then)
    if now.effects and not proposal.effects:
        stale = "It would disturb its driver or its games by now, which was not shown. Review it and try again."
        raise Refused("\n".join([stale, *now.effects]))
    groups.change(engine, proposal.seen, proposal.then, actor, reason)
    return f"Group {proposal.then.name} is changed."
