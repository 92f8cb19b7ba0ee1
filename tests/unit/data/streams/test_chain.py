import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.streams.stream import Link, connects, merged, reach

_SEQS = st.lists(st.integers(1, 200), min_size=1, max_size=30, unique=True).map(sorted)


def _chain(seqs: list[int]) -> list[Link]:
    return [Link(seq, prev) for prev, seq in zip([0, *seqs], seqs, strict=False)]


@given(_SEQS, st.data())
def test_an_unbroken_run_connects_to_the_cursor_before_it(seqs: list[int], data: st.DataObject) -> None:
    """From any point of a game's history on, the whole rest connects; the cursor may lie in a quiet stretch."""
    start = data.draw(st.integers(0, len(seqs) - 1))
    links = _chain(seqs)
    low = links[start].prev_seq
    assert connects(data.draw(st.integers(low, links[start].seq - 1)), links[start:])


@given(_SEQS, st.data())
@pytest.mark.proves("G37")
def test_a_missing_link_never_connects(seqs: list[int], data: st.DataObject) -> None:
    """Leave any one seq out above the cursor, and the cursor must not be carried past it."""
    links = _chain(seqs)
    missing = data.draw(st.integers(0, len(links) - 1))
    rest = links[:missing] + links[missing + 1 :]
    assert not connects(0, rest) or missing == len(links) - 1


@given(_SEQS, st.data())
def test_what_lies_before_a_gap_is_reached_and_nothing_behind_it(seqs: list[int], data: st.DataObject) -> None:
    """Leave any one seq out: the links lead up to the seq before it, and that far they connect."""
    links = _chain(seqs)
    missing = data.draw(st.integers(0, len(links) - 1))
    rest = links[:missing] + links[missing + 1 :]
    end = reach(0, rest)
    assert end == links[missing].prev_seq
    assert connects(0, [link for link in rest if link.seq <= end])


def test_rows_at_or_below_the_cursor_do_not_connect() -> None:
    """Rows that the table already has must have been filtered out before."""
    assert not connects(5, [Link(5, 3)])
    assert connects(5, [])


@given(_SEQS)
def test_links_of_several_tasks_become_one_chain(seqs: list[int]) -> None:
    """Tasks report in any order, and two may report one file's rows: each link counts once."""
    links = _chain(seqs)
    twice = links + links
    random.Random(1).shuffle(twice)
    assert links == merged(twice)
