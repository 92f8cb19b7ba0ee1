"""`python -m bench.driver`: the CPU of a group driver's Python process, without Spark: what a pass and a second cost.

A real group works on real tables; only the tasks are missing: their reports are prepared, with a data file of each game
that moves, and so is ingest. The other games of the group are idle. See docs/performance.md.
"""

import argparse
import json
import os
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer

from bench import machine
from bench.command import carry_out
from bench.load import GROUP, write_settings
from bench.numbers import Spread, spread
from bench.text import table
from listeners.process_kinds import GROUP as KIND
from pipeline.base.names import bronze_app_id, game_key
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.streams.demux import Demux
from pipeline.data.streams.group import Group
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.watchdog import Watchdog
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.data.streams.writing.job import SplitJob
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import SimulationPlan, family, game_names
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.processes.drivers import heartbeat, record_commit, start_driver
from pipeline.store.processes.leases import leased
from pipeline.telemetry.driver import Telemetry

_VERSIONS: Final = 5  # of each game's schema
_ROWS: Final = 27  # of a game in a pass
_IN_A_SECOND: Final = 2  # rounds of catch-up, and of the driver's loop
_STEPS: Final[tuple[tuple[type, str], ...]] = (
    (Roster, "sync"), (Roster, "for_pass"), (Roster, "settle"), (Roster, "end_pass"),
    (Passes, "_ahead_of_source"), (Passes, "_split"), (Passes, "_commits"), (Demux, "_end_pass"),
)  # fmt: skip
"""What the pass's own thread does, by step."""


class Prepared:
    """The rows of a pass: what its tasks report is made before."""

    count = None

    def __init__(self, report: str) -> None:
        """Take the tasks' report."""
        self._report = report

    def split(self, job: SplitJob) -> list[Any]:
        """Pack the job as Spark does for its tasks; return their report."""
        CloudPickleSerializer().dumps(job)
        return [SimpleNamespace(report=self._report)]


class Driven:
    """One environment with its group's driver, all of whose games have a table; `go` runs a pass."""

    def __init__(self, stack: ExitStack, settings: Settings, paths: Paths, games: int, moving: int) -> None:
        """Register schemas, and give each game its table."""
        self._paths, self._engine = paths, open_store(settings, paths)
        register_group(self._engine, GROUP, placing())
        self._names = {str(game_key(name)): name for name in game_names(games, SimulationPlan().seed)}
        self._moving = list(self._names)[:moving]
        LocalRegistry(self._engine, paths.bronze).register_many(
            Registration(name, *payload_schema(family(name), version))
            for version in range(1, _VERSIONS + 1)
            for name in self._names.values()
        )
        self._bronze = CursorTable.create(paths.bronze, BRONZE, bronze_app_id(settings.environment))
        self._seq, self._last = 0, dict.fromkeys(self._names, 0)
        self.rows = dict.fromkeys(self._names, 0)
        record_seen(self._engine, self._names, 0, placing())
        lease = stack.enter_context(leased(self._engine, settings.store, KIND, GROUP))
        self.telemetry = Telemetry(settings.metrics, paths, KIND, GROUP, works_here=True)
        stack.callback(self.telemetry.close)
        start_driver(self._engine, KIND, GROUP, self.telemetry.address)
        context = SimpleNamespace(setLocalProperty=lambda *_: None, getLocalProperty=lambda _: "run")
        spark: Any = SimpleNamespace(sparkContext=context)
        self.group = Group(spark, settings, paths, self._engine, GROUP, self._passed, lease)
        stack.callback(self.group.stop)
        self._watchdog = Watchdog(settings, self._engine, self.group, self.telemetry.states)
        self._sample = self._data_file()
        batches: Any = SimpleNamespace(rows=lambda rows, _batch_id: rows)
        self.group._shared._batches = batches
        self.land(list(self._names))
        self.go()
        # It knows of no rows, as after the five minutes for which an idle game's numbers still change.
        self._watchdog = Watchdog(settings, self._engine, self.group, self.telemetry.states)
        for _ in range(3):
            self.land()
            self.go()
            self.report()

    def land(self, keys: Sequence[str] = ()) -> None:
        """Be ingest, and the tasks of the pass over its commit."""
        keys = keys or self._moving
        seq, now = self._seq + 1, time.time()
        self._bronze.commit([], self._seq or None, seq)
        record_commit(self._engine, seq, len(keys) * _ROWS, 0, now - 1)
        record_seen(self._engine, {key: self._names[key] for key in keys}, seq, placing())
        found = {key: self._report_of(key, seq, now) for key in keys}
        report = {"seq_from": seq, "seq_to": seq, "games": found, "refused": None, "seconds": {"decode": 0.1}}
        self._rows = Prepared(msgspec.json.encode(report).decode())
        for key in keys:
            self._last[key] = seq
            self.rows[key] += _ROWS
        self._seq = seq

    def go(self) -> None:
        """Run the pass, and publish its result."""
        rows: Any = self._rows
        self.group._shared._batch(rows, self._seq)
        self._drain()

    def report(self) -> None:
        """Send a heartbeat."""
        self.telemetry.tick(0)
        heartbeat(self._engine, KIND, GROUP, "running", self.group.frontier_seq, None, 1)
        self._watchdog.evaluate(active=True)
        self._drain()

    def look(self) -> None:
        """Do what the driver does in a second beside passes: look for games that are behind, and for own queries."""
        for _ in range(_IN_A_SECOND):
            self.group.catch_up(2.0)
            self.group.sync_queries()
        self.group.bronze_head()

    def scrape(self) -> None:
        """Ask for /metrics."""
        with urllib.request.urlopen(f"http://{self.telemetry.address}/metrics") as answer:
            answer.read()

    def check(self) -> None:
        """Read tables as another reader does.

        Raises:
            RuntimeError: one of them has other rows.
        """
        for key in [*self._moving[:5], *self._moving[-5:], *list(self._names)[-5:]]:
            held = open_table(self._paths.table(key)).to_pyarrow_table(columns=["_seq"]).num_rows
            if held != self.rows[key]:
                raise RuntimeError(f"{key} has {held} rows, not {self.rows[key]}")

    def _passed(self, result: Any) -> None:
        self._watchdog.passed(result)
        self.telemetry.passed(result)
        self.telemetry._joiner._patience_seconds = -1.0  # Spark's progress comes at once

    def _drain(self) -> None:
        """Wait until the outbox has published all there is."""
        done = threading.Event()
        outbox = self.telemetry._outbox
        publish = outbox._publish
        end: Any = object()

        def last(item: Any) -> None:
            if item is end:
                outbox._publish = publish
                done.set()
            else:
                publish(item)

        outbox._publish = last
        outbox.offer(end)
        done.wait()

    def _data_file(self) -> tuple[Path, DataFile]:
        nulls = [pa.nulls(_ROWS, each.type) for each in OWN_COLUMNS]
        rows = pa.table(nulls, schema=OWN_COLUMNS).set_column(0, OWN_COLUMNS.field(0), pa.array(range(_ROWS)))
        folder = self._paths.root / "sample"
        file = write_file(rows, located(folder), ["_seq"])
        return folder / file.path, file

    def _report_of(self, key: str, seq: int, now: float) -> dict[str, Any]:
        path, file = self._sample
        name = f"part-{seq:08}-0000-4000-8000-{self._seq:012}.parquet"
        folder = Path(self._paths.table(key))
        folder.mkdir(parents=True, exist_ok=True)
        os.link(path, folder / name)
        span = {"_seq": seq}
        stats = {"numRecords": _ROWS, "minValues": span, "maxValues": span, "nullCount": {}}
        return {
            "links": [[seq, self._last[key]]], "arrivals": [[seq, _ROWS, now - 1.9, now - 1.0, 3.0, _ROWS]],
            "files": [{"path": name, "size": file.size, "rows": _ROWS, "stats": json.dumps(stats)}],
            "rejects": {}, "types": {"sample.game.v1.Event": [_ROWS, 0]}, "error": None, "needs": [],
        }  # fmt: skip


class Clock:
    """CPU microseconds of this process, by what it did."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.steps: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count a block, with all threads."""
        before = time.process_time_ns()
        yield
        self.spent[name].append((time.process_time_ns() - before) / 1000)

    @contextmanager
    def of_pass(self) -> Iterator[None]:
        """Count a pass, each thread and each step of its own one."""
        self.steps.clear()
        threads = _threads()
        with self.of("pass"):
            yield
        for name, used in _threads().items():
            self.spent[f"pass, thread {name}"].append(used - threads.get(name, 0.0))
        for name, used in self.steps.items():
            self.spent[f"pass, step {name}"].append(used)

    def stepped(self, owner: type, name: str) -> Any:
        """Return a patch by which a step of the pass's thread is counted."""
        step: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            before = time.thread_time_ns()
            try:
                return step(*arguments, **named)
            finally:
                self.steps[name.strip("_")] += (time.thread_time_ns() - before) / 1000

        return patch.object(owner, name, counted)


def _threads() -> dict[str, float]:
    """Return the CPU microseconds of the threads so far, by the first word of their names."""
    used: dict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        if thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            used[thread.name.partition("_")[0].partition("-")[0]] += time.clock_gettime_ns(clock) / 1000
    return dict(used)


def measure(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Run the rounds and return all numbers; a round is one second of a driver whose passes begin each second."""
    tables = {"demux": {"trigger_seconds": 1.0, "checkpoint_interval": options.checkpoint_interval}}
    clock = Clock()
    with ExitStack() as stack:
        settings, paths = write_settings(root / "environment", tables)
        driven = Driven(stack, settings, paths, options.games, options.moving)
        driven.telemetry._tables.close(60.0)  # its thread ends: this one flushes
        for owner, name in _STEPS:
            stack.enter_context(clock.stepped(owner, name))
        for number in range(1, options.passes + 1):
            driven.land()
            with clock.of_pass():
                driven.go()
            with clock.of("looks of a second"):
                driven.look()
            if number % round(settings.metrics.heartbeat_seconds) == 0:
                with clock.of("heartbeat"):
                    driven.report()
            if number % round(settings.metrics.flush_seconds) == 0:
                with clock.of("flush of metrics tables"):
                    driven.telemetry._tables.flush()
                with clock.of("scrape"):
                    driven.scrape()
        driven.check()
    spent = {name: spread(values) for name, values in clock.spent.items()}
    every = {"heartbeat": settings.metrics.heartbeat_seconds, "flush of metrics tables": settings.metrics.flush_seconds}
    second = sum(spent[name].median / every.get(name, 1.0) for name in ("pass", "looks of a second", *every))
    return {
        "machine": machine.describe(),
        "load": machine.load_average(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "microseconds": {name: asdict(each) for name, each in spent.items()},
        "second": second,
    }


def _report(result: Mapping[str, Any]) -> str:
    games, moving = int(result["options"]["games"]), int(result["options"]["moving"])
    spent = {name: Spread(**each) for name, each in result["microseconds"].items()}
    rows = [
        [name, f"{each.median / 1000:.1f}", f"{each.low / 1000:.1f}", f"{each.high / 1000:.1f}",
         f"{each.median / games:.1f}"]
        for name, each in spent.items()
    ]  # fmt: skip
    lines = [f"{games} games, {moving} of which move; load {result['load']:.1f}", ""]
    lines.append(table(["CPU", "median ms", "least", "most", "µs a game"], rows))
    second = result["second"]
    lines += ["", f"a second of the driver: {second / 1000:.1f} ms, {second / games:.1f} µs a game"]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.driver", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--moving", type=int, default=300, help="games with rows in each pass")
    parser.add_argument("--passes", type=int, default=40)
    parser.add_argument("--checkpoint-interval", type=int, default=20)
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    carry_out(options, lambda root: measure(options, root), _report)


if __name__ == "__main__":
    sys.exit(main())
