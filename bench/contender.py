"""One contender in a process of its own: runs when told to on standard input, until SIGTERM, then waits again.

Started by `bench.compare`. Between two runs the process keeps its JVM, so that what was warm stays warm.
"""

import argparse
import json
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import classic
from bench.load import GROUP
from pipeline import wiring
from pipeline.platforms.local.signals import stop_on_signals
from pipeline.platforms.session.spark import TUNED, spark_session
from pipeline.settings.tree import Paths, Settings, load

KINDS: Final = ("shared", "tuned", "stock")
STOPPED: Final = "contender stopped"


def configuration(kind: str, settings: Settings) -> dict[str, str]:
    """Return the Spark settings a contender runs with."""
    own = {"master": settings.spark.master, "driver memory": settings.spark.driver_memory}
    return {**own, **(classic.STOCK if kind == "stock" else {**TUNED, **settings.spark.conf})}


def tables(kind: str, paths: Paths) -> Path:
    """Return the folder of a contender's game tables."""
    return Path(paths.tables if kind == "shared" else home(kind, paths) / "tables")


def home(kind: str, paths: Paths) -> Path:
    """Return the folder of a classic contender's state."""
    return paths.root / f"classic-{kind}"


def main() -> None:
    """Serve `run` commands until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("env_dir", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    settings, paths = load(arguments.env_dir, {})
    run = _shared(settings, paths) if arguments.kind == "shared" else _classic(arguments.kind, settings, paths)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)  # too late a request to stop must not end us
    for line in sys.stdin:
        word, _, trigger = line.strip().partition(" ")
        if word == "run":
            run(float(trigger))
            print(STOPPED, flush=True)


def _shared(settings: Settings, paths: Paths) -> Callable[[float], object]:
    def run(trigger: float) -> None:
        code = wiring.run_group(_with(settings, trigger), paths, GROUP, once=False)
        if code:
            sys.exit(code)

    return run


def _with(settings: Settings, trigger: float) -> Settings:
    return replace(settings, demux=replace(settings.demux, trigger_seconds=trigger))


def _classic(kind: str, settings: Settings, paths: Paths) -> Callable[[float], object]:
    place = home(kind, paths)
    keys = json.loads((paths.root / "games.json").read_text("utf-8"))
    spark = classic.stock_session(settings, place) if kind == "stock" else spark_session(settings, paths, "bench-tuned")
    return lambda trigger: classic.run(spark, _with(settings, trigger), paths, place, keys, stop_on_signals())


if __name__ == "__main__":
    main()
