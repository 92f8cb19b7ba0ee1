from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from listeners.sample import Lane, StreamState
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.health.facts.loads import read_loads
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.placement.capacity import Load
from pipeline.settings.tree import load
from pipeline.store import games, onboarding
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.onboarding import OnboardingCandidate
from pipeline.store.processes.drivers import heartbeat, start_driver
from tests.unit.store.reports_world import write_streams


def _groups(engine: Engine, *names: str) -> dict[str, set[str]]:
    return {name: {str(each.game_key) for each in games.assigned(engine, name)} for name in names}


@pytest.mark.proves("G109")
def test_games_are_shared_out_evenly_and_stay(engine: Engine) -> None:
    """Of games of which nothing is known each group gets as many; a new game or group moves nobody."""
    games.register_group(engine, "a", placing())
    games.register_group(engine, "b", placing())
    games.record_seen(engine, {f"g{number}": f"Game {number}" for number in range(10)}, 1, placing())
    before = _groups(engine, "a", "b")
    assert [len(keys) for keys in before.values()] == [5, 5]
    games.register_group(engine, "c", placing())
    games.record_seen(engine, {"g99": "Game 99"}, 2, placing())
    assert {**before, "c": {"g99"}} == _groups(engine, "a", "b", "c")


def test_games_found_before_any_group_wait_for_the_first(engine: Engine) -> None:
    """Ingest may run before a group exists; nothing is forgotten."""
    games.record_seen(engine, {"g1": "One"}, 1, placing())
    assert {"a": set()} == _groups(engine, "a")
    games.register_group(engine, "a", placing())
    assert {"a": {"g1"}} == _groups(engine, "a")


def test_the_last_seq_is_kept_and_never_goes_back_at_a_start(engine: Engine) -> None:
    """What a crash left untold is repaired from bronze's heads; what is newer stays."""
    games.record_seen(engine, {"g1": "One", "g2": "Two"}, 5, placing())
    games.record_last_seqs(engine, {"g1": 9, "g2": 3, "malformed_wrapper": 4}, placing())
    games.register_group(engine, "a", placing())
    assert {each.game_key: each.last_seq for each in games.assigned(engine, "a")} == {"g1": 9, "g2": 5}


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """An unreachable store is one sentence that says which setting to check."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    with pytest.raises(Refused, match=r"control store cannot be opened.*store\.url"):
        open_store(settings, paths)


def test_only_onboarded_names_are_repaired_at_a_start(engine: Engine) -> None:
    """A game whose first rows were not told before a crash is found again; a key of bronze that is no game's is not."""
    onboarding.onboard(engine, [OnboardingCandidate(GameKey("g1"), "One", "approval")])
    games.record_last_seqs(engine, {"g1": 4, "g2": 5, "malformed_wrapper": 9}, placing())
    assert games.known_games(engine) == {"g1": "One"}
    assert games.known_groups(engine) == {"g1": None}
    games.register_group(engine, "a", placing())
    assert games.known_groups(engine) == {"g1": "a"}
    assert [each.last_seq for each in games.assigned(engine, "a")] == [4]


def _want(engine: Engine, group: str, **wanted: object) -> None:
    with engine.begin() as connection:
        connection.execute(update(tables.groups).where(tables.groups.c.name == group).values(wanted))


def _report(engine: Engine, key: str, group: str, rows: float | None, lane: Lane = Lane.RUN) -> None:
    state = StreamState(
        game_key=key, group=group, lane=lane, status="RUNNING", status_since=0.0, cursor_seq=1, last_commit_at=None,
        backlog_age_seconds=2.0, rows_per_second=rows, latency_p95_seconds=None, rows_total=0, rejects_total=0,
        last_error=None, updated_at=0.0, bytes_per_second=7.0, commits_per_second=0.2,
    )  # fmt: skip
    write_streams(engine, [state])


@pytest.mark.proves("G109")
def test_a_new_game_goes_where_measured_load_is_least(engine: Engine) -> None:
    """One hot game counts for more than two quiet ones: the rule is load, not the number of games."""
    games.register_group(engine, "a", placing())
    games.record_seen(engine, {"hot": "Hot"}, 1, placing())
    games.register_group(engine, "b", placing())
    games.record_seen(engine, {"quiet1": "1"}, 1, placing())
    games.record_seen(engine, {"quiet2": "2", "quiet3": "3"}, 1, placing())
    for key, group in games.known_groups(engine).items():
        _report(engine, key, str(group), 50_000.0 if key == "hot" else 1.0)
    games.record_seen(engine, {"new": "New"}, 2, placing())
    assert games.known_groups(engine)["new"] == "b"
    assert len(_groups(engine, "b")["b"]) == 3


@pytest.mark.proves("G109")
def test_groups_that_take_no_games_get_none(engine: Engine) -> None:
    """Drained, stopped and full groups get no new game, one with a dead driver only where there is no other."""
    for name in "abcd":
        games.register_group(engine, name, placing())
    _want(engine, "a", desired="drained")
    _want(engine, "b", desired="stopped")
    _want(engine, "c", capacity_cores=0.0001)
    games.record_seen(engine, {"g1": "One"}, 1, placing())
    assert games.known_groups(engine) == {"g1": "d"}
    start_driver(engine, "group", "d", None)
    heartbeat(engine, "group", "d", "failed", None, "it broke")
    games.register_group(engine, "e", placing())
    games.record_seen(engine, {"g2": "Two"}, 1, placing())
    assert games.known_groups(engine)["g2"] == "e"
    _want(engine, "e", desired="stopped")
    games.record_seen(engine, {"g3": "Three"}, 1, placing())
    assert games.known_groups(engine)["g3"] == "d"


def test_a_game_that_fits_nowhere_waits_until_there_is_room(engine: Engine) -> None:
    """No group gets more games than the setting allows; who waits gets one when there is room, a retired game none."""
    games.register_group(engine, "a", placing(2))
    games.record_seen(engine, {f"g{number}": str(number) for number in range(4)}, 1, placing(2))
    assert games.known_groups(engine) == {"g0": "a", "g1": "a", "g2": None, "g3": None}
    with engine.begin() as connection:
        connection.execute(update(tables.games).where(tables.games.c.game_key == "g2").values(retired_at=1.0))
    games.assign_waiting(engine, placing(2))
    assert games.known_groups(engine)["g3"] is None
    games.register_group(engine, "b", placing(2))
    assert games.known_groups(engine) == {"g0": "a", "g1": "a", "g2": None, "g3": "b"}


def test_loads_are_what_drivers_told_of_streams_that_run(engine: Engine) -> None:
    """A stream in its pass tells what it costs, one that catches up does not; retired games are left out."""
    games.register_group(engine, "a", placing())
    _want(engine, "a", capacity_cores=1.5, priority="high")
    games.record_seen(engine, {"run": "R", "behind": "B", "untold": "U", "gone": "G"}, 1, placing())
    _report(engine, "run", "a", 100.0)
    _report(engine, "behind", "a", 9e5, Lane.CATCHUP)
    with engine.begin() as connection:
        connection.execute(update(tables.games).where(tables.games.c.game_key == "gone").values(retired_at=1.0))
        connection.execute(update(tables.games).where(tables.games.c.game_key == "run").values(priority="low"))
    start_driver(engine, "group", "a", None)
    loads = read_loads(engine, 1e12)
    by_key = loads.by_key()
    assert by_key["run"].load == Load(100.0, 7.0, 0.2, 2.0, "low")
    assert {key: each.is_known for key, each in by_key.items()} == {"run": True, "behind": False, "untold": False}
    assert by_key["untold"].cores == by_key["run"].cores
    group = loads.groups["a"]
    assert (group.alive, group.capacity_cores, group.priority) == (False, 1.5, "high")
    assert str(group.silence).startswith("its driver is silent for")
    assert group.games == 3
    assert group.cores == pytest.approx(3 * by_key["run"].cores)


def test_scarce_capacity_goes_to_high_priority_first(engine: Engine) -> None:
    """Of games that wait for a group the one of high priority gets the room there is, whatever its name."""
    games.record_seen(engine, {"a_low": "A", "b_high": "B", "c_normal": "C"}, 1, placing())
    with engine.begin() as connection:
        for key, priority in (("a_low", "low"), ("b_high", "high")):
            mine = tables.games.c.game_key == key
            connection.execute(update(tables.games).where(mine).values(priority=priority))
    games.register_group(engine, "a", placing(0))
    games.assign_waiting(engine, placing(2))
    assert {each.game_key for each in games.assigned(engine, "a")} == {"b_high", "c_normal"}
