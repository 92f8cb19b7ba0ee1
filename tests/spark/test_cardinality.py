"""Hostile names and endlessly many of them, through the real ingest query and the real pass."""

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pipeline.base.names import MALFORMED, game_key
from pipeline.data.ingest import pending
from pipeline.store import onboarding as store
from pipeline.store.onboarding import OnboardingCandidate
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.spark.flood_world import _event, _land, _register, require_a_flood_costs_nothing

_PATHS = ["../x", "../../x", "/abs", "a/b", "%2e%2e%2fx", "..", ".", "~", "C:\\x", "file:///x", "a\\..\\b"]
_STATEMENTS = ["`tick`", "x; DROP TABLE y", "'", '"', "--", "'; DELETE FROM games; --", "${HOME}", "$(touch x)", "\\"]
_TWINS = ["Foo", "foo", "FOO", "café", "cafe\u0301", "\uff26\uff4f\uff4f", "foo ", " foo", "f\u200boo", "\u202eoof"]
_ORDINARY = ["CON", "table", "null", ".hidden", "_x", "_delta_log", "game=1", "{a,b}", "*", "?", "[a-z]", "#", "100%"]
_SLUGS = ["a b", "a-b", "ä_b", "x" * 41, "x" * 42, "x" * 256, "\n", "\r\n\t", "\x1b[31m", "🎮", "数独", "سباق"]
HOSTILE = [*_PATHS, *_STATEMENTS, *_TWINS, *_ORDINARY, *_SLUGS]
TO_SPARK = ("{a,b}", "*", "game=1", "_x", ".hidden", "../x")  # what Spark would read as a pattern or a partition
IMPOSSIBLE = {
    Wrapper(game="", payload=b"x").SerializeToString(): "invalid_name",
    Wrapper(game="x" * 300, payload=b"x").SerializeToString(): "invalid_name",
    Wrapper(game="a\0b", payload=b"x").SerializeToString(): "invalid_name",
    b"\x0a\x02\xff\xfe\x1a\x01x": "malformed_wrapper",  # a name that is no UTF-8
}


def _rows(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 6])
@pytest.mark.proves("G84")
def test_hostile_names_become_ordinary_tables_under_the_base(world: Any, tmp_path: Path, every: int) -> None:
    """C1 to C6: whatever a game is called, it gets one ordinary table of its own, and nothing lies anywhere else."""
    names = list(dict.fromkeys([*HOSTILE[::every], *_TWINS, *TO_SPARK, f"{tmp_path}/escaped"]))
    schema_id = _register(world, *names)
    group = world.group("a")
    _land(world, [*(_event(name, schema_id) for name in names), *IMPOSSIBLE])
    outside = set(tmp_path.parent.iterdir())
    world.ingest()
    world.split(group)
    folders = {path.name: path for path in Path(world.paths.tables).iterdir()}
    assert {game_key(name) for name in names} == set(folders)
    assert len(folders) == len(names)
    for name in names:
        folder = folders[game_key(name)]
        assert folder.resolve() == Path(world.paths.tables).resolve() / folder.name
        assert re.fullmatch(r"[a-z0-9][a-z0-9_]*", folder.name)
        assert name in DeltaTable(folder).metadata().description
        assert len(_rows(folder)) == 1
    for name in TO_SPARK:
        table = world.spark.read.format("delta").load(str(folders[game_key(name)]))
        assert table.count() == 1
        assert "game" not in table.columns
    assert sorted(IMPOSSIBLE.values()) == sorted(row["reason"] for row in _rows(world.paths.quarantine))
    assert outside == set(tmp_path.parent.iterdir())
    assert {"env"} == {path.name for path in tmp_path.iterdir()}
    assert world.verify().complete


@pytest.mark.long
@pytest.mark.proves("G85")
def test_a_flood_of_names_costs_nothing_that_grows(world: Any) -> None:
    """G10, C8, C9: 20,000 names cost no table, no series, no memory; a registered game among them loses nothing."""
    require_a_flood_costs_nothing(world, 20_000)


@pytest.mark.long
@pytest.mark.proves("G87")
def test_a_game_that_is_onboarded_later_starts_with_a_whole_chain(world: Any) -> None:
    """L4, L5: earlier rows stay in quarantine with name and bytes, in no game's chain; later ones connect from 0."""
    schema_id = _register(world, "steady")
    group = world.group("a")
    for seq in range(1, 6):
        _land(world, [_event("late", schema_id), _event("steady", schema_id), _event("bare", schema_id)])
        if seq == 3:
            pending.approve(world.engine, world.settings.onboarding, "late", "ann", "asked for")
            pending.approve(world.engine, world.settings.onboarding, "bare", "ann", "has no schema yet")
            _register(world, "late")
        if seq == 5:
            (world.paths.checkpoints / "ingest" / "last_seqs.json").unlink()
        world.ingest()
        if seq in {2, 5}:
            world.split(group)
            assert world.verify().complete
    bronze = _rows(world.paths.bronze)
    late = sorted((row["seq"], row["game_key"], row["prev_seq"]) for row in bronze if row["game"] == "late")
    key = game_key("late")
    assert [(1, MALFORMED, 0), (2, MALFORMED, 1), (3, key, 0), (4, key, 3), (5, key, 4)] == late
    assert sorted(row["_seq"] for row in _rows(world.paths.table(key))) == [3, 4, 5]
    refused = [row for row in _rows(world.paths.quarantine) if row["game"] == "late"]
    assert sorted((row["seq"], row["game_key"], row["reason"]) for row in refused) == [
        (1, MALFORMED, "unknown_game"),
        (2, MALFORMED, "unknown_game"),
    ]
    assert {_event("late", schema_id)} == {row["raw"] for row in refused}
    bare = [(row["game_key"], row["reason"]) for row in _rows(world.paths.quarantine) if row["game"] == "bare"]
    assert [(game_key("bare"), "unknown_schema")] * 3 + [(MALFORMED, "unknown_game")] * 2 == sorted(bare)
    assert not _rows(world.paths.table(game_key("bare")))


@pytest.mark.proves("G83")
def test_the_second_name_of_a_key_never_reaches_the_first_ones_table(world: Any) -> None:
    """C7: with a key that belongs to another name, a game's rows are refused, whole, and nothing is written there."""
    schema_id = _register(world, "second")
    store.onboard(world.engine, [OnboardingCandidate(game_key("second"), "first", "schema")])
    group = world.group("a")
    _land(world, [_event("second", schema_id)])
    world.ingest()
    world.split(group)
    assert not world.paths.table(game_key("second")).is_folder()
    assert [(row["game"], row["reason"]) for row in _rows(world.paths.quarantine)] == [("second", "unknown_game")]
    assert "belongs to the game 'first'" in pending.pending(world.engine, world.settings.onboarding).names[0].why
    assert world.verify().complete


@pytest.mark.long
@pytest.mark.proves("G87")
def test_a_repeated_batch_judges_names_as_its_first_attempt_did(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: a name that is approved between the two attempts of a batch is refused in both, and routed from the next.

    The first attempt's seq is given up: no row has it.
    """
    schema_id = _register(world, "late")
    store.refuse(world.engine, store.RefusedName("late", "ann", None, 0.0))
    group = world.group("a")
    _land(world, [_event("late", schema_id)])
    ingest = world.ingest_query()

    def fail(*_: object, **__: object) -> None:
        raise OSError("killed after quarantine's commit")

    with monkeypatch.context() as patch:
        patch.setattr(ingest._bronze, "commit", fail)
        with pytest.raises(StreamingQueryException, match="killed after"):
            ingest.start(once=True).awaitTermination()
    pending.approve(world.engine, world.settings.onboarding, "late", "bob", None)
    world.ingest()
    _land(world, [_event("late", schema_id)])
    world.ingest()
    world.split(group)
    assert [(2, MALFORMED, "unknown_game"), (3, game_key("late"), None)] == sorted(
        (row["seq"], row["game_key"], row["refused"]) for row in _rows(world.paths.bronze)
    )
    assert [row["seq"] for row in _rows(world.paths.quarantine)] == [2]
    assert [row["_seq"] for row in _rows(world.paths.table(game_key("late")))] == [3]
    assert world.verify().complete
