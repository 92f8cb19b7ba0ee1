"""A live demo of six games, seen through its control store, its tables and its commands."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result
from sqlalchemy import Engine, func, select

from pipeline.cli.main import cli
from pipeline.demo.breaking import channel
from pipeline.demo.breaking.faults import FAULTS
from pipeline.demo.server_process import free_ports
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import group_runs

GAMES: Final = 6
READY_SECONDS: Final = 360.0
_SLACK: Final = 3.0  # two cores, on which the whole demo and the tests run: what a fault says holds for an idle machine


class Demo:
    """A running demo, seen through its control store and its commands."""

    def __init__(self, env: Path) -> None:
        settings, self.paths = load(env)
        self.env = env
        self.engine: Engine = open_store(settings, self.paths)

    def fleet(self) -> Fleet:
        return read_fleet(self.engine)

    def game(self, key: str) -> GameRow:
        row = self.fleet().row(key)
        assert row is not None
        return row

    def driver(self, kind: str, name: str) -> str:
        state = self.fleet().state(kind, name)
        return "none" if state is None else state.liveness.state

    def deaths(self, group: str) -> int:
        """Return how many drivers of a group have died."""
        died = select(func.count()).where(group_runs.c.group_name == group, group_runs.c.died == 1)
        with self.engine.connect() as connection:
            return connection.scalar(died) or 0

    def well(self) -> bool:
        statuses = {row.verdict.status for row in self.fleet().rows}
        return len(self.fleet().rows) == GAMES and statuses == {"RUNNING"} and self.driver("group", "a") == "running"

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--env-dir", str(self.env)])

    def json(self, *words: str) -> dict[str, Any]:
        """Return what a command prints as JSON; its exit code may be 1."""
        done = self.run(*words, "--json")
        assert done.exit_code in {0, 1}, done.output
        said: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        return said

    def begin(self, fault: str, *target: str) -> Result:
        done = self.run("demo", "break", fault, *target)
        assert done.exit_code == 0, done.output
        return done

    def mend(self, fault: str, *target: str) -> None:
        done = self.run("demo", "mend", fault, *target)
        assert done.exit_code == 0, done.output

    def refused(self, key: str) -> dict[str, int]:
        """Return how many rows of a game each reason refused, as quarantine has them."""
        listed = self.json("quarantine", "list")["counts"]
        return {each["reason"]: each["rows"] for each in listed if each["game_key"] == key}


def until(seen: Callable[[], bool], seconds: float) -> None:
    """Look until something is seen, and fail when it is not in time."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"not seen within {seconds:g} s"
        time.sleep(0.5)


def within(fault: str, sign: int) -> float:
    return FAULTS[fault].signs[sign].seconds * _SLACK


@contextmanager
def running(env: Path) -> Iterator[Demo]:
    """Start a demo in a new folder; yield it once it is well, and end it with Ctrl-C."""
    env.mkdir()
    dashboard, catalog = free_ports(None, 1)
    (env / "turnout.toml").write_text(f"[dashboard]\nport = {dashboard}\n[access]\nport = {catalog}\n")
    options = ("--games", str(GAMES), "--versions", "3", "--rate", "200", "--bad-share", "0", "--env-dir", str(env))
    with (env / "demo.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "pipeline", "demo", *options], stderr=log)
        try:
            until(lambda: channel.is_offered(Paths(env)), READY_SECONDS)
            made = Demo(env)
            until(made.well, READY_SECONDS)
            yield made
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(180) == 0
