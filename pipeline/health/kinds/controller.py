"""The controller: the process that carries operations out and keeps drivers running."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from listeners.process_kinds import CONTROLLER as KIND
from listeners.process_kinds import ONLY
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.liveness import DriverFacts, Liveness, controller_absence
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind, plural

# Where ingest cannot read the control store these series are absent, and the judgement above grows old.
NO_CONTROLLER: Final = """\
max(turnout_controller_running) == 0
and on () (
  max(turnout_controller_supervised_groups) > 0
  or
  sum(max by (state) (turnout_operations_open{state!="needs_human"})) > 0
)"""


def judge_controller(facts: DriverFacts) -> Liveness:
    """Judge whether it lives. One whose clock is wrong runs: it reports nothing that its clock would make wrong."""
    liveness, driver = facts.judge(KIND, ONLY), facts.drivers.get((KIND, ONLY))
    if liveness.is_skewed and driver is not None:
        return replace(liveness, state="running", since=driver.started_at)
    return liveness


def _judge(facts: FleetFacts) -> Sequence[DriverState]:
    liveness = judge_controller(facts)
    is_needed = facts.waiting_operations > 0 or facts.supervised_groups > 0
    if liveness.is_live:
        bad = liveness.state == "running" and liveness.reason is not None
    else:
        bad = is_needed or liveness.state not in {"not_started", "stopped"}
    if liveness.state == "not_started" and not bad:
        return []
    is_awaited = is_needed and not facts.waiting_operations and facts.awaits(liveness)
    return [DriverState(KIND, ONLY, liveness, bad and not is_awaited, is_awaited)]


def _problem(state: DriverState, facts: FleetFacts) -> str:
    alarms = (state.liveness.reason or "").split("\n") if state.liveness.is_live else []
    has_more = len(alarms) > 1 or state.liveness.is_skewed
    return "\n".join([f"{_note(state.liveness, facts)}{_hint(state.liveness)}", *(alarms if has_more else [])])


def _hint(liveness: Liveness) -> str:
    if liveness.is_live:
        return ""
    if liveness.state == "unknown":
        return f": it {liveness.reason}. If its process has ended, start `turnout controller run`."
    return ". Start `turnout controller run`."


def _notes(state: DriverState, facts: FleetFacts) -> Sequence[str]:
    return [_note(state.liveness, facts)] if state.is_problem else ()


def _note(liveness: Liveness, facts: FleetFacts) -> str:
    waiting = facts.waiting_operations
    if liveness.is_live:
        skew, alarms = "", (liveness.reason or "").split("\n")
        if liveness.is_skewed:  # the first line says by how much
            skew, alarms = "'s clock is wrong", alarms[1:]
        if skew and not alarms:
            return f"the controller{skew}"
        shown = f": {alarms[0]}" if len(alarms) == 1 else f" {plural(len(alarms), 'alarm')}"
        return f"the controller{skew}{', and it' if skew else ''} reports{shown}"
    absence = controller_absence(liveness) or ""
    if not waiting:
        return absence
    return f"{plural(waiting, 'operation')} {'waits' if waiting == 1 else 'wait'} and {absence}"


CONTROLLER: Final = ProcessKind(
    KIND,
    _judge,
    _problem,
    _notes,
    alert=Alert(
        "TurnoutControllerDown",
        "ticket",
        NO_CONTROLLER,
        "2m",
        "No controller runs, and it is needed",
        "Nothing restarts the drivers of "
        '{{ with query "max(turnout_controller_supervised_groups)" }}{{ . | first | value }}{{ end }} groups, and '
        "{{ with query \"sum(max by (state) (turnout_operations_open{state!='needs_human'}))\" }}"
        "{{ . | first | value }}{{ end }} operations wait. Streams go on.",
        "/",
    ),
    has_alarms=True,
    is_late=True,
    covers=lambda _, scope, __: scope == "controller",
)
