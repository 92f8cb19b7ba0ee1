"""`python -m bench.outage`: how long a group takes to catch up with what arrived while it was stopped.

Most of the backlog is put into bronze at full speed beforehand, in commits of the size live traffic makes, the rest
by live traffic, so that ingest has warmed up; measured is the group's catch-up while live traffic goes on. See
docs/performance.md.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import numpy as np
from deltalake import DeltaTable

from bench import cpu, machine
from bench.command import carry_out
from bench.load import GROUP, Load, Wanted, arrivals, done_at, prepared, prove, write_settings
from bench.log import Follower, follow
from bench.numbers import backlog_age, quantile
from bench.text import number, table
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import Paths

_TARGET_SECONDS: Final = 60.0
_MAX_SECONDS: Final = 900.0  # a catch-up that takes longer is given up
_LANDING_EVENTS: Final = 5_000  # in one landing commit of the simulator at full speed
_HASTY_SECONDS: Final = 0.1  # ingest's trigger while the backlog is made
_LOOK_SECONDS: Final = 1.0
_AGE_SECONDS: Final = 4.0  # between two looks at all logs, which cost half a second: how exact phases are
_STEP_SECONDS: Final = 0.5  # between two moments at which the backlog's age is worked out
_PHASES_METRIC: Final = "turnout_group_pass_phase_seconds_total"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all processes, and at what the group has told of its passes' phases."""

    name: str
    at: float
    cpu_seconds: Mapping[str, Mapping[str, float]]  # by process and role
    phase_seconds: Mapping[str, float]  # tasks of a phase run side by side


class Backlog:
    """Which bronze commits are in the tables of all games, from the tables' logs as they grow."""

    def __init__(self, paths: Paths, keys: Iterable[str]) -> None:
        """Watch these games."""
        self._bronze = Follower(Path(paths.bronze))
        self._tables = follow(Path(paths.table(key)) for key in keys)

    @property
    def commits(self) -> int:
        """How many commits the tables have."""
        return sum(len(log.commits) for log in self._tables.values())

    def age(self, last_seqs: Mapping[str, int], now: float) -> float:
        """Return the age of the oldest bronze commit that may hold rows some table lacks, 0 when there is none."""
        self._bronze.read()
        commits = [(each.seq_to, each.at) for each in self._bronze.commits if each.seq_to is not None]
        for log in self._tables.values():
            log.read()
        reach = {key: max((each.seq_to or 0 for each in log.commits), default=0) for key, log in self._tables.items()}
        return waiting_age(commits, [seq for key, seq in reach.items() if seq < last_seqs.get(key, 0)], now)


def main() -> None:
    """Run, print and keep the result; the exit code says whether it was quick enough and completeness was proven."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder / "env"), _report)
    sys.exit(0 if result["held"] and result["completeness"]["complete"] else 1)


def waiting_age(commits: Sequence[tuple[int, float]], reached: Sequence[int], now: float) -> float:
    """Return how long the first commit after the lowest reached seq has waited, 0 when none waits.

    `commits` are (seq, time) in order, `reached` the last seqs of the tables that lack something.
    """
    if not reached:
        return 0.0
    return next((now - at for seq, at in commits if seq > min(reached)), 0.0)


def settled_at(moments: Sequence[float], ages: Sequence[float], allowed: float) -> float | None:
    """Return the first moment from which on the age stays within what is allowed, None when it does not."""
    late = [at for at, age in zip(moments, ages, strict=True) if age > allowed]
    if not late:
        return moments[0] if moments else None
    return next((at for at in moments if at > late[-1]), None)


def phase_seconds(exposition: str) -> dict[str, float]:
    """Return the seconds of each phase of the passes, from the text of a /metrics page."""
    found: dict[str, float] = {}
    for line in exposition.splitlines():
        if line.startswith(_PHASES_METRIC + "{"):
            labels, _, value = line.rpartition(" ")
            phase = labels.split('phase="', 1)[1].split('"', 1)[0]
            found[phase] = found.get(phase, 0.0) + float(value)
    return found


def between(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Return what was used between each look and the next one, under the name of the first."""
    found = []
    for one, other in pairwise(looks):
        seconds = other.at - one.at
        cores = {}
        for name, used in other.cpu_seconds.items():
            earlier = one.cpu_seconds.get(name, {})
            cores[name] = {role: (spent - earlier.get(role, 0.0)) / seconds for role, spent in used.items()}
        phases = {name: spent - one.phase_seconds.get(name, 0.0) for name, spent in other.phase_seconds.items()}
        found.append({"name": one.name, "seconds": seconds, "cores": cores, "phase_seconds": phases})
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.outage", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--rate", type=float, default=8000.0, help="events per second, missed and live")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the outage")
    parser.add_argument("--warm", type=float, default=120.0, help="seconds of live traffic the outage ends with")
    parser.add_argument("--before", type=float, default=30.0, help="seconds of live traffic before the outage")
    parser.add_argument("--after", type=float, default=60.0, help="seconds of live traffic after the catch-up")
    parser.add_argument("--ingest-trigger", type=float, default=2.0, help="seconds")
    parser.add_argument("--trigger", type=float, default=5.0, help="seconds between two passes")
    parser.add_argument("--driver-memory", default="1g", help="heap of each driver")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    return parser.parse_args()


def _tables(options: argparse.Namespace, ingest: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return {
        "ingest": ingest,
        "demux": {"trigger_seconds": options.trigger},
        "spark": {"driver_memory": options.driver_memory, "master": options.master},
    }


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    usual = _tables(options, {"trigger_seconds": options.ingest_trigger})
    settings, paths = write_settings(root, usual)
    with prepared(settings, paths) as load:
        load.start_ingest()
        load.start("group", "groups", "run", GROUP)
        load.await_query(paths.checkpoints / "demux" / GROUP)
        keys = load.send(Wanted(options.games, options.rate))
        _say(f"{len(keys)} games are known; live for {options.before:g} s")
        _wait(load, options.before)
        _drain(load)
        before = _last_seq(paths)
        seconds = _fill(load, options, paths)
        write_settings(root / "usual", usual)[1].settings_file.move(paths.settings_file)
        filled = _last_seq(paths)
        load.start_ingest()
        load.send(Wanted(options.games, options.rate))
        load.until(lambda: _last_seq(paths) > filled + 1, "live traffic in bronze")
        _say(f"live traffic for {options.warm:g} s")
        _wait(load, options.warm)
        missed = _missed(paths, before)
        _say("starting the group")
        at_start, looks = cpu.read_all(), _catch_up(load, options, paths, keys)
        at_end = cpu.read_all()
        _drain(load)
    _say("verifying")
    proof = prove(paths, "--complete")
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "other_cores": machine.others(at_start, at_end, looks[-1].at - looks[0].at, os.getpid()),
        **missed,
        "filled_in_seconds": seconds,
        **_analyse(options, paths, looks),
        "completeness": json.loads(proof.stdout.splitlines()[-1])
        if proof.stdout
        else {"complete": False, "said": proof.stderr},
    }


def _drain(load: Load) -> None:
    """End the traffic, let everything arrive, and stop the drivers."""
    load.stop("simulate")
    load.until(lambda: not load.landing_behind() and not load.games_behind(), "end of the backlog", _MAX_SECONDS)
    load.stop("group")
    load.stop("ingest")


def _fill(load: Load, options: argparse.Namespace, paths: Paths) -> float:
    """Put what the outage begins with into bronze as fast as it goes; return the seconds that took."""
    events, began = round(options.rate * (options.minutes * 60 - options.warm)), time.monotonic()
    version = DeltaTable(paths.landing).version()
    wanted = Wanted(options.games, options.rate).arguments()
    at = wanted.index("--rate")
    command = turnout("simulate", *wanted[:at], *wanted[at + 2 :], "--events", str(events))
    with Children(paths.logs) as filler:
        filler.start("fill", [*command, "--env-dir", str(paths.root)])
        load.until(lambda: DeltaTable(paths.landing).version() > version + 2, "first events of the backlog")
        _limit_ingest(options, paths, version)
        load.start_ingest()
        _say(f"filling bronze with {events:,} events")
        filler.wait(["fill"], threading.Event())
        load.until(lambda: not load.landing_behind(), "backlog in bronze", _MAX_SECONDS)
    load.stop("ingest")
    return round(time.monotonic() - began, 1)


def _missed(paths: Paths, seq: int) -> dict[str, int]:
    """Return how much bronze has got after this seq."""
    commits = [each for each in Follower(Path(paths.bronze)).read() if (each.seq_to or 0) > seq]
    return {"missed_events": sum(each.rows for each in commits), "missed_commits": len(commits)}


def _limit_ingest(options: argparse.Namespace, paths: Paths, version: int) -> None:
    """Let ingest make commits of about the size that live traffic makes, one after the other.

    Its limit is by whole landing files and soft: half a file less makes the mean right.
    """
    files = [each for each in Follower(Path(paths.landing)).read() if each.version > version]
    bytes_per_event = sum(each.bytes for each in files) / sum(each.rows for each in files)
    rows = max(1.0, options.rate * options.ingest_trigger - _LANDING_EVENTS / 2)
    ingest = {"trigger_seconds": _HASTY_SECONDS, "max_bytes": str(round(rows * bytes_per_event))}
    write_settings(paths.root / "hasty", _tables(options, ingest))[1].settings_file.move(paths.settings_file)


def _last_seq(paths: Paths) -> int:
    return max((each.seq_to or 0 for each in Follower(Path(paths.bronze)).read()), default=0)


def _wait(load: Load, seconds: float) -> None:
    """Let everything run for a while, and see that it does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        load.look()
        time.sleep(_LOOK_SECONDS)


def _catch_up(load: Load, options: argparse.Namespace, paths: Paths, keys: Sequence[str]) -> list[Look]:
    """Start the group and look at all processes whenever a phase begins, and once at the end."""
    backlog = Backlog(paths, keys)
    backlog.age(load.last_seqs(), time.time())
    commits = backlog.commits
    load.start("group", "groups", "run", GROUP)
    looks = [_look("starting", load, paths)]
    while len(looks) < 4:
        _wait(load, _AGE_SECONDS)
        now = time.time()
        age = backlog.age(load.last_seqs(), now)
        if now - looks[0].at > _MAX_SECONDS:
            raise TimeoutError(f"not caught up within {_MAX_SECONDS:g} s: {age:.0f} s of backlog are left")
        if len(looks) == 1 and backlog.commits > commits:
            looks.append(_look("catching up", load, paths))
        elif len(looks) == 2 and age <= _live_seconds(options):
            _say(f"caught up after {now - looks[0].at:.0f} s; live for {options.after:g} s")
            looks.append(_look("live", load, paths))
        elif len(looks) == 3 and now >= looks[2].at + options.after:
            looks.append(_look("end", load, paths))
    return looks


def _live_seconds(options: argparse.Namespace) -> float:
    """Return how old a live stream's backlog may be: it waits for a trigger, then for the pass."""
    return 2.0 * float(options.trigger)


def _look(name: str, load: Load, paths: Paths) -> Look:
    stats = cpu.read_all()
    used = {each: cpu.by_role(cpu.tree(stats, pid), pid) for each, pid in load.pids().items()}
    target = paths.targets / f"group-{GROUP}.json"
    reported: dict[str, float] = {}
    if target.exists():
        (address,) = json.loads(target.read_text("utf-8"))[0]["targets"]
        with urlopen(f"http://{address}/metrics", timeout=10) as page:
            reported = phase_seconds(page.read().decode())
    return Look(name, time.time(), used, reported)


def _analyse(options: argparse.Namespace, paths: Paths, looks: Sequence[Look]) -> dict[str, Any]:
    begin, live, end = looks[0].at, looks[2].at, looks[-1].at
    work = arrivals(Path(paths.bronze))
    logs = follow(Path(paths.table(key)) for key in work.keys)
    for log in logs.values():
        log.read()
    done = done_at(work, {key: log.commits for key, log in logs.items()})
    moments = np.arange(begin, end, _STEP_SECONDS).tolist()
    ages = backlog_age(moments, work.bronze_at.tolist(), done.tolist())
    allowed = _live_seconds(options)
    settled = settled_at(moments, ages, allowed)
    passes = _passes(paths, begin, end)
    last_chunk = max((each["at"] for each in passes if each["lane"] == "CATCHUP"), default=None)
    caught_up = None if settled is None else max(settled - begin, last_chunk or 0.0)
    live_ages = [age for at, age in zip(moments, ages, strict=True) if at >= live]
    return {
        "held": caught_up is not None and caught_up <= _TARGET_SECONDS,
        "caught_up_seconds": caught_up,
        "first_table_commit_seconds": looks[1].at - begin,
        "backlog_live_seconds": None if settled is None else settled - begin,
        "all_in_run_seconds": last_chunk,
        "allowed_age_seconds": allowed,
        "live_age_seconds": {"median": quantile(live_ages, 0.5), "largest": max(live_ages)},
        "ages": [round(age, 1) for age in ages],
        "phases": between(looks),
        "passes": passes,
    }


def _passes(paths: Paths, begin: float, end: float) -> list[dict[str, Any]]:
    """Return the passes and chunks of the run in their order; `at` counts from the group's start."""
    columns = ["finished_at", "lane", "rows", "rejects", "pass_seconds", "committed_at"]
    rows = DeltaTable(paths.metrics / "stream_batch").to_pandas(columns=columns)
    moments = [datetime.fromtimestamp(each, UTC) for each in (begin, end)]
    rows = rows[(rows["finished_at"] >= moments[0]) & (rows["finished_at"] < moments[1])]
    return [
        {
            "at": round(each["finished_at"].iloc[0].timestamp() - begin, 1),
            "lane": each["lane"].iloc[0],
            "seconds": round(float(each["pass_seconds"].iloc[0]), 2),
            "games": int(each["committed_at"].notna().sum()),
            "rows": int(each["rows"].sum() + each["rejects"].sum()),
        }
        for _, each in rows.groupby(["finished_at", "lane"])
    ]


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    lines.append(f"others on the machine, cores: {result['other_cores'] or 'nobody'}\n")
    rows = [
        [
            f"{phase['name']}, {number(phase['seconds'])} s",
            *(
                " + ".join(number(phase["cores"].get(name, {}).get(role)) for role in ("driver", "jvm", "workers"))
                for name in ("group", "ingest", "simulate")
            ),
            number(sum(sum(roles.values()) for roles in phase["cores"].values())),
        ]
        for phase in result["phases"]
    ]
    header = ["cores: driver + JVM + workers", "group", "ingest", "simulator", "sum"]
    lines += [table(header, rows), ""]
    names = sorted({name for phase in result["phases"] for name in phase["phase_seconds"]})
    rows = [
        [phase["name"], *(number(phase["phase_seconds"].get(name)) for name in names)] for phase in result["phases"]
    ]
    lines += [table(["seconds in a phase of passes", *names], rows), ""]
    rows = [
        [number(each["at"]), each["lane"], str(each["games"]), number(each["rows"]), number(each["seconds"])]
        for each in result["passes"]
    ]
    lines += [table(["passes, s after start", "lane", "games", "rows", "seconds"], rows), ""]
    lines += [f"{name.replace('_', ' ')}: {number(result[name])}" for name in _SHOWN]
    lines.append("age when live: median {median:.1f} s, largest {largest:.1f} s".format(**result["live_age_seconds"]))
    lines.append(f"completeness: {'complete' if result['completeness'].get('complete') else result['completeness']}")
    lines.append(f"{'HELD' if result['held'] else 'NOT held'}: at most {_TARGET_SECONDS:g} s are allowed")
    return "\n".join(lines)


_SHOWN: Final = (
    "missed_events",
    "missed_commits",
    "filled_in_seconds",
    "first_table_commit_seconds",
    "backlog_live_seconds",
    "all_in_run_seconds",
    "caught_up_seconds",
    "allowed_age_seconds",
)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
