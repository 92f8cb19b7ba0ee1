"""Ten minutes of a working day: three producers to one landing table, new schemas during rebuilds, a kill each minute.

Nothing may end by itself: of the processes only those end that the test kills. `DAY_MINUTES`, `DAY_SEED` set it.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import func, select

from pipeline.base.names import game_key
from pipeline.control.backends.local import process_of
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import family, game_names
from pipeline.platforms.local.child_processes import Children
from pipeline.store.database.tables import group_runs
from pipeline.store.operations import list_operations
from pipeline.store.processes.runs import open_runs
from tests.faults import figures
from tests.faults.life import with_field
from tests.faults.oracle import judge
from tests.soak.producing import Newer
from tests.soak.soaking import ASKED, GROUPS, READY_SECONDS, REST_SECONDS, SETTINGS, Soak

MINUTES = float(os.environ.get("DAY_MINUTES", "10"))
SEED = int(os.environ.get("DAY_SEED", "1"))
GAMES, BUSY, VERSIONS = 100, 10, 3
RATE: Final = 400.0  # of each producer: on two cores drivers that start need the rest
PRODUCERS: Final = 3
PAUSE_SECONDS: Final = 6.0  # between two acts, on average
KILL_SECONDS: Final = 60.0

pytestmark = pytest.mark.timeout(int(MINUTES * 60 + READY_SECONDS + REST_SECONDS + 1800))


class WorkingDay(Soak):
    """What happens on one: each minute a driver is killed, in between people work."""

    killed: Counter[str]

    def begin(self) -> None:
        self.killed = Counter()
        self._names: dict[str, str] = {game_key(name): name for name in game_names(GAMES, SEED, hostile=True)}
        self._newer, self._added = Newer(self.env), 0
        self._victims = ["ingest", *GROUPS]
        self.start()

    def act(self) -> None:
        """Do one thing, and let what waits for a killed driver go on."""
        acts: dict[Callable[[], None], int] = {
            self.register_during_rebuild: 5,
            self.move: 5,
            self.replay: 2,
            self.switch_own_query: 3,
            self.pause: 3,
            self.resume: 4,
        }
        act = self.draw.choices(list(acts), list(acts.values()))[0]
        act()
        self.did[act.__name__] += 1
        self.keep_running()
        self._open_operations()

    def register_during_rebuild(self) -> None:
        """Rebuild a game; while that runs, register a schema of it, which the producers use at once."""
        keys = [key for key in self._some(3) if key in self._names]
        self._turnout("repair", "rebuild", *keys, *ASKED)
        for key in keys:
            time.sleep(self.draw.uniform(0.0, 3.0))  # anywhere before, in and after the rebuild
            self._added += 1
            name = self._names[key]
            message, descriptor = payload_schema(family(name), VERSIONS)
            made = LocalRegistry(self.store).register(name, message, with_field(message, descriptor, self._added))
            self._newer.note(name, VERSIONS, made.schema_id)

    def kill(self) -> None:
        """Kill the next driver in turn: ingest (`keep_running` restarts it) or a group (the controller does)."""
        name = self._victims[sum(self.killed.values()) % len(self._victims)]
        if name == "ingest":
            child = self.processes[name].process
            assert child is not None
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        else:
            run = open_runs(self.store).get(name)
            process = None if run is None else process_of(run.reference or "")
            assert process is not None, f"group {name} does not run a minute after the last kill"
            assert not process.is_dead(), f"group {name} has died a minute after the last kill"
            os.killpg(process.pid, signal.SIGKILL)
        self.killed[name] += 1

    def keep_running(self) -> None:
        """Start ingest again where it was killed; whatever else has ended has ended by itself."""
        for child in self.children.dead():
            assert child.name == "ingest", f"{child.name} ended by itself:\n{self.children.tail(child.name)}"
            self.restarts += 1
            ended = f"ingest ended by itself:\n{self.children.tail(child.name)}"
            assert self.restarts <= self.killed["ingest"], ended
            self.children.start(child.name, child.command)

    def deaths(self) -> int:
        """Return how many processes that the controller runs have died, drivers of groups and maintenance."""
        with self.store.connect() as connection:
            return connection.execute(select(func.count()).where(group_runs.c.died == 1)).scalar_one()


def test_a_working_day_of_three_producers_ends_complete(tmp_path: Path) -> None:
    """Laws L1 to L16 together: no row is lost or doubled, no value is wrong, no process ends by itself."""
    env = tmp_path / "env"
    env.mkdir()
    (env / "turnout.toml").write_text(SETTINGS)
    producers = [[str(each) for each in (GAMES, BUSY, RATE, SEED, number)] for number in range(PRODUCERS)]
    with Children(env / "logs") as children, closing(WorkingDay(env, children, random.Random(SEED), producers)) as day:
        day.begin()
        began = time.monotonic()
        while time.monotonic() - began < MINUTES * 60:
            time.sleep(day.draw.uniform(0.0, 2 * PAUSE_SECONDS))  # how people act; nothing is waited for
            day.act()
            if time.monotonic() - began > (sum(day.killed.values()) + 1) * KILL_SECONDS:
                day.kill()
        day.rest()
        operations = Counter(each.state for each in list_operations(day.store, limit=100_000))
        deaths = day.deaths()
    verdict = judge(env, day.log)
    figures.record_faults(sum(day.killed.values()))
    lines = (
        f"seed {SEED}: {MINUTES:g} minutes, {verdict.events:,} events of {PRODUCERS} producers",
        f"did: {dict(day.did)}; killed: {dict(day.killed)}; refused: {dict(day.refused)}",
        f"operations: {dict(operations)}",
        str(verdict),
    )
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert verdict.clean, verdict
    assert deaths == day.killed["a"] + day.killed["b"]
