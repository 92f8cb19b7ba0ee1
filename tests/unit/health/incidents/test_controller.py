"""An outage of the controller is an incident while it lasts, and stays in the list of ended ones afterwards."""

from itertools import count

from app.fleet import strip, timeline
from pipeline.health.incidents.controller import keep_controller
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.processes import DriverState
from pipeline.store.database.states import Cause
from tests.unit.app.fleet_world import NOW, Game, fleet, series

RUNS = DriverState("controller", "main", Liveness("running", NOW - 900, None), is_problem=False)
SILENT = DriverState("controller", "main", Liveness("unknown", NOW - 20, "is silent for 20 s"), is_problem=True)


def keep(before: tuple[Incident, ...], state: DriverState | None, now: float) -> tuple[Incident, ...]:
    numbers = count()
    return keep_controller(before, state, now, lambda: f"new {next(numbers)}")


def test_an_outage_of_a_minute_stays_in_the_list_the_strip_and_the_chart() -> None:
    """It begins with the last heartbeat, is one incident for all looks, and has its length at its end."""
    begun = keep((), SILENT, NOW)
    assert [(each.since, each.ended_at, each.finding.title) for each in begun] == [
        (NOW - 20, None, "The controller fell silent")
    ]
    assert keep(begun, SILENT, NOW + 5)[0].incident_id == begun[0].incident_id
    over = keep(begun, RUNS, NOW + 40)
    assert (over[0].ended_at, over[0].finding.title) == (NOW + 40, "No controller ran")
    assert over[0].finding.evidence[0] == "no controller ran for 1 min"
    assert keep((), RUNS, NOW) == ()
    past = [Incident("i", over[0].finding, (), None, NOW - 600, NOW - 540, None, "recovering")]
    seen, hour = fleet([Game("Chess")]), series(["chess"])
    slots = [each for each in strip.slots(hour, seen, NOW, None, past) if each.late]
    assert [each.title for each in slots] == [f"07:{minute} UTC: incident: controller away" for minute in (50, 51)]
    marks = timeline.events(seen, (), (), NOW - 3600, (), past)
    assert [(each.at, each.label) for each in marks if "controller" in each.label] == [(NOW - 600, "controller away")]


def test_a_controller_that_nobody_needs_or_that_is_deployed_is_no_incident() -> None:
    """One that ended in order has a minute to come back; a laptop without groups of its own needs none."""
    stopped = DriverState("controller", "main", Liveness("stopped", NOW - 30, "is stopped"), is_problem=True)
    assert keep((), stopped, NOW) == ()
    assert [each.finding.cause for each in keep((), stopped, NOW + 31)] == [Cause.CONTROLLER]
    unneeded = DriverState("controller", "main", Liveness("stopped", NOW - 900, "is stopped"), is_problem=False)
    assert keep((), unneeded, NOW) == keep((), None, NOW) == ()
