"""Drivers as processes that tests start, stop and kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import select, update

from pipeline.base.failpoints import ENVIRON
from pipeline.base.names import GameKey, bronze_app_id, game_key
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import SimulationPlan, Simulator
from pipeline.lake.delta import log
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers, games, streams
from pipeline.store.games import assigned
from tests.faults.faults import Faults
from tests.faults.oracle import ProducerLog, RowVerdict, judge, mirrored, produce

_READY_SECONDS = 300.0  # three JVMs start at once; waiting ends when what is awaited is there


@contextmanager
def driver(env: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver in a session of its own; it is killed with all it started when the block ends."""
    command = [sys.executable, "-m", "pipeline", *arguments, "--env-dir", str(env)]
    with (env / f"{arguments[0]}-{arguments[-1]}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(what: Callable[[], bool], sentence: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not what():
        assert time.monotonic() < deadline, sentence
        time.sleep(0.2)


class Place:
    """One environment with a producer whose acknowledged messages are known."""

    def __init__(
        self,
        root: Path,
        events: int = 50_000,
        *,
        leases: bool = True,
        games: int = 6,
        writer: str = "direct",
        storage: str = "",
    ) -> None:
        self.env = root / "env"
        self.env.mkdir()
        triggers = f'[ingest]\ntrigger_seconds = 1\n[demux]\ntrigger_seconds = 1\nwriter = "{writer}"\n'
        alone = '[maintenance]\nbackend = "none"\n'  # tests start it themselves, where they want it
        places = f'[store]\nleases = {str(leases).lower()}\n[storage]\nroot = "{storage}"\n'
        (self.env / "turnout.toml").write_text(triggers + alone + places)
        self.settings, self.paths = load(self.env, {})
        self.engine = open_store(self.settings, self.paths)
        plan = SimulationPlan(games=games, versions=3, events=events, seed=13, bad_share=0.02, hostile=True)
        self.simulator = Simulator(plan, register_samples(self.engine, plan))
        self.log = ProducerLog(self.env / "acknowledged.jsonl")

    def produce(self, events: int = 600, batch: int = 200) -> None:
        produce(self.simulator, self.paths.landing, self.log, events, batch=batch)

    def landed_seq(self) -> int:
        """The last bronze seq, once everything that was sent is there."""
        sent = self.log.count()
        wait_for(lambda: bronze_rows(self.paths) >= sent, "ingest does not land what was sent")
        return self._last_seq()

    def passed(self, group: str, seq: int) -> bool:
        """Return whether a group's driver says it has passed a seq."""
        with self.engine.connect() as connection:
            rows = connection.execute(drivers.select().where(drivers.c.name == group)).all()
        return any(row.kind == "group" and (row.frontier_seq or 0) >= seq for row in rows)

    def is_at_rest(self, group: str) -> bool:
        """Return whether a group's driver has passed all of bronze, and each of its games runs in the pass.

        A game that is level rejoins the pass with the next batch: that counts, too, as no batch may come any more.
        """
        carried = {each.game_key for each in assigned(self.engine, group)}
        last = self._last_seq()
        with self.engine.connect() as connection:
            reported = select(streams.c.game_key, streams.c.lane, streams.c.cursor_seq)
            rows = connection.execute(reported.where(streams.c.group_name == group)).all()
        in_pass = {row.game_key for row in rows if row.lane == "RUN" or row.cursor_seq >= last}
        return self.passed(group, last) and bool(carried) and carried <= in_pass

    def give_all_to(self, group: str) -> None:
        self.give({game_key(name) for name in self.simulator.games}, group)

    def give(self, keys: Collection[GameKey], group: str) -> None:
        """Move games to a group, as the controller's step does that assigns them."""
        move = update(games).where(games.c.game_key.in_(keys)).values(group_name=group, epoch=games.c.epoch + 1)
        with self.engine.begin() as connection:
            connection.execute(move)

    def finish(self, *groups: str) -> None:
        """Let ingest and these groups work off what is left."""
        for arguments in (("ingest", "run"), *(("groups", "run", group) for group in groups)):
            command = [sys.executable, "-m", "pipeline", *arguments, "--once", "--env-dir", str(self.env)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr[-2000:]

    def judge(self) -> RowVerdict:
        """Judge the environment, which has come to rest, wherever its tables are."""
        return judge(self.env, self.log, mirrored(self.paths))

    def _last_seq(self) -> int:
        return int(open_table(self.paths.bronze).transaction_version(bronze_app_id("local")) or 0)


def bronze_rows(paths: Paths) -> int:
    if not log.exists(paths.bronze):
        return 0
    return sum(open_table(paths.bronze).get_add_actions(flatten=True).column("num_records").to_pylist())


_COMMANDS = {"ingest": ["ingest", "run"], "group": ["groups", "run", "a"]}
_END_SECONDS = 300.0  # a driver may have to start before it dies; waiting ends when what is awaited is there


class Drivers:
    """Runs ingest and a group as an operator does, each in a session of its own."""

    def __init__(self, place: Place, faults: Faults) -> None:
        self.place, self.faults = place, faults
        self.replays = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str) -> None:
        """Start one driver; counts whether Spark has a batch to repeat."""
        self.replays += self._unfinished_batch(kind)
        command = [sys.executable, "-m", "pipeline", *_COMMANDS[kind], "--env-dir", str(self.place.env)]
        environ = {**os.environ, ENVIRON: str(self.faults.folder)}
        with self._log(kind).open("ab") as log:
            self._running[kind] = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)

    def kill(self, kind: str) -> None:
        """Kill a driver with all it started."""
        os.killpg(self._running[kind].pid, signal.SIGKILL)
        self.wait(kind, -signal.SIGKILL)

    def wait(self, kind: str, code: int) -> None:
        """Wait until a driver has ended, and require that it ended so."""
        assert self._running.pop(kind).wait(_END_SECONDS) == code, self._log(kind).read_text()[-2000:]

    def wait_for_death(self) -> str:
        """Wait until one of the drivers was killed by its fail-point; return which."""
        dead = list[str]()

        def has_died() -> bool:
            dead.extend(kind for kind, process in self._running.items() if process.poll() is not None)
            return bool(dead)

        wait_for(has_died, "no driver dies")
        self.wait(dead[0], -signal.SIGKILL)
        return dead[0]

    def rest(self) -> None:
        """Wait until everything that was sent is in the tables and every game is read in the pass."""

        def is_at_rest() -> bool:
            for kind, process in self._running.items():
                assert process.poll() is None, self._log(kind).read_text()[-2000:]
            return self.place.is_at_rest("a")

        self.place.landed_seq()
        wait_for(is_at_rest, "group a does not come to rest")

    def stop(self) -> None:
        """End both in order, once each has taken its signals up: before, a signal ends any program at once."""
        wait_for(self._have_begun, "a driver does not take up its work")
        for process in self._running.values():
            process.terminate()
        for kind in list(self._running):
            self.wait(kind, 0)

    def _have_begun(self) -> bool:
        with self.place.engine.connect() as connection:
            begun = set(connection.execute(select(drivers.c.pid)).scalars())
        return {process.pid for process in self._running.values()} <= begun

    def force(self) -> None:
        """Leave nothing behind, however the test ended."""
        for kind in list(self._running):
            self.kill(kind)

    def _log(self, kind: str) -> Path:
        return self.place.env / f"{kind}.log"

    def _unfinished_batch(self, kind: str) -> bool:
        """Return whether a batch was planned but not finished: Spark will run it again with the same rows."""
        paths = self.place.paths
        query = (paths.ingest / "1" if kind == "ingest" else located(paths.checkpoints / "demux" / "a")) / "query"
        planned, finished = (_numbers(query / part) for part in ("offsets", "commits"))
        return bool(planned) and (not finished or max(planned) > max(finished))


def _numbers(folder: Location) -> list[int]:
    return [int(file.name) for file in folder.files() if file.name.isdigit()]
