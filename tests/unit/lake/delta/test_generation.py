"""Which generation of a table is the current one is what its log says, whatever the control store says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.names import GameKey, stream_app_id
from pipeline.lake.delta.generation import newest

GO = GameKey("go")


def versions(newest_one: int) -> dict[str, int]:
    return {stream_app_id("local", GO, number): 5 for number in range(1, newest_one + 1)}


@given(there=st.integers(0, 6), known=st.integers(-3, 12))
def test_the_log_has_the_last_word(there: int, known: int) -> None:
    """Laws L3 and L12: under a number that the table lacks it would seem empty, and its rows would be in it twice."""
    assert newest(versions(there).get, "local", GO, known) == max(there, 1)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("known", [-1, 0, 100_000, (1 << 63) - 1, float("inf"), 1.5, "purple", b"\xff", None])
def test_a_number_that_a_hand_has_put_there_costs_nothing(known: Any) -> None:
    """Law L6: to look for each one below it would keep all games of the group waiting."""
    calls: list[str] = []

    def version_of(app: str) -> int | None:
        calls.append(app)
        return versions(2).get(app)

    assert newest(version_of, "local", GO, known) == 2
    assert len(calls) < 10
