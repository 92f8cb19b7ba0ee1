"""What the pages want of a cluster group: first what it would change, then the write, if nobody was faster.

Nothing here draws. No operation is submitted: it is written at once, as `turnout groups create | set` do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.state import services
from app.state.previews import writing
from app.state.services import Environment
from pipeline.control import group_changes
from pipeline.errors import Refused
from pipeline.names import is_said
from pipeline.store.assignments import read_assignments
from pipeline.store.groups import Group, change, create, read_groups, require_possible, require_sense
from pipeline.store.loads import read_loads

MAKE: Final = "create a group"
CHANGE: Final = "change a group"
"""What roles call the two."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A group as it would be, beside what a person saw of it."""

    seen: Group | None  # None: it is made
    then: Group
    lines: tuple[str, ...]  # raw texts are in them: draw them as text
    disturbs: bool  # so a reason is needed
    seen_at: float  # Unix seconds

    @property
    def kind(self) -> str:
        """What roles call it."""
        return MAKE if self.seen is None else CHANGE

    def lacking(self, reason: str) -> str | None:
        """Say what is missing for it to be written; None when nothing is."""
        if self.disturbs and not is_said(reason):
            return "Enter a reason. It is kept in the audit log."
        return None


def preview_make(environment: Environment, group: Group) -> Proposal:
    """Plan to make a group.

    Raises:
        Refused: its name or what is wanted of it makes no sense, there is one of this name, or the control store cannot
            be read.
    """
    require_possible(group)
    with services.reading():
        store = services.engine(environment)
        if group.name in read_groups(store):
            raise Refused(f"There is a group {group.name} already. Choose it above to change it.")
        waiting = sum(each.group is None and each.retired_at is None for each in read_assignments(store).values())
    lines = [f"group {group.name}", *group_changes.render_changes(None, group, environment.settings.spark.master)]
    lines.append(
        "The controller starts its driver."
        if group.backend != "none"
        else f"turnout does not start its driver. Run `turnout groups run {group.name}`."
    )
    lines.append(
        f"{waiting} games wait for a group, and may go there." if waiting else "No game moves there by itself."
    )
    return _proposal(None, group, lines, disturbs=False)


def preview_change(environment: Environment, seen: Group, then: Group) -> Proposal:
    """Plan to change what is wanted of a group from what was seen.

    Raises:
        Refused: it makes no sense or is as it was, another person has changed the group since it was seen, or the
            control store cannot be read.
    """
    require_sense(then)
    with services.reading():
        store = services.engine(environment)
        now = read_groups(store).get(seen.name)
        loads = read_loads(store, time.time(), environment.settings.placement.max_games_per_group)
    master = environment.settings.spark.master
    if now is None or now.version != seen.version:
        raise Refused("\n".join([_overtaken(seen), *([] if now is None else what_changed(seen, now, master))]))
    lines = group_changes.render_changes(seen, then, master)
    if not lines:
        raise Refused(f"Nothing to change: group {seen.name} is already in that state.")
    effects = group_changes.effects(seen, then, loads.groups.get(seen.name))
    return _proposal(seen, then, [f"group {seen.name}", *lines, *effects], disturbs=bool(effects))


def what_changed(seen: Group, now: Group, own_master: str) -> list[str]:
    """Return what another person has changed of a group since it was seen, "was → is" in a line each."""
    state = [f"state: {seen.desired} → {now.desired}"] if seen.desired != now.desired else []
    return [*state, *group_changes.render_changes(seen, now, own_master)]


def write(environment: Environment, proposal: Proposal, reason: str) -> str:
    """Make the group or change it, as who acts here, and return what was done.

    Raises:
        Refused: who acts has not the role for it, there is one of this name, another person has changed the group since
            it was seen, or the control store does not answer. Then nothing is written.
    """
    actor = services.permitted(environment, proposal.kind)
    with writing():
        store = services.engine(environment)
        if proposal.seen is None:
            max_games = environment.settings.placement.max_games_per_group
            create(store, proposal.then, actor, reason, max_games, environment.settings.metrics.heartbeat_seconds)
            return f"Group {proposal.then.name} is made."
        change(store, proposal.seen, proposal.then, actor, reason)
    return f"Group {proposal.then.name} is changed."


def _overtaken(seen: Group) -> str:
    return f"Group {seen.name} was changed after you opened it. Review it and try again."


def _proposal(seen: Group | None, then: Group, lines: Sequence[str], *, disturbs: bool) -> Proposal:
    return Proposal(seen, then, tuple(lines), disturbs, time.time())
