import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from pyspark.errors import StreamingQueryException

from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED, bronze_app_id
from pipeline.data.ingest import query
from pipeline.data.ingest.backlog import BacklogWatch
from pipeline.data.ingest.bronze_writer import IngestJob
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.ingest.sources.supported import open_source
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.store.games import Assignment, assigned, register_group
from pipeline.store.reports import backlog_in
from protos.turnout.v1.wrapper_pb2 import Wrapper

HOSTILE = ["../x", "a b", "A B", "ü", "'; DROP TABLE x; --", "x" * 256, "{a,b}*", ".hidden", "=1"]


def _land(world: Any, values: list[bytes | None]) -> None:
    rows = pa.table({"key": [None] * len(values), "value": values}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")


def assigned_anywhere(world: Any) -> list[Assignment]:
    register_group(world.engine, "all", placing())
    return assigned(world.engine, "all")


def _bronze(world: Any) -> list[dict[str, Any]]:
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["seq"], row["pos"]))


@pytest.mark.proves("G1")
def test_what_arrives_is_kept_byte_for_byte_in_its_order(world: Any) -> None:
    """Law L1: bronze holds every message untouched, with its place; also garbage, an empty one and null."""
    good = [Wrapper(game=name, schema_id=4_294_967_295, payload=b"\x08\x01").SerializeToString() for name in HOSTILE]
    sent: list[bytes | None] = [b"\xff\xff", b"", None, good[0][:-1], *good]
    _land(world, sent)
    world.ingest()
    rows = _bronze(world)
    assert sent == [row["raw"] for row in rows]
    assert list(range(len(sent))) == [row["pos"] for row in rows]
    assert list(range(len(sent))) == [row["offset"] for row in rows]
    assert {MALFORMED} == {row["game_key"] for row in rows}
    assert [row["game"] for row in rows] == [None] * 4 + HOSTILE
    assert [*["malformed_wrapper"] * 2, "tombstone", "malformed_wrapper"] + ["unknown_game"] * len(HOSTILE) == [
        row["refused"] for row in rows
    ]
    quarantine = DeltaTable(world.paths.quarantine).to_pyarrow_table().to_pylist()
    assert sent == [row["raw"] for row in sorted(quarantine, key=lambda row: row["pos"])]
    assert all(row["detail"] for row in quarantine)
    assert not world.paths.tables.folders()
    assert world.verify().complete


def _waited(world: Any, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Ingest all there is in one batch; return how many rows waited in the source while it ran, and after it."""
    ingest = world.ingest_query()
    watch = BacklogWatch(world.settings, world.paths, world.engine, lambda: ingest.place)
    seen: list[int | None] = []
    make = ingest._job

    def look() -> None:
        watch.measure()
        with world.engine.connect() as connection:
            found = backlog_in(connection)
        seen.append(None if found is None else found.rows)

    def job(*given: Any) -> IngestJob:
        look()
        made: IngestJob = make(*given)
        return made

    monkeypatch.setattr(ingest, "_job", job)
    ingest.start(once=True).awaitTermination()
    look()
    return seen


@pytest.mark.proves("G130")
def test_what_a_running_batch_has_taken_waits_until_bronze_has_it(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that takes long is seen while it runs, and a restart goes on where bronze is."""
    for rows in (3, 2):
        _land(world, [b"x"] * rows)
        assert _waited(world, monkeypatch) == [rows, 0]


@pytest.mark.proves("G19")
def test_one_games_rows_of_one_seq_lie_in_one_file(world: Any) -> None:
    """Law L2: so no micro-batch boundary can split a game's rows of one bronze commit."""
    for _ in range(2):
        world.simulate(1_000)
        world.ingest()
    table = DeltaTable(world.paths.bronze)
    places: dict[tuple[str, int], set[str]] = {}
    for uri in table.file_uris():
        rows = pq.read_table(uri, columns=["game_key", "seq"]).to_pylist()
        for row in rows:
            places.setdefault((row["game_key"], row["seq"]), set()).add(uri)
    assert len(table.file_uris()) == 4
    assert all(len(files) == 1 for files in places.values())


@pytest.mark.proves("G5")
def test_the_chain_goes_on_over_restarts_and_a_lost_snapshot(world: Any) -> None:
    """Law L1: each game's `prev_seq` is its seq before, whether ingest went on, restarted, or lost its snapshot."""
    for number in range(4):
        world.simulate(300, games=3 + 3 * (number % 2))
        if number == 2:
            (world.paths.checkpoints / "ingest" / "last_seqs.json").unlink()
        world.ingest()
    last: dict[str, int] = {}
    for row in _bronze(world):
        if last.get(row["game_key"], 0) != row["seq"]:
            assert row["prev_seq"] == last.get(row["game_key"], 0)
            last[row["game_key"]] = row["seq"]


def test_the_chain_survives_a_failure_between_commit_and_telling(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: an ingest whose store fails right after a bronze commit goes on with the true heads and tells it."""
    world.simulate(300, games=3)
    ingest = world.ingest_query()

    def fail(*_: object) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(query, "record_seen", fail)
        patch.setattr(ingest, "_remember", lambda report, seq, _started: fail(report, seq))
        with pytest.raises(StreamingQueryException, match="the store is away"):
            ingest.start(once=True).awaitTermination()
    world.simulate(300, games=3)
    ingest.start(once=True).awaitTermination()
    assert world.verify().totals.broken_chain == 0
    assert {2} == {each.last_seq for each in assigned_anywhere(world)}


def test_the_chain_survives_another_ingest_in_between(world: Any) -> None:
    """Law L1: heads that another ingest has moved are read again before they are used."""
    world.simulate(300, games=3)
    waiting = world.ingest_query()
    world.ingest()
    world.simulate(300, games=3)
    waiting.start(once=True).awaitTermination()
    assert world.verify().totals.bronze_rows == 600
    assert world.verify().totals.broken_chain == 0


@pytest.mark.proves("G9")
def test_a_second_ingest_cannot_give_a_seq_twice(world: Any) -> None:
    """Two ingests on one bronze: the one that comes second commits nothing and says so."""
    world.simulate(100)
    world.ingest()
    bronze = CursorTable.open(world.paths.bronze, bronze_app_id(world.settings.environment))
    assert bronze is not None
    rows = world.verify().totals.bronze_rows
    world.simulate(100)
    ingest = world.ingest_query()
    look = ingest._job

    def look_then_lose(batch_id: int, seq: int) -> IngestJob:
        job: IngestJob = look(batch_id, seq)
        bronze.commit([], 1, 2)  # the other one commits between our look and our commit
        return job

    ingest._job = look_then_lose
    with pytest.raises(StreamingQueryException, match="Another ingest writes to"):
        ingest.start(once=True).awaitTermination()
    assert rows == world.verify().totals.bronze_rows


@pytest.mark.proves("G10")
def test_a_lost_checkpoint_is_refused_not_ingested_again(world: Any) -> None:
    """Starting anew would land everything twice, so it does not start, and says what to do."""
    world.simulate(100)
    world.ingest()
    shutil.rmtree(world.paths.checkpoints / "ingest" / "1")
    with pytest.raises(Refused, match=r"checkpoint .* is gone.*would land everything twice"):
        world.ingest()


def test_a_landing_table_with_wrong_columns_is_refused(tmp_path: Path) -> None:
    """The message names what was expected and what is there."""
    write_deltalake(tmp_path / "landing", pa.table({"value": ["text"]}))
    with pytest.raises(Refused, match=r"expected key binary, value binary; found value string"):
        open_source(Source(), located(tmp_path / "landing")).check()


def test_an_unreachable_broker_is_refused_with_its_address() -> None:
    """A broker that does not answer is one sentence, before Spark starts to retry."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(Refused, match=rf"No Kafka broker answers at {address}"):
            open_source(Source(kind="kafka", bootstrap_servers=address), located(Path("unused"))).check()
