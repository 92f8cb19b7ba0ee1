"""Two owners of one game, as processes: what keeps them apart is the table, not a clock or a row in a store."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select, update

from pipeline.delta import log
from pipeline.delta.opening import open_table
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import SimulationPlan, Simulator
from pipeline.names import GameKey, bronze_app_id, game_key
from pipeline.settings import Paths, load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers, games, streams
from pipeline.store.games import assigned, register_group
from tests.faults import figures
from tests.faults.oracle import ProducerLog, RowVerdict, judge, mirrored, produce

STOPPED_SECONDS = float(os.environ.get("PROOF_STOPPED_SECONDS", "120"))
BUCKET_STOPPED_SECONDS = float(os.environ.get("PROOF_BUCKET_STOPPED_SECONDS", "40"))
"""Longer than a lease, too."""

_READY_SECONDS = 300.0  # three JVMs start at once; waiting ends when what is awaited is there

pytestmark = pytest.mark.timeout(1200 + int(STOPPED_SECONDS))


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
        """Tell whether a group's driver says it has passed a seq."""
        with self.engine.connect() as connection:
            rows = connection.execute(drivers.select().where(drivers.c.name == group)).all()
        return any(row.kind == "group" and (row.frontier_seq or 0) >= seq for row in rows)

    def is_at_rest(self, group: str) -> bool:
        """Tell whether a group's driver has passed all of bronze and says that each of its games runs in the pass."""
        carried = {each.game_key for each in assigned(self.engine, group)}
        with self.engine.connect() as connection:
            reported = select(streams.c.game_key, streams.c.lane).where(streams.c.group_name == group)
            lanes = dict(connection.execute(reported).all())
        return (
            self.passed(group, self._last_seq()) and bool(carried) and all(lanes.get(key) == "RUN" for key in carried)
        )

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


@pytest.mark.parametrize("leases", [True, False], ids=["with leases", "without leases"])
@pytest.mark.proves("D6", "G96")
def test_a_driver_that_was_stopped_and_comes_back_after_its_games_moved_does_no_harm(
    tmp_path: Path, storage: str, leases: bool
) -> None:
    """Law L4, D6: a driver stands still while its games move; when it comes back the tables refuse its commits."""
    place = Place(tmp_path, leases=leases, storage=storage)
    least = BUCKET_STOPPED_SECONDS if storage else STOPPED_SECONDS
    place.produce()
    register_group(place.engine, "a")
    with driver(place.env, "ingest", "run"), driver(place.env, "groups", "run", "a") as zombie:
        first = place.landed_seq()
        wait_for(lambda: place.passed("a", first), "group a does not split")
        place.produce()  # so that it has work in its hands
        os.killpg(zombie.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        place.give_all_to("b")
        with driver(place.env, "groups", "run", "b"):
            while time.monotonic() - stopped < least:
                place.produce(200)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("b", seq), "group b does not split")  # type: ignore[misc]
            os.killpg(zombie.pid, signal.SIGCONT)
            for _ in range(5):
                place.produce(200)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("b", seq), "group b does not split")  # type: ignore[misc]
            wait_for(lambda: place.passed("a", first), "the zombie does not beat")
    assert not assigned(place.engine, "a")
    place.finish("b")
    figures.record_faults(1)
    verdict = place.judge()
    assert verdict.clean, verdict


@pytest.mark.proves("G97")
def test_two_drivers_that_both_own_every_game_neither_lose_nor_double_a_row(tmp_path: Path, storage: str) -> None:
    """Law L4 without leases or assignments: two control stores, one set of tables, both drivers own all games."""
    place = Place(tmp_path, leases=False, storage=storage)
    place.produce()
    register_group(place.engine, "a")
    place.finish("a")
    twin = tmp_path / "twin"
    twin.mkdir()
    in_folder = () if storage else ("bronze", "quarantine", "tables", "landing")
    for shared in ("turnout.toml", *in_folder):
        (twin / shared).symlink_to(place.env / shared)
    with driver(place.env, "ingest", "run"):
        place.engine.dispose()
        shutil.copy(place.env / "control.db", twin / "control.db")
        with driver(place.env, "groups", "run", "a"), driver(twin, "groups", "run", "a"):
            settings, paths = load(twin, {})
            other = open_store(settings, paths)
            for _ in range(8):
                place.produce(400)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("a", seq), "group a does not split")  # type: ignore[misc]
            wait_for(lambda: bool(assigned(other, "a")), "the twin owns nothing")
            with other.connect() as connection:
                assert any(row.frontier_seq for row in connection.execute(drivers.select())), "the twin split nothing"
    place.finish("a")
    verdict = place.judge()
    assert verdict.clean, verdict
