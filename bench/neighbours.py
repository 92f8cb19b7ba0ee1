"""`python -m bench.neighbours`: what one bad game does to the latency of all the others of its group.

Quiet windows and windows in which one game is disturbed alternate in one run, so that drift cancels out. While they
run only CPU times are read; latencies are worked out afterwards from the tables' logs. See docs/performance.md.
"""

import argparse
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from deltalake import DeltaTable

from bench import cpu, machine
from bench.command import carry_out
from bench.load import GROUP, Load, arrivals, done_at, prepared, prove, write_settings
from bench.log import follow
from bench.numbers import quantile, spread
from bench.text import number, table
from listeners.quantile import quantile as bucket_quantile
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.operations import moves
from pipeline.demo.producer import write_landing
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import Event, SimulationPlan, Simulator, game_names
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.settings.tree import Paths, Settings
from pipeline.store import operations
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.games import known_games
from pipeline.store.stream_control import submit_control

QUIET: Final = "quiet"
KINDS: Final = ("poison", "hot", "restart", "move")
_OTHER: Final = "other"  # the group a game is moved to and back
_ALLOWED: Final = 1.10  # of the quiet windows' p99
_BATCH_SECONDS: Final = 0.5  # between two landing commits
_VERSIONS: Final = 5
_DRAIN_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 1.0
_MOVE_SECONDS: Final = 15.0  # no move begins so shortly before the end of its window


@dataclass(frozen=True, slots=True)
class Phase:
    """One measured window; times in Unix seconds."""

    kind: str
    begin: float
    end: float
    cores: Mapping[str, float]  # by process
    other_cores: Mapping[str, float]  # of anything else on the machine, by command


class Traffic:
    """The events of all games on a fixed schedule (open loop), with the first game disturbed when told to be.

    Poison: each of its events is one whose payload does not parse, as many as otherwise. Hot: `factor` times as many.
    """

    def __init__(self, games: int, rate: float, factor: int, ids: Mapping[tuple[str, int], int]) -> None:
        """Prepare; every game has the same share of `rate` events per second."""
        size = max(1, round(rate * _BATCH_SECONDS))
        everyone = SimulationPlan(games, _VERSIONS, skew=0.0, start_time=time.time(), step_seconds=1 / rate)
        poison = SimulationPlan(1, _VERSIONS, seed=2, bad_shares={"malformed_payload": 1.0}, start_time=time.time())
        hot = SimulationPlan(1, _VERSIONS, seed=3, start_time=time.time())
        self.victim = game_names(games, everyone.seed)[0]
        self.kind = QUIET
        self.stop = threading.Event()
        self._everyone = Simulator(everyone, ids).batches(size)
        self._poison = itertools.chain.from_iterable(Simulator(poison, ids).batches(1_000))
        self._hot = Simulator(hot, ids).batches(max(1, round((factor - 1) * size / games)))

    def batches(self) -> Iterator[list[Event]]:
        """Yield each batch when it is due, until stopped."""
        started = time.monotonic()
        for count in itertools.count():
            if self.stop.wait(max(0.0, started + count * _BATCH_SECONDS - time.monotonic())):
                return
            yield self._batch()

    def _batch(self) -> list[Event]:
        batch = next(self._everyone)
        if self.kind == "poison":
            return [next(self._poison) if event.game == self.victim else event for event in batch]
        return batch + next(self._hot) if self.kind == "hot" else batch


def main() -> None:
    """Run, print and keep the result; the exit code says whether the neighbours noticed nothing."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder / "env"), _report)
    sys.exit(0 if result["held"] and result["completeness"]["complete"] else 1)


def schedule(kinds: Sequence[str], repeats: int) -> list[str]:
    """Return the windows of a run: each disturbed one stands between two quiet ones."""
    disturbed = [kind for _ in range(repeats) for kind in kinds]
    return [each for kind in disturbed for each in (QUIET, kind)] + [QUIET]


def ratios(kinds: Sequence[str], values: Sequence[float]) -> dict[str, list[float]]:
    """Return each disturbed window's value over the mean of the quiet windows beside it, by kind.

    For the quiet ones: each over the quiet one before it, which is what noise alone does.
    """
    found: dict[str, list[float]] = {}
    for at, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        if kind != QUIET:
            found.setdefault(kind, []).append(value / ((values[at - 1] + values[at + 1]) / 2))
        elif at >= 2:
            found.setdefault(QUIET, []).append(value / values[at - 2])
    return found


def beside(kinds: Sequence[str], kind: str) -> list[int]:
    """Return the places of the quiet windows that stand beside a window of this kind."""
    return sorted({at + step for at, each in enumerate(kinds) if each == kind for step in (-1, 1)})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--rate", type=float, default=2000.0, help="events per second, each game the same share")
    parser.add_argument("--disturb", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--repeats", type=int, default=2, help="windows of each kind")
    parser.add_argument("--window", type=float, default=30.0, help="measured seconds of a window")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before each, not measured")
    parser.add_argument("--warm", type=float, default=90.0, help="seconds before the first window")
    parser.add_argument("--hot", type=int, default=50, help="how many times its own rate the hot game has")
    parser.add_argument("--restart-every", type=float, default=5.0, help="seconds between two restarts")
    parser.add_argument("--ingest-trigger", type=float, default=2.0, help="seconds")
    parser.add_argument("--trigger", type=float, default=5.0, help="seconds between two passes")
    parser.add_argument("--driver-memory", default="1g", help="heap of each driver")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    options.disturb = options.disturb.split(",")
    if unknown := set(options.disturb) - set(KINDS):
        parser.error(f"no such disturbance: {', '.join(sorted(unknown))}")
    return options


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    settings, paths = write_settings(
        root,
        {
            "ingest": {"trigger_seconds": options.ingest_trigger},
            "demux": {"trigger_seconds": options.trigger},
            "spark": {"driver_memory": options.driver_memory, "master": options.master},
            "maintenance": {"backend": "none"},  # what is measured is beside it, and it would outlive the run
        },
    )
    ids = register_samples(open_store(settings, paths), SimulationPlan(options.games, _VERSIONS))
    traffic = Traffic(options.games, options.rate, options.hot, ids)
    disturber = _Disturber(options, settings, paths, traffic)
    with prepared(settings, paths) as load, ThreadPoolExecutor(1) as pool:
        sending: Future[Any] = pool.submit(write_landing, paths.landing, traffic.batches())
        try:
            load.start_ingest()
            load.start("group", "groups", "run", GROUP)
            load.await_query(paths.checkpoints / "demux" / GROUP)
            load.until(lambda: len(known_games(disturber.engine)) >= options.games, f"{options.games} games")
            if "move" in options.disturb:  # after the games have found their group
                load.start("other", "groups", "run", _OTHER)
                load.start("controller", "controller", "run")
                load.await_query(paths.checkpoints / "demux" / _OTHER)
            _say(f"warming for {options.warm:g} s")
            disturber.hold(load, sending, time.time() + options.warm)
            phases = disturber.phases(load, sending)
        finally:
            traffic.stop.set()
        sending.result()
        _say("draining")
        load.until(lambda: not load.landing_behind() and not load.games_behind(), "end of the backlog", _DRAIN_SECONDS)
        if "move" in options.disturb:
            load.stop("controller")
            load.stop("other")
        load.stop("group")
        load.stop("ingest")
    _say("verifying")
    proof = prove(paths, "--complete")
    result = _analyse(phases, paths, str(game_key(traffic.victim)))
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "restarts": disturber.restarts,
        "moves_seconds": disturber.moves_seconds,
        **result,
        "completeness": json.loads(proof.stdout.splitlines()[-1])
        if proof.stdout
        else {"complete": False, "said": proof.stderr},
    }


class _Disturber:
    """Goes through the windows and disturbs the game.

    A restart is what `turnout pause` and then `resume` come to, without their processes: passes in between leave
    the game out, then it catches up and rejoins. How long the pause lasts is left to chance, or it would always meet
    the same part of a trigger.
    """

    def __init__(self, options: argparse.Namespace, settings: Settings, paths: Paths, traffic: Traffic) -> None:
        self.engine = open_store(settings, paths)
        self.restarts = 0
        self.moves_seconds: list[float] = []
        self._options, self._traffic = options, traffic
        self._victim = str(game_key(traffic.victim))
        self._dice = random.Random(1)

    def phases(self, load: Load, sending: "Future[Any]") -> list[Phase]:
        """Run all windows; each begins at a multiple of its length, so that all meet the same part of the triggers."""
        length = self._options.settle + self._options.window
        begin = time.time() + length - time.time() % length
        self.hold(load, sending, begin)
        found = []
        for kind in schedule(self._options.disturb, self._options.repeats):
            _say(kind)
            self._traffic.kind = kind
            self._hold(kind, load, sending, begin + self._options.settle)
            before, used = cpu.read_all(), _used(load)
            started = time.time()
            self._hold(kind, load, sending, begin + length)
            after, ended = cpu.read_all(), time.time()
            seconds = ended - started
            cores = {name: (each - used[name]) / seconds for name, each in _used(load).items()}
            found.append(Phase(kind, started, ended, cores, machine.others(before, after, seconds, os.getpid())))
            begin += length
        self._traffic.kind = QUIET
        return found

    def hold(self, load: Load, sending: "Future[Any]", until: float) -> None:
        """Wait until a moment, and see that everything still runs."""
        while (left := until - time.time()) > 0:
            load.look()
            if sending.done():
                sending.result()
            time.sleep(min(left, _LOOK_SECONDS))

    def _hold(self, kind: str, load: Load, sending: "Future[Any]", until: float) -> None:
        while kind == "restart" and time.time() < until:
            every = self._options.restart_every
            again = min(time.time() + every, until)
            submit_control(self.engine, self._victim, "bench", desired="paused")
            self.hold(load, sending, min(time.time() + every * self._dice.uniform(0.2, 0.8), again))
            submit_control(self.engine, self._victim, "bench", desired="running")
            self.restarts += 1
            self.hold(load, sending, again)
        while kind == "move" and time.time() < until - _MOVE_SECONDS:
            self._move(load, sending)
        self.hold(load, sending, until)

    def _move(self, load: Load, sending: "Future[Any]") -> None:
        """Move the game to the other group or back, as `turnout move` does, until the controller has seen it there."""
        there = read_assignments(self.engine)
        target = GROUP if there[self._victim].group == _OTHER else _OTHER
        plan = moves.plan({self._victim: target}, there, read_group_liveness(self.engine))
        submitted = operations.submit(self.engine, plan.intent("bench", ""))
        while (now := operations.operation(self.engine, submitted.operation_id)).is_open:
            self.hold(load, sending, time.time() + _LOOK_SECONDS)
        if now.state != "succeeded" or now.ended_at is None:
            raise Refused(f"A move did not succeed: {now.outcome}")
        self.moves_seconds.append(now.ended_at - now.requested_at)


def _used(load: Load) -> dict[str, float]:
    pids = {**load.pids(), "simulate": os.getpid()}
    stats = cpu.read_all()
    trees = {name: cpu.tree(stats, pid) for name, pid in pids.items() if name != "simulate"}
    trees["simulate"] = [stat for stat in stats if stat.pid == pids["simulate"]]  # its children are the others
    return {name: cpu.total(members).cpu_seconds for name, members in trees.items()}


def _analyse(phases: Sequence[Phase], paths: Paths, victim: str) -> dict[str, Any]:
    work = arrivals(Path(paths.bronze))
    logs = follow(Path(paths.table(key)) for key in work.keys)
    for log in logs.values():
        log.read()
    latency = done_at(work, {key: log.commits for key, log in logs.items()}) - work.source_at
    others = np.array([key != victim for key in work.keys])[work.game]
    arrived = [others & (work.source_at >= each.begin) & (work.source_at < each.end) for each in phases]
    samples = [latency[chosen] for chosen in arrived]
    p99 = [float(np.quantile(each, 0.99)) for each in samples]
    kinds = [each.kind for each in phases]
    reported = _reported(paths, phases, victim)
    windows = [
        {**asdict(phase), "p50_seconds": quantile(sample, 0.5), "p99_seconds": high, "items": len(sample), **said}
        for phase, sample, high, said in zip(phases, samples, p99, reported, strict=True)
    ]
    found = ratios(kinds, p99)
    by_kind: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(each for each in kinds if each != QUIET):
        calm = float(np.quantile(np.concatenate([samples[at] for at in beside(kinds, kind)]), 0.99))
        mine = [sample for each, sample in zip(kinds, samples, strict=True) if each == kind]
        loud = float(np.quantile(np.concatenate(mine), 0.99))
        by_kind[kind] = {
            "quiet_p99_seconds": calm,
            "disturbed_p99_seconds": loud,
            "ratio": loud / calm,
            "ratio_of_windows": asdict(spread(found[kind])),
        }
    return {
        "held": all(each["ratio"] <= _ALLOWED for each in by_kind.values()),
        "kinds": by_kind,
        "noise": asdict(spread(found[QUIET])),
        "windows": windows,
    }


def _reported(paths: Paths, phases: Sequence[Phase], victim: str) -> list[dict[str, Any]]:
    """Return what the passes' reports say of each window: the others' p99, and what became of the disturbed game."""
    columns = ["finished_at", "game_key", "lane", "rows", "rejects", "latency_counts", "pass_seconds"]
    rows = DeltaTable(paths.metrics / "stream_batch").to_pandas(columns=columns)
    found = []
    for phase in phases:
        begin, end = (datetime.fromtimestamp(each, UTC) for each in (phase.begin, phase.end))
        inside = rows[(rows["finished_at"] >= begin) & (rows["finished_at"] < end)]
        mine, others = inside[inside["game_key"] == victim], inside[inside["game_key"] != victim]
        counts = [sum(each) for each in zip(*others["latency_counts"], strict=True)]
        passes = others[others["lane"] == "RUN"].drop_duplicates("finished_at")["pass_seconds"].tolist()
        found.append(
            {
                "told_p99_seconds": bucket_quantile(counts, 0.99) if counts else None,
                "pass_seconds_p50": quantile(passes, 0.5),
                "passes": len(passes),
                "others_in_run": float((others["lane"] == "RUN").mean()) if len(others) else None,
                "disturbed_game": {
                    "rows": int(mine["rows"].sum()),
                    "rejects": int(mine["rejects"].sum()),
                    **{lane: int(count) for lane, count in mine["lane"].value_counts().items()},
                },
            }
        )
    return found


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    header = ["window", "p50 s", "p99 s", "p99 told", "pass s", "in RUN", "group cores", "all", "its game", "others"]
    rows = [
        [
            each["kind"],
            *(number(each[name]) for name in _SHOWN),
            number(each["cores"]["group"]),
            number(sum(each["cores"].values())),
            " ".join(f"{name}={value}" for name, value in each["disturbed_game"].items()),
            " ".join(f"{name}={value}" for name, value in each["other_cores"].items()) or "nobody",
        ]
        for each in result["windows"]
    ]
    lines += ["", table(header, rows), ""]
    rows = [
        [
            kind,
            number(each["quiet_p99_seconds"]),
            number(each["disturbed_p99_seconds"]),
            f"{each['ratio']:.3f}",
            "{median:.3f} ({low:.3f}–{high:.3f})".format(**each["ratio_of_windows"]),
        ]
        for kind, each in result["kinds"].items()
    ]
    noise = "{median:.3f} ({low:.3f}–{high:.3f})".format(**result["noise"])
    rows.append(["quiet against quiet", "-", "-", "-", noise])
    lines.append(table(["p99 of the others", "quiet s", "disturbed s", "ratio", "of single windows"], rows))
    lines.append(f"restarts: {result['restarts']}")
    moved = [f"{each:.1f}" for each in result["moves_seconds"]]
    lines.append(f"seconds of each move until it was seen: {', '.join(moved) or 'none'}")
    lines.append(f"completeness: {'complete' if result['completeness'].get('complete') else result['completeness']}")
    lines.append(f"{'HELD' if result['held'] else 'NOT held'}: at most {_ALLOWED:g} is allowed")
    return "\n".join(lines)


_SHOWN: Final = ("p50_seconds", "p99_seconds", "told_p99_seconds", "pass_seconds_p50", "others_in_run")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
