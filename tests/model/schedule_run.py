"""Runs schedules, or one again: `python -m tests.model.schedule_run --help`. Its order of sets is always the same."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import click

from pipeline.base.failpoints import ENVIRON
from tests.model.schedule_life import Schedules, ScheduleVerdict
from tests.model.schedule_minimise import minimised, report_lines
from tests.model.schedule_mutants import MUTANTS

_BATCH: Final = 50  # schedules that a process runs before it tells
_FOLDER: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")


@dataclass
class Tally:
    """The results of some schedules."""

    schedules: int = 0
    steps: int = 0
    failed: list[tuple[int, list[str]]] = field(default_factory=list)
    points: set[str] = field(default_factory=set)

    def add(self, other: "Tally") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.failed += other.failed
        self.points |= other.points


@lru_cache(maxsize=1)
def _schedules() -> Schedules:
    return Schedules(_FOLDER)


def batch(first: int, count: int, mutant: str | None = None, focus: Sequence[str] = ()) -> Tally:
    """Run some schedules up to the first that fails."""
    tally = Tally()
    schedules = _schedules()
    schedules.code = mutant
    planted = MUTANTS[mutant] if mutant else None
    with planted.planted() if planted else nullcontext():
        for seed in range(first, first + count):
            verdict = schedules.run(seed, focus=planted.focus if planted else focus)
            tally.schedules += 1
            tally.steps += verdict.steps
            tally.points.update(point for _, point in verdict.trace)
            if verdict.problems and (planted is None or planted.is_seen(verdict.problems)):
                tally.failed.append((seed, verdict.problems))
                break
    return tally


def many(
    first: int, count: int, jobs: int, seconds: float, mutant: str | None = None, focus: Sequence[str] = ()
) -> Tally:
    """Run schedules in processes side by side until one fails, all are run or the time is over."""
    tally, end = Tally(), time.monotonic() + seconds
    if min(jobs, count / _BATCH) <= 1:
        for begin in range(first, first + count, _BATCH):
            tally.add(batch(begin, min(_BATCH, first + count - begin), mutant, focus))
            if tally.failed or time.monotonic() > end:
                break
        return tally
    waiting = iter(range(first, first + count, _BATCH))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        submitted = partial(_submitted, pool, waiting, first + count, mutant, focus)
        running: set[Future[Tally]] = {each for each in (submitted() for _ in range(jobs)) if each}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                tally.add(each.result())
            if not tally.failed and time.monotonic() <= end:
                running |= {each for each in (submitted() for _ in done) if each}
    return tally


def _submitted(
    pool: ProcessPoolExecutor, waiting: Iterator[int], end: int, mutant: str | None, focus: Sequence[str]
) -> Future[Tally] | None:
    begin = next(waiting, None)
    return None if begin is None else pool.submit(batch, begin, min(_BATCH, end - begin), mutant, focus)


def again(seed: int, mutant: str | None, focus: Sequence[str], *, shorter: bool) -> ScheduleVerdict:
    """Run one schedule again, and look for the one with the fewest switches that fails alike."""
    planted = MUTANTS[mutant] if mutant else None
    focus = planted.focus if planted else focus
    schedules = _schedules()
    schedules.code = mutant
    with planted.planted() if planted else nullcontext():
        verdict = schedules.run(seed, focus=focus)
        if verdict.problems and shorter:
            return minimised(verdict, lambda segments: schedules.run(seed, segments, focus=focus))
    return verdict


def compared(first: int, count: int, focus: Sequence[str]) -> list[str]:
    """Run schedules in memory and over the real libraries and files; return where they take another course."""
    found = []
    for seed in range(first, first + count):
        memory, disk = (_schedules().run(seed, focus=focus, in_memory=each) for each in (True, False))
        if memory.problems or disk.problems:
            found.append(f"seed {seed}: in memory {memory.problems}, on disk {disk.problems}")
        pairs = enumerate(zip(memory.trace, disk.trace, strict=False))
        parted = next((f"at {number}: {one} and {other}" for number, (one, other) in pairs if one != other), None)
        if parted or len(memory.trace) != len(disk.trace):
            found.append(f"seed {seed} takes another course {parted or 'at its end'}")
    return found


def planted(first: int, count: int, jobs: int, seconds: float) -> Iterator[tuple[str, Tally, float]]:
    """Look for each planted race but the rare ones, in processes side by side."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        submitted = {
            name: pool.submit(timed, first, count, seconds, name) for name in MUTANTS if not MUTANTS[name].is_rare
        }
        for name, future in submitted.items():
            yield name, *future.result()


def timed(
    first: int, count: int, seconds: float, mutant: str | None, jobs: int = 1, focus: Sequence[str] = ()
) -> tuple[Tally, float]:
    started = time.monotonic()
    return many(first, count, jobs, seconds, mutant, focus), time.monotonic() - started


def command(seed: int, mutant: str | None, focus: Sequence[str]) -> str:
    """Return what runs one schedule again and makes it shorter."""
    planted = f" --mutant '{mutant}'" if mutant else ""
    planted += "".join(f" --focus '{name}'" for name in focus)
    return f"python -m tests.model.schedule_run --again {seed}{planted}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=int(os.environ.get("SCHEDULES", "2000")))
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no more after these seconds")
    parser.add_argument("--mutant", choices=[*MUTANTS, "all"], help="plant this race")
    parser.add_argument(
        "--focus", action="append", default=[], help="have each schedule come to this, such as 'foreign'"
    )
    parser.add_argument("--again", type=int, metavar="SEED", help="run this one, minimise it and show its course")
    parser.add_argument("--whole", action="store_true", help="with --again: do not minimise it")
    parser.add_argument("--compare", action="store_true", help="run each over delta-rs and real files, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0" or ENVIRON in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "tests.model.schedule_run", *sys.argv[1:]], _environ())
    if given.compare:
        different = compared(given.first, given.schedules, given.focus)
        click.echo("\n".join(different))
        return 1 if different else 0
    if given.again is not None:
        verdict = again(given.again, given.mutant, given.focus, shorter=not given.whole)
        click.echo("\n".join(report_lines(verdict)))
        return 1 if verdict.problems else 0
    found = 0
    runs: Iterator[tuple[str | None, Tally, float]]
    if given.mutant == "all":
        runs = planted(given.first, given.schedules, given.jobs, given.seconds)
    else:
        one = timed(given.first, given.schedules, given.seconds, given.mutant, given.jobs, given.focus)
        runs = iter([(given.mutant, *one)])
    for mutant, tally, seconds in runs:
        found += bool(tally.failed)
        if given.json:
            summary = {"mutant": mutant, "seconds": round(seconds, 1), **asdict(tally), "points": sorted(tally.points)}
            click.echo(json.dumps(summary))
            continue
        click.echo(f"{mutant or 'schedules'}: {tally.schedules} schedules, {tally.steps} points, {seconds:.0f} s")
        for seed, problems in tally.failed[:1]:
            click.echo("  " + "\n  ".join(problems[:3]) + f"\n  again: {command(seed, mutant, given.focus)}")
    return 1 if found else 0


def _environ() -> dict[str, str]:
    """Return an environment in which a seed is one order, and fail-points write no files (700 hits a schedule)."""
    kept = {name: value for name, value in os.environ.items() if name != ENVIRON}
    return {**kept, "PYTHONHASHSEED": "0"}  # the order of sets is a part of the order of things


if __name__ == "__main__":
    sys.exit(main())
