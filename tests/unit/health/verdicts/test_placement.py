"""Placement: who must leave gets another group, everybody else stays, and each says why."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.health.verdicts.placement import rebalancing
from pipeline.health.verdicts.placement.capacity import (
    COMMIT_CORE_SECONDS,
    IDLE_CORES,
    ROW_CORE_SECONDS,
    TYPICAL_CORES,
    GameLoad,
    GroupLoad,
    Load,
    Loads,
    choose,
    tallied,
)
from pipeline.health.verdicts.placement.planner import (
    CATCHUP_ROWS_PER_SECOND,
    Placed,
    catch_up_seconds,
    full,
    leaving,
    place,
    rebalance,
)
from pipeline.store.database.states import Desired, Priority

MAX_GAMES = 6  # games of a group, so that the cap is met too
PRIORITIES: st.SearchStrategy[Priority] = st.sampled_from(["high", "normal", "low"])
RATES = st.sampled_from([None, 0.0, 500.0, 20_000.0, 60_000.0, 90_000.0])
LOADS = st.builds(Load, RATES, st.sampled_from([None, 1e6, 9e7]), st.sampled_from([None, 0.2]), RATES, PRIORITIES)
GAMES = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c", "d", "gone"]), LOADS), max_size=14)
DRIVERS = st.sampled_from([(True, None), (False, "its driver is silent"), (None, None)])
CAPACITIES = st.sampled_from([None, 0.5, 1.0, 4.0])


@st.composite
def worlds(draw: st.DrawFn) -> Loads:
    """Return games anywhere, and groups in any state."""
    states: st.SearchStrategy[Desired] = st.sampled_from(["running", "running", "running", "drained", "stopped"])
    groups = [
        GroupLoad(name, draw(states), *draw(DRIVERS), draw(CAPACITIES), draw(PRIORITIES))
        for name in draw(st.sets(st.sampled_from("abcd")))
    ]
    return tallied(((f"g{n:02}", *game) for n, game in enumerate(draw(GAMES))), groups, MAX_GAMES)


def moved(loads: Loads, wanted: Mapping[str, str]) -> Loads:
    """Return what there is when these games are where they shall be."""
    games = ((each.game_key, wanted.get(each.game_key, each.group), each.load) for each in loads.games)
    return tallied(games, loads.groups.values(), loads.max_games)


def world(games: Mapping[str, tuple[str | None, float]], *groups: GroupLoad, most: int = 100) -> Loads:
    """Return games (key → group and cores) and groups; all that a game costs are its rows."""
    loads = (
        (key, group, Load((cores - IDLE_CORES) / ROW_CORE_SECONDS, 0.0, 0.0, 0.0))
        for key, (group, cores) in games.items()
    )
    return tallied(loads, groups, most)


def alive(name: str, capacity: float | None = None, **more: object) -> GroupLoad:
    return replace(GroupLoad(name, "running", True, None, capacity), **more)  # type: ignore[arg-type]


def test_a_games_cores_come_from_rows_bytes_commits_and_lag() -> None:
    """Measurements add up as documented; large rows count by their bytes, a lag as up to as much again."""
    assert pytest.approx(1000 * ROW_CORE_SECONDS + 0.2 * COMMIT_CORE_SECONDS + IDLE_CORES) == (
        Load(1000.0, 190_000.0, 0.2).cores
    )
    assert Load(1000.0, 2_048_000.0, 0.2).cores == Load(2000.0, 0.0, 0.2).cores
    assert Load(1000.0, None, 0.2, 300.0).cores == pytest.approx(Load(1500.0, None, 0.2).cores)
    assert Load(1000.0, None, 0.2, 1e9).cores == pytest.approx(Load(2000.0, None, 0.2).cores)
    assert Load(0.0, 0.0, 0.0).cores == IDLE_CORES


def test_an_unknown_load_counts_as_the_median_and_is_told_as_such() -> None:
    """Unknown is never 0: without any known game a game counts as a measured one."""
    for unknown in (Load(), Load(None, 1.0, 0.2), Load(1.0, 1.0, None)):
        assert unknown.cores is None
        assert [each.cores for each in tallied([("g", None, unknown)], []).games] == [TYPICAL_CORES]
    loads = tallied(
        [
            ("g1", "a", Load(1e3, 0, 1)),
            ("g2", "a", Load(2e3, 0, 1)),
            ("g3", "a", Load(9e4, 0, 1)),
            ("new", None, Load()),
        ],
        [alive("a")],
    )
    assert loads.by_key()["new"].cores == Load(2e3, 0, 1).cores
    (only,) = place(loads).placements
    assert "its load is unknown, so it counts as the median" in only.why


@given(worlds())
@pytest.mark.proves("G110")
def test_placement_is_deterministic_and_done_once(loads: Loads) -> None:
    """The same facts in any order give the same groups; applied and planned again, nothing is left to do."""
    found = place(loads)
    shuffled = tallied(
        ((each.game_key, each.group, each.load) for each in reversed(loads.games)),
        reversed(list(loads.groups.values())),
        MAX_GAMES,
    )
    assert place(shuffled).new_groups == found.new_groups
    assert place(moved(loads, found.new_groups)).placements == ()


@given(worlds())
@pytest.mark.proves("G110")
def test_nobody_moves_but_who_cannot_stay(loads: Loads) -> None:
    """A game moves only where its group is gone, drained, stopped, dead or full; nobody is left without a word."""
    found = place(loads)
    reported = {each.game.game_key for each in found.unplaced}
    for each in loads.games:
        group = loads.groups.get(each.group or "")
        must = group is None or group.desired != "running" or group.alive is False
        moves = each.game_key in found.new_groups
        assert moves <= (must or (group is not None and group.is_over(MAX_GAMES)))
        assert must <= (moves or each.game_key in reported)
        assert not (moves and each.game_key in reported)


@given(worlds())
@pytest.mark.proves("G110")
def test_no_group_is_filled_over_its_capacity(loads: Loads) -> None:
    """Groups that get games have room for them; a full group loses no more than needed; full groups are reported."""
    found = place(loads)
    came = set(found.new_groups.values())
    for name, after in found.after.items():
        assert not (name in came and after.is_over(MAX_GAMES))
        before = loads.groups[name]
        gone = [each.game for each in found.placements if each.source == name]
        if before.desired == "running" and before.alive is not False:
            assert all(not after.has_room(each.cores, MAX_GAMES) for each in gone if name not in came), (
                "it could have stayed"
            )
            reported = [each.game for each in found.unplaced if each.game.group == name]
            assert after.is_over(MAX_GAMES) == bool(reported)
            assert not after.plus(-sum(each.cores for each in reported), -len(reported)).is_over(MAX_GAMES)


@given(worlds(), LOADS)
@pytest.mark.proves("G109")
def test_a_new_game_moves_nobody(loads: Loads, load: Load) -> None:
    """In a fleet where everybody may stay a new game, of which nothing is known yet, gets a group, and that is all."""
    settled = moved(loads, place(loads).new_groups)
    new = Load(priority=load.priority)
    games = [(each.game_key, each.group, each.load) for each in settled.games]
    found = place(tallied([*games, ("new", None, new)], settled.groups.values(), MAX_GAMES))
    assert found.new_groups.keys() <= {"new"}


@given(worlds(), st.integers(1, 5))
@pytest.mark.proves("G111")
def test_each_proposed_move_lowers_the_highest_load_or_evens_it_out(loads: Loads, most: int) -> None:
    """Move by move the highest share falls, or stays and the sum of squares falls; none gets over its capacity."""
    found = rebalance(loads, most)
    part = [name for name, each in loads.groups.items() if each.desired == "running" and each.alive]
    assert len(found.placements) <= most
    assert {each.target for each in found.placements} | {each.source for each in found.placements} <= set(part)

    def measure(groups: Mapping[str, GroupLoad]) -> tuple[float, float]:
        shares = [groups[name].share for name in part]
        return max(shares, default=0.0), sum(share**2 for share in shares)

    assert measure(found.after)[0] <= measure(found.before)[0] + 1e-9
    last = measure(found.before)
    for count in range(1, len(found.placements) + 1):
        now = measure(rebalance(loads, count).after)
        assert now[0] < last[0] + 1e-8
        assert now < last or now[1] < last[1]
        last = now
    assert all(not found.after[each.target].is_over(MAX_GAMES) for each in found.placements)


def the_best_is_found(loads: Loads, max_games: int) -> None:
    """Try each game in each group, one by one."""
    part = {name: each for name, each in loads.groups.items() if each.desired == "running" and each.alive}
    found = rebalancing.best(part, rebalancing.Leavers(loads.games), max_games)
    if not part:
        assert found is None
        return
    source = min(part.values(), key=lambda each: (-each.share, each.name))

    def measure(game: GameLoad, target: GroupLoad) -> tuple[float, float]:
        after = {**part, source.name: source.plus(-game.cores, -1), target.name: target.plus(game.cores)}
        shares = [each.share for each in after.values()]
        return round(max(shares), 9), round(sum(share**2 for share in shares), 9)

    shares = [each.share for each in part.values()]
    possible = [
        measure(game, target)
        for game in loads.games
        for target in part.values()
        if game.group == source.name != target.name
        and target.share_with(game.cores) <= source.share - 0.01
        and target.has_room(game.cores, max_games)
        and not source.priority == game.load.priority != target.priority
    ]
    better = [each for each in possible if each < (round(max(shares), 9), round(sum(one**2 for one in shares), 9))]
    assert (found is None) == (not better)
    if found is not None:
        assert measure(*found) == pytest.approx(min(better), abs=1e-8)


@given(worlds())
def test_the_move_that_is_found_is_the_best_of_all(loads: Loads) -> None:
    """Each game in each group, tried one by one, gives none that is better than the one that is found."""
    the_best_is_found(loads, MAX_GAMES)


@pytest.mark.parametrize("seed", range(40))
def test_the_best_of_many_different_games_is_found(seed: int) -> None:
    """The same of 60 games of which no two cost the same, while one group after the other is filled."""
    random = Random(seed)
    cores = {f"g{number:02}": random.expovariate(8.0) for number in range(60)}
    groups = [alive(name, random.choice([1.0, 4.0, 16.0, None])) for name in "abcd"]
    for stage in range(1, 5):
        games = {key: (random.choice("abcd"[:stage]), each) for key, each in cores.items()}
        the_best_is_found(world(games, *groups), 100)


def test_a_move_is_found_without_trying_each_game() -> None:
    """A plan of 1,000 moves took 54 s: for each, every game was tried in every group. Now it is a dozen a group."""
    tried = []
    for count in (50, 5_000):
        games = {f"g{number:04}": ("a", 0.01 + number % 97 / 1e5) for number in range(count)}
        loads = world(games, alive("a", 8.0), alive("b", 8.0), alive("c", 8.0), most=10_000)
        leavers = rebalancing.Leavers(loads.games)
        with patch.object(rebalancing.Leavers, "near", autospec=True, side_effect=rebalancing.Leavers.near) as near:
            assert rebalancing.best(loads.groups, leavers, loads.max_games) is not None
        calls = [call.args for call in near.call_args_list]
        tried.append(sum(len(list(rebalancing.Leavers.near(*call))) for call in calls))
    assert max(tried) <= 2 * 12, tried


@given(worlds(), st.sampled_from("abcd"))
def test_a_drain_empties_one_group_and_moves_nobody_else(loads: Loads, group: str) -> None:
    """All games of the group leave or are told of; no other moves, and no other group gets more than it may carry."""
    assume(group in loads.groups)
    mine = {each.game_key for each in loads.games if each.group == group}
    found = leaving(loads, {group: mine})
    assert found.new_groups.keys() | {each.game.game_key for each in found.unplaced} == mine
    assert all(not found.after[name].is_over(MAX_GAMES) for name in found.new_groups.values())
    assert group not in found.new_groups.values()


CASES = {
    "a drained group's game goes where most is free": (
        world({"g": ("a", 0.2), "h": ("b", 0.5)}, alive("a", 1.0, desired="drained"), alive("b", 1.0), alive("c", 1.0)),
        "group a is drained; c is then least full of the groups for normal games: about 0.2 of 1 cores, 1 games.",
    ),
    "a dead group's game goes elsewhere": (
        world({"g": ("a", 0.2)}, alive("a", alive=False, silence="its driver is silent"), alive("b")),
        (
            "group a is dead: its driver is silent; b is then least full of the groups for normal games: "
            "about 0.2 cores, not limited, 1 games."
        ),
    ),
    "a group that is not there": (
        world({"g": ("z", 0.2)}, alive("b", 1.0, priority="low")),
        (
            "group z does not exist; b is then least full of all groups, none of its priority has room: "
            "about 0.2 of 1 cores, 1 games."
        ),
    ),
    "a new game": (
        world({"g": (None, 0.2)}, GroupLoad("a", "running", None)),
        "it has no group; a is then least full of the groups for normal games: about 0.2 cores, not limited, 1 games.",
    ),
    "a full group gives up the one that is enough": (
        world({"g1": ("a", 0.3), "g2": ("a", 0.4), "g3": ("a", 0.7)}, alive("a", 1.0), alive("b", 0.5)),
        (
            "group a is full, about 1.4 of 1 cores, 3 games; b is then least full of the groups for normal games: "
            "about 0.4 of 0.5 cores, 1 games."
        ),
    ),
    "a group with too many games": (
        world({"g1": ("a", 0.1), "g2": ("a", 0.1)}, alive("a"), alive("b"), most=1),
        (
            "group a is full, about 0.2 cores, not limited, 2 games; b is then least full of the groups for normal "
            "games: about 0.1 cores, not limited, 1 games."
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_placement_says_why_and_why_there(name: str) -> None:
    """One sentence names the reason to leave, and how full the group that takes the game is then."""
    loads, sentence = CASES[name]
    (only,) = place(loads).placements
    assert sentence == only.why


def test_what_fits_nowhere_stays_and_says_so() -> None:
    """Nothing is squeezed in: the sentence names the need and the most room there is."""
    found = place(world({"g": ("a", 0.5), "h": ("b", 0.9)}, alive("a", desired="stopped"), alive("b", 1.0)))
    assert found.placements == ()
    assert [each.why for each in found.unplaced] == [
        "group a is stopped; it stays, because its about 0.5 cores fit nowhere: most room: b, 0.1 cores."
    ]
    (alone,) = place(world({"g": ("a", 2.0)}, alive("a", 1.0))).unplaced
    assert alone.why.endswith("it stays, because its about 2 cores fit nowhere: no other group takes games.")
    (waits,) = place(world({"g": (None, 2.0)})).unplaced
    assert waits.why == "it has no group; it waits, because its about 2 cores fit nowhere: no other group takes games."


def test_a_full_group_gives_up_no_more_than_it_must() -> None:
    """When several must leave, a game that left early comes back when larger ones have made room for it."""
    games = {"g1": ("a", 0.05), "g2": ("a", 0.5), "g3": ("a", 0.9), "g4": ("a", 0.9)}
    assert place(world(games, alive("a", 1.0), alive("b", 4.0))).new_groups == {"g2": "b", "g3": "b"}


def test_nobody_is_proposed_into_a_group_without_room() -> None:
    """Evening out fills no group over its capacity, however full the other one is."""
    games = {"g1": ("a", 1.0), "g2": ("a", 1.0), "g3": ("a", 1.0), "g4": ("b", 0.2)}
    assert rebalance(world(games, alive("a", 1.0), alive("b", 1.0))).placements == ()
    assert rebalance(world(games, alive("a", 1.0), alive("b", 9.0), most=1)).placements == ()


def test_high_games_leave_last_and_are_placed_first() -> None:
    """When some must leave, low games do; when not all fit, high games are placed."""
    rows = 0.6 / ROW_CORE_SECONDS
    kinds: tuple[Priority, ...] = ("high", "low", "normal")
    games = [(f"g_{each}", "a", Load(rows, 0.0, 0.0, 0.0, each)) for each in kinds]
    assert place(tallied(games, [alive("a", 1.3), alive("b", 1.0)])).new_groups == {"g_low": "b"}
    assert place(tallied(games, [alive("b", 1.0)])).new_groups == {"g_high": "b"}


def test_a_group_of_the_games_priority_comes_first_while_it_has_room() -> None:
    """Class before emptiness, capacity before class; a living driver before a dead one."""
    high, normal = alive("high", 1.0, priority="high", cores=0.8), alive("normal", 1.0)
    assert choose(0.1, "high", [high, normal], MAX_GAMES) == high
    assert choose(0.3, "high", [high, normal], MAX_GAMES) == normal
    assert choose(0.1, "low", [high, normal], MAX_GAMES) == normal
    never, dead = GroupLoad("never", alive=None), GroupLoad("dead", alive=False)
    assert choose(0.1, "normal", [never, dead], MAX_GAMES) == never
    assert choose(0.1, "normal", [dead], MAX_GAMES) == dead
    assert choose(0.1, "normal", [never, dead], MAX_GAMES, moves=True) is None
    assert choose(0.1, "normal", [alive("x", games=MAX_GAMES)], MAX_GAMES) is None


def test_a_proposal_says_what_it_brings_and_costs() -> None:
    """The moves that most reduce the highest load come first, with the load before and after; no stream restarts."""
    loads = world(
        {"g1": ("a", 0.4), "g2": ("a", 0.3), "g3": ("a", 0.1), "g4": ("b", 0.2)}, alive("a", 1.0), alive("b", 1.0)
    )
    found: Placed = rebalance(loads, 1)
    assert [(each.game_key, each.source, each.target) for each in found.placements] == [("g2", "a", "b")]
    assert found.placements[0].why == (
        "a is the fullest group, about 0.8 of 1 cores, 3 games; with it b has about 0.5 of 1 cores, 2 games."
    )
    assert [found.before["a"].share, found.after["a"].share] == pytest.approx([0.8, 0.5])
    assert found.restarts == 0
    assert rebalance(moved(loads, found.new_groups)).placements == ()
    assert rebalance(loads, fixed={"g1", "g2", "g3"}).placements == ()


def test_nobody_is_proposed_out_of_the_group_for_its_priority() -> None:
    """A high game leaves the group for high games for no other kind, however full it is."""
    games = [("g1", "a", Load(5e4, 0.0, 0.0, 0.0, "high")), ("g2", "a", Load(2e4, 0.0, 0.0, 0.0, "low"))]
    groups = [alive("a", 1.0, priority="high"), alive("b", 1.0, priority="low")]
    assert rebalance(tallied(games, groups)).new_groups == {"g2": "b"}


def test_a_catch_up_takes_what_waits_and_what_comes_meanwhile() -> None:
    """Three triggers to hand over, then lag and handover at the measured speed; unknown where either is."""

    def seconds(load: Load) -> float | None:
        return catch_up_seconds(tallied([("g", "a", load)], []).games[0], 5.0)

    assert seconds(Load(4600.0, None, 1.0, 85.0)) == 15.0 + 100.0 * 4600.0 / CATCHUP_ROWS_PER_SECOND
    assert seconds(Load(0.0, None, 0.0, 0.0)) == 15.0
    assert [seconds(each) for each in (Load(), Load(1.0, None, 1.0), Load(0.0, None, 0.0, 9.0))] == [None, None, None]


def test_what_sums_leave_behind_is_told_as_nothing() -> None:
    """A group that all of its games have left has 0 cores in words, not a rest of the arithmetic."""
    assert full(GroupLoad("a", capacity_cores=2.0, cores=9.3e-18)) == "0 of 2 cores, 0 games"
    assert full(GroupLoad("a", cores=-9.3e-18)) == "0 cores, not limited, 0 games"
