"""Hostile names and endlessly many of them, through the real ingest query and the real pass."""

import gc
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException

from listeners.join import Pass
from listeners.prometheus import Exposition
from pipeline.contracts.registry import LocalRegistry, Registration
from pipeline.demo.samples.protobuf import message_class
from pipeline.demo.samples.supported import payload_schema
from pipeline.ingest import pending
from pipeline.ingest.sources.landing_log import LANDING
from pipeline.names import MALFORMED, game_key
from pipeline.store import onboarding as store
from pipeline.store.games import known_games
from pipeline.store.onboarding import OnboardingCandidate
from protos.turnout.v1.wrapper_pb2 import Wrapper

_PATHS = ["../x", "../../x", "/abs", "a/b", "%2e%2e%2fx", "..", ".", "~", "C:\\x", "file:///x", "a\\..\\b"]
_STATEMENTS = ["`tick`", "x; DROP TABLE y", "'", '"', "--", "'; DELETE FROM games; --", "${HOME}", "$(touch x)", "\\"]
_TWINS = ["Foo", "foo", "FOO", "café", "cafe\u0301", "\uff26\uff4f\uff4f", "foo ", " foo", "f\u200boo", "\u202eoof"]
_ORDINARY = ["CON", "table", "null", ".hidden", "_x", "_delta_log", "game=1", "{a,b}", "*", "?", "[a-z]", "#", "100%"]
_SLUGS = ["a b", "a-b", "ä_b", "x" * 41, "x" * 42, "x" * 256, "\n", "\r\n\t", "\x1b[31m", "🎮", "数独", "سباق"]
HOSTILE = [*_PATHS, *_STATEMENTS, *_TWINS, *_ORDINARY, *_SLUGS]
IMPOSSIBLE = {
    Wrapper(game="", payload=b"x").SerializeToString(): "invalid_name",
    Wrapper(game="x" * 300, payload=b"x").SerializeToString(): "invalid_name",
    Wrapper(game="a\0b", payload=b"x").SerializeToString(): "invalid_name",
    b"\x0a\x02\xff\xfe\x1a\x01x": "malformed_wrapper",  # a name that is no UTF-8
}


def _register(world: Any, *names: str) -> int:
    registrations = [Registration(name, *payload_schema("puzzle", 1)) for name in names]
    return LocalRegistry(world.engine).register_many(registrations)[0].schema_id


def _event(name: str, schema_id: int = 1) -> bytes:
    payload = message_class("puzzle", 1)(round=1).SerializeToString()
    return Wrapper(game=name, schema_id=schema_id, payload=payload).SerializeToString()


def _land(world: Any, values: list[bytes]) -> None:
    rows = pa.table({"key": [None] * len(values), "value": values}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")


def _rows(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.proves("G84")
def test_hostile_names_become_ordinary_tables_under_the_base(world: Any, tmp_path: Path) -> None:
    """C1 to C6: whatever a game is called, it gets one ordinary table of its own, and nothing lies anywhere else."""
    names = [*HOSTILE, f"{tmp_path}/escaped"]
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
    for name in ("{a,b}", "*", "game=1", "_x", ".hidden", "../x"):  # what Spark would read as a pattern or a partition
        table = world.spark.read.format("delta").load(str(folders[game_key(name)]))
        assert table.count() == 1
        assert "game" not in table.columns
    assert sorted(IMPOSSIBLE.values()) == sorted(row["reason"] for row in _rows(world.paths.quarantine))
    assert outside == set(tmp_path.parent.iterdir())
    assert {"env"} == {path.name for path in tmp_path.iterdir()}
    assert world.verify().complete


def _series(world: Any) -> int:
    """Return how many metric series the drivers of this world tell."""
    exposition = Exposition(CollectorRegistry())
    for landed in world.landed:
        refused = sum(landed.refused.values())
        exposition.add_ingest(
            seq=landed.seq, accepted=landed.rows - refused, refused=refused, committed_at=landed.committed_at
        )
    for each in world.passes:
        exposition.add_pass(Pass(each, None))
    return sum(len(family.samples) for family in exposition.collect())


def _memory(world: Any) -> dict[str, int]:
    """Return the bytes the driver holds: its Python process, and the live objects of its JVM."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    jvm = world.spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return {"python": resident, "jvm": runtime.totalMemory() - runtime.freeMemory()}


@pytest.mark.long
@pytest.mark.proves("G85")
def test_a_flood_of_names_costs_nothing_that_grows(world: Any) -> None:
    """G10, C8, C9: 20,000 names cost no table, no series, no memory; a registered game among them loses nothing."""
    require_a_flood_costs_nothing(world, 20_000)


def require_a_flood_costs_nothing(world: Any, names: int) -> None:
    """Let so many unknown names come, after the first 5,000, and compare what there is of everything."""
    real = [_event("real", _register(world, "real"))] * 100
    group = world.group("a")
    ingest = world.ingest_query()

    def flood(numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, 25_000):
            chunk = numbers[start - numbers.start : start - numbers.start + 25_000]
            _land(world, [*(_event(f"flood {number:x}") for number in chunk), *real])
        ingest.start(once=True).awaitTermination()
        world.split(group)

    flood(range(5_000))
    before, series = _memory(world), _series(world)
    store_bytes = world.paths.control_db.stat().st_size
    flood(range(5_000, 5_000 + names))
    ingest.close()
    after = _memory(world)
    grown = {part: after[part] - before[part] for part in after}
    assert sum(grown.values()) < 25_000_000 + 250 * names, grown
    assert series == _series(world)
    assert {game_key("real")} == {path.name for path in Path(world.paths.tables).iterdir()}
    assert {"real"} == set(known_games(world.engine).values())
    assert {MALFORMED, game_key("real")} == set(ingest._last_seqs)
    assert world.paths.control_db.stat().st_size - store_bytes < 1_000_000
    seen = pending.pending(world.engine, world.settings.onboarding)
    assert len(seen.names) == 1_000
    assert seen.rows == 5_000 + names
    assert seen.distinct == pytest.approx(5_000 + names, rel=0.05)
    balance = world.verify()
    assert balance.complete
    assert dict(balance.by_reason) == {"unknown_game": 5_000 + names}
    assert balance.totals.landed == 100 * (1 + -(-names // 25_000))
    assert [game.game for game in balance.games] == [None, "real"]


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
