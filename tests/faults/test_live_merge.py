"""Columns are merged and parted while ingest, a group's driver and the controller run, each a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.writer import write_deltalake

from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import Game, generations, register_group
from tests.faults.driver_world import driver, wait_for
from tests.onboarding_world import give_rules, rule

CHESS = Game(game_key("Chess"), "Chess")
SETTINGS = """
[ingest]
trigger_seconds = 1
[demux]
trigger_seconds = 1
[maintenance]
backend = "none"
[source]
envelope = "json"
framing = "type"
envelope_fields = { game = "game", type = "type" }
"""
DOCUMENTS = ('{"x":%d}', '{"x":"a%d"}', '{"x":%d.5}', '{"x":true,"n":%d}', '{"y":%d}')

pytestmark = pytest.mark.timeout(900)


class Live:
    """An environment whose game sends numbers and texts under one key."""

    def __init__(self, env: Path) -> None:
        env.mkdir()
        (env / "turnout.toml").write_text(SETTINGS)
        self.env, (self.settings, self.paths) = env, load(env, {})
        self.engine = open_store(self.settings, self.paths)
        self.registry = LocalRegistry(self.engine, self.paths.bronze)
        self.sent = 0
        give_rules(self.engine, rule("Chess"))
        register_group(self.engine, "a", placing())

    def send(self, *documents: str) -> None:
        fields = [{"game": "Chess", "type": "move", **json.loads(each)} for each in documents]
        values = [json.dumps(each).encode() for each in fields]
        landed = pa.table({"key": [b"k"] * len(values), "value": values}, schema=LANDING)
        write_deltalake(str(self.paths.landing), landed, mode="append")
        self.sent += len(documents)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows in order, none before it exists."""
        folder = self.paths.table(CHESS.key)
        if not exists(folder):
            return []
        found = open_table(folder).to_pyarrow_table().sort_by([("_seq", "ascending"), ("_pos", "ascending")])
        listed: list[dict[str, Any]] = found.to_pylist()
        return listed

    def await_rows(self) -> None:
        wait_for(lambda: len(self.rows()) == self.sent, "not all rows land")

    def verified(self) -> Balance:
        balance = verify(
            self.paths, self.settings.environment, generations(self.engine), wanted=Wanted(self.registry.snapshot)
        )
        assert balance.values is not None
        assert (balance.problems, balance.values.named) == ((), ())
        return balance

    def does(self, *words: str) -> str:
        """Run a command that follows its operation; meanwhile rows come, and no row may be accused."""
        command = [sys.executable, "-m", "pipeline", *words, "--json", "--reason", "a test", "--env-dir", str(self.env)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for number in count():
                self.send(DOCUMENTS[number % len(DOCUMENTS)] % number)
                self.verified()
                if process.poll() is not None:
                    break
            assert process.stdout is not None
            said = process.stdout.read()
        assert process.returncode == 0, said
        return said


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """All drivers run, and some rows have landed."""
    made = Live(tmp_path / "env")
    with ExitStack() as running:
        for words in (("ingest", "run"), ("groups", "run", "a"), ("controller", "run")):
            running.enter_context(driver(made.env, *words))
        made.send('{"x":1}', '{"x":2,"y":3}')
        made.await_rows()
        made.send('{"x":"a"}', '{"x":2.5}')
        made.await_rows()
        yield made
    made.engine.dispose()


def test_rows_land_around_a_merge_and_its_undo(live: Live) -> None:
    """Laws L1, L5, L6, L12: the driver's rows wait for the switch, then land; none is accused at any time.

    In the end the table is that of a rebuild.
    """
    assert {"x", "x__v2"} <= live.rows()[0].keys()
    live.does("schemas", "merge", "Chess", "x")
    live.await_rows()
    assert [each["x"] for each in live.rows()[:3]] == ["1", "2", "a"]
    assert "x__v2" not in live.rows()[0]
    assert live.verified().complete
    live.does("ops", "undo")
    live.await_rows()
    assert live.rows()[0]["x"] == 1
    assert live.verified().complete
    before = live.rows()
    rebuild(live.paths, live.settings.environment, live.engine, live.registry.snapshot, CHESS)
    assert live.rows() == before
