"""Games with one cause at one time are one incident, which recovers, ends, and opens again when it comes back."""

from dataclasses import replace

import pytest

from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.evidence import GameSeen, GroupSeen, NewestSchema, SourceSeen, StreamFailure
from pipeline.health.incidents.incidents import ADOPTED, JOIN_SECONDS, REOPEN_SECONDS, Incident, group_incidents
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import Quiet, UsualGap
from pipeline.store.database.states import Cause
from tests.unit.health.incidents.queue_world import (
    LEVEL,
    LIVE,
    NOW,
    Fault,
    Fleet,
    Keeper,
    driver_slow,
    game,
    look,
    pass_hangs,
    storage_slow,
    surge,
)

DEAD = Liveness("dead", NOW, "ended 9 s ago: killed by signal 9", is_over=True)
FULL = StreamFailure("transient", "OSError: [Errno 28] No space left on device", 2, NOW)


class Time:
    """A keeper, and the time of its looks, 5 s apart."""

    def __init__(self) -> None:
        self.keeper, self.now = Keeper(), NOW

    def see(
        self, *games: GameSeen, times: int = 1, source: SourceSeen = LEVEL, **groups: GroupSeen
    ) -> tuple[Incident, ...]:
        found: tuple[Incident, ...] = ()
        for _ in range(times):
            fed = replace(source, newest_at=self.now - 2) if source is LEVEL else source
            found = self.keeper.see(look(*games, source=fed, now=self.now, **groups))
            self.now += 5
        return found


def unknown(key: str, group: str = "a") -> GameSeen:
    return game(key, group, "UNKNOWN", backlog_seconds=None, rows_per_second=None)


def refused(key: str, group: str = "a", version: int = 7) -> GameSeen:
    schema = NewestSchema(version, NOW - 60, "ann", "score became a text")
    return game(key, group, refused={"quarantined_schema": 500}, schema=schema)


@pytest.mark.proves("G210")
def test_a_groups_death_is_one_incident_of_the_group() -> None:
    """Twenty games of a dead driver are one line, with the group, its driver's end and what to do."""
    games = [unknown(f"g{number:02}") for number in range(20)]
    found = Time().see(*games, game("other", "b"), a=GroupSeen("a", DEAD))
    assert [(each.finding.cause, each.group, len(each.games), each.tone) for each in found] == [
        (Cause.DRIVER_GONE, "a", 20, "bad")
    ]
    assert found[0].finding.title == "Group a lost its driver"
    assert found[0].since == NOW - 60, "when the games' status changed, not when it was judged"


def test_two_groups_are_two_incidents() -> None:
    """The scope of a cause separates incidents."""
    found = Time().see(unknown("x"), unknown("y", "b"), a=GroupSeen("a", DEAD), b=GroupSeen("b", DEAD))
    assert [each.group for each in found] == ["a", "b"]


@pytest.mark.proves("G274")
def test_the_action_of_an_incident_chooses_the_games_that_it_can_act_on() -> None:
    """A retry of several games fills in those that are parked, and none of those that retry by themselves."""

    def failing(key: str, parked_at: float | None) -> GameSeen:
        failure = StreamFailure("transient", "OSError: No space left on device", 9, NOW, parked_at)
        return game(key, "a", "FAILED", failure=failure)

    games = [failing("w", None), failing("x", NOW - 60), failing("y", NOW - 60), failing("z", None)]
    (incident,) = Time().see(*games)
    assert incident.games == ("w", "x", "y", "z")
    assert incident.finding.action == Action("Retry…", "repairs", {"repair": "retry", "games": ("x", "y")})


@pytest.mark.proves("G210")
def test_games_with_one_cause_share_a_title() -> None:
    """The title counts the games; half of a group is named by it; one game is named."""
    time = Time()
    assert [
        each.finding.title for each in time.see(refused("chess"), game("go"), game("ludo"), game("uno"), times=2)
    ] == ["Rows of Chess refused since schema version 7"]
    found = time.see(refused("chess"), refused("go"), game("ludo"), game("uno"), times=2)
    assert [each.finding.title for each in found] == ["Rows of 2 games of group a refused since schema version 7"]
    found = time.see(
        refused("chess"),
        refused("go", "b"),
        game("ludo"),
        game("uno"),
        *(game(f"b{n}", "b") for n in range(9)),
        times=4,
    )
    assert [(each.finding.title, each.group) for each in found] == [
        ("Rows of 2 games refused since schema version 7", None)
    ]


def test_a_later_game_joins_for_a_quarter_of_an_hour() -> None:
    """One cause at one time is one incident; hours later it is another one."""
    time = Time()
    well = [game(f"w{number}") for number in range(6)]
    failing = game("chess", status="FAILED", failure=FULL)
    (first,) = time.see(failing, *well)
    time.now += JOIN_SECONDS - 60
    (second,) = time.see(failing, game("go", status="FAILED", failure=FULL), *well)
    assert (second.incident_id, second.games) == (first.incident_id, ("chess", "go"))
    time.now += JOIN_SECONDS + 60
    others = game("go", status="FAILED", failure=FULL), game("ludo", status="FAILED", failure=FULL)
    found = time.see(failing, *others, *well)
    assert [each.games for each in found] == [("chess", "go"), ("ludo",)]


def test_a_full_disk_is_one_incident_of_its_group() -> None:
    """Failures of streams and of their query for one disk were two incidents in a live demo."""
    time = Time()
    some = [game(key, status="FAILED", last_error="OSError: [Errno 27] File too large") for key in ("go", "ludo")]
    (first,) = time.see(game("chess", status="FAILED", failure=FULL), *some)
    more = [game(key, status="FAILED", failure=FULL) for key in ("chess", "go", "ludo")]
    (second,) = time.see(*more)
    assert (second.incident_id, second.finding.cause, len(second.games)) == (first.incident_id, Cause.STORAGE, 3)


def test_a_disk_that_fills_and_is_freed_is_one_incident_of_all_its_games() -> None:
    """One line names all ten, whether most of the group fails, as at first, or the last two in their back-off."""
    time, keys = Time(), [f"g{number}" for number in range(10)]
    failing = [game(key, status="FAILED", failure=FULL) for key in keys]
    (first,) = time.see(failing[0], *(game(key) for key in keys[1:]))
    for fails in (10, 8, 4, 1):
        (found,) = time.see(*failing[:fails], *(game(key) for key in keys[fails:]), times=3)
        assert (found.incident_id, found.games) == (first.incident_id, tuple(keys[:fails]))
        of = "G0" if fails == 1 else f"{fails} games of group a" if fails > 4 else f"{fails} games"
        assert found.finding.title == f"Commits of {of} failed on storage"
    (late,) = time.see(game("g0", status="CATCHING_UP"), *(game(key) for key in keys[1:]))
    assert (late.phase, late.games) == ("recovering", ("g0",))
    assert late.finding.title == "Commits of 10 games of group a failed on storage"
    assert time.see(*(game(key) for key in keys)) == ()
    (ended,) = time.keeper.kept.values()
    assert (ended.finding.title, sorted(ended.games)) == (late.finding.title, keys)


def test_the_title_counts_the_games_that_the_incident_names() -> None:
    """A game that catches up is still of the incident: "3 games failed" beside four names was read as an error."""
    time = Time()
    well = [game(f"w{number}") for number in range(6)]
    failing = [game(key, status="FAILED", failure=FULL) for key in ("chess", "go", "ludo", "uno")]
    time.see(*failing, *well)
    (found,) = time.see(*failing[:3], game("uno", status="CATCHING_UP"), *well)
    assert (len(found.games), found.finding.title) == (4, "Commits of 4 games failed on storage")
    time = Time()
    silent = [game(key, status="AT_RISK", backlog_seconds=50.0) for key in ("chess", "go", "ludo")]
    time.see(*silent, *well, times=3)
    (found,) = time.see(*silent[:2], game("ludo", status="CATCHING_UP"), *well, times=4)
    assert (len(found.games), found.finding.title) == (3, "2 of 3 games at risk of being late, cause not determined")


def test_a_game_is_in_one_incident() -> None:
    """A game whose cause changes leaves the old incident, which ends without games."""
    time = Time()
    time.see(unknown("x"), a=GroupSeen("a", DEAD))
    failing = game("x", status="FAILED", failure=FULL)
    found = time.see(failing)
    assert [(each.finding.cause, each.games) for each in found] == [(Cause.STORAGE, ("x",))]
    assert [each.ended_at is None for each in time.keeper.kept.values()] == [False, True]


def test_a_recovering_incident_ends_when_its_games_are_level() -> None:
    """After the cause it says that its games catch up and when they are level; then it has ended."""
    time = Time()
    (begun,) = time.see(unknown("x"), unknown("y"), a=GroupSeen("a", DEAD))
    alive = GroupSeen("a", replace(LIVE, since=time.now))
    for age in range(900, 300, -20):
        (found,) = time.see(game("x", status="CATCHING_UP", backlog_seconds=float(age)), game("y"), a=alive)
    assert (found.incident_id, found.tone, found.games) == (begun.incident_id, "recovering", ("x",))
    assert found.outlook is not None
    assert found.outlook.startswith("level in about 1 min")
    assert time.see(game("x"), game("y"), a=alive) == ()
    ended = time.keeper.kept[begun.incident_id]
    assert (ended.ended_at, ended.outlook) == (time.now - 5, None)


def test_an_outage_stays_the_outage_of_its_group() -> None:
    """Games that were moved away recover in another group: the incident, its title and its group are still the old."""
    time = Time()
    time.see(unknown("x"), unknown("y"), a=GroupSeen("a", DEAD))
    behind = [game(key, "b", "CATCHING_UP", backlog_seconds=90.0) for key in "xy"]
    (found,) = time.see(*behind, a=GroupSeen("a", DEAD), times=3)
    assert (found.tone, found.group, found.finding.scope) == ("recovering", "a", "group a")
    assert time.see(game("x", "b"), game("y", "b"), a=GroupSeen("a", DEAD)) == ()
    (ended,) = time.keeper.kept.values()
    assert (ended.group, ended.ended_at) == ("a", time.now - 5)


def test_a_game_that_reads_its_whole_past_leaves_its_incident() -> None:
    """That takes days and is no trouble: an incident must not recover for as long."""
    time = Time()
    time.see(unknown("x"), unknown("y"), a=GroupSeen("a", DEAD))
    alive = GroupSeen("a", replace(LIVE, since=time.now))
    past = game("x", status="BACKFILLING", backlog_seconds=90_000.0)
    (found,) = time.see(past, game("y", status="CATCHING_UP", backlog_seconds=90.0), a=alive, times=3)
    assert (found.tone, found.games) == ("recovering", ("y",))
    assert time.see(past, game("y"), a=alive) == ()


def test_no_outlook_where_an_age_is_unknown() -> None:
    """Silence, where one game of the incident may be any age."""
    time = Time()
    time.see(unknown("x"), unknown("y"), a=GroupSeen("a", DEAD))
    alive = GroupSeen("a", replace(LIVE, since=time.now))
    for age in range(900, 300, -20):
        (found,) = time.see(
            game("x", status="CATCHING_UP", backlog_seconds=float(age)),
            game("y", status="CATCHING_UP", backlog_seconds=None),
            a=alive,
        )
    assert (found.tone, found.outlook) == ("recovering", None)


def test_a_cause_that_comes_back_soon_opens_the_same_incident() -> None:
    """A driver that dies again within five minutes opens the old incident; later it is a new one."""
    time = Time()
    (first,) = time.see(unknown("x"), a=GroupSeen("a", DEAD))
    assert time.see(game("x"), times=4) == ()
    (again,) = time.see(unknown("x"), a=GroupSeen("a", DEAD))
    assert (again.incident_id, again.since, again.ended_at) == (first.incident_id, first.since, None)
    time.see(game("x"), times=4)
    time.now += REOPEN_SECONDS
    (other,) = time.see(unknown("x"), a=GroupSeen("a", DEAD))
    assert other.incident_id != first.incident_id


def test_a_silent_source_is_one_incident_of_all_games() -> None:
    """Nothing arrives for anyone: one line since the last row, with every game that has no trouble of its own."""
    time = Time()
    time.see(game("y"), game("z", "b"))  # since then they are well, which is not since when the source is silent
    quiet = replace(LEVEL, newest_at=NOW - 400, quiet=Quiet(400.0, UsualGap(4.0, "within the last hour", 12.0)))
    failing = game("x", status="FAILED", failure=FULL)
    found = time.see(failing, game("y"), game("z", "b"), source=quiet, times=2)
    assert [(each.finding.cause, each.games) for each in found] == [
        (Cause.STORAGE, ("x",)), (Cause.SOURCE_SILENT, ("y", "z"))
    ]  # fmt: skip
    assert found[1].since == NOW - 400


def test_a_silence_is_over_at_the_first_look_after_a_commit() -> None:
    """No row for 2 minutes stood for 18 s after rows had come again, with the advice to start the producers."""
    time = Time()
    usual = UsualGap(4.0, "within the last hour", 12.0)
    assert len(time.see(game("y"), source=replace(LEVEL, quiet=Quiet(400.0, usual)))) == 1
    assert time.see(game("y"), source=replace(LEVEL, quiet=Quiet(0.0, usual))) == ()


def test_ingest_that_dies_before_there_is_a_game_is_an_incident() -> None:
    """The source's trouble is an incident without any game, and ends."""
    time = Time()
    down = replace(LEVEL, condition="unknown", ingest=DEAD)
    (found,) = time.see(source=down)
    assert (found.finding.title, found.games, found.tone) == ("Ingest went down", (), "bad")
    assert time.see(times=3) == ()


def test_two_that_keep_incidents_agree_again() -> None:
    """Of two incidents that two processes opened at one moment the older stays, with all games."""
    keeper = Keeper()
    seen = look(game("x", status="FAILED", failure=FULL), game("y", status="FAILED", failure=FULL))
    (one,) = keeper.see(seen)
    twin = replace(one, incident_id="twin", since=one.since + 1)
    assert keeper.evidence is not None
    found = group_incidents([one, twin], keeper.causes, keeper.evidence, lambda: "never")
    assert {each.incident_id: each.ended_at is None for each in found} == {one.incident_id: True, "twin": False}
    assert found[0].games == ("x", "y")


def test_two_incidents_of_a_source_become_one() -> None:
    """Also an incident without games is one: the older stays open."""
    keeper = Keeper()
    (one,) = keeper.see(look(source=replace(LEVEL, condition="unknown", ingest=DEAD)))
    twin = replace(one, incident_id="twin", since=one.since + 1)
    assert keeper.evidence is not None
    found = group_incidents([twin, one], keeper.causes, keeper.evidence, lambda: "never")
    assert {each.incident_id: each.ended_at is None for each in found} == {one.incident_id: True, "twin": False}


@pytest.mark.proves("G210")
def test_a_new_process_goes_on_with_what_is_open() -> None:
    """A successor knows the settled causes from the incidents, so none ends or begins."""
    time = Time()
    (first,) = time.see(refused("chess"), times=2)
    keeper = Keeper()
    keeper.causes.adopt([first], time.now)
    keeper.kept[first.incident_id] = first
    (found,) = keeper.see(look(refused("chess"), now=time.now))
    assert (found.incident_id, found.since) == (first.incident_id, first.since)


@pytest.mark.parametrize("fault", [storage_slow, driver_slow, surge, pass_hangs])
@pytest.mark.proves("G210")
def test_a_new_process_keeps_a_cause_that_it_cannot_judge_yet(fault: Fault) -> None:
    """Amid trouble it never learns what is usual: a deployment must not make an undetermined cause of a known one."""
    fleet, keeper = Fleet.made(7), Keeper()
    for _ in range(40):
        keeper.see(fleet.look())
    fault(fleet)
    for _ in range(40):
        known = keeper.see(fleet.look())
    successor = Keeper()
    successor.kept = dict(keeper.kept)
    successor.causes.adopt(known, fleet.now)
    for _ in range(60):
        found = successor.see(fleet.look())
        assert [(each.incident_id, each.finding.cause) for each in found] == [
            (each.incident_id, each.finding.cause) for each in known
        ]


def test_an_adopted_cause_ends_with_the_trouble_or_another_cause() -> None:
    """It says that it is old, gives way to what is seen now, and is not taken for trouble after all was well."""
    slow = Finding(Cause.STORAGE, "Slow", ("8 s",), (), None, None, scope="group a")
    late, well = game(status="LAGGING", backlog_seconds=90.0), game()
    begun = Incident("i0", slow, ("chess",), "a", NOW - 600, None, None, "late")

    def after(*seen: GameSeen) -> Finding | None:
        keeper, now = Keeper(), NOW
        keeper.causes.adopt([begun], now)
        for each in seen:
            now += 5
            keeper.see(look(each, source=replace(LEVEL, newest_at=now - 2), now=now))
        return keeper.causes.games["chess"].finding

    kept = after(*[late] * 60)
    assert kept is not None
    assert (kept.cause, kept.evidence) == (Cause.STORAGE, ("8 s", ADOPTED))
    for seen in ([late, late, replace(late, failure=StreamFailure("poison", "row 3", 1, NOW)), late, late],
                 [late, late, *[well] * 3, late, late], [replace(late, group="b")] * 3):  # fmt: skip
        other = after(*seen)
        assert other is not None
        assert other.cause == Cause.UNDETERMINED


def test_a_recovery_goes_on_in_a_new_process() -> None:
    """Three looks tell it that the backlog falls; until then no new cause begins."""
    gone = Finding(Cause.DRIVER_GONE, "Gone", (), (), None, None, scope="group a")
    begun = Incident("i0", gone, ("chess",), "a", NOW - 600, None, None, "recovering")
    keeper = Keeper()
    keeper.kept["i0"] = begun
    keeper.causes.adopt([begun], NOW)
    for number in range(20):
        at = NOW + 5 * number
        falls = game(status="LAGGING", backlog_seconds=400.0 - 10 * number)
        (found,) = keeper.see(look(falls, source=replace(LEVEL, newest_at=at), now=at))
        assert (found.incident_id, found.tone) == ("i0", "recovering")


def test_a_retired_game_leaves_its_incident() -> None:
    """A game that was retired, or is gone, is nobody's trouble."""
    time = Time()
    failing = [game(key, status="FAILED", failure=FULL) for key in "xy"]
    time.see(*failing)
    found = time.see(failing[1], times=3)
    assert [each.games for each in found] == [("y",)]
    assert time.see(game("y", status="PAUSED", retired=True), times=4) == ()
