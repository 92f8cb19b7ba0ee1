"""Games that change hands: a driver takes a game only when no other one holds it, and lets go what it does not read."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, event, update

from pipeline.data.streams.roster import Roster
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings
from pipeline.store import games
from pipeline.store.database.tables import games as games_table
from pipeline.store.processes.leases import Lease
from tests.game_streams import roster_of
from tests.unit.store.leases_world import SECONDS, StoreClock, group_lease


@pytest.fixture
def clock(engine: Engine) -> StoreClock:
    return StoreClock(engine)


# --------------------------------------------------------------------------------------------- games that change hands


@pytest.fixture
def two_groups(engine: Engine) -> Engine:
    games.register_group(engine, "a", placing())
    games.register_group(engine, "b", placing())
    games.record_seen(engine, {f"g{number}": f"Game {number}" for number in range(6)}, 1, placing())
    return engine


def move(engine: Engine, group: str, *keys: str) -> None:
    with engine.begin() as connection:
        moved = update(games_table).where(games_table.c.game_key.in_(keys))
        connection.execute(moved.values(group_name=group, epoch=games_table.c.epoch + 1))


def carried(engine: Engine, lease: Lease) -> set[str]:
    return {str(each.game_key) for each in games.carried(engine, lease)}


def test_a_moved_game_is_taken_up_only_when_it_was_let_go(two_groups: Engine, clock: StoreClock) -> None:
    """A move: the new driver waits until the old one has let the game go, and then takes it at its next look."""
    a, b = group_lease(two_groups, "a", 1), group_lease(two_groups, "b", 2)
    assert {"g0", "g2", "g4"} == carried(two_groups, a)
    assert {"g1", "g3", "g5"} == carried(two_groups, b)
    move(two_groups, "b", "g0", "g2")
    assert {"g1", "g3", "g5"} == carried(two_groups, b)
    assert {"g4"} == carried(two_groups, a)
    games.let_go(two_groups, a, ["g0", "g4", "g5"])  # only what it holds and what was moved away
    assert games.holds(two_groups, a, "g4")
    assert games.holds(two_groups, b, "g5")
    assert {"g0", "g1", "g3", "g5"} == carried(two_groups, b)
    assert {"g4"} == carried(two_groups, a)


@pytest.mark.proves("G92")
def test_a_moved_game_is_taken_up_when_the_old_driver_lost_its_lease(two_groups: Engine, clock: StoreClock) -> None:
    """A driver that ended, or stands still, keeps its games only as long as its lease runs."""
    a, b = group_lease(two_groups, "a", 1), group_lease(two_groups, "b", 2)
    carried(two_groups, a)
    move(two_groups, "b", "g0", "g2", "g4")
    clock.now += SECONDS - 1
    b.renew()
    assert "g0" not in carried(two_groups, b)
    clock.now += 2
    assert {f"g{number}" for number in range(6)} == carried(two_groups, b)
    move(two_groups, "a", "g1")
    successor = group_lease(two_groups, "a", 3)
    assert not carried(two_groups, successor)
    b.release()
    assert {"g1"} == carried(two_groups, successor)


@pytest.mark.proves("D8")
def test_a_stale_driver_carries_and_takes_nothing(two_groups: Engine, clock: StoreClock) -> None:
    """Who was replaced within its own group has no game any more, and gets none."""
    stale = group_lease(two_groups, "a", 1)
    assert carried(two_groups, stale)
    clock.now += SECONDS + 1
    heir = group_lease(two_groups, "a", 2)
    assert {"g0", "g2", "g4"} == carried(two_groups, heir)
    games.record_seen(two_groups, {"g6": "Game 6"}, 2, placing())
    assert set() == carried(two_groups, stale)
    assert "g6" in carried(two_groups, heir)


def test_a_write_may_begin_only_under_a_lease_that_runs_long_enough(two_groups: Engine, clock: StoreClock) -> None:
    """`holds` is true only while a third of the lease's time is left and the game is this driver's."""
    a = group_lease(two_groups, "a", 1)
    assert not games.holds(two_groups, a, "g0")  # nobody holds it yet
    carried(two_groups, a)
    assert games.holds(two_groups, a, "g0")
    assert not games.holds(two_groups, a, "g1")
    clock.now += SECONDS * 2 / 3 - 0.1
    assert games.holds(two_groups, a, "g0")
    clock.now += 0.2
    assert not games.holds(two_groups, a, "g0")
    a.renew()
    assert games.holds(two_groups, a, "g0")
    move(two_groups, "b", "g0")
    assert games.holds(two_groups, a, "g0")  # until it lets go, the pass that runs may end
    games.let_go(two_groups, a, ["g0"])
    assert not games.holds(two_groups, a, "g0")
    clock.now += SECONDS + 1
    group_lease(two_groups, "a", 2)
    assert not games.holds(two_groups, a, "g2")


# -------------------------------------------------------------------------------------------------------------- rosters


def roster(engine: Engine, tmp_path: Path, lease: Lease | None, group: str = "a") -> Roster:
    return roster_of(Settings(), Paths(tmp_path), engine, group, lease)


def test_a_roster_lets_a_game_go_after_the_pass_that_has_it(two_groups: Engine, tmp_path: Path) -> None:
    """A moved game leaves with the next look, but nobody else gets it before the pass that reads it has ended."""
    old = roster(two_groups, tmp_path, group_lease(two_groups, "a", 1))
    new = roster(two_groups, tmp_path, group_lease(two_groups, "b", 2), "b")
    assert {"g0", "g2", "g4"} == set(old.for_pass(0))
    move(two_groups, "b", "g0")
    old.sync()
    new.sync()
    assert {"g2", "g4"} == set(old.streams)
    assert "g0" not in new.streams
    old.end_pass()
    old.sync()
    new.sync()
    assert "g0" in new.streams


@pytest.mark.proves("G35")
def test_a_game_that_is_moved_in_the_moment_it_is_taken_is_let_go(
    two_groups: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L7: a driver lets go what it took and never carried; the new owner would wait for the end of its lease."""
    look, looks = games._read_held, []

    def moved_between(engine: Engine, lease: Lease) -> object:
        looks.append(lease)
        if len(looks) == 2:
            move(engine, "b", "g0")
        return look(engine, lease)

    monkeypatch.setattr(games, "_read_held", moved_between)
    old = roster(two_groups, tmp_path, group_lease(two_groups, "a", 1))
    assert {"g2", "g4"} == set(old.streams)
    old.sync()
    new = roster(two_groups, tmp_path, group_lease(two_groups, "b", 2), "b")
    assert "g0" in new.streams


def test_a_roster_lets_a_game_go_after_the_chunk_that_has_it(two_groups: Engine, tmp_path: Path) -> None:
    """The same for catch-up, and a chunk that was chosen before the move no longer gets a game that has gone."""
    old = roster(two_groups, tmp_path, group_lease(two_groups, "a", 1))
    new = roster(two_groups, tmp_path, group_lease(two_groups, "b", 2), "b")
    chosen = dict(old.streams)
    for stream in chosen.values():
        stream.behind = True
    assert {"g0"} == set(old.for_chunk({"g0": chosen["g0"]}))
    move(two_groups, "b", "g0", "g2")
    old.sync()
    new.sync()
    assert "g0" not in new.streams
    assert "g2" in new.streams
    assert not old.for_chunk({"g2": chosen["g2"]})
    old.end_chunk()
    old.sync()
    new.sync()
    assert "g0" in new.streams


def test_a_game_of_its_own_query_is_let_go_after_that_querys_pass(two_groups: Engine, tmp_path: Path) -> None:
    """The end of the shared query's pass says nothing about the pass of a game's own query."""
    old = roster(two_groups, tmp_path, group_lease(two_groups, "a", 1))
    new = roster(two_groups, tmp_path, group_lease(two_groups, "b", 2), "b")
    old.for_pass(0, "g0")
    move(two_groups, "b", "g0")
    old.end_pass()
    old.sync()
    new.sync()
    assert "g0" not in new.streams
    old.end_pass("g0")
    old.sync()
    new.sync()
    assert "g0" in new.streams


def test_a_game_that_comes_back_before_it_was_let_go_stays_the_same(two_groups: Engine, tmp_path: Path) -> None:
    """Moved there and back during one pass: the stream that the pass has is the one that goes on."""
    one = roster(two_groups, tmp_path, group_lease(two_groups, "a", 1))
    (stream,) = [each for key, each in one.for_pass(0).items() if key == "g0"]
    move(two_groups, "b", "g0")
    one.sync()
    move(two_groups, "a", "g0")
    one.sync()
    one.end_pass()
    one.sync()
    assert one.streams["g0"] is stream
    assert one.holds("g0")


def test_without_leases_a_group_carries_what_is_assigned_to_it(two_groups: Engine, tmp_path: Path) -> None:
    """With leases turned off nothing is waited for, whatever others hold."""
    carried(two_groups, group_lease(two_groups, "a", 1))
    move(two_groups, "b", "g0")
    free = roster(two_groups, tmp_path, None, "b")
    assert {"g0", "g1", "g3", "g5"} == set(free.streams)
    assert free.holds("g0")


def test_a_look_at_a_thousand_games_is_two_statements_and_writes_nothing(engine: Engine, tmp_path: Path) -> None:
    """Each pass asks the store; as long as nothing changes it costs one statement for games and one for decisions."""
    games.register_group(engine, "a", placing())
    games.record_seen(engine, {f"g{number:04}": f"Game {number}" for number in range(1_000)}, 1, placing())
    one = roster(engine, tmp_path, group_lease(engine, "a"))
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    one.sync()
    assert [statement.split()[0] for statement in statements] == ["SELECT", "SELECT"]
    assert len(one.streams) == 1_000


# --------------------------------------------------------------------------------------------------------- old stores
