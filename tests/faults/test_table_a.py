"""The fault table, part A: exactly once. Each test is named by the fault's id; docs/faults.md has them all."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from sqlalchemy import update

from pipeline.base.errors import Refused
from pipeline.base.failpoints import Injected
from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest import query as ingest_query
from pipeline.data.repair.gap import accept_gap
from pipeline.data.streams import demux
from pipeline.health.facts.placing import placing
from pipeline.lake.delta import table as delta_table
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.log import json_lines, publish_commit
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.store.database.tables import games
from pipeline.store.games import Game, register_group
from pipeline.store.stream_control import submit_retry
from tests.faults.driver_world import Place, driver, wait_for
from tests.faults.faults import Faults
from tests.faults.life import Life
from tests.faults.oracle import judge, require_completeness
from tests.spark.change_world import FIRST, KEY, WIDER, Producer
from tests.spark.conftest import use_source

EVENTS = 600
PLENTY = 20_000  # more than any life here sends

pytestmark = pytest.mark.timeout(180)


def is_clean(life: Life) -> bool:
    life.rest()
    verdict = judge(life.world.paths.root, life.log)
    assert verdict.clean, verdict
    return True


# ------------------------------------------------------------------------------------------- A1 to A7: one batch, cut


@pytest.mark.parametrize(("module", "pins"), [(demux, "pin_set"), (ingest_query, "pin")])
@pytest.mark.proves("A1")
@pytest.mark.usefixtures("each_source")
def test_a1_a_batch_that_was_only_planned_is_run_once(
    world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch, module: Any, pins: str
) -> None:
    """A1: the driver dies when Spark has planned a batch and nothing is written, also at the very first batch."""
    life = Life(world, faults, PLENTY)
    for _ in range(2):
        life.produce(EVENTS)
        with monkeypatch.context() as patch:
            patch.setattr(module, pins, _die)
            assert not life.attempt()
        life.produce(EVENTS)
        assert is_clean(life)


def _die(*_: object) -> int:
    raise Injected("before the pin")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("after_schema_pin", id="A2"),
        pytest.param("after_quarantine_write", id="A3"),
        pytest.param("mid_data_files", id="A4"),
        pytest.param("after_table_commits", id="A5"),
        pytest.param("after_bronze_write", id="A5-ingest"),
    ],
)
@pytest.mark.proves("A2", "A3", "A4", "A5")
@pytest.mark.usefixtures("each_source")
def test_a2_to_a5_a_batch_that_was_cut_short_is_repeated_without_a_trace(
    world: Any, faults: Faults, point: str
) -> None:
    """A2 to A5: after the pin, between quarantine and tables, between files, between commit and Spark's commit log."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    life.produce(EVENTS)
    faults.arm(point, "raise", 2 if point == "mid_data_files" else 1)
    whole = life.attempt() and not any(stream.error for stream in life.group.streams.values())
    assert not whole
    life.produce(EVENTS)
    assert is_clean(life)
    assert faults.fired()[point]
    refused = DeltaTable(world.paths.quarantine).to_pyarrow_table(columns=["game_key", "seq", "pos"])
    assert refused.num_rows == refused.group_by(refused.column_names).aggregate([]).num_rows > 0


@pytest.mark.parametrize("victim", ["a game's table", "quarantine", "bronze"])
@pytest.mark.proves("A6", "G38")
@pytest.mark.usefixtures("each_source")
def test_a6_a_commit_whose_reply_was_lost_is_not_made_twice(
    world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """A6: the commit is in the log, its writer is told that it failed; a reader downstream sees each file once."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    key = min(life.group.streams)
    path = {
        "a game's table": world.paths.table(key),
        "quarantine": world.paths.quarantine,
        "bronze": world.paths.bronze,
    }
    lost: list[int] = []

    def publish(table: Location, version: int, actions: Sequence[dict[str, Any]], **settled: Any) -> bool:
        done = publish_commit(table, version, actions, **settled)
        if table == path[victim] and done and not lost:
            lost.append(version)
            raise OSError(110, "the reply was lost")
        return done

    monkeypatch.setattr(delta_table, "publish_commit", publish)
    life.produce(EVENTS)
    life.attempt()
    assert lost
    assert is_clean(life)
    added = Counter(_added(Path(path[victim])))
    assert set(added.values()) == {1}
    assert sum(DeltaTable(path[victim]).get_add_actions(flatten=True).column("num_records").to_pylist()) == (
        world.spark.read.format("delta").load(str(path[victim])).count()
    )


def _added(table: Path) -> list[str]:
    """Return the path of every file that was ever added to a table, as often as it was."""
    lines = [
        line for file in sorted((table / "_delta_log").glob("*.json")) for line in json_lines(file.read_text("utf-8"))
    ]
    actions = [json.loads(line) for line in lines]
    return [action["add"]["path"] for action in actions if "add" in action]


@pytest.mark.proves("A7")
@pytest.mark.usefixtures("each_source")
def test_a7_a_schema_that_comes_between_two_attempts_changes_nothing_of_their_batch(world: Any, faults: Faults) -> None:
    """A7, law L5: a row that the first attempt refused is refused by the second, though its schema is known by now."""
    producer, group = Producer(world), world.group("a")
    first = producer.register(FIRST)
    producer.classes[first + 1] = producer.classes[first]
    faults.arm("after_quarantine_write", "raise")
    with pytest.raises(StreamingQueryException, match="after_quarantine_write"):
        producer.send(group, [producer.event(first, level=1), producer.event(first + 1, level=2)])
    group.stop()
    assert producer.register(WIDER) == first + 1
    again = world.group("a")
    world.split(again)
    balance = world.verify()
    assert balance.complete
    assert dict(balance.by_reason) == {"unknown_schema": 1}
    assert balance.totals.stale_twins == 0
    producer.send(again, [producer.event(first + 1, level=3)])
    again.stop()
    assert sorted(DeltaTable(world.paths.table(KEY)).to_pyarrow_table()["level"].to_pylist()) == [1, 3]
    require_completeness(world.paths.root)


# ----------------------------------------------------------------------------------- A11, A12, A18: who reads, and what


@pytest.mark.timeout(600)
@pytest.mark.proves("A11")
def test_a11_two_drivers_on_one_checkpoint_neither_lose_nor_double_a_row(tmp_path: Path) -> None:
    """A11: Spark ends one of the two queries, or both in turn; the tables take each row once.

    Each driver has a control store of its own, so that no lease keeps the second one out.
    """
    place = Place(tmp_path)
    place.produce()
    register_group(place.engine, "a", placing())
    run_once(place.env, "ingest", "run")
    run_once(place.env, "groups", "run", "a")
    twin = tmp_path / "twin"
    twin.mkdir()
    for shared in ("bronze", "quarantine", "tables", "landing", "checkpoints", "turnout.toml"):
        (twin / shared).symlink_to(place.env / shared)
    place.engine.dispose()
    shutil.copy(place.env / "control.db", twin / "control.db")
    with (
        driver(place.env, "ingest", "run"),
        driver(place.env, "groups", "run", "a"),
        driver(twin, "groups", "run", "a"),
    ):
        for _ in range(5):
            place.produce(300)
            seq = place.landed_seq()
            wait_for(lambda seq=seq: place.passed("a", seq), "group a does not split")  # type: ignore[misc]
    texts = [(env / "groups-a.log").read_text() for env in (place.env, twin)]
    assert any("CONCURRENT_STREAM_LOG_UPDATE" in text for text in texts), texts
    run_once(place.env, "ingest", "run")
    run_once(place.env, "groups", "run", "a")
    verdict = judge(place.env, place.log)
    assert verdict.clean, verdict


def run_once(env: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pipeline", *arguments, "--once", "--env-dir", str(env)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.proves("A12")
def test_a12_a_group_that_is_started_twice_in_one_process_is_refused(world: Any, faults: Faults) -> None:
    """A12: Spark takes no second query of one name; the older run is untouched, before its first batch and after."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    world.ingest()
    running = life.group.start(once=False)
    newer = world.group("a")
    try:
        for _ in range(2):
            with pytest.raises(IllegalArgumentException, match="already active"):
                newer.start(once=False)
            life.produce(EVENTS)
            world.ingest()
            running.processAllAvailable()
            assert running.isActive
        assert len(world.spark.streams.active) == 1
    finally:
        newer.stop()
        life.group.stop()
    life.group = world.group("a")
    assert is_clean(life)


@pytest.mark.proves("A18")
@pytest.mark.usefixtures("each_source")
def test_a18_games_that_are_reassigned_between_two_attempts_lack_nothing(world: Any, faults: Faults) -> None:
    """A18: the first attempt of a batch had all games, its repetition has half of them; the others are caught up."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    life.produce(EVENTS)
    faults.arm("between_table_commits", "raise", 3)
    assert not life.attempt()
    other = world.group("b")
    moved = sorted(life.group.streams)[::2]
    with world.engine.begin() as connection:
        connection.execute(
            update(games).where(games.c.game_key.in_(moved)).values(group_name="b", epoch=games.c.epoch + 1)
        )
    for _ in range(2):
        life.produce(EVENTS // 2)
        world.ingest()  # so that the other group's query begins behind the batch that was cut
        world.split(life.group)
        world.split(other)
    assert set(moved) == set(other.streams)
    other.stop()
    assert is_clean(life)


# ----------------------------------------------------------------------------------------- A19, A22, A23: bronze itself


@pytest.mark.proves("A19", "G49")
@pytest.mark.usefixtures("each_source")
def test_a19_rows_deleted_from_bronze_by_hand_disturb_no_stream_that_has_them(world: Any, faults: Faults) -> None:
    """A19: the query goes on over the deletion, no game fails, and verify names what bronze lacks."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    key = min(life.group.streams)
    life.produce(EVENTS)
    world.ingest()
    DeltaTable(world.paths.bronze).delete(f"game_key = '{key}' and seq = 1")
    assert life.attempt()
    life.produce(EVENTS)
    assert life.attempt()
    balance = world.verify()
    assert not balance.ok
    assert {key} == {problem.game_key for problem in balance.problems}
    assert balance.totals.pending == 0
    assert not any(stream.error or stream.behind for stream in life.group.streams.values())


def seqs_of(world: Any, key: str) -> list[int]:
    """The bronze seqs of which a game's table has rows."""
    return DeltaTable(world.paths.table(key)).to_pyarrow_table(columns=["_seq"]).column("_seq").unique().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("seq", "sentence"),
    [(2, "bronze rows above seq 1 do not connect"), (3, "bronze has lost the rows of seq 3")],
)
@pytest.mark.proves("A19", "G49", "G56")
@pytest.mark.usefixtures("each_source")
def test_a19_rows_deleted_from_bronze_unread_stop_their_game_and_no_other(
    world: Any, faults: Faults, seq: int, sentence: str
) -> None:
    """A19, laws L4 and L6: a game whose chain is broken, or lacks its end, waits and says so; no gap is silent."""
    life = Life(world, faults, PLENTY)
    for _ in range(3):
        life.produce(EVENTS)
        world.ingest()
    victim = min(game_key(name) for name in life.simulator.games)
    DeltaTable(world.paths.bronze).delete(f"game_key = '{victim}' and seq = {seq}")
    assert life.attempt()
    stuck = {key for key, stream in life.group.streams.items() if stream.behind}
    assert {victim} == stuck
    assert sentence in (life.group.streams[victim].error or "")
    assert {victim} == {problem.game_key for problem in world.verify().problems} or seq == 3
    before = range(1, seq)
    assert set(seqs_of(world, victim)) == set(before), "what lies before the gap is held back by it"
    game = Game(victim, next(name for name in life.simulator.games if game_key(name) == victim))
    schemas = LocalRegistry(world.engine).snapshot()
    accept_gap(world.paths, world.settings.environment, world.engine, schemas, game, "ann", "gone for good")
    life.produce(EVENTS)
    assert life.attempt()
    assert set(seqs_of(world, victim)) == {*before, *range(seq + 1, 5)}
    assert not any(stream.behind for stream in life.group.streams.values())


@pytest.mark.proves("A19")
@pytest.mark.usefixtures("each_source")
def test_a19_a_restored_bronze_lets_its_game_go_on(world: Any, faults: Faults) -> None:
    """A19, law L5: with the deleted rows back, the next attempt lands them, each once, and no stream has stopped."""
    life = Life(world, faults, PLENTY)
    for _ in range(3):
        life.produce(EVENTS)
        world.ingest()
    victim = min(game_key(name) for name in life.simulator.games)
    bronze = DeltaTable(world.paths.bronze)
    whole = bronze.version()
    bronze.delete(f"game_key = '{victim}' and seq = 2")
    assert life.attempt()
    assert life.group.streams[victim].behind
    world.spark.sql(f"RESTORE TABLE delta.`{world.paths.bronze}` TO VERSION AS OF {whole}")
    submit_retry(world.engine, victim, "ann")
    life.produce(EVENTS)
    assert life.attempt()
    assert is_clean(life)


@pytest.mark.proves("A22", "G27")
@pytest.mark.usefixtures("each_source")
def test_a22_a_group_refuses_a_bronze_that_was_made_anew(world: Any, faults: Faults) -> None:
    """A22: from a new bronze everything below the cursors would be skipped; with the old one back, all goes on."""
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    away = world.paths.root / "away"
    Path(world.paths.bronze).replace(away)
    attempts: list[Callable[[], object]] = [
        lambda: life.group.start(once=True),
        lambda: world.group("a"),
        lambda: world.group("new"),
    ]
    for attempt in attempts:
        with pytest.raises(Refused, match=r"Bronze at .* is gone, .*Put the old one back"):
            attempt()
    assert not world.paths.bronze.is_folder()
    CursorTable.create(world.paths.bronze, BRONZE, "somebody")
    for attempt in attempts:
        with pytest.raises(Refused, match=r"Bronze at .* was deleted and recreated: .*Put the old one back"):
            attempt()
    shutil.rmtree(world.paths.bronze)
    away.replace(Path(world.paths.bronze))
    life.restart()
    life.produce(EVENTS)
    assert is_clean(life)


@pytest.mark.proves("A23")
def test_a23_a_column_that_bronze_gets_costs_one_restart_of_the_query(
    world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A23: Delta's source ends the query once, no stream is charged for it, and the next start has every row."""
    use_source("delta", monkeypatch)
    life = Life(world, faults, PLENTY)
    life.produce(EVENTS)
    assert life.attempt()
    running = life.group.start(once=False)
    life.produce(EVENTS)
    DeltaTable(world.paths.bronze).alter.add_columns([Field("note", PrimitiveType("string"))])
    world.ingest()
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED"):
        running.processAllAvailable()
    assert not any(stream.error for stream in life.group.streams.values())
    again = life.group.start(once=False)
    again.processAllAvailable()
    life.group.stop()
    life.restart()
    life.produce(EVENTS)
    assert is_clean(life)
