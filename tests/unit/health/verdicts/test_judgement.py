"""One judgement of the fleet: what counts at once, what does not count, and that all who show it agree."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from listeners.prometheus import Exposition
from listeners.sample import StreamState
from listeners.status import STATUSES
from pipeline.api.status import verdict
from pipeline.base.terminal import rendered
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, judge_fleet
from pipeline.health.verdicts.liveness import HeldLease, ProcessRun, judge_driver
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.reported import AssignedGame, GroupIntent
from pipeline.store.rows import CLOCK_BOUND_SECONDS, Driver, SourceReading
from tests.unit.health.verdicts.judgement_world import (
    BY_HAND,
    CONTROLLER,
    DRIVER,
    INGEST,
    LEASE,
    LEVEL,
    NOW,
    REPORTED,
    RUN,
    SUPERVISED,
    Given,
    ages,
    drivers,
    processes,
)


def ended(seconds: float, message: str = "killed by SIGKILL") -> ProcessRun:
    return replace(RUN, ended_at=NOW - seconds, died=True, message=message)


def test_a_fleet_in_which_all_runs_is_healthy() -> None:
    """Where every driver runs and reports there is nothing at which a person should look."""
    found = Given().judge()
    assert (found.healthy, found.headline, found.games["g"].status) == (True, "1 stream healthy", "RUNNING")


def test_what_the_controller_knows_counts_at_once() -> None:
    """A process whose end is on record is dead, though its last heartbeat is two seconds old and said running."""
    given_ended = Given(run=ended(1))
    assert given_ended.group() == ("dead", "ended 1 s ago: killed by SIGKILL")
    assert given_ended.game() == ("UNKNOWN", "its driver ended 1 s ago: killed by SIGKILL; last report: RUNNING")
    assert given_ended.judge().headline == "1 of 1 stream unknown; 1 group down (a)"


def test_a_source_that_is_silent_is_said_and_is_no_problem() -> None:
    """The alert on it and the headline have one limit; a restarted ingest gets its time, the unknown none."""
    for bronze_at, started_at, note in (
        (NOW - 301, NOW - 600, "; nothing has arrived for 5 min"),
        (NOW - 299, NOW - 600, ""),
        (NOW - 9_000, NOW - 299, ""),
        (None, NOW - 9_000, ""),
    ):
        found = Given(newest_bronze_at=bronze_at, ingest=replace(INGEST, started_at=started_at)).judge()
        words = "level with bronze" if note else "healthy"
        assert (found.healthy, found.headline) == (True, f"1 stream {words}{note}")
    silent = Given(newest_bronze_at=NOW - 9_000, ingest=replace(INGEST, state="stopped")).judge()
    assert silent.headline == "1 stream level with bronze; ingest stopped", "its own problem says it"


def test_a_lost_lease_counts_at_once() -> None:
    """A lease that ran out says that its holder has ended or hangs, whatever it reported before."""
    lost = Given(run=None, lease=replace(LEASE, expires_at=NOW - 1))
    assert lost.group() == ("unknown", "lost its lease 1 s ago: its process has ended or hangs")
    assert lost.game()[0] == "UNKNOWN"
    other = Given(run=None, lease=HeldLease(("other", 1), NOW - 900, NOW - 800))
    assert other.group()[0] == "running", "an old lease of another process says nothing about this one"


def test_a_silence_does_not_begin_anew_with_a_lost_lease() -> None:
    """A frozen driver is unknown since its last heartbeat, also once its lease has run out."""
    frozen, lease = replace(DRIVER, heartbeat_at=NOW - 40), replace(LEASE, expires_at=NOW - 5)
    assert judge_driver(frozen, LEASE, RUN, NOW, 15.0).since == NOW - 40
    assert judge_driver(frozen, lease, RUN, NOW, 15.0).since == NOW - 40
    assert judge_driver(replace(frozen, heartbeat_at=NOW - 1), lease, RUN, NOW, 15.0).since == NOW - 5


@pytest.mark.proves("G133")
def test_a_start_that_failed_counts_at_once() -> None:
    """A start that came to nothing is shown with its reason, though nothing ever reported."""
    failed = ProcessRun(2, NOW - 1, NOW - 1, died=True, message="no such file: spark", is_known=False)
    assert Given(driver=None, lease=None, run=failed).group() == (
        "dead",
        "could not be started 1 s ago: no such file: spark",
    )
    assert Given(run=failed, lease=None).group()[0] == "dead", "the row of an earlier process does not hide it"
    assert Given(run=failed).group()[0] == "running", "who holds the lease goes on whatever start has failed beside it"


@pytest.mark.parametrize(
    "given_new",
    [
        Given(lease=None, run=ProcessRun(2, NOW - 3, None, died=False, message=None)),
        Given(lease=None, run=ProcessRun(2, NOW - 3, None, died=False, message=None, is_known=False)),
        Given(run=None, lease=HeldLease(("host", 2), NOW - 3, NOW + 20)),
    ],
    ids=["the controller has started one", "it is being started", "another process holds the lease"],
)
def test_a_new_run_starts_without_the_old_ones_state(given_new: Given) -> None:
    """While a new process has not reported, the old row's RUNNING is nobody's word."""
    assert given_new.group() == ("starting", "was started 3 s ago and has not reported yet")
    status, reason = given_new.game()
    assert (status, reason) == (
        "STARTING",
        "its driver is starting, for 3 s, and has not reported this game yet; last report of the run before: RUNNING",
    )


def test_streams_of_the_run_before_start_until_the_new_run_reports() -> None:
    """A stream's row from before the driver's start says nothing of this run; one from after it does."""
    started = replace(DRIVER, started_at=NOW - 5)
    old = Given(driver=started, run=None, reported=replace(REPORTED, updated_at=NOW - 6))
    assert old.game()[0] == "STARTING"
    assert "last report of the run before: RUNNING" in str(old.game()[1])
    assert old.judge().headline == "1 stream starting"
    assert Given(driver=started, run=None, reported=replace(REPORTED, updated_at=NOW - 4)).game() == ("RUNNING", None)


def test_a_start_that_leads_nowhere_is_unknown() -> None:
    """A driver that fails at each start starts half of the time: its streams are unknown, so that the alert stays."""
    started, old = replace(DRIVER, started_at=NOW - 5), replace(REPORTED, updated_at=NOW - 121)
    assert Given(driver=started, run=None, intent=BY_HAND, reported=old).game()[0] == "UNKNOWN"
    assert Given(driver=started, run=None, reported=old).game()[0] == "STARTING", "nothing died under the controller"
    died = {("group", "a"): (ended(9),)}
    facts = FleetFacts(NOW, {("group", "a"): started}, {}, {}, [AssignedGame("g", "a", old)], ended=died,
                       groups={"a": SUPERVISED}, source=LEVEL)  # fmt: skip
    assert judge_fleet(facts, registered()).games["g"].status == "UNKNOWN"
    slow = replace(DRIVER, started_at=NOW - 121)
    assert Given(driver=slow, run=None, reported=replace(old, updated_at=NOW - 122)).game()[0] == "UNKNOWN"


def test_a_fleet_that_starts_is_not_called_healthy() -> None:
    """Before a row has landed, and unless nothing waits, the headline says first that streams start."""
    for statuses, headline in (
        (["STARTING"] * 3, "3 streams starting"),
        (["STARTING", "RUNNING", "CATCHING_UP"], "1 of 3 streams starting, 1 catching up"),
        (["RUNNING", "RUNNING", "CATCHING_UP"], "3 streams healthy (1 catching up)"),
        (["STARTING", "FAILED"], "1 of 2 streams failing"),
    ):
        games = [AssignedGame(f"g{n}", "a", replace(REPORTED, status=status)) for n, status in enumerate(statuses)]
        drivers = {("ingest", "main"): INGEST, ("group", "a"): DRIVER}
        judgement = judge_fleet(FleetFacts(NOW, drivers, {}, {}, games, source=LEVEL), registered())
        assert judgement.headline.split(";")[0] == headline


def test_an_adopted_process_is_not_taken_for_a_new_one() -> None:
    """A controller that adopts a driver writes its run later than the driver started: it is the same process."""
    assert Given(run=replace(RUN, started_at=NOW - 1)).group() == ("running", None)


def test_three_missed_heartbeats_are_unknown_with_the_age() -> None:
    """At the default of 5 s between two heartbeats a driver counts for 15 s, then the silence is named."""
    assert Given(driver=replace(DRIVER, heartbeat_at=NOW - 15)).group() == ("running", None)
    silent = Given(driver=replace(DRIVER, heartbeat_at=NOW - 16))
    assert silent.group() == ("unknown", "is silent for 16 s")
    assert silent.game() == ("UNKNOWN", "its driver is silent for 16 s; last report: RUNNING")
    loading = replace(DRIVER, state="starting", started_at=NOW - 100, heartbeat_at=NOW - 100)
    assert Given(driver=loading, run=None).group()[0] == "starting", "Spark loads before the first heartbeat"
    quiet = Given(reported=replace(REPORTED, updated_at=NOW - 16))
    assert quiet.game()[0] == "UNKNOWN"
    assert "beats, but reported nothing about this game for 16 s" in str(quiet.game()[1])


@pytest.mark.proves("G134")
def test_a_clock_ahead_is_named() -> None:
    """A heartbeat or report from the future is no sign of life; a driver that sees its own clock wrong says so."""
    future = Given(driver=replace(DRIVER, heartbeat_at=NOW + 3600))
    assert future.group()[0] == "unknown"
    assert "sent a heartbeat that is 3600 s in the future: the clock of its machine is ahead" in str(future.group()[1])
    assert future.game()[0] == "UNKNOWN"
    near = Given(driver=replace(DRIVER, heartbeat_at=NOW + CLOCK_BOUND_SECONDS))
    assert near.group() == ("running", None)
    ahead = Given(reported=replace(REPORTED, updated_at=NOW + 3600))
    assert ahead.game() == ("UNKNOWN", "its last report is 3600 s in the future: a clock is wrong")
    sentence = "has a clock 3600 s ahead of the control store's, so its ages are wrong"
    assert Given(driver=replace(DRIVER, state="skewed", error=sentence)).group() == ("unknown", sentence)


@pytest.mark.parametrize(("waiting", "healthy"), [(0, True), (2, False)])
def test_operations_that_wait_need_a_controller(waiting: int, healthy: bool) -> None:
    """Without a live controller an operation waits for ever, which is a problem; with nothing to do it is none."""
    for controller in (None, replace(CONTROLLER, state="stopped")):
        found = Given(controller=controller, intent=BY_HAND, run=None, waiting=waiting).judge()
        assert found.healthy is healthy
        assert ("2 operations wait and no controller runs" in found.headline) is not healthy
    assert Given(waiting=2).judge().healthy


def test_a_group_that_was_stopped_on_purpose_is_no_problem() -> None:
    """Neither the group nor its games are trouble, empty or not; the same driver without that wish is."""
    stopped = replace(DRIVER, state="stopped", heartbeat_at=NOW - 9_000)
    on_purpose = Given(driver=stopped, run=None, lease=None, intent=GroupIntent("stopped", "local"))
    assert on_purpose.judge().healthy
    assert on_purpose.group()[0] == "stopped"
    assert (on_purpose.judge().stopped_groups, Given().judge().stopped_groups) == (("a",), ())
    assert on_purpose.game()[0] == "PAUSED"
    word = replace(REPORTED, status="FAILED")
    failing = replace(on_purpose, driver=replace(DRIVER, state="failed"), run=RUN, lease=LEASE, reported=word)
    assert failing.game()[0] == "FAILED", "a driver that runs all the same has the last word"
    assert replace(on_purpose, games=0).judge().healthy
    assert not replace(on_purpose, intent=SUPERVISED).judge().healthy
    assert not replace(on_purpose, intent=BY_HAND).judge().healthy
    assert replace(on_purpose, intent=BY_HAND, games=0).judge().healthy, "nobody misses an empty group that was ended"


@pytest.mark.parametrize(
    ("expected", "group", "reported", "driver"),
    [
        ("UNKNOWN", "a", REPORTED, replace(DRIVER, state="failed")),
        ("FAILED", "a", replace(REPORTED, status="FAILED"), replace(DRIVER, state="failed")),
        ("UNKNOWN", "a", replace(REPORTED, status="FAILED", updated_at=NOW - 16), replace(DRIVER, state="failed")),
        ("UNKNOWN", "a", REPORTED, replace(DRIVER, state="stopped")),
        ("UNKNOWN", "a", REPORTED, replace(DRIVER, state="purple")),
        ("UNKNOWN", "a", REPORTED, None),
        ("UNKNOWN", "a", None, None),
        ("UNKNOWN", "a", replace(REPORTED, status="SPLENDID"), DRIVER),
        ("STARTING", "a", None, DRIVER),
        ("STARTING", "a", replace(REPORTED, group="b"), DRIVER),
        ("MISSING", None, None, None),
        ("MISSING", None, REPORTED, DRIVER),
        ("FAILED", "a", replace(REPORTED, status="FAILED"), DRIVER),
    ],
)
def test_a_word_counts_only_from_a_living_driver(
    expected: str, group: str | None, reported: StreamState | None, driver: Driver | None
) -> None:
    """A stream's status is its driver's own word only while that driver is alive and carries it; else it is unknown."""
    drivers = {("ingest", "main"): INGEST, **({("group", "a"): driver} if driver is not None else {})}
    game = AssignedGame("g", group, reported)
    verdict = judge_fleet(FleetFacts(NOW, drivers, {}, {}, [game], source=LEVEL), registered()).games["g"]
    assert verdict.status == expected
    assert (reported is not None and expected == reported.status) == (verdict.reason is None)


# ---------------------------------------------------------------------------------------- all who show it say the same


leases = st.none() | st.builds(lambda process, since, left: HeldLease(process, NOW - since, NOW + left), processes,
                               ages, st.sampled_from([-20.0, 0.0, 20.0]))  # fmt: skip
runs = st.none() | st.builds(
    lambda process, started, over, died: ProcessRun(
        process, NOW - started, None if over is None else NOW - over, died=died, message="exit code 1",
    ),
    st.integers(0, 3), ages, st.none() | st.sampled_from([1.0, 30.0]), st.booleans(),
)  # fmt: skip
intents = st.none() | st.builds(
    GroupIntent, st.sampled_from(["running", "drained", "stopped"]), st.sampled_from(["none", "local"])
)
reports = st.none() | st.builds(
    lambda group, status, at: replace(REPORTED, group=group, status=status, updated_at=NOW - at),
    st.sampled_from("ab"), st.sampled_from([*STATUSES, "SPLENDID"]), ages,
)  # fmt: skip


seconds = st.none() | st.sampled_from([0.0, 20.0, 90.0])
sources = st.none() | st.builds(
    lambda ago, age, peak, rows: SourceReading(NOW - ago, age, peak, rows, 60.0, None if age is not None else "away"),
    ages, seconds, seconds, st.sampled_from([None, 0, 1, 760_000]),
)  # fmt: skip


@st.composite
def fleets(draw: st.DrawFn) -> FleetFacts:
    """Draw a healthy fleet of two groups to some of whose parts anything has happened."""
    named = [("ingest", "main"), ("controller", "main"), ("group", "a"), ("group", "b")]
    parts = [*named, "lease", "run", "intent", "games", "waiting", "stuck", "source"]
    hit = draw(st.sets(st.sampled_from(parts), max_size=4))
    healthy = {named[0]: INGEST, named[1]: CONTROLLER, named[2]: DRIVER, named[3]: replace(DRIVER, name="b", pid=2)}
    found = {key: draw(drivers(*key)) if key in hit else each for key, each in healthy.items()}
    held = {key: draw(leases) for key in named} if "lease" in hit else {}
    started = {name: draw(runs) for name in "ab"} if "run" in hit else {}
    wanted = {name: draw(intents) for name in "ab"} if "intent" in hit else {"a": SUPERVISED, "b": BY_HAND}
    carried: list[tuple[str | None, StreamState | None, float | None]] = [("a", REPORTED, None)]
    if "games" in hit:
        retired = st.sampled_from([None, NOW - 9])
        carried = draw(st.lists(st.tuples(st.sampled_from(["a", "b", None]), reports, retired)))
    return FleetFacts(
        now=NOW,
        drivers={key: each for key, each in found.items() if each is not None},
        leases={key: each for key, each in held.items() if each is not None},
        runs={("group", key): each for key, each in started.items() if each is not None},
        groups={key: each for key, each in wanted.items() if each is not None},
        games=[AssignedGame(f"g{number}", *game) for number, game in enumerate(carried)],
        waiting_operations=draw(st.integers(0, 2)) if "waiting" in hit else 0,
        stuck_operations=draw(st.integers(0, 1)) if "stuck" in hit else 0,
        source=draw(sources) if "source" in hit else LEVEL,
    )


def test_a_group_that_gives_up_or_loops_is_down_until_nobody_wants_it() -> None:
    """Ingest exports the judgement: gone or started after a death is down, stopped is not wanted."""
    failed, gone = replace(DRIVER, state="failed"), ended(20)
    again = replace(RUN, run_id=2, is_known=False, started_at=NOW - 10)
    looping = Given(driver=None, run=again, lease=None, past=(gone,))
    assert Given().judge().wanted_groups == {"a": False}
    assert Given(driver=failed, run=gone, lease=None).judge().wanted_groups == {"a": True}
    assert Given(driver=failed, run=None, lease=None, intent=BY_HAND).judge().wanted_groups == {"a": True}
    assert looping.judge().wanted_groups == {"a": True}
    assert replace(looping, past=()).judge().wanted_groups == {"a": False}, "a first start has its time"
    assert replace(looping, intent=GroupIntent("stopped", "local"), run=gone).judge().wanted_groups == {}


def alerted(judgement: Judgement) -> bool:
    """Return whether TurnoutFleetUnhealthy has its cause: `test_alerts` proves the rule on this very metric."""
    exposition = Exposition(CollectorRegistry())
    exposition.set_fleet(judgement.count_problems(), NOW)
    (family,) = (each for each in exposition.collect() if each.name == "turnout_fleet_problems")
    return sum(sample.value for sample in family.samples) > 0


@given(fleets())
@pytest.mark.proves("G131")
def test_command_page_and_alerts_agree(facts: FleetFacts) -> None:
    """Whatever has happened, the command's verdict, the page's headline and the alert are the same one."""
    judgement = judge_fleet(facts, registered())
    command: dict[str, Any] = json.loads(json.dumps(rendered(verdict(judgement))))
    sentence, trouble = judgement.headline, not judgement.healthy
    assert command["healthy"] is not trouble
    assert alerted(judgement) is trouble
    assert command["headline"] == sentence
    for each in judgement.games.values():
        assert not each.status.is_trouble or trouble
    named = ("; ", " failing", " unknown", " lagging", " at risk")
    if (
        judgement.source.condition != "behind" and not judgement.source.is_starting
    ):  # which the headline says, and is no problem yet
        assert any(word in sentence for word in named) is trouble


@given(fleets())
@pytest.mark.proves("G129")
def test_nothing_unknown_is_healthy(facts: FleetFacts) -> None:
    """A stream is shown with its driver's word only if that word is fresh, of this run, and from no future."""
    judgement = judge_fleet(facts, registered())
    for game in facts.games:
        verdict = judgement.games[game.game_key]
        if verdict.reason is None:
            driver = facts.drivers["group", str(game.group)]
            reported = game.reported
            assert reported is not None
            assert driver.started_at <= reported.updated_at <= NOW + CLOCK_BOUND_SECONDS
            assert driver.state == "running"
            assert -CLOCK_BOUND_SECONDS <= NOW - driver.heartbeat_at <= 15


def test_a_controller_whose_clock_is_wrong_runs_and_keeps_its_alarms() -> None:
    """It beats and acts, so nobody is told to start one; what it reports stands beside its clock."""
    skew = "has a clock 60 s ahead of the control store's, so its ages are wrong"
    for alarms, noted in [
        ("", "the controller's clock is wrong"),
        ("\ngroup b has no driver", "the controller's clock is wrong, and it reports: group b has no driver"),
        ("\ngroup b has no driver\ngroup c is frozen", "the controller's clock is wrong, and it reports 2 alarms"),
    ]:
        found = Given(controller=replace(CONTROLLER, state="skewed", error=f"{skew}{alarms}"), waiting=2).judge()
        assert found.headline == f"1 stream level with bronze; {noted}"
        (problem,) = found.problems
        assert problem.text == f"{noted}\n{skew}{alarms}"
        state = found.driver("controller", "main")
        assert state is not None
        assert state.liveness.is_live, "ingest exports that a controller runs"
    silent = Given(controller=replace(CONTROLLER, state="skewed", heartbeat_at=NOW - 600)).judge()
    assert "the controller is silent" in silent.headline, "whatever its clock was when it was last heard"


def test_several_alarms_of_the_controller_are_counted_in_the_headline_and_stand_one_by_one_below_it() -> None:
    """No alarm is lost in the line of another: the headline has their number, the problem a line for each."""
    one = Given(controller=replace(CONTROLLER, error="group b has no driver")).judge()
    assert "the controller reports: group b has no driver" in one.headline
    two = Given(controller=replace(CONTROLLER, error="group b has no driver\ngroup c is frozen")).judge()
    assert "the controller reports 2 alarms" in two.headline
    assert "\n" not in two.headline
    (problem,) = [each for each in two.problems if each.kind == "controller"]
    assert problem.text.split("\n")[1:] == ["group b has no driver", "group c is frozen"]


@pytest.mark.parametrize("lease", [LEASE, None])
@pytest.mark.parametrize("run_id", [1, 2])
def test_a_driver_that_beats_after_the_end_on_record_is_another_process(lease: HeldLease | None, run_id: int) -> None:
    """A process id comes again, and a start that fails says nothing of a driver that another program started."""
    run = ProcessRun(run_id, NOW - 301, NOW - 300, died=True, message="killed")
    assert Given(run=run, lease=lease).group() == ("running", None)
    run = ProcessRun(run_id, NOW - 100, NOW - 99, died=True, message="killed")
    assert Given(run=run, lease=lease).group() == ("running", None)


def test_a_start_in_the_future_is_no_sign_of_life() -> None:
    """Where the store's clock was set back, a start that hangs would be starting until it has caught up."""
    for run, lease in ((replace(RUN, started_at=NOW + 3_600), None), (None, replace(LEASE, since=NOW + 3_600))):
        state, reason = Given(driver=None, run=run, lease=lease).group()
        assert (state, "3600 s in the future" in (reason or "")) == ("unknown", True)
