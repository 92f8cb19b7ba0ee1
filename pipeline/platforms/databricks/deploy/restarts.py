"""Starts again what runs as before a change: what the platform keeps running at once, then groups in waves.

Groups go on until the new controller runs, as nothing else starts them. A wave is a tenth of the groups, at least one.
The next one begins when each group of the last one runs again: a version that does not start stops one wave, not the
fleet. What is left over stands in the journal, and the next apply goes on.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.failpoints import effect
from pipeline.base.texts import join_limited
from pipeline.platforms.databricks.deploy.desired import group_of
from pipeline.platforms.databricks.deploy.groups import Groups
from pipeline.platforms.databricks.deploy.journal import Journal
from pipeline.platforms.databricks.deploy.kinds.jobs import active_runs
from pipeline.platforms.databricks.deploy.kinds.kind import Scope
from pipeline.platforms.databricks.deploy.plan import DeployStep
from pipeline.platforms.databricks.workspace.jobs import START_SECONDS, STOP_SECONDS, cancel_run
from pipeline.store.database.engine import STORE_AWAY

PATIENCE_SECONDS: Final = STOP_SECONDS + START_SECONDS
"""A group ends its pass, and its cluster and driver start."""

_CONTROLLER: Final = "jobs.controller"
_WAVES: Final = 10
_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Restarts:
    """Starts runs of a target again."""

    scope: Scope
    journal: Journal
    groups: Groups | None  # None: the control store cannot be reached
    done: Callable[[DeployStep], None]  # hears of each job that has started again, or soon does
    patience_seconds: float = PATIENCE_SECONDS
    look_seconds: float = _LOOK_SECONDS

    def run(self, steps: Sequence[DeployStep]) -> None:
        """Start again the runs that the journal has for these steps and that go on, groups after all others.

        A group whose run has ended already, such as in an apply that was cut off, is a wave's as well: it has to run.

        Raises:
            Refused: the controller or a group does not run, so the others keep what they run; or the store cannot be
                reached.
        """
        by_group = {group: step for step in steps if (group := group_of(step.address)) is not None}
        others = {step.address: step for step in steps if group_of(step.address) is None}
        before = self.groups.controller() if by_group and self.groups is not None else None
        cancelled = {address for address, step in others.items() if self._cancel(step)}
        controller = others.pop(_CONTROLLER, None) if by_group else None
        for address, step in others.items():
            self._settle(step, is_new=address in cancelled)
        if not by_group:
            return
        if (groups := self.groups) is None:
            raise Refused(
                f"The control store is not read, so the groups {join_limited(sorted(by_group))} go on as before the "
                "change. Apply again where it can be reached."
            )
        other_than = before if _CONTROLLER in cancelled else None
        self._wait(lambda: groups.controller() not in {None, other_than}, "The controller", sorted(by_group))
        if controller is not None:
            self._settle(controller, is_new=_CONTROLLER in cancelled)
        names = list(by_group)
        size = -(-len(names) // _WAVES)
        while names:
            wave, names = names[:size], names[size:]
            self._wave(groups, {name: by_group[name] for name in wave}, names)

    def _wave(self, groups: Groups, steps: Mapping[str, DeployStep], later: Sequence[str]) -> None:
        """Start groups again, and wait until each of them runs; those that come `later` go on meanwhile."""
        ended: dict[str, int | None] = {}
        for group, step in steps.items():
            if self._left(step):
                with effect("deploy_restart"):
                    ended[group] = groups.restart(group)
            if ended.get(group) is None:  # nothing runs, or what a person has started by hand
                self._cancel(step)
        for group, step in steps.items():
            self._wait(partial(groups.runs_again, group, ended.get(group)), f"The group {group}", later)
            self._settle(step)

    def _wait(self, condition: Callable[[], bool], who: str, later: Sequence[str]) -> None:
        deadline = time.monotonic() + self.patience_seconds
        while not _holds(condition):
            if time.monotonic() > deadline:
                others = f" The groups {join_limited(later)} go on as before the change." if later else ""
                raise Refused(
                    f"{who} does not run after {self.patience_seconds / 60:.0f} minutes.{others} Look at `turnout "
                    "status` and at its run in the workspace, then apply again."
                )
            time.sleep(self.look_seconds)

    def _cancel(self, step: DeployStep) -> bool:
        """End runs at once, and return whether there were any; the platform or the controller starts others."""
        left = self._left(step)
        for run_id in left:
            cancel_run(self.scope.workspace, run_id)
        return bool(left)

    def _left(self, step: DeployStep) -> list[int]:
        """Return the runs that began before the change and go on."""
        entry = self.journal.entries.get(step.address)
        if entry is None or not entry.runs or step.id is None:
            return []
        return [each for each in active_runs(self.scope, step.id) if each in entry.runs]

    def _settle(self, step: DeployStep, *, is_new: bool = True) -> None:
        self.journal.write("restarted", step.address, step.label)
        if is_new:
            self.done(DeployStep("restart", step.address, step.label, why="started again"))


def _holds(condition: Callable[[], bool]) -> bool:
    """Return whether a condition holds; a store that is away for a moment has not shown it yet."""
    try:
        return condition()
    except STORE_AWAY:
        return False
