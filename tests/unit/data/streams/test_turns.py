"""Whose turn catch-up's next chunk is: nobody waits for the backlog of others, and nobody's backlog waits for ever."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.streams.catchup import Turn, next_turn

HEAD = 240
MAX = st.integers(1, 40)
PLACES = st.lists(st.integers(0, HEAD - 1), min_size=1, max_size=12)
NEWCOMERS = st.integers(0, 3)


def games(places: list[int]) -> dict[str, int]:
    return {f"g{number}": place for number, place in enumerate(places)}


def carry_out(behind: dict[str, int], turn: Turn) -> dict[str, int]:
    """Return who is still behind after a chunk, and how far."""
    after = {game: turn.high if game in turn.games else through for game, through in behind.items()}
    return {game: through for game, through in after.items() if through < HEAD}


def turns(
    behind: dict[str, int], most: int, waits: bool, join: Callable[[int], dict[str, int]] = lambda _: {}
) -> list[Turn]:
    """Return the chunks until those who were behind at first are level; `join` names who comes before each chunk."""
    first, done = set(behind), list[Turn]()
    while first & behind.keys():
        assert len(done) <= 2 * HEAD, "somebody waits for ever"
        behind = behind | join(len(done))
        turn = next_turn(behind, HEAD, most, furthest_waits=waits)
        assert turn is not None
        assert 0 < turn.high - turn.low <= most
        assert all(turn.low <= behind[game] < turn.high for game in turn.games)
        waits = turn.leaves_furthest
        behind = carry_out(behind, turn)
        done.append(turn)
    return done


def nearly_level(most: int, count: int) -> Callable[[int], dict[str, int]]:
    """Let a number of games that lack one seq, and as many that lack a chunk, come before each chunk."""
    return lambda step: {f"n{step}.{number}.{lacks}": HEAD - lacks for number in range(count) for lacks in (1, most)}


@given(PLACES, MAX, st.booleans(), st.data())
@pytest.mark.proves("G69")
def test_a_nearly_level_game_is_level_by_the_next_chunk_but_one(
    places: list[int], most: int, waits: bool, data: st.DataObject
) -> None:
    """Law L16: whatever else is behind, and whoever had the chunk before."""
    behind = games(places) | {"near": HEAD - data.draw(st.integers(1, most))}
    near = {"near": behind["near"]}
    chunks = turns(near, most, waits, lambda step: {} if step else behind)
    assert len(chunks) <= 2


@given(PLACES, MAX, st.booleans(), NEWCOMERS)
@pytest.mark.proves("G69")
def test_the_furthest_has_every_other_chunk_at_least(places: list[int], most: int, waits: bool, coming: int) -> None:
    """Law L16: however many nearly level games keep coming, the furthest gets on by a whole chunk in each two."""
    behind, starving = games(places), 0
    join = nearly_level(most, coming)
    for step in range(20):
        behind = behind | join(step)
        furthest = min(behind, key=lambda game: behind[game], default=None)
        turn = next_turn(behind, HEAD, most, furthest_waits=waits)
        if turn is None or furthest is None:
            return
        starving = 0 if furthest in turn.games else starving + 1
        assert starving <= 1
        assert furthest not in turn.games or turn.high == min(turn.low + most, HEAD)
        waits = turn.leaves_furthest
        behind = carry_out(behind, turn)


@given(PLACES, MAX, st.booleans(), NEWCOMERS)
def test_everybody_is_level_in_twice_the_chunks_of_the_longest_way(
    places: list[int], most: int, waits: bool, coming: int
) -> None:
    """Law L16: those in the middle neither wait for ever, nor do turns read more than twice what one sweep would."""
    chunks = turns(games(places), most, waits, nearly_level(most, coming))
    assert len(chunks) <= 2 * math.ceil((HEAD - min(places)) / most) + 1


@given(st.integers(0, HEAD - 1), MAX, st.data(), st.booleans())
@pytest.mark.proves("G69")
def test_games_that_are_equally_far_behind_share_each_read(
    place: int, most: int, data: st.DataObject, waits: bool
) -> None:
    """After an outage each seq of bronze is read once for all games, though some were quiet for long before it."""
    way = HEAD - place
    near = st.integers(place, place + way // 2 if way > 2 * most else place)
    places = [place, *data.draw(st.lists(near, min_size=1, max_size=20))]
    chunks = turns(games(places), most, waits)
    assert len(chunks) == math.ceil((HEAD - place) / most)
    assert [turn.low for turn in chunks] == list(range(place, HEAD, most))


@given(PLACES, MAX, st.booleans(), st.data())
def test_a_game_waits_for_no_more_than_twice_its_own_way(
    places: list[int], most: int, waits: bool, data: st.DataObject
) -> None:
    """Law L16: whatever else is behind, the nearest game is level after four times the chunks of its own way."""
    nearest = data.draw(st.integers(max(places), HEAD - 1))
    own = {"nearest": nearest}
    chunks = turns(own, most, waits, lambda step: {} if step else games(places))
    assert len(chunks) <= 4 * math.ceil((HEAD - nearest) / most) + 2


def test_a_game_is_level_within_seconds_though_another_one_is_a_week_behind() -> None:
    """Law L16: 1,500 chunks of one game's backlog hold a resumed game up for as many chunks as it lacks itself."""
    far, most = 0, 200
    head = 1_500 * most
    behind, waits, count = {"far": far, "resumed": head - 3 * most}, False, 0
    while "resumed" in behind:
        turn = next_turn(behind, head, most, furthest_waits=waits)
        assert turn is not None
        waits, count = turn.leaves_furthest, count + 1
        behind = {
            game: turn.high if game in turn.games else through
            for game, through in behind.items()
            if game not in turn.games or turn.high < head
        }
    assert count == 5
    assert behind == {"far": 2 * most}


def test_nobody_gets_a_chunk_for_nothing() -> None:
    """A stream that has all of bronze waits for its pass."""
    assert next_turn({}, 9, 2, furthest_waits=False) is None
    assert next_turn({"a": 9, "b": 12}, 9, 2, furthest_waits=True) is None
    assert next_turn({"a": 9, "b": 8}, 9, 2, furthest_waits=True) == Turn(frozenset("b"), 8, 9, False)
