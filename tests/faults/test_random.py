"""A person kills, stops and restarts processes at random while events come in."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pipeline.base.names import game_key
from pipeline.health.facts.placing import placing
from pipeline.store.games import register_group
from pipeline.store.stream_control import submit_control, submit_retry
from tests import repairing
from tests.faults import figures
from tests.faults.driver_world import Place
from tests.faults.oracle import judge

LIVES = 4
MINUTES = float(os.environ.get("PROOF_RANDOM_MINUTES", "10")) / LIVES  # of one life
ASKED = ("--reason", "a random fault", "--no-wait")
DRIVERS = {
    "ingest": ["ingest", "run"],
    "a": ["groups", "run", "a"],
    "b": ["groups", "run", "b"],
    "tidy": ["maintain"],
    "controller": ["controller", "run"],
}
_EVENTS = 400  # between two acts

pytestmark = pytest.mark.timeout(900 + int(MINUTES * 60))


class Someone:
    """Starts what is missing, and does one harmful or odd thing after the other."""

    def __init__(self, place: Place, draw: random.Random) -> None:
        self.place, self.draw = place, draw
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: set[str] = set()
        self.did: Counter[str] = Counter()

    def act(self) -> None:
        """Do one thing, then start again what is not there."""
        acts = (
            self._kill,
            self._kill,
            self._terminate,
            self._freeze,
            self._rebuild,
            self._replay,
            self._submit_repair,
            self._decide,
            self._move,
        )
        act = self.draw.choice(acts)
        act()
        self.did[act.__name__.strip("_")] += 1
        for name in DRIVERS:
            if name not in self.running or self.running[name].poll() is not None:
                self._start(name)

    def leave(self) -> None:
        """End everything: some by hand, some by force."""
        for name, process in self.running.items():
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGTERM if name in {"a", "ingest"} else signal.SIGKILL)
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for game in self.place.simulator.games:
            submit_control(self.place.engine, game_key(game), "somebody", desired="running")
            submit_retry(self.place.engine, game_key(game), "somebody")

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "pipeline", *DRIVERS[name], "--env-dir", str(self.place.env)]
        with (self.place.env / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.stopped.discard(name)

    def _victim(self) -> tuple[str, subprocess.Popen[bytes]] | None:
        alive = [(name, process) for name, process in self.running.items() if process.poll() is None]
        return self.draw.choice(alive) if alive else None

    def _kill(self) -> None:
        if victim := self._victim():
            os.killpg(victim[1].pid, signal.SIGKILL)
            victim[1].wait()

    def _terminate(self) -> None:
        if victim := self._victim():
            victim[1].terminate()

    def _freeze(self) -> None:
        """Stop a process, or let a stopped one go on."""
        if victim := self._victim():
            name, process = victim
            if name in self.stopped:
                os.killpg(process.pid, signal.SIGCONT)
                self.stopped.discard(name)
            else:
                os.killpg(process.pid, signal.SIGSTOP)
                self.stopped.add(name)

    def _rebuild(self) -> None:
        self._run(repairing.command(self.place.env, "rebuild", self._key()), cut=self.draw.random() < 0.5)

    def _replay(self) -> None:
        self._run(repairing.command(self.place.env, "replay"), cut=self.draw.random() < 0.5)

    def _submit_repair(self) -> None:
        self._turnout(*self.draw.choice([["repair", "rebuild", self._key()], ["repair", "replay"]]), *ASKED)

    def _decide(self) -> None:
        decision = self.draw.choice([["pause"], ["resume"], ["repair", "retry"]])
        self._turnout(*decision, self._key(), *ASKED)

    def _move(self) -> None:
        self._turnout("move", self._key(), self._key(), "--to", self.draw.choice("ab"), *ASKED)

    def _key(self) -> str:
        return game_key(self.draw.choice(self.place.simulator.games))

    def _turnout(self, *arguments: str) -> None:
        self._run([sys.executable, "-m", "pipeline", *arguments, "--env-dir", str(self.place.env)])

    def _run(self, command: list[str], *, cut: bool = False) -> None:
        """Run a command to its end, or kill it after a while."""
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(self.draw.uniform(0.5, 4.0) if cut else 60.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("life", range(LIVES))
def test_minutes_of_somebody_at_random_lose_and_double_nothing(tmp_path: Path, life: int) -> None:
    """All laws, as a person would try them: whatever is killed, stopped or repaired, every row is accounted for."""
    place = Place(tmp_path, events=500_000)
    for group in ("a", "b"):
        register_group(place.engine, group, placing())
    seed = int(os.environ.get("PROOF_SEED", "17")) + life
    someone = Someone(place, random.Random(seed))
    until = time.monotonic() + MINUTES * 60
    while time.monotonic() < until:
        place.produce(_EVENTS)
        someone.act()
        time.sleep(someone.draw.uniform(0.0, 6.0))  # how people act; nothing is waited for
    someone.leave()
    place.finish("a", "b")
    verdict = judge(place.env, place.log)
    figures.record_faults(sum(someone.did[name] for name in ("kill", "terminate", "freeze")))
    sys.stdout.write(f"\nseed {seed}, {dict(someone.did)}\n{verdict}\n")
    assert verdict.clean, verdict
