"""Incidents go from open over acting and recovering to ended, and offer only what is possible and useful now."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline.health.incidents.causes import Acting, Action, Finding
from pipeline.health.incidents.drivers import MENDS_SECONDS
from pipeline.health.incidents.evidence import (
    DoneOperation,
    GameSeen,
    GroupSeen,
    NewestSchema,
    OpenOperation,
    StreamFailure,
)
from pipeline.health.incidents.incidents import Incident
from pipeline.health.incidents.judging import judge_cause
from pipeline.health.incidents.offers import DONE_SECONDS
from pipeline.health.verdicts.liveness import Liveness
from pipeline.store.database.states import Cause
from tests.unit.health.incidents.queue_world import LEVEL, LIVE, NOW, Keeper, evidence, game, look

RESTART = OpenOperation("0af3" * 8, "restart", "ann", NOW - 30)
RESTART_GROUP = Action("Restart group…", "groups", {"steer": "a", "do": "restart"})


def dead(ago: float = 9.0, **more: Any) -> GroupSeen:
    base = GroupSeen("a", Liveness("dead", NOW - ago, "ended: killed by signal 9", is_over=True), is_started_here=True)
    return replace(base, **more)


def found(of: GameSeen, group: GroupSeen) -> Finding:
    all_of = evidence(of, a=group)
    finding = judge_cause(all_of.games[of.game_key], all_of)
    assert finding is not None
    return finding


class Looks:
    """A keeper whose looks are 5 s apart."""

    def __init__(self) -> None:
        self.keeper, self.now = Keeper(), NOW

    def see(self, games: Sequence[GameSeen], group: GroupSeen) -> tuple[Incident, ...]:
        fed = replace(LEVEL, newest_at=self.now - 2)
        seen = self.keeper.see(look(*games, source=fed, now=self.now, a=group))
        self.now += 5
        return seen


# ------------------------------------------------------------------------------------------------- who is at its mend


def test_a_killed_driver_that_starts_again_is_offered_no_restart() -> None:
    """A restart is offered where nobody is at it and turnout can do it: given up, silent, or gone for three minutes."""
    gone = game(status="UNKNOWN", backlog_seconds=None)
    silent = Liveness("unknown", NOW - 20, "is silent for 20 s")
    cases = (
        (dead(), None, "the controller", None),
        (dead(MENDS_SECONDS + 1), RESTART_GROUP, None, None),
        (dead(is_given_up=True), RESTART_GROUP, None, None),
        (dead(liveness=silent), RESTART_GROUP, None, None),
        (dead(liveness=replace(silent, has_lost_lease=True)), RESTART_GROUP, None, None),  # a frozen one loses it too
        (dead(liveness=replace(silent, has_lost_lease=True), heartbeat_at=NOW - 4), None, "the controller", None),
        (dead(no_controller="no controller runs"), None, None, "Start `turnout controller run`"),
        (dead(is_started_here=False), None, None, "Start it where it ran, such as by `turnout groups run a`"),
        (dead(liveness=Liveness("starting", NOW - 1, "is starting"), last_death_at=NOW - 3), None, "the controller",
         None),
    )  # fmt: skip
    for group, action, by, advice in cases:
        finding = found(gone, group)
        assert (finding.cause, finding.action) == (Cause.DRIVER_GONE, action)
        assert (finding.acting.by if finding.acting else None) == by
        assert (finding.advice or "").startswith(advice or "")
        assert (finding.advice is None) == (advice is None)


def test_storage_that_is_tried_again_is_offered_no_restart() -> None:
    """A driver that waits for a disk tries again by itself, so the advice names the disk alone."""
    full = "has failed: OSError: [Errno 28] No space left on device: '/data/x'"
    finding = found(game(status="UNKNOWN"), dead(liveness=Liveness("failed", NOW, full), host="node7"))
    assert (finding.cause, finding.action) == (Cause.STORAGE, None)
    assert finding.advice == "Free space on node7:/data/x; its driver tries again by itself"
    failing = game(status="FAILED", last_error="OSError: No space left on device")
    assert found(failing, GroupSeen("a", LIVE)).action is None


def test_an_open_operation_is_who_acts_and_its_page_is_the_action() -> None:
    """An open operation offers its own page alone; its requester acts until it needs a person, or a controller."""
    opened = Action("Open operation", "operations", {"operation": "0af30af3"})
    parked = StreamFailure("transient", "OSError: slow down", 9, NOW, NOW - 60)
    failing = game(status="FAILED", failure=parked)
    retry = replace(RESTART, kind="retry")
    finding = found(replace(failing, operation=retry), GroupSeen("a", LIVE))
    assert (finding.action, finding.acting) == (opened, Acting("ann", "retry 0af30af3 by ann is under way", NOW - 30))
    stuck = found(replace(failing, operation=replace(retry, is_stuck=True)), GroupSeen("a", LIVE))
    assert (stuck.action, stuck.acting) == (opened, None)
    beside = found(replace(failing, operation=replace(retry, kind="access")), GroupSeen("a", LIVE))
    assert beside.action is not None
    assert beside.action.kind == "retry"
    for is_planned in (True, False):
        begun = replace(RESTART, is_planned=is_planned)
        hanging = found(failing, GroupSeen("a", LIVE, operation=begun, no_controller="no controller runs"))
        assert (hanging.action, hanging.acting) == (opened, None), "nobody carries it out, and no other act is possible"
        assert hanging.evidence[-1] == "no controller runs, so restart 0af30af3 waits"
    gone = game(status="UNKNOWN")
    alone = found(replace(gone, operation=replace(RESTART, kind="move")), dead(is_given_up=True))
    assert (alone.action, alone.acting) == (RESTART_GROUP, None), "one game's move mends no driver"
    moved = found(replace(gone, operation=replace(RESTART, kind="move", actor="(controller)")), dead(is_given_up=True))
    assert moved.acting is not None
    assert (moved.action, moved.acting.by) == (opened, "the controller")


# ------------------------------------------------------------------------------------------------ what was done already


def test_an_act_that_just_succeeded_is_not_offered_again() -> None:
    """A restart, retry or replay that succeeded is evidence for ten minutes, unless what it mends has changed since."""
    restarted = DoneOperation("restart", "ann", NOW - 170, NOW - 150)
    failing = game(status="FAILED", last_error="ValueError: no")
    finding = found(failing, GroupSeen("a", LIVE, done=(restarted,)))
    assert (finding.action, finding.evidence[-1]) == (None, "restart by ann succeeded 2 min ago")
    old = replace(restarted, ended_at=NOW - DONE_SECONDS - 1)
    assert found(failing, GroupSeen("a", LIVE, done=(old,))).action == RESTART_GROUP

    parked = StreamFailure("poison", "ValueError: row 3", 9, NOW, NOW - 60)
    retried = DoneOperation("retry", "ann", NOW - 130, NOW - 120)
    failing = game(status="FAILED", failure=parked, done=(retried,))
    again = found(failing, GroupSeen("a", LIVE))
    assert again.action is not None, "it was parked again since"
    before = replace(failing, failure=replace(parked, parked_at=NOW - 125))
    assert found(before, GroupSeen("a", LIVE)).action is None


def test_a_driver_that_is_gone_again_is_offered_what_starts_it() -> None:
    """An act on a group is over once its driver has ended or fallen silent since: two people, or a second hang."""
    restarted, started = (DoneOperation(kind, "ann", NOW - 170, NOW - 150) for kind in ("restart", "start"))
    gone = game(status="UNKNOWN")
    silent = Liveness("unknown", NOW - 20, "is silent for 20 s")
    stopped = dead(liveness=Liveness("stopped", NOW - 60, "is stopped"), desired="stopped", done=(started,))
    cases = (
        (gone, dead(liveness=silent, done=(restarted,)), RESTART_GROUP),
        (gone, dead(is_given_up=True, done=(restarted,)), RESTART_GROUP),
        (gone, dead(151.0, is_given_up=True, done=(restarted,)), None),
        (game(status="PAUSED"), stopped, Action("Start group…", "groups", {"steer": "a", "do": "start"})),
    )
    assert [found(seen, group).action for seen, group, _ in cases] == [action for *_, action in cases]


def test_a_replay_is_not_offered_after_it_was_done() -> None:
    """The line of a schema kept "Replay…" 2.5 minutes after the replay had succeeded."""
    mended = NewestSchema(7, NOW - 300, "ann", None)
    replayed = DoneOperation("replay", "ann", NOW - 160, NOW - 150)
    waiting = game(refused={"quarantined_schema": 400}, schema=mended)
    assert found(waiting, GroupSeen("a", LIVE)).action == Action(
        "Replay…", "repairs", {"repair": "replay", "games": "chess"}
    )
    assert found(replace(waiting, done=(replayed,)), GroupSeen("a", LIVE)).action is None
    newer = replace(waiting, done=(replayed,), schema=replace(mended, registered_at=NOW - 100))
    assert found(newer, GroupSeen("a", LIVE)).action is not None, "rows that wait may decode since"


def test_rows_of_before_a_replay_are_no_cause_after_it() -> None:
    """Refused rows stay in the driver's window for five minutes: what a replay took is over, what came since is not."""
    mended = NewestSchema(7, NOW - 300, "ann", None)
    replayed = DoneOperation("replay", "ann", NOW - 160, NOW - 150)
    rows = {"quarantined_schema": 400}

    def cause(last: float, done: tuple[DoneOperation, ...] = (replayed,)) -> Cause | None:
        seen = game(refused=rows, refused_at={"quarantined_schema": last}, schema=mended, done=done)
        all_of = evidence(seen, a=GroupSeen("a", LIVE))
        finding = judge_cause(all_of.games["chess"], all_of)
        return None if finding is None else finding.cause

    assert [cause(NOW - 170), cause(NOW - 155), cause(NOW - 170, ())] == [None, Cause.SCHEMA, Cause.SCHEMA]
    retried = replace(replayed, kind="retry")
    assert cause(NOW - 170, (retried,)) == Cause.SCHEMA


def test_damaged_rows_that_come_no_more_are_no_cause() -> None:
    """A minute and three mean gaps without one, while others land, is the end, also once nothing comes any more."""
    last = {"malformed_payload": NOW - 70.0}
    damaged = game(refused={"malformed_payload": 400}, refused_at=last)
    cases = (
        (damaged, True), (replace(damaged, refused_at={"malformed_payload": NOW - 50.0}), False),
        (replace(damaged, rows_per_second=0.0), False), (replace(damaged, refused_at={}), False),
        (replace(damaged, rows_per_second=0.0, committed_at=NOW - 5.0), True),  # good rows came, and then silence
        (replace(damaged, rows_per_second=0.0, committed_at=NOW - 30.0), False),
        (replace(damaged, refused={"malformed_payload": 10}, landed=50), False),  # one in 30 s
        (replace(damaged, refused={"unknown_schema": 400}, refused_at={"unknown_schema": NOW - 70.0}), False),
    )  # fmt: skip
    for seen, is_over in cases:
        all_of = evidence(seen, a=GroupSeen("a", LIVE))
        assert (judge_cause(all_of.games["chess"], all_of) is None) == is_over, seen.refused_at


def test_games_that_retry_one_by_one_accuse_no_query() -> None:
    """A stream whose own failure is over is on its way, although its driver has not reported it since.

    Its group's query is not said to have stopped, and no cause is undetermined.
    """
    looks, full = Looks(), StreamFailure("transient", "OSError: File too large", 4, NOW, None)
    failing = [game(key, status="FAILED", failure=full) for key in ("chess", "go", "ludo")]
    driver = GroupSeen("a", LIVE, is_started_here=True)
    looks.see(failing, driver)
    (opened,) = looks.see(failing, driver)
    retried = [replace(each, failure=None) for each in failing]
    for mended in range(1, 4):
        seen = [*retried[:mended], *failing[mended:]]
        for _ in range(3):
            assert {each.incident_id for each in looks.see(seen, driver)} == {opened.incident_id}
    (recovering,) = looks.see(retried, driver)
    assert (recovering.finding.cause, recovering.phase) == (Cause.STORAGE, "recovering")
    assert looks.see([game(key) for key in ("chess", "go", "ludo")], driver) == ()


def test_rows_that_are_refused_no_more_say_how_old_the_last_one_is() -> None:
    """An incident of refused rows that stays until a minute without one says meanwhile of which reason none comes."""
    last = {"malformed_payload": NOW - 40.0}
    damaged = game(refused={"malformed_payload": 400}, refused_at=last)
    assert "the last one 40 s ago" in found(damaged, GroupSeen("a", LIVE)).evidence
    now = replace(damaged, refused_at={"malformed_payload": NOW - 5.0})
    assert not any("ago" in each for each in found(now, GroupSeen("a", LIVE)).evidence)
    times = {**last, "unknown_schema": NOW - 1}
    both = replace(damaged, refused={"malformed_payload": 400, "unknown_schema": 19}, refused_at=times)
    assert "the last malformed_payload 40 s ago" in found(both, GroupSeen("a", LIVE)).evidence


# ----------------------------------------------------------------------------------------------------------- phases


@pytest.mark.proves("G210")
def test_an_incident_goes_from_open_to_acting_recovering_and_ended() -> None:
    """Each phase says who is at it or when it is level, and none offers what belongs to another."""
    looks, hung = Looks(), Liveness("unknown", NOW - 20, "is silent for 20 s")
    gone = [game(key, status="UNKNOWN", backlog_seconds=None) for key in ("chess", "go")]
    silent = GroupSeen("a", hung, is_started_here=True)
    looks.see(gone, silent)
    (opened,) = looks.see(gone, silent)
    assert (opened.phase, opened.finding.action, opened.progress(looks.now)) == ("open", RESTART_GROUP, None)
    restarting = replace(RESTART, requested_at=looks.now)
    (acting,) = looks.see(gone, replace(silent, operation=restarting))
    assert (acting.phase, acting.incident_id) == ("acting", opened.incident_id)
    assert acting.progress(looks.now) == "restart 0af30af3 by ann is under way, for 5 s"
    alive = GroupSeen(
        "a", replace(LIVE, since=looks.now), is_started_here=True,
        done=(DoneOperation("restart", "ann", restarting.requested_at, looks.now),),
    )  # fmt: skip
    for age in range(400, 150, -10):
        late = [game("chess", status="CATCHING_UP", backlog_seconds=float(age)), game("go")]
        (recovering,) = looks.see(late, alive)
        assert "restart by ann is not done yet" not in recovering.finding.evidence
        assert recovering.finding.action is None
    assert (recovering.phase, recovering.tone, recovering.games) == ("recovering", "recovering", ("chess",))
    assert recovering.finding.evidence == (
        "restart by ann succeeded 2 min ago", "1 game is not level yet; the oldest row has waited 3 min"
    )  # fmt: skip
    assert recovering.progress(looks.now) == recovering.outlook
    assert (recovering.outlook or "").startswith("level in about 1 min")
    assert looks.see([game("chess"), game("go")], alive) == ()
    ended = looks.keeper.kept[opened.incident_id]
    assert (ended.phase, ended.progress(looks.now), ended.finding.action) == ("ended", None, None)


def test_a_start_again_lasts_since_the_driver_was_gone() -> None:
    """The line of a killed driver counts one time: the new process's registration does not begin it again."""
    gone = game(status="UNKNOWN", backlog_seconds=None)
    ended, begun = Liveness("dead", NOW - 13, "ended"), Liveness("starting", NOW - 9, "is starting")
    for each in (ended, begun, replace(begun, since=NOW - 2)):
        liveness = replace(each, gone_since=NOW - 13)
        acting = found(gone, dead(liveness=liveness, last_death_at=NOW - 13)).acting
        assert acting is not None
        assert (acting.does, acting.since) == ("the controller starts its driver again", NOW - 13)


def test_a_kill_that_the_controller_mends_is_never_open() -> None:
    """While the looks find no cause any more the phase is not back at open, without an action and without advice."""
    looks, keys = Looks(), ("chess", "go")
    starting = dead(liveness=Liveness("starting", NOW + 5, "is starting"), last_death_at=NOW)
    alive = GroupSeen("a", replace(LIVE, since=NOW + 5), is_started_here=True, last_death_at=NOW)
    steps = [(dead(0.0), "UNKNOWN"), *[(starting, "UNKNOWN")] * 2, *[(alive, "STARTING")] * 4]
    phases = []
    for driver, status in steps:
        (incident,) = looks.see([game(key, status=status, backlog_seconds=0.0) for key in keys], driver)
        phases.append(incident.phase)
    assert phases == [*["acting"] * 3, *["recovering"] * 4]
    assert incident.finding.evidence == ("2 games were starting at the last look",), (
        "nothing waits, so none is called late"
    )
    assert looks.see([game(key) for key in keys], alive) == ()
    assert looks.keeper.kept[incident.incident_id].finding.evidence == ()


def test_a_freeze_that_a_restart_mends_is_never_open_again() -> None:
    """The driver runs, and the restart waits to see its effect: the incident is acting or recovering, never open."""
    looks = Looks()
    silent = GroupSeen("a", Liveness("unknown", NOW - 90, "lost its lease 59 s ago", has_lost_lease=True),
                       is_started_here=True, operation=RESTART)  # fmt: skip
    gone = [game(key, status="UNKNOWN", backlog_seconds=None) for key in ("chess", "go")]
    (acting,) = looks.see(gone, silent)
    assert (acting.phase, acting.finding.evidence[1:3]) == (
        "acting", ("it may hang: the restart that is under way ends it", "restart by ann is not done yet")
    )  # fmt: skip
    alive = replace(silent, liveness=replace(LIVE, since=NOW))
    starting = [game(key, status="STARTING", backlog_seconds=None) for key in ("chess", "go")]
    assert {each.phase for _ in range(3) for each in looks.see(starting, alive)} == {"recovering"}


def test_a_replay_is_no_action_at_the_first_look_after_it() -> None:
    """It stood as what to do for 12 s after it had succeeded."""
    looks, driver = Looks(), GroupSeen("a", LIVE)
    rows = game(refused={"quarantined_schema": 7_080}, refused_at={"quarantined_schema": NOW - 1},
                schema=NewestSchema(7, NOW - 30, "ann", None))  # fmt: skip
    (opened,) = looks.see([rows], driver)
    assert opened.finding.action == Action("Replay…", "repairs", {"repair": "replay", "games": "chess"})
    done = DoneOperation("replay", "ann", looks.now - 4, looks.now - 1)
    assert looks.see([replace(rows, done=(done,))], driver) == ()


def test_a_retry_is_offered_once_the_storage_takes_writes_again() -> None:
    """Until the first neighbour lands a person frees the disk; then a retry spares the streams their back-off."""
    looks, driver = Looks(), GroupSeen("a", LIVE, host="vm", is_started_here=True)
    full = StreamFailure("transient", "OSError: [Errno 27] File too large", 5, NOW - 3)
    failing = [game(key, status="FAILED", failure=full, committed_at=NOW - 60) for key in ("chess", "go", "ludo")]
    (opened,) = looks.see(failing, driver)
    assert opened.finding.action is None
    assert opened.finding.advice == (
        "Free space on vm, or raise its limit of a file's size; streams retry by themselves"
    )
    landed = [game("chess", committed_at=looks.now - 1), *failing[1:]]
    (opened,) = looks.see(landed, driver)
    assert opened.finding.action == Action("Retry…", "repairs", {"repair": "retry", "games": ("go", "ludo")})
    assert opened.finding.advice == (
        "The storage takes writes of its group again; a retry does not wait for the next attempt"
    )
    assert "1 of its neighbours failed as well, and lands again" in opened.finding.evidence
    cleared = replace(failing[2], failure=None, last_error=full.text)  # its retry goes well: its driver says so next
    (still,) = looks.see([landed[0], game("go", committed_at=looks.now - 1), cleared], driver)
    assert still.finding.action == Action("Retry…", "repairs", {"repair": "retry", "games": "ludo"})
    assert still.finding.advice == opened.finding.advice
    alone = Looks()
    alone.see([failing[0], game("go", committed_at=NOW)], driver)
    (own,) = alone.see([failing[0], game("go", committed_at=NOW + 5)], driver)
    assert own.finding.action is None, "its neighbour never failed, and tells nothing of its storage"


def test_the_advice_names_the_storage_that_is_known() -> None:
    """An error that names no path is not said to name one."""
    cases = (
        ("PermissionError: '/data/x/_delta_log'", "node7", "Mend the storage of node7:/data/x/_delta_log; then retry"),
        ("OSError: Generic S3 error: 503 SlowDown", None, "Mend the storage to which its driver writes; then retry"),
        ("OSError: No space left on device", None, "Free space on the disk to which its driver writes; then retry"),
        ("OSError: No space left on device", "node7", "Free space on node7; then retry"),
    )
    for error, host, advice in cases:
        parked = StreamFailure("transient", error, 9, NOW, NOW - 60)
        finding = found(game(status="FAILED", failure=parked), GroupSeen("a", LIVE, host=host))
        assert finding.advice == advice


def test_a_restart_that_is_done_is_not_called_undone_while_games_catch_up() -> None:
    """The title said so, with "Restart group…" as the action, 80 s after the restart had succeeded."""
    looks = Looks()
    old = replace(RESTART, requested_at=NOW - 100)
    late = [game(key, status="LAGGING", backlog_seconds=400.0) for key in ("chess", "go")]
    looks.see(late, GroupSeen("a", LIVE, operation=old))
    (acting,) = looks.see(late, GroupSeen("a", LIVE, operation=old))
    assert (acting.phase, acting.finding.title) == ("acting", "Restart by ann is not done yet")
    for age in range(400, 320, -5):
        falling = [game(key, status="CATCHING_UP", backlog_seconds=float(age)) for key in ("chess", "go")]
        (incident,) = looks.see(falling, GroupSeen("a", LIVE, done=(DoneOperation("restart", "ann", NOW, looks.now),)))
    assert (incident.phase, incident.finding.title) == ("recovering", "Restart by ann made games late")
    assert incident.finding.action is None
    assert "not done" not in " ".join(incident.finding.evidence)


def test_a_cause_that_is_over_has_a_title_in_the_past_tense() -> None:
    """A title that says how things are is not true any more once they are not."""
    finding = Finding(Cause.DRIVER_GONE, "No group carries Chess", ("e",), ("n",), RESTART_GROUP, None,
                      "No group carries {}", advice="a", past="No group carried {}")  # fmt: skip
    over = finding.over("Chess", ("gone",))
    assert (over.title, over.evidence, over.excludes, over.action, over.advice) == (
        "No group carried Chess", ("gone",), (), None, None
    )  # fmt: skip
    assert over.over("3 games").title == "No group carried 3 games"
    assert replace(finding, past=None).over("Chess").title == "No group carries Chess"
    assert replace(finding, past=None).over("").title == finding.title


def test_a_game_at_which_nobody_is_decides_the_phase() -> None:
    """An incident is open while one of its games needs a person."""
    failed = StreamFailure("transient", "OSError: slow down", 9, NOW, NOW - 60)
    games = [
        game(key, status="FAILED", failure=failed, operation=replace(RESTART, kind="retry") if key != "go" else None)
        for key in ("chess", "go", "ludo")
    ]
    (incident,) = Keeper().see(look(*games, *(game(f"w{number}") for number in range(9))))
    assert (incident.phase, len(incident.games)) == ("open", 3)
    assert incident.finding.action == Action("Retry…", "repairs", {"repair": "retry", "games": "go"})
    games[1] = replace(games[1], operation=replace(RESTART, kind="retry"))
    (incident,) = Keeper().see(look(*games, *(game(f"w{number}") for number in range(9))))
    assert incident.phase == "acting"
