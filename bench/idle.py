"""`python -m bench.idle`: what games without events cost the driver that carries them.

Two environments have the same live games; one has idle games beside them, each with a table and schemas. Their
drivers are measured in turn, as in `bench.compare`; who is not measured stands still. See docs/performance.md.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import cpu, machine
from bench.command import carry_out
from bench.compare import Contender
from bench.load import GROUP, Ended, Load, prepared, prove, write_settings
from bench.numbers import Spread, spread
from bench.text import number, table
from pipeline.base.names import game_key
from pipeline.demo.simulator import SimulationPlan, game_names
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import Paths

_TARGET_MS: Final = 0.05  # of CPU per idle game and second
_EVENTS_EACH: Final = 20  # of each game, before the windows
_MAX_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window of one driver."""

    games: int
    seconds: float
    cpu_by_role: Mapping[str, float]
    rss_mib: float
    commits: int  # of live games' tables, with rows
    other_cores: Mapping[str, float]  # of anything else on the machine, by command

    @property
    def cores(self) -> float:
        """CPU seconds per second of the driver's whole process tree."""
        return self.cores_of(None)

    def cores_of(self, role: str | None) -> float:
        """Return the CPU seconds per second of one role of `bench.cpu.by_role`, None for all."""
        return sum(used for name, used in self.cpu_by_role.items() if role in {None, name}) / self.seconds


class Fleet:
    """One environment: its traffic, its driver, and the tables of its idle games."""

    def __init__(self, load: Load, games: int, live: int) -> None:
        """Give every game a table with rows; from then on only the first `live` games have events."""
        self.load, self.games = load, games
        keys = [str(game_key(name)) for name in game_names(games, SimulationPlan().seed)]
        self.live, self._idle = keys[:live], keys[live:]
        for name, *arguments in (
            ("fill", "simulate", *_sent(games), "--events", str(games * _EVENTS_EACH)),
            ("fill-ingest", "ingest", "run", "--once"),
            ("fill-group", "groups", "run", GROUP, "--once"),
        ):
            _run_once(load.paths, name, arguments)
        if missing := [key for key in keys if not (load.paths.table(key) / "_delta_log").is_folder()]:
            raise Ended(f"{len(missing)} of {games} games got no table, first {missing[0]}")
        self._before = self._files()

    def start(self, rate: float) -> Contender:
        """Start the traffic of the live games; return the driver's process, which waits."""
        self.load.start_ingest()
        self.load.start("simulate", "simulate", *_sent(len(self.live)), "--rate", str(rate))
        return Contender("shared", self.load.paths, self.live)

    def touched(self) -> int:
        """Return how many files the idle games' folders have more or less than before, the log's entries included."""
        now = self._files()
        return sum(len(files ^ now[key]) for key, files in self._before.items())

    def _files(self) -> dict[str, set[Path]]:
        return {key: set(Path(self.load.paths.table(key)).rglob("*")) for key in self._idle}


def main() -> None:
    """Run, print and keep the result; the exit code says whether idle games cost next to nothing."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder), _report)
    sys.exit(0 if result["held"] else 1)


def turns(repeats: int) -> list[int]:
    """Return which of two is measured when: ABBA, so that whatever drifts steadily meets both alike."""
    return [each for repeat in range(repeats) for each in ((0, 1) if repeat % 2 == 0 else (1, 0))]


def cost_ms(few: Sequence[Window], many: Sequence[Window], role: str | None = None) -> list[float]:
    """Return for each pair of windows what one idle game cost, CPU milliseconds per second; of one role or of all."""
    pairs = zip(few, many, strict=True)
    return [(b.cores_of(role) - a.cores_of(role)) * 1000 / (b.games - a.games) for a, b in pairs]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=int, default=1000, help="games without events")
    parser.add_argument("--live", type=int, default=10, help="games with events")
    parser.add_argument("--rate", type=float, default=500.0, help="events per second of all live games")
    parser.add_argument("--trigger", type=float, default=5.0, help="seconds between two passes")
    parser.add_argument("--ingest-trigger", type=float, default=2.0, help="seconds")
    parser.add_argument("--warm", type=int, default=15, help="passes before the first window")
    parser.add_argument("--settle", type=int, default=3, help="passes before each window")
    parser.add_argument("--window", type=int, default=8, help="triggers in one window")
    parser.add_argument("--repeats", type=int, default=3, help="windows of each driver")
    parser.add_argument("--driver-memory", default="1g", help="heap of each driver")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    return parser.parse_args()


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    tables = {
        "ingest": {"trigger_seconds": options.ingest_trigger},
        "demux": {"trigger_seconds": options.trigger},
        "spark": {"driver_memory": options.driver_memory, "master": options.master},
    }
    with ExitStack() as stack:
        fleets = []
        for games in (options.live, options.live + options.idle):
            _say(f"making {games} games")
            load = stack.enter_context(prepared(*write_settings(root / str(games), tables)))
            fleets.append(Fleet(load, games, options.live))
        drivers = [stack.enter_context(fleet.start(options.rate)) for fleet in fleets]
        _say("warming")
        for driver in drivers:
            driver.run(options.trigger)
        for fleet, driver in zip(fleets, drivers, strict=True):
            _until_commits(fleet, driver, options.warm)
        for driver in drivers:
            driver.pause()
        windows: tuple[list[Window], list[Window]] = ([], [])
        for turn in turns(options.repeats):
            window = _window(fleets[turn], drivers[turn], options)
            windows[turn].append(window)
            _say(f"{window.games} games: {window.cores:.3f} cores")
        touched = fleets[1].touched()
        paths = [fleet.load.paths for fleet in fleets]
    proofs = [prove(each).returncode == 0 for each in paths]
    costs = spread(cost_ms(*windows))
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "held": touched == 0 and costs.median < _TARGET_MS and all(proofs),
        "idle_files_touched": touched,
        "cpu_ms_per_idle_game_and_second": asdict(costs),
        "of_that_python_driver": asdict(spread(cost_ms(*windows, role="driver"))),
        "windows": [{**asdict(each), "cores": each.cores} for pair in zip(*windows, strict=True) for each in pair],
        "completeness": "proven" if all(proofs) else "NOT proven",
    }


def _window(fleet: Fleet, driver: Contender, options: argparse.Namespace) -> Window:
    """Let one driver run alone, settle, and measure it over whole triggers."""
    driver.run(options.trigger)
    _until_commits(fleet, driver, driver.fewest_commits() + options.settle)
    time.sleep(options.trigger - time.time() % options.trigger)  # Spark's triggers lie at multiples of the interval
    commits, before, begin = _commits(driver), cpu.read_all(), time.time()
    time.sleep(options.window * options.trigger)
    after, end = cpu.read_all(), time.time()
    committed = _commits(driver) - commits
    driver.pause()
    roles = [cpu.by_role(cpu.tree(each, driver.pid), driver.pid) for each in (before, after)]
    return Window(
        games=fleet.games,
        seconds=end - begin,
        cpu_by_role={role: round(seconds - roles[0][role], 2) for role, seconds in roles[1].items()},
        rss_mib=cpu.total(cpu.tree(after, driver.pid)).rss_bytes / 2**20,
        commits=committed,
        other_cores=machine.others(before, after, end - begin, os.getpid()),
    )


def _until_commits(fleet: Fleet, driver: Contender, enough: int) -> None:
    fleet.load.until(lambda: driver.fewest_commits() >= enough, f"{enough} commits of each live game", _MAX_SECONDS)


def _commits(driver: Contender) -> int:
    driver.fewest_commits()  # reads what was committed since the last look
    return sum(1 for log in driver.logs.values() for each in log.commits if each.rows)


def _sent(games: int) -> list[str]:
    return ["--games", str(games), "--skew", "0", "--bad-share", "0"]


def _run_once(paths: Paths, name: str, arguments: Sequence[str]) -> None:
    """Run a command that ends by itself.

    Raises:
        Ended: it failed.
    """
    with Children(paths.logs) as children:
        children.start(name, turnout(*arguments, "--env-dir", str(paths.root)))
        if children.wait([name], threading.Event())[name]:
            raise Ended(f"{name} failed:\n{children.tail(name)}")


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    rows = [
        [
            f"{each['games']:,} games",
            number(each["cores"]),
            *(number(each["cpu_by_role"][role]) for role in ("driver", "jvm", "workers")),
            number(each["commits"]),
            number(each["rss_mib"]),
            " ".join(f"{name}={value}" for name, value in each["other_cores"].items()) or "nobody",
        ]
        for each in result["windows"]
    ]
    header = ["window", "cores", "driver CPU-s", "JVM CPU-s", "workers CPU-s", "commits", "RSS MiB", "others"]
    costs = Spread(**result["cpu_ms_per_idle_game_and_second"])
    lines += ["", table(header, rows), ""]
    lines.append(f"CPU-ms per idle game and second: {_exactly(costs)}, less than {_TARGET_MS:g} is the target")
    lines.append(f"of that the Python driver: {_exactly(Spread(**result['of_that_python_driver']))}")
    lines.append(f"files added or removed below idle games' tables: {result['idle_files_touched']}")
    lines.append(f"completeness: {result['completeness']}")
    lines.append("HELD" if result["held"] else "NOT held")
    return "\n".join(lines)


def _exactly(value: Spread) -> str:
    return f"{value.median:.4f} ({value.low:.4f}–{value.high:.4f})"


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
