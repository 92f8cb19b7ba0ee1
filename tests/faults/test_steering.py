"""Moves between real drivers under load, while old owner, new owner and controller are killed in each state."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import Engine

from pipeline.control.backends.local import process_of
from pipeline.control.operations import moves
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import load
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.groups import Group, create
from pipeline.store.operations import Operation, operation, steps, submit
from pipeline.store.processes.runs import open_runs, reset_restart_budget
from tests.faults import figures
from tests.faults.oracle import require_completeness

RATE = float(os.environ.get("PROOF_RATE", "2000"))
GAMES = 30
STATES = ("assign", "release", "acquire", "verify")
PLAN = [
    *[("nobody", "")] * 8,
    *[(victim, state) for state in STATES for victim in ("old owner", "new owner", "controller")],
]
"""Twenty moves: who is killed, and at which step."""

pytestmark = pytest.mark.timeout(3600)


class Fleet:
    """Two groups that the controller runs, ingest, and a simulator."""

    def __init__(self, env: Path, children: Children) -> None:
        self.env, self.children = env, children
        settings, _ = load(env, {})
        self.store: Engine = open_store(settings, load(env, {})[1])
        self.killed: list[tuple[str, str, str]] = []

    def start(self) -> None:
        at = ("--env-dir", str(self.env))
        for name in "ab":
            create(self.store, Group(name, backend="local"), "test", "", placing())
        self.children.start("ingest", turnout("ingest", "run", *at))
        self.controller = self.children.start("controller", turnout("controller", "run", "--stop-groups", *at))
        simulate = turnout("simulate", *at, "--games", str(GAMES), "--rate", str(RATE), "--skew", "0.5", "--hostile")
        self.children.start("simulate", simulate)
        self.until(self.all_run, "two groups that run all games", 300)

    def until(self, seen: Callable[[], object], what: str, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not seen():
            for child in self.children.dead():
                assert child.name == "controller", self.children.tail(child.name)
                self.children.start(child.name, child.command)  # as whatever keeps it running would
            assert time.monotonic() < deadline, f"no {what}"
            time.sleep(0.02)

    def all_run(self) -> bool:
        there, drivers = read_assignments(self.store), read_group_liveness(self.store)
        reported = [
            assignment.lane == "RUN" and assignment.reported_group == assignment.group for assignment in there.values()
        ]
        running = all(drivers[name].liveness.state == "running" and self.is_alive(name) for name in "ab")
        return len(reported) == GAMES and all(reported) and running

    def is_alive(self, group: str) -> bool:
        """Return whether a group's newest run has a process: what was reported last may be a dead one's."""
        run = open_runs(self.store).get(group)
        process = None if run is None else process_of(run.reference or "")
        return process is not None and not process.is_dead()

    def move(self, key: str, victim: str, state: str) -> Operation:
        """Move a game to the other group, killing somebody on the way; return the operation when it has ended."""
        there = read_assignments(self.store)
        source = there[key].group or ""
        target = "b" if source == "a" else "a"
        plan = moves.plan({key: target}, there, read_group_liveness(self.store))
        submitted = submit(self.store, plan.intent("test", f"{victim} {state}"))
        if victim != "nobody":
            self.until(lambda: any(each.name == state for each in steps(self.store, submitted.operation_id)), state)
            at = steps(self.store, submitted.operation_id)[-1]
            self.kill({"old owner": source, "new owner": target}.get(victim, ""))
            self.killed.append((victim, at.name, at.state))
        self.until(lambda: self.has_ended(submitted), f"end of the move {victim} {state}")
        for name in "ab":
            reset_restart_budget(self.store, name)  # these deaths were ours
        self.until(self.all_run, "order after the move")
        return operation(self.store, submitted.operation_id)

    def has_ended(self, submitted: Operation) -> bool:
        now = operation(self.store, submitted.operation_id)
        assert now.state != "needs_human", now.outcome
        return not now.is_open

    def kill(self, group: str) -> None:
        if not group:
            controller = self.controller.process
            assert controller is not None
            controller.kill()
            controller.wait()
            return
        process = process_of(open_runs(self.store)[group].reference or "")
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)


def test_twenty_moves_with_kills_in_each_state_lose_and_double_nothing(tmp_path: Path) -> None:
    """D1 to D5: whoever is killed in whichever state of a move, it ends, with one owner and all rows accounted for."""
    env = tmp_path / "env"
    with Children(env / "logs") as children:
        fleet = Fleet(env, children)
        fleet.start()
        keys = sorted(read_assignments(fleet.store))
        ended = [fleet.move(keys[number % len(keys)], victim, state) for number, (victim, state) in enumerate(PLAN)]
        assert {each.state for each in ended} == {"succeeded"}, [each.outcome for each in ended]
        calm = [each.ended_at - each.requested_at for each in ended[:8] if each.ended_at is not None]
        children.end("simulate", 20)
        children.forget("simulate")
        verify = [*turnout("verify", "--complete", "--env-dir", str(env))]
        fleet.until(lambda: subprocess.run(verify, check=False, capture_output=True).returncode == 0, "verify", 300)
        children.end("controller", 100)
    require_completeness(env)
    figures.record_faults(len(fleet.killed))
    audit = subprocess.run([*turnout("audit", "verify", "--env-dir", str(env))], check=False, capture_output=True)
    assert audit.returncode == 0, audit.stdout
    sys.stdout.write(f"{len(ended)} moves at {RATE:g} events/s; killed at (who, step, its state): {fleet.killed}\n")
    sys.stdout.write(f"moves without kills took {median(calm):.1f} s, at most {max(calm):.1f} s\n")
    fleet.store.dispose()
