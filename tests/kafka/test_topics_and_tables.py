"""A pattern of topics and a landing table under one ingest process, which is killed with kill -9 between."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.verify import sources as verified
from pipeline.data.verify.balance import verify
from pipeline.demo.broker import Broker
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store

_SECONDS = 240.0


class Stage:
    """An environment whose ingest is a process of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.env, self.folder = folder / "env", folder
        self.env.mkdir()
        self.name = f"k{uuid.uuid4().hex[:8]}"
        self._address = broker.address
        self.sent: Counter[bytes] = Counter()

    def read(self, *tables: str) -> None:
        """Let the environment read the topics, and these landing tables."""
        lines = [
            'environment = "several"', "[sources.topics]", 'kind = "kafka"',
            f'bootstrap_servers = "{self._address}"', f'topic_pattern = "{self.name}-.*"', "[ingest]",
            "trigger_seconds = 0.1",
        ]  # fmt: skip
        for each in tables:
            lines += [f"[sources.{each}]", f'path = "{self.folder / each}"']
        (self.env / "turnout.toml").write_text("\n".join(lines))

    def send(self, topic: str, count: int, **more: Any) -> None:
        ensure_topic(self._address, f"{self.name}-{topic}", 2)
        producer = Producer({"bootstrap.servers": self._address, "acks": "all", "log_level": 0})
        for number in range(count):
            producer.produce(f"{self.name}-{topic}", self._value(), partition=number % 2, **more)
        assert producer.flush(30) == 0

    def append(self, table: str, count: int) -> None:
        rows = pa.table({"key": pa.nulls(count, pa.binary()), "value": [self._value() for _ in range(count)]}, LANDING)
        write_deltalake(self.folder / table, rows, mode="append")

    def _value(self) -> bytes:
        value = uuid.uuid4().bytes
        self.sent[value] += 1
        return value

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pipeline", "ingest", "run", "--env-dir", str(self.env), *words]
        return subprocess.Popen(command, start_new_session=True)

    def ingest(self) -> None:
        """Read all there is, in order."""
        assert self.start("--once").wait(_SECONDS) == 0

    def ingest_killed(self) -> None:
        """Run until a batch that was planned is not finished, or as soon as bronze has more, and kill everything."""
        before = self.rows()
        process = self.start()
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until and process.poll() is None and self.rows() == before:
            time.sleep(0.02)  # polls a process that another test does not wait for
        assert process.poll() is None, "ingest ended before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def rows(self) -> int:
        bronze = self.env / "bronze"
        return DeltaTable(bronze).to_pyarrow_dataset().count_rows() if (bronze / "_delta_log").exists() else 0

    def require(self) -> None:
        """Require each record and row in bronze once, and that verify agrees."""
        rows: list[dict[str, Any]] = DeltaTable(self.env / "bronze").to_pyarrow_table(columns=["raw"]).to_pylist()
        assert self.sent == Counter(row["raw"] for row in rows)
        settings, paths = load(self.env, {})
        engine = open_store(settings, paths)
        known = verified.observe(settings, paths, engine, configured_source(settings, paths).prober)
        balance = verify(paths, settings.environment, known=known)
        engine.dispose()
        assert balance.ok, balance.problems
        assert balance.totals.source_duplicates == 0
        assert balance.lagging is not None
        assert (balance.lagging.records, balance.lagging.not_compared) == (0, ()), json.dumps(balance.lagging.problems)


@pytest.mark.long
@pytest.mark.proves("G4")
def test_topics_and_tables_land_once_through_kills_and_another_set(broker: Broker, tmp_path: Path) -> None:
    """Law L1: killed at any moment, with a topic that appears and a table that joins, each row lands exactly once."""
    stage = Stage(broker, tmp_path)
    stage.append("a", 50)
    stage.send("one", 400)
    stage.read("a")
    stage.ingest_killed()
    stage.send("two", 300)
    stage.append("a", 70)
    stage.ingest_killed()
    stage.append("b", 60)
    stage.send("one", 100)
    stage.read("a", "b")
    stage.ingest_killed()
    stage.append("b", 10)
    stage.send("three", 20)
    stage.ingest()
    stage.require()


@pytest.mark.long
@pytest.mark.proves("G52")
def test_a_time_that_no_table_can_hold_costs_nothing_of_other_sources(broker: Broker, tmp_path: Path) -> None:
    """Law L6: a batch of several sources that Spark cannot read for one record lands whole, by the other client."""
    stage = Stage(broker, tmp_path)
    stage.append("a", 50)
    stage.send("one", 100)
    stage.read("a")
    stage.send("one", 1, timestamp=-(2**62))
    stage.ingest()
    stage.append("a", 20)
    stage.send("one", 1, timestamp=-(2**62))
    stage.send("two", 30)
    stage.ingest()
    stage.require()
