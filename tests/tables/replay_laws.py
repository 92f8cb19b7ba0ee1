"""Replays in random orders, of any number."""

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.repair.quarantined import Selection, opened
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import Replayed, replay_all
from pipeline.data.verify.balance import Balance
from tests.tables.repair_world import (
    BROKEN,
    CHESS,
    SECOND,
    Event,
    World,
    broken,
    early,
    good,
    make_world,
)


def run(world: World, selection: Selection | None = None, *, dry_run: bool = False) -> dict[str, Replayed]:
    done = replay_all(
        world.paths, world.environment, world.registry.snapshot, world.known(), selection or Selection(),
        dry_run=dry_run,
    )  # fmt: skip
    assert [each.error for each in done] == [None] * len(done)
    return {each.game_key: each.done for each in done}


def shown(world: World, selection: Selection | None = None) -> list[tuple[int, int]]:
    with opened(world.paths, world.known(), selection or Selection()) as found:
        return sorted((row.seq, row.pos) for row in found.rows(100, 0))


def is_clean(balance: Balance, **counts: int) -> bool:
    assert balance.problems == ()
    assert {name: getattr(balance.totals, name) for name in counts} == counts
    return balance.ok


def require_any_order_adds_up(tmp_path_factory: pytest.TempPathFactory, orders: int) -> None:
    """Try a number of orders; `tests/soak` tries more."""

    @settings(max_examples=orders, deadline=None)
    @given(
        batches=st.lists(
            st.lists(st.sampled_from(["good", "early", "broken"]), min_size=1, max_size=4), min_size=1, max_size=4
        ),
        steps=st.lists(st.sampled_from(["split", "replay", "rebuild", "register", "ingest"]), max_size=6),
    )
    def adds_up(batches: list[list[str]], steps: list[str]) -> None:
        _add_up(make_world(tmp_path_factory.mktemp("world")), batches, steps)

    adds_up()


def _add_up(world: World, batches: list[list[str]], steps: list[str]) -> None:
    waiting = [[_event(kind, number) for number, kind in enumerate(batch, start=1)] for batch in batches]
    for step in ["ingest", "split", *steps, "register", "split", "replay"]:
        if step == "ingest" and waiting:
            world.ingest(*waiting.pop())
        elif step == "split":
            world.split()
        elif step == "register":
            world.register(message=SECOND)
        elif step == "replay":
            run(world)
        elif step == "rebuild" and world.paths.table(CHESS.key).is_folder():
            rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
        assert world.verify().ok
        landed = world.rows() if world.paths.table(CHESS.key).is_folder() else []
        assert len(landed) == len(set(landed))
        assert not set(landed) & set(shown(world))
    bad = DeltaTable(world.paths.bronze).to_pyarrow_table().filter(pc.field("raw") == BAD).num_rows
    assert is_clean(world.verify(), quarantined=bad, pending=0, stale_twins=0)


def _event(kind: str, number: int) -> Event:
    return broken() if kind == "broken" else good(number) if kind == "good" else early(number)


BAD = Event(CHESS, 1, BROKEN).raw
