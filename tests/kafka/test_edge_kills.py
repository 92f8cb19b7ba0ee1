"""Kills of an edge, and of its broker, under load: the client's own log is the oracle of what was acknowledged."""

import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import sample
from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent, EdgeOutcome
from pipeline.settings.tree import load as load_settings
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.kafka.edge_world import GAME, TOKEN, EdgeProcess, edge_before, edge_in, event_ids

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KILLS = 10


class Load:
    """A producer that sends without a pause, and notes what the client says of each event."""

    def __init__(self, address: str) -> None:
        made = sample("protobuf", "puzzle", 3, 1)
        self._payloads = [made.encode(made.event(each, each, 1_700_000_000_000_000)) for each in range(100)]
        self.client = EdgeClient(address, TOKEN, batch_events=100, queue_events=2_000, give_up_seconds=300)
        self.acknowledged = list[str]()
        self.sent = 0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            event = EdgeEvent(GAME, 1, self._payloads[self.sent % 100], event_id=f"e{self.sent}")
            self.client.send(event).add_done_callback(self._note)
            self.sent += 1

    def _note(self, future: "Future[EdgeOutcome]") -> None:
        outcome = future.result()  # nothing gives up within five minutes
        assert isinstance(outcome, EdgeAcknowledged), outcome
        with self._lock:
            self.acknowledged.append(outcome.event_id)

    def goes_on(self, events: int) -> None:
        """Wait until this number of further events is acknowledged."""
        wanted, until = len(self.acknowledged) + events, time.monotonic() + 120
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < until, "nothing more is acknowledged"
            time.sleep(0.01)

    def end(self) -> list[str]:
        """Stop sending, wait for all outcomes, and return the ids that were acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self.client.close(300)
        return self.acknowledged


def balance(load: Load, broker: Broker, topic: str) -> int:
    """Demand that each event is acknowledged once and in the topic; return how many records are second copies."""
    acknowledged = load.end()
    found = Counter(event_ids(broker.address, topic))
    assert Counter(acknowledged).most_common(1)[0][1] == 1
    assert len(acknowledged) == load.sent
    assert set(acknowledged) - set(found) == set()
    assert set(found) <= {f"e{number}" for number in range(load.sent)}
    return sum(count - 1 for count in found.values())


def killed(edge: EdgeProcess, number: signal.Signals) -> None:
    edge.end(number)
    edge.start()


def test_an_edge_killed_ten_times_under_load_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    """No acknowledged event is lost; a second copy of one is there only where the client has sent it again."""
    draw = random.Random(57)
    with edge_before(broker, tmp_path, "edge-kills") as edge:
        load = Load(edge.address)
        for _ in range(KILLS):
            load.goes_on(draw.randrange(200, 3_000))
            killed(edge, signal.SIGKILL)
        load.goes_on(1_000)
        assert balance(load, broker, "edge-kills") <= KILLS * 100  # one request of 100 is on its way at a kill


def test_an_edge_killed_between_effects_on_a_landing_table_loses_nothing(tmp_path: Path) -> None:
    """Each acknowledged event is a row of the landing table, wherever between two effects of a commit the edge died."""
    folder, points = tmp_path / "env", tmp_path / "points"
    points.mkdir()
    with edge_in(folder, {"TURNOUT_FAILPOINTS": str(points)}) as edge:
        load = Load(edge.address)
        for name in ("write_data_file", "draft_commit", "publish_commit", "delete_draft"):
            for when in ("before", "after"):
                load.goes_on(300)
                point = f"{when}_{name}"
                hits = (points / f"{point}.hits").read_text().count("\n")
                (points / "armed").write_text(f"{point} crash {hits + 2}\n")
                assert edge.process is not None
                edge.process.wait(60)
                edge.start()
        load.goes_on(1_000)
        acknowledged = load.end()
        assert edge.end() == 0, edge.said()
    values = DeltaTable(load_settings(folder)[1].landing).to_pyarrow_table().column("value").to_pylist()
    found = Counter(Wrapper.FromString(each).event_id for each in values)
    assert len(acknowledged) == len({*acknowledged}) == load.sent
    assert {*acknowledged} - {*found} == set()
    assert {*found} <= {f"e{number}" for number in range(load.sent)}


def test_a_broker_killed_ten_times_under_load_loses_nothing(tmp_path: Path) -> None:
    """While the broker is away calls wait and are tried again; then each event is acknowledged and in the topic."""
    folder = tmp_path / "broker"
    broker = Broker.start(folder)
    try:
        with edge_before(broker, tmp_path / "env", "edge-away") as edge:
            load = Load(edge.address)
            for _ in range(KILLS):
                load.goes_on(1_000)
                os.kill(broker.pid, signal.SIGKILL)
                broker.stop()
                broker = Broker.start(folder, broker.port)
            load.goes_on(2_000)
            balance(load, broker, "edge-away")
            assert edge.end() == 0, edge.said()
    finally:
        broker.stop()
