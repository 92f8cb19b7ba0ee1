"""The processes of a soak and what somebody does to them: real drivers, the controller, producers; from a seed."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.control.backends.local import process_of
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import load
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.groups import Group, create
from pipeline.store.operations import list_operations
from pipeline.store.processes.runs import Run, open_runs, reset_restart_budget
from pipeline.store.stream_control import submit_control, submit_retry
from tests.faults.driver_world import bronze_rows
from tests.faults.oracle import ProducerLog

GROUPS = ("a", "b")
ASKED = ("--reason", "the soak draws it", "--no-wait")
READY_SECONDS = 300.0
REST_SECONDS = 900.0  # for what was left behind by the last acts
SETTINGS = """
[demux]
trigger_seconds = 3
[maintenance]
interval_minutes = 2
[store]
lease_seconds = 10
"""
_MAX_OWN_QUERIES = 3


class Soak:
    """The processes, and what somebody does to them."""

    def __init__(self, env: Path, children: Children, draw: random.Random, producers: Sequence[Sequence[str]]) -> None:
        """Prepare; `producers` are the arguments of each producer after the environment and its log."""
        self.env, self.children, self.draw = env, children, draw
        self.producers = {f"producer-{number}": arguments for number, arguments in enumerate(producers)}
        settings, self.paths = load(env, {})
        self.store = open_store(settings, self.paths)
        self.log = ProducerLog(env / "acknowledged.jsonl")
        self.did: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.restarts = 0
        self.own_queries: set[str] = set()
        self.paused: set[str] = set()

    # Processes.

    def start(self) -> None:
        at = ("--env-dir", str(self.env))
        for name in GROUPS:
            create(self.store, Group(name, backend="local"), "soak", "", placing())
        commands = {
            "ingest": turnout("ingest", "run", *at),
            "controller": turnout("controller", "run", "--stop-groups", *at),
        }
        self.processes = {name: self.children.start(name, command) for name, command in commands.items()}
        for name, arguments in self.producers.items():
            options = [str(self.env), str(self.log.file), *arguments]
            self.children.start(name, [sys.executable, "-m", "tests.soak.producing", *options])
        self.until(
            lambda: {assignment.reported_group for assignment in self.game_assignments()} >= set(GROUPS),
            "two groups that run",
        )

    def keep_running(self) -> None:
        """Start again what has ended, as whatever keeps it running would; deaths were ours, so none counts."""
        for child in self.children.dead():
            assert child.name not in self.producers, self.children.tail(child.name)
            self.children.start(child.name, child.command)
            self.restarts += 1
        for name in GROUPS:
            reset_restart_budget(self.store, name)

    def until(self, condition: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.keep_running()
            assert time.monotonic() < deadline, f"no {what}"
            time.sleep(0.5)

    def game_assignments(self) -> Sequence[GameAssignment]:
        return list(read_assignments(self.store).values())

    # What somebody does.

    def act(self) -> None:
        """Do one thing, then start again what is not there."""
        acts: dict[Callable[[], None], int] = {
            self.kill_group: 4,
            self.end_group: 4,
            self.restart_group: 2,
            self.kill_child: 3,
            self.end_ingest: 1,
            self.move: 6,
            self.rebuild: 3,
            self.replay: 1,
            self.switch_own_query: 3,
            self.pause: 3,
            self.resume: 3,
        }
        act = self.draw.choices(list(acts), list(acts.values()))[0]
        act()
        self.did[act.__name__] += 1
        self.keep_running()
        self._open_operations()

    def kill_group(self) -> None:
        self._signal_group(signal.SIGKILL)

    def end_group(self) -> None:
        self._signal_group(signal.SIGTERM)

    def restart_group(self) -> None:
        self._turnout("groups", "restart", self.draw.choice(GROUPS), *ASKED)

    def kill_child(self) -> None:
        """Kill ingest, the controller or maintenance; a controller that dies leaves what it runs running."""
        name = self.draw.choice(["ingest", "controller", "maintenance"])
        if name == "maintenance":
            self._signal_run(open_runs(self.store, name), "main", signal.SIGKILL)
            return
        process = self.processes[name].process
        if process is None:
            return
        if name == "controller":
            process.kill()  # alone: groups are in sessions of their own, and live on
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end_ingest(self) -> None:
        self.children.end("ingest", 60)

    def move(self) -> None:
        self._turnout("move", *self._some(20), "--to", self.draw.choice(GROUPS), *ASKED)

    def rebuild(self) -> None:
        self._turnout("repair", "rebuild", *self._some(1), *ASKED)

    def replay(self) -> None:
        self._turnout("repair", "replay", *ASKED)

    def switch_own_query(self) -> None:
        """Give a game a query of its own, or take it back into the pass."""
        if self.own_queries and (len(self.own_queries) >= _MAX_OWN_QUERIES or self.draw.random() < 0.5):
            key = self.draw.choice(sorted(self.own_queries))
            self._turnout("stream", "own-query", key, "off")
            self.own_queries.discard(key)
        else:
            (key,) = self._some(1)
            self._turnout("stream", "own-query", key, "on")
            self.own_queries.add(key)

    def pause(self) -> None:
        keys = self._some(10)
        self._turnout("pause", *keys, *ASKED)
        self.paused.update(keys)

    def resume(self) -> None:
        if self.paused:
            keys = self.draw.sample(sorted(self.paused), min(10, len(self.paused)))
            self._turnout("resume", *keys, *ASKED)
            self.paused.difference_update(keys)

    def _signal_group(self, number: signal.Signals) -> None:
        self._signal_run(open_runs(self.store), self.draw.choice(GROUPS), number)

    def _signal_run(self, runs: Mapping[str, Run], name: str, number: signal.Signals) -> None:
        process = process_of(runs[name].reference or "") if name in runs else None
        if process is None or process.is_dead():
            return
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)

    def _some(self, most: int) -> list[str]:
        keys = sorted(assignment.game_key for assignment in self.game_assignments())
        return self.draw.sample(keys, self.draw.randint(1, most))

    def _turnout(self, *arguments: str) -> None:
        """Run a command in this process; refusals are counted."""
        done = CliRunner().invoke(cli, [*arguments, "--env-dir", str(self.env)])
        if done.exit_code:
            self.refused[arguments[0]] += 1

    # The end.

    def close(self) -> None:
        """Kill what the controller has started, should it still be there; nothing is to outlive a test that failed."""
        self.children.end("controller", 100)  # with what it runs, and so that it starts none again
        for run in [*open_runs(self.store).values(), *open_runs(self.store, "maintenance").values()]:
            process = process_of(run.reference or "")
            if process is not None and not process.is_dead():
                os.killpg(process.pid, signal.SIGKILL)

    def rest(self) -> None:
        """End the producer, let everything run that was stopped, and wait until all it sent is in the tables."""
        for name in self.producers:
            self.children.end(name, 120)
            self.children.forget(name)
        self.until(lambda: not self._open_operations(), "end of the operations", REST_SECONDS)
        for assignment in self.game_assignments():
            submit_control(self.store, assignment.game_key, "soak", desired="running")
            submit_retry(self.store, assignment.game_key, "soak")
        sent = self.log.count()
        self.until(lambda: bronze_rows(self.paths) >= sent, "bronze that has all", REST_SECONDS)
        self.until(self._is_all_applied, "tables that have all", REST_SECONDS)

    def _open_operations(self) -> int:
        """Return how many operations are open; those that need a person, as kills make them, are let go on."""
        still_open = list_operations(self.store, only_open=True)
        for each in still_open:
            if each.state == "needs_human":
                self._turnout("ops", "resume", each.operation_id, "--reason", "the soak killed what it waited for")
                self.did["resumed an operation"] += 1
        return len(still_open)

    def _is_all_applied(self) -> bool:
        found = self.game_assignments()
        return bool(found) and all((assignment.cursor_seq or 0) >= assignment.last_seq for assignment in found)
