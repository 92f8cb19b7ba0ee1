"""Guards the memory of numbered rows: each is new exactly once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from listeners.minutes import seen
from listeners.minutes.seen import Seen


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), max_size=8))
def test_a_row_is_new_once(batches: list[list[int]]) -> None:
    """Series: in any order of files and with doubled rows, each number of a writer is new exactly once."""
    memory, known = Seen(), set[int]()
    for batch in batches:
        assert memory.has_new("w", np.array(batch)) == bool(set(batch) - known)
        fresh = memory.mark("w", np.array(batch), 0.0)
        new = np.array(batch)[fresh].tolist()
        assert (len(new), set(new)) == (len(set(new)), set(batch) - known)
        known |= set(batch)


def test_writers_do_not_hide_each_others_rows() -> None:
    """Two processes number their rows alike."""
    memory = Seen()
    assert memory.mark("a", np.array([0, 1]), 5.0).all()
    assert memory.mark("b", np.array([0, 1]), 9.0).all()
    memory.forget(6.0)
    assert (memory.has_new("a", np.array([0])), memory.has_new("b", np.array([0]))) == (True, False)


def test_the_memory_is_bounded() -> None:
    """A writer of months, or a number from nowhere, takes no more than the bound; numbers far behind count as read."""
    memory = Seen()
    assert memory.mark("w", np.array([0, 1, 2**40]), 0.0).tolist() == [False, False, True]
    assert not memory.has_new("w", np.array([0]))
    assert len(memory._writers["w"]._marks) == seen._KEPT
