"""Seqs that bronze lost: which cursors they stop, and that bronze keeps them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.delta import lost_seqs
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located

seqs = st.integers(0, 30)


@given(kept=seqs, top=seqs, later=seqs, cursor=seqs)
def test_a_cursor_is_stopped_exactly_when_its_rows_are_lost(kept: int, top: int, later: int, cursor: int) -> None:
    """Law L5: a table with rows of a lost seq takes no further ones, and every other table does."""
    lost = LostSeqs(kept, max(top, kept) + 100)
    head = lost.before + later
    stopped = lost_seqs.problem("g", cursor, head, [lost]) is not None
    assert stopped == (kept < cursor < lost.before)
    assert lost_seqs.problem("g", head, head, [lost]) is None


@given(cursor=seqs, head=seqs)
def test_a_cursor_above_bronze_is_stopped_before_anything_is_recorded(cursor: int, head: int) -> None:
    """Law L5: a row of a seq that is given a second time would be taken for applied."""
    sentence = lost_seqs.problem("g", cursor, head, [])
    assert (sentence is not None) == (cursor > head)
    if sentence is not None:
        assert f"rows up to seq {cursor}, but bronze ends at seq {head}" in sentence
        assert "turnout ingest adopt" in sentence


def test_bronze_keeps_what_it_lost_over_checkpoints(tmp_path: Path) -> None:
    """Law L1: the record is as durable as bronze's cursor, and a second loss stands beside the first."""
    bronze = CursorTable.create(located(tmp_path / "bronze"), BRONZE, "app", checkpoint_interval=3)
    losses = [LostSeqs(2, 105), LostSeqs(107, 230)]
    for number, lost in enumerate(losses, 1):
        bronze.commit([], bronze.cursor, lost.before, also=lost_seqs.transactions("test", number, lost))
        for _ in range(5):
            bronze.commit([], bronze.cursor, (bronze.cursor or 0) + 1)
    again = CursorTable.open(located(tmp_path / "bronze"), "app")
    assert again is not None
    assert tuple(losses) == lost_seqs.read(again.transaction_version, "test")
    assert lost_seqs.read(again.transaction_version, "other") == ()
