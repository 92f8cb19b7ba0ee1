"""Kills of an edge and of a group while a producer follows: its own log is the oracle of what was acknowledged."""

import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from pipeline.base.names import game_key
from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import sample
from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent, EdgeOutcome
from pipeline.edge.outcomes import EventLanded, EventOutcome
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import open_table
from pipeline.platforms.local.child_processes import Child, Children, turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import register_group
from tests.kafka.edge_world import GAME, TOKEN, edge_before

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]

KILLS = 20
SECONDS = 180.0
RATE = 200.0  # events a second


class Following:
    """A producer that sends without a pause, a part of it with an unknown schema, and notes both outcomes of each."""

    def __init__(self, address: str) -> None:
        made = sample("protobuf", "puzzle", 3, 1)
        self._payloads = [made.encode(made.event(each, each, 1_700_000_000_000_000)) for each in range(100)]
        self.client = EdgeClient(address, TOKEN, batch_events=50, give_up_seconds=600)
        self.following = self.client.follow()
        self.acknowledged, self.outcomes = list[str](), dict[str, list[EventOutcome]]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._read)]
        for each in self._threads:
            each.start()

    def _send(self) -> None:
        number = 0
        while not self._stop.wait(1 / RATE):
            schema = 99 if number % 7 == 0 else 1
            event = EdgeEvent(GAME, schema, self._payloads[number % 100], event_id=f"e{number}")
            self.client.send(event).add_done_callback(self._note)
            number += 1

    def _note(self, future: "Future[EdgeOutcome]") -> None:
        outcome = future.result()
        assert isinstance(outcome, EdgeAcknowledged), outcome
        self.acknowledged.append(outcome.event_id)

    def _read(self) -> None:
        for outcome in self.following:
            self.outcomes.setdefault(outcome.event_id, []).append(outcome)

    def goes_on(self, events: int) -> None:
        """Wait until this number of further events has an outcome."""
        wanted, until = len(self.outcomes) + events, time.monotonic() + SECONDS
        while len(self.outcomes) < wanted:
            assert time.monotonic() < until, "no event has an outcome any more"
            time.sleep(0.02)

    def end(self) -> None:
        """Stop sending, and wait until nothing waits for an outcome."""
        self._stop.set()
        self._threads[0].join()
        assert self.client.flush(SECONDS)
        until = time.monotonic() + SECONDS
        while self.following.waiting:
            assert time.monotonic() < until, f"{self.following.waiting} events have no outcome"
            time.sleep(0.05)
        assert self.client.close(SECONDS)
        self._threads[1].join()


def killed(children: Children, child: Child) -> None:
    """Kill a driver with its JVM and its workers, and start it again."""
    assert child.process is not None
    os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait(30)
    children.start(child.name, child.command)


def test_follow_equals_the_tables_over_20_kills(broker: Broker, tmp_path: Path) -> None:
    """Every acknowledged event ends in exactly one of landed and refused, and that is where its row is."""
    draw = random.Random(68)
    env = tmp_path / "env"
    with edge_before(broker, env, "follow-kills") as edge:
        settings, paths = load(env, edge.environ)
        engine = open_store(settings, paths)
        register_group(engine, "a", placing())
        fast = {"TURNOUT_INGEST__TRIGGER_SECONDS": "1", "TURNOUT_DEMUX__TRIGGER_SECONDS": "1"}
        with Children(tmp_path / "logs", {**edge.environ, **fast}) as children:
            children.start("ingest", turnout("ingest", "run", "--env-dir", str(env)))
            group = children.start("group", turnout("groups", "run", "a", "--env-dir", str(env)))
            producer = Following(edge.address)
            producer.goes_on(200)
            for number in range(KILLS):
                if number % 2:
                    killed(children, group)
                else:
                    edge.end(signal.SIGKILL)
                    edge.start()
                producer.goes_on(draw.randrange(50, 400))
            producer.end()
        table = open_table(paths.table(game_key(GAME))).to_pyarrow_table(columns=["_event_id"])
        quarantine = open_table(paths.quarantine).to_pyarrow_table(columns=["event_id", "game"])
        engine.dispose()
    landed, refused = set(table["_event_id"].to_pylist()), set(quarantine["event_id"].to_pylist())
    told = Counter(type(each).__name__ for outcomes in producer.outcomes.values() for each in outcomes)
    assert told.keys() == {"EventLanded", "EventRefused"}
    assert producer.following.untracked == 0
    assert {len(outcomes) for outcomes in producer.outcomes.values()} == {1}
    assert set(producer.acknowledged) == producer.outcomes.keys()
    in_table = {name for name, (outcome,) in producer.outcomes.items() if isinstance(outcome, EventLanded)}
    assert in_table == landed
    assert producer.outcomes.keys() - in_table == refused
    assert landed & refused == set()
