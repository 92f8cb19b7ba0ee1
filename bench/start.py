"""`python -m bench.start`: how soon a group's driver commits, and is level, once its Spark session is ready.

Simulator and ingest run all the time; the group starts first while no game has a table, then again and again after a
pause. With `--also` each start is made by two checkouts in turn. See docs/performance.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import cpu, machine
from bench.command import carry_out
from bench.load import GROUP, Arrivals, Ended, Wanted, arrivals, done_at, prepared, prove, write_settings
from bench.log import Commit, follow
from bench.numbers import backlog_age
from bench.outage import settled_at
from bench.text import number, table
from pipeline.settings.tree import Paths

_HERE: Final = Path(__file__).resolve().parent
_LOOK_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 90.0
_LEVEL: Final = 3  # triggers: no table lacks an older bronze commit


@dataclass(frozen=True, slots=True)
class Begun:
    """One start of the group's driver."""

    checkout: str
    ended_at: float  # when it was asked to stop
    cpu: Mapping[str, Sequence[tuple[float, float]]]  # by role: CPU seconds of the process tree so far, and when
    steps: Sequence[tuple[str, str, float, float, float, int]]  # name, thread, begin, end, its thread's CPU, streams


def main() -> None:
    """Run, print and keep the result; the exit code says whether completeness was proven."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder / "env"), _report)
    sys.exit(0 if result["complete"] else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--rate", type=float, default=8000.0, help="events per second")
    parser.add_argument("--trigger", type=float, default=1.0, help="seconds between two passes")
    parser.add_argument("--ingest-trigger", type=float, default=1.0, help="seconds")
    parser.add_argument("--away", type=float, default=10.0, help="seconds without a driver before each start")
    parser.add_argument("--run", type=float, default=40.0, help="seconds that each driver runs")
    parser.add_argument("--starts", type=int, default=4, help="starts of games that have tables, by each checkout")
    parser.add_argument("--also", type=Path, help="another checkout, whose code starts in turn with this one's")
    parser.add_argument("--driver-memory", default="1g", help="heap of each driver")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    return parser.parse_args()


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    tables: dict[str, dict[str, object]] = {
        "ingest": {"trigger_seconds": options.ingest_trigger},
        "demux": {"trigger_seconds": options.trigger},
        "spark": {"driver_memory": options.driver_memory, "master": options.master},
    }
    checkouts = [_HERE.parent, *([options.also] if options.also else [])]
    settings, paths = write_settings(root, tables)
    with prepared(settings, paths) as load:
        load.start_ingest()
        load.send(Wanted(options.games, options.rate))
        before = cpu.read_all()
        starts, since = [], time.time()
        for turn in range(1 + options.starts * len(checkouts)):
            time.sleep(options.away)
            load.look()
            # ABBA, so that what drifts steadily meets both alike; the very first makes the tables.
            order = checkouts if turn % (2 * len(checkouts)) < len(checkouts) else checkouts[::-1]
            starts.append(_start(options, paths, order[turn % len(checkouts)]))
        others = machine.others(before, cpu.read_all(), time.time() - since, os.getpid())
        load.stop("simulate")
        load.start("group", "groups", "run", GROUP)
        load.until(lambda: not load.landing_behind() and not load.games_behind(), "end of the backlog", 600.0)
        load.stop("group")
    work = arrivals(Path(paths.bronze))
    logs = follow(Path(paths.table(key)) for key in work.keys)
    commits = {key: log.read() for key, log in logs.items()}
    done = done_at(work, commits)
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "other_cores": others,
        "starts": [_measured(options, each, work, done, commits) for each in starts],
        "complete": prove(paths, "--complete").returncode == 0,
    }


def _start(options: argparse.Namespace, paths: Paths, checkout: Path) -> Begun:
    """Let a checkout's driver run for a while, and end it.

    Raises:
        Ended: it ended by itself.
    """
    out = paths.root / "starting.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-P", str(_HERE / "starting.py"), str(paths.root), GROUP, str(out)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    used: dict[str, list[tuple[float, float]]] = {}
    with (Path(paths.logs) / "starting.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=log, stderr=log)
        until = time.monotonic() + options.run
        while time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
            if process.poll() is not None:
                raise Ended((Path(paths.logs) / "starting.log").read_text("utf-8")[-4000:])
            for role, seconds in cpu.by_role(cpu.tree(cpu.read_all(), process.pid), process.pid).items():
                used.setdefault(role, []).append((time.time(), seconds))
        ended = time.time()
        process.send_signal(signal.SIGTERM)
        process.wait(_STOP_SECONDS)
    return Begun(str(checkout), ended, used, json.loads(out.read_text("utf-8"))["steps"])


def _measured(
    options: argparse.Namespace, start: Begun, work: Arrivals, done: Any, commits: Mapping[str, Sequence[Commit]]
) -> dict[str, Any]:
    ready = next(begin for name, _, begin, *_ in start.steps if name == "_run_group")
    firsts = [
        min((each.at for each in log if each.rows and ready <= each.at <= start.ended_at), default=np.inf)
        for log in commits.values()
    ]
    moments = np.arange(ready, start.ended_at, _LOOK_SECONDS).tolist()
    ages = backlog_age(moments, work.bronze_at.tolist(), done.tolist())
    level = settled_at(moments, ages, _LEVEL * options.trigger)
    passes = [(begin, end) for name, _, begin, end, *_ in start.steps if name == "Demux._batch"]
    return {
        "checkout": start.checkout,
        "first_commit": min(firsts) - ready,
        "half": float(np.median(firsts)) - ready,
        "all": max(firsts) - ready,
        "level": None if level is None else level - ready,
        "cpu_to_first": _spent(start, ready, min(firsts)),
        "cpu_to_level": None if level is None else _spent(start, ready, level),
        "cpu": {role: [(at - ready, used) for at, used in looks] for role, looks in start.cpu.items()},
        "first_pass": passes[0][1] - passes[0][0] if passes else None,
        "steps": [
            [name, thread, begin - ready, end - begin, used, size]
            for name, thread, begin, end, used, size in start.steps
            if begin >= ready
        ],
    }


def _spent(start: Begun, since: float, until: float) -> float:
    """Return the CPU seconds of the process tree between two moments."""
    spent = 0.0
    for looks in start.cpu.values():
        times, seconds = zip(*looks, strict=True)
        spent += float(np.interp(until, times, seconds) - np.interp(since, times, seconds))
    return spent


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    lines.append(" ".join(f"{name}={value}" for name, value in result["other_cores"].items()))
    columns = ("first_commit", "half", "all", "level", "cpu_to_first", "cpu_to_level", "first_pass")
    rows = [
        [Path(each["checkout"]).name, *("never" if each[name] is None else number(each[name]) for name in columns)]
        for each in result["starts"]
    ]
    header = ["seconds after the session is ready", "first commit", "half of the games", "all", "level", "CPU to first",
              "CPU to level", "first pass"]  # fmt: skip
    return "\n".join([*lines, "", table(header, rows), "completeness: " + ("proven" if result["complete"] else "NOT")])


if __name__ == "__main__":
    main()
