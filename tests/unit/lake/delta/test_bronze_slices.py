"""Rows cut into slices of bounded size: each row once, in order, and nothing larger than asked for."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lake.delta.bronze import sliced

ROW = 128  # what a row counts beside its values


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 400) | st.none(), max_size=8), max_size=6),
    most=st.integers(1, 2_000),
)
def test_slices_hold_each_row_once_and_are_bounded(batches: list[list[int | None]], most: int) -> None:
    """Law L1: what is cut is neither lost nor doubled nor reordered; only a larger row exceeds the bound."""
    parts, number = [], 0
    for sizes in batches:
        ids = list(range(number, number + len(sizes)))
        number += len(sizes)
        values = pa.array([None if size is None else bytes(size) for size in sizes], pa.binary())
        parts.append(pa.record_batch({"id": pa.array(ids, pa.int64()), "value": values}))
    slices = list(sliced(iter(parts), most))
    assert list(range(number)) == [row for each in slices for row in each["id"].to_pylist()]
    for each in slices:
        size = sum(ROW + len(value or b"") for value in each["value"].to_pylist())
        assert size <= most or each.num_rows == 1
        assert each.num_rows


def test_a_slice_is_as_large_as_it_may_be() -> None:
    """Small batches are put together: cutting costs a seq, a file and a commit of each game."""
    batch = pa.record_batch({"value": pa.array([bytes(72)] * 5)})
    assert [each.num_rows for each in sliced([batch] * 4, 200 * 8)] == [8, 8, 4]
