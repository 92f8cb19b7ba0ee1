"""Real kills: a driver dies with its JVM and its workers at a named point and is started again."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.failpoints import ENVIRON
from pipeline.ingest.simulate import register_samples
from pipeline.ingest.simulator import Plan, Simulator
from pipeline.settings import load
from pipeline.store.engine import open_store
from pipeline.streams.in_hand import left
from tests.faults.faults import Faults
from tests.faults.oracle import ProducerLog, judge, produce, tell

KILLS = int(os.environ.get("PROOF_KILLS", "12"))
WRITER = os.environ.get("PROOF_WRITER", "direct")
POINTS = {  # fail-point → the driver that comes there
    "after_bronze_write": "ingest",
    "after_schema_pin": "group",
    "after_quarantine_write": "group",
    "mid_data_files": "group",
    "between_table_commits": "group",
    "after_table_commits": "group",
}
_END_SECONDS = 120.0

pytestmark = pytest.mark.timeout(300 + KILLS * 150)


class Drivers:
    """Runs ingest and a group as an operator does, each in a session of its own, until they end."""

    def __init__(self, env: Path, faults: Faults) -> None:
        self.env, self.faults = env, faults
        self.replays = 0

    def run(self, kind: str) -> int:
        """Run one driver to its end and return its exit code; counts whether Spark had a batch to repeat."""
        self.replays += self._unfinished_batch(kind)
        arguments = ["ingest", "run"] if kind == "ingest" else ["groups", "run", "a"]
        command = [sys.executable, "-m", "pipeline", *arguments, "--once", "--env-dir", str(self.env)]
        environ = {**os.environ, ENVIRON: str(self.faults.folder)}
        with (self.env / f"{kind}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        return process.wait(_END_SECONDS)

    def _unfinished_batch(self, kind: str) -> bool:
        """Tell whether a batch was planned but not finished: Spark will run it again with the same rows."""
        place = "ingest/1" if kind == "ingest" else "demux/a"
        query = self.env / "checkpoints" / place / "query"
        planned, finished = (_numbers(query / part) for part in ("offsets", "commits"))
        return bool(planned) and (not finished or max(planned) > max(finished))


def _numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.glob("*") if file.name.isdigit()]


def test_no_kill_at_a_named_point_loses_or_doubles_a_row(tmp_path: Path) -> None:
    """Laws L1 to L7 under SIGKILL: driver, JVM and workers die together, and Spark is seen to repeat batches."""
    env = tmp_path / "env"
    env.mkdir()
    (env / "turnout.toml").write_text(f'[demux]\nwriter = "{WRITER}"\n')
    settings, paths = load(env, {})
    engine = open_store(settings, paths)
    faults = Faults(tmp_path / "failpoints")
    plan = Plan(games=12, versions=4, events=KILLS * 1_000, seed=12, bad_share=0.02)
    simulator = Simulator(plan, register_samples(engine, plan))
    log = ProducerLog(env / "acknowledged.jsonl")
    drivers = Drivers(env, faults)
    killed: Counter[str] = Counter()
    for number in range(KILLS):
        point, kind = list(POINTS.items())[number % len(POINTS)]
        produce(simulator, paths.landing, log, 1_000)
        several = point in {"mid_data_files", "between_table_commits"}
        for each in ("ingest", "group"):
            if each == kind:
                faults.arm(point, "crash", 1 + number % 3 if several else 1)
            code = drivers.run(each)
            if each == kind:
                assert code == -signal.SIGKILL, (env / f"{kind}.log").read_text()[-2000:]
                killed[point] += 1
                in_pass = point in {"after_quarantine_write", "mid_data_files", "between_table_commits"}
                assert bool(left(paths.checkpoints / "demux" / "a")) == in_pass, "what it had in hand is told"
                code = drivers.run(each)
            assert code == 0, (env / f"{each}.log").read_text()[-2000:]
    verdict = judge(env, log)
    tell(verdict, killed)
    sys.stdout.write(f"proven replays: {drivers.replays}\n")
    assert verdict.clean, verdict
    assert sum(killed.values()) == KILLS == sum(faults.fired().values())
    assert drivers.replays >= KILLS * 2 // 3
