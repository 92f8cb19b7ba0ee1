"""A repair of doubled rows, in random worlds of any number."""

from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base import names
from pipeline.data.repair.dedupe import Deduped, dedupe
from pipeline.data.streams.writing.columns import target_schema
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from pipeline.store.games import Game
from tests.tables.repair_world import (
    CHESS,
    World,
    broken,
    copied,
    good,
    make_world,
    split_rows,
)

Span = tuple[int, int]
"""Rows of seqs above the first up to the second."""


def commit(world: World, span: Span, game: Game = CHESS) -> None:
    """Land rows split from the cursor at the span's beginning, whatever the table's cursor is by now.

    This is how rows were doubled: the commit expected the cursor that the stream had at that moment, which a pass had
    moved meanwhile, and not the one that catch-up's rows were split from.
    """
    low, high = span
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=list(READ)).filter(pc.field("seq") <= high)
    schemas = world.registry.snapshot()
    report, _ = split_rows(rows, SplitJob({game.key: low}, schemas, world.paths.tables))
    app, target = names.stream_app_id(world.environment, game.key, 1), target_schema(schemas, game.key)
    table = CursorTable.create(world.paths.table(game.key), target, app)
    table.add_missing_columns(target)
    files = [DataFile(**file) for file in report[game.key]["files"]]
    table.commit(files, table.cursor, max(high, table.cursor or 0))


def run(world: World, **options: Any) -> Deduped:
    return dedupe(world.paths, world.environment, world.registry.snapshot, CHESS, **options)


def compacted(world: World) -> None:
    DeltaTable(world.paths.table(CHESS.key)).optimize.compact()


SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)).filter(lambda span: span[0] < span[1]), max_size=4)


def require_the_original(tmp_path_factory: pytest.TempPathFactory, doublings: int) -> None:
    """Try a number of ways of doubling; `tests/soak` tries more."""
    whole = make_world(tmp_path_factory.mktemp("whole"))
    for number in range(5):
        whole.ingest(good(number), broken(), good(number + 100))
    whole.split()
    wanted, verified = whole.contents(), whole.verify()

    @settings(max_examples=doublings, deadline=None)
    @given(SPANS, st.sets(st.integers(0, 3)))
    def is_the_original(again: list[Span], merges: set[int]) -> None:
        made = copied(whole, tmp_path_factory.mktemp("doubled"))
        for number, span in enumerate(again):
            commit(made, span)
            if number in merges:
                compacted(made)
        extra = made.verify().totals.duplicated
        done = run(made)
        assert (done.removed, done.differing) == (extra, 0)
        assert made.contents() == wanted
        assert (made.verify().totals, made.verify().complete) == (verified.totals, True)

    is_the_original()
