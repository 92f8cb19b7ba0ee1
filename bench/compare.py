"""`python -m bench.compare`: the shared pass and the classic layout on one bronze table, in one run.

Each contender is a process of its own. All are warmed by the same number of table commits, then measured in turn,
in an order that rotates from repeat to repeat; those not measured stand still. See docs/performance.md.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import contender, cpu, machine, window
from bench.command import carry_out
from bench.load import Arrivals, Ended, Load, Wanted, arrivals, prepared, prove, write_settings
from bench.log import Commit, follow
from bench.numbers import Spread
from pipeline.settings.tree import Paths, Settings

_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 600.0  # a contender's queries end their micro-batches first
_SETTLE_TRIGGERS = 12  # most triggers to wait for a contender to catch up before a window


def main() -> None:
    """Measure, print and keep the result."""
    options = _options()
    carry_out(options, lambda folder: _run(options, folder / "env"), _report)


class Contender:
    """One contender's process and its tables."""

    def __init__(self, kind: str, paths: Paths, keys: Sequence[str]) -> None:
        """Start the process; it waits until `run`."""
        self.kind = kind
        self.logs = follow(contender.tables(kind, paths) / key for key in keys)
        self._log = paths.logs / f"contender-{kind}.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.contender", kind, str(paths.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.warm_commits = 0

    def __enter__(self) -> Self:
        """Begin; the process ends with the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and everything below it."""
        for member in cpu.tree(cpu.read_all(), self.pid):
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(member.pid, signal.SIGKILL)
        self._process.wait()

    def run(self, trigger: float) -> None:
        """Let it run with `trigger` seconds between two micro-batches."""
        self._send(f"run {trigger}")

    def pause(self) -> None:
        """Let it end its work and stand still.

        Raises:
            Ended: it ended by itself.
        """
        self._process.terminate()
        try:
            while (said := self._said.get(timeout=_PAUSE_SECONDS)) != contender.STOPPED:
                if not said:
                    raise Ended(self._end())
        except queue.Empty:
            raise Ended(f"{self.kind} does not stop. {self._end()}") from None

    def fewest_commits(self) -> int:
        """Return the number of table commits with rows of the game that has the fewest, since the start."""
        if self._process.poll() is not None:
            raise Ended(self._end())
        for log in self.logs.values():
            log.read()
        return min(sum(1 for each in log.commits if each.rows) for log in self.logs.values())

    def lag_seqs(self, last_seqs: Mapping[str, int]) -> int:
        """Return how many bronze commits the table that is furthest behind lacks; `last_seqs` is by game."""
        reach = {key: max((each.seq_to or 0 for each in log.commits), default=0) for key, log in self.logs.items()}
        return max(last_seqs[key] - seq for key, seq in reach.items())

    def _send(self, word: str) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            raise Ended(self._end())
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            self._said.put(line.strip() or " ")
        self._said.put("")

    def _end(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return f"{self.kind} ended:\n" + "\n".join(lines[-25:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=30)
    parser.add_argument("--rate", type=float, default=1000.0, help="events per second")
    parser.add_argument("--trigger", type=float, default=10.0, help="seconds between micro-batches, for all")
    parser.add_argument("--ingest-trigger", type=float, help="seconds between bronze commits; as --trigger unless told")
    parser.add_argument("--contenders", default="tuned,shared", help=f"some of {','.join(contender.KINDS)}")
    parser.add_argument("--warm", type=int, default=60, help="table commits per game before the first window")
    parser.add_argument("--warm-trigger", type=float, help="the same while warming; as --trigger unless told")
    parser.add_argument("--warm-minutes", type=float, default=30.0, help="longest warm-up")
    parser.add_argument("--settle", type=int, default=5, help="table commits per game before each window")
    parser.add_argument("--window", type=int, default=9, help="triggers in one window")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--driver-memory", default="4g", help="heap of each contender")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    options.contenders = options.contenders.split(",")
    if unknown := set(options.contenders) - set(contender.KINDS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}")
    return options


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    settings, paths = write_settings(
        root,
        {
            "ingest": {"trigger_seconds": options.ingest_trigger or options.trigger},
            "demux": {"trigger_seconds": options.trigger},
            "spark": {"driver_memory": options.driver_memory, "master": options.master},
        },
    )
    wanted = Wanted(options.games, options.rate)
    with prepared(settings, paths) as load, ExitStack() as stack:
        load.start_ingest()
        keys = load.send(wanted)
        (root / "games.json").write_text(json.dumps(keys), "utf-8")
        entrants = [stack.enter_context(Contender(kind, paths, keys)) for kind in options.contenders]
        _say(f"warming {', '.join(options.contenders)}: {options.warm} commits per game")
        _warm(entrants, load, options)
        near = round(2 * options.trigger / settings.ingest.trigger_seconds) + 1  # bronze commits of two triggers
        windows = []
        for repeat in range(options.repeats):
            turn = repeat % len(entrants)
            for entrant in entrants[turn:] + entrants[:turn]:
                windows.append(_window(entrant, load, options, near))
                _say(f"window of {entrant.kind}: {json.dumps(asdict(windows[-1]))}")
        result = _result(options, settings, entrants, windows, arrivals(Path(paths.bronze)))
    if "shared" in options.contenders:
        result["completeness"] = "proven" if prove(paths).returncode == 0 else "NOT proven"
    return result


def _warm(entrants: Sequence[Contender], load: Load, options: argparse.Namespace) -> None:
    """Run all at once until each has its commits; who has them stands still."""
    for entrant in entrants:
        entrant.run(options.warm_trigger or options.trigger)
    waiting = list(entrants)
    deadline = time.monotonic() + options.warm_minutes * 60
    while waiting:
        time.sleep(_LOOK_SECONDS)
        load.look()
        for entrant in list(waiting):
            entrant.warm_commits = entrant.fewest_commits()
            if entrant.warm_commits >= options.warm or time.monotonic() > deadline:
                _say(f"{entrant.kind} has {entrant.warm_commits} commits per game")
                entrant.pause()
                waiting.remove(entrant)


def _window(entrant: Contender, load: Load, options: argparse.Namespace, near: int) -> window.Window:
    """Let one contender run alone, settle, and measure it over whole triggers."""
    settled = _settle(entrant, load, options, near)
    time.sleep(options.trigger - time.time() % options.trigger)  # Spark's triggers lie at multiples of the interval
    before, begin = cpu.read_all(), time.time()
    time.sleep(options.window * options.trigger)
    after, end = cpu.read_all(), time.time()
    tree = cpu.tree(after, entrant.pid)
    roles = [cpu.by_role(cpu.tree(each, entrant.pid), entrant.pid) for each in (before, after)]
    load_seconds = sum(_used(before, after, pid) for pid in load.pids().values())
    entrant.pause()
    return window.Window(
        contender=entrant.kind,
        begin=begin,
        end=end,
        cpu_seconds=_used(before, after, entrant.pid),
        cpu_by_role={role: round(seconds - roles[0][role], 2) for role, seconds in roles[1].items()},
        rss_mib=cpu.total(tree).rss_bytes / 2**20,
        threads=cpu.total(tree).threads,
        load_cores=load_seconds / (end - begin),
        other_cores=machine.others(before, after, end - begin, os.getpid()),
        settled=settled,
    )


def _settle(entrant: Contender, load: Load, options: argparse.Namespace, near: int) -> bool:
    """Let a contender run until it has caught up and worked a few triggers more; return whether it has in time."""
    enough = entrant.fewest_commits() + options.settle
    entrant.run(options.trigger)
    deadline = time.monotonic() + _SETTLE_TRIGGERS * options.trigger
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        load.look()
        if entrant.fewest_commits() >= enough and entrant.lag_seqs(load.last_seqs()) <= near:
            return True
    return False


def _used(before: Sequence[cpu.ProcessStat], after: Sequence[cpu.ProcessStat], root: int) -> float:
    return cpu.total(cpu.tree(after, root)).cpu_seconds - cpu.total(cpu.tree(before, root)).cpu_seconds


def _result(
    options: argparse.Namespace,
    settings: Settings,
    entrants: Sequence[Contender],
    windows: Sequence[window.Window],
    work: Arrivals,
) -> dict[str, Any]:
    contenders = {}
    for entrant in entrants:
        entrant.fewest_commits()  # reads what was committed since the last look
        commits = {key: log.commits for key, log in entrant.logs.items()}
        own = [each for each in windows if each.contender == entrant.kind]
        measured = [window.measure(each, commits, work, options.trigger) for each in own]
        contenders[entrant.kind] = {
            "configuration": contender.configuration(entrant.kind, settings),
            "warm_commits_per_game": entrant.warm_commits,
            "summary": window.as_json(window.summarise(measured)),
            "windows": [{**asdict(a), **asdict(b)} for a, b in zip(own, measured, strict=True)],
            "exact_tables": None if entrant.kind == "shared" else _exact(commits, work),
        }
    given = {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}}
    return {"machine": machine.describe(), "options": given, "contenders": contenders}


def _exact(commits: Mapping[str, Sequence[Commit]], work: Arrivals) -> int:
    """Return how many of the classic tables hold just the rows that bronze has for them."""
    count = 0
    for number, key in enumerate(work.keys):
        mine = work.game == number
        count += window.exact(commits.get(key, ()), work.seq[mine].tolist(), work.rows[mine].tolist())
    return count


def _report(result: Mapping[str, Any]) -> str:
    """Return the whole result as text, configurations included."""
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    summaries = {}
    for kind, found in result["contenders"].items():
        lines.append(f"\n{kind}: warmed by {found['warm_commits_per_game']} table commits per game")
        lines += [f"  {name} = {value}" for name, value in found["configuration"].items()]
        for each in found["windows"]:
            others = each["other_cores"] or "nobody"
            lines.append(
                f"  window: {each['cpu_by_role']} CPU-s, load {each['load_cores']:.2f} cores, "
                f"others: {others}, caught up before: {each['settled']}"
            )
        if found["exact_tables"] is not None:
            lines.append(f"  tables that hold just what bronze has for them: {found['exact_tables']}")
        summary = found["summary"]
        summaries[kind] = {name: None if each is None else Spread(**each) for name, each in summary.items()}
    lines += ["", window.render_summaries(summaries)]
    if "completeness" in result:
        lines.append(f"\ncompleteness of the shared pass: {result['completeness']}")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
