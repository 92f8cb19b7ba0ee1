"""A driver's telemetry: one publishing path from events and results to Prometheus and the metrics tables.

Everything here happens beside the streams: losing all of it never touches one.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from listeners.events import Progressed, QueryEvent
from listeners.join import Joiner, Pass
from listeners.metrics_table import MetricsTables
from listeners.minutes.fold import Minutes
from listeners.otlp.sender import read_headers, send
from listeners.outbox import Outbox
from listeners.periodic import PeriodicSender
from listeners.process_cpu import TreeCpu
from listeners.process_kinds import labels_of
from listeners.prometheus import Exposition, push, serve
from listeners.sample import CpuUse, GroupSample, PassResult, StatusEvent, StreamState, progress_from_json
from pipeline.base.errors import Refused
from pipeline.base.private_files import PUBLIC, write_file
from pipeline.settings.tree import Metrics, Paths

_CAPACITY = 10_000
_PATIENCE_SECONDS = 30.0  # a pass's longest wait for Spark's progress of it
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _States:
    """One evaluation of a group's streams."""

    states: Sequence[StreamState]


@dataclass(frozen=True, slots=True)
class _Landed:
    """One commit to bronze."""

    at: float
    rows: int
    refused: int


@dataclass(frozen=True, slots=True)
class _Alive:
    """A heartbeat; minutes end also while nothing else happens."""

    source_backlog_seconds: float | None


_Item = CpuUse | QueryEvent | PassResult | Pass | StatusEvent | GroupSample | _States | _Landed | _Alive


class Telemetry:
    """The outbox of one driver and its sinks."""

    def __init__(
        self,
        settings: Metrics,
        paths: Paths,
        kind: str,
        name: str,
        *,
        has_source: bool = False,
        works_here: bool = False,
    ) -> None:
        """Start reporting: serve /metrics on loopback by default, write metrics tables, push and send if configured.

        With `has_source` the minutes have what waits in the source. With `works_here` all that works for the driver
        is below this process, whose CPU time then is that of its work.

        Raises:
            Refused: the address for /metrics, or the headers for OTLP, cannot be used.
        """
        headers = otlp_headers(settings)
        registry = CollectorRegistry()
        self.exposition = Exposition(registry)
        try:
            port, self._stop_serving = serve(registry, settings.bind)
        except (OSError, ValueError) as error:
            raise Refused(f"{error}. The setting is metrics.bind.") from error
        self._tables = MetricsTables(paths.metrics, f"{kind}-{name}")
        self._tables.start(settings.flush_seconds)
        self.address = f"{settings.bind}:{port}"
        self._target = paths.target(kind, name)
        write_target(self._target, self.address, labels_of(kind, name))
        self._pushers: list[PeriodicSender] = []
        if settings.push_gateway:
            self._pushers.append(push(registry, settings.push_gateway, "turnout", {"kind": kind, "name": name}))
        if settings.otlp_endpoint:
            labels = labels_of(kind, name)
            at, instance = settings.otlp_endpoint, f"{kind}-{name}"
            self._pushers.append(send(registry.collect, at, headers, instance, labels, counts_since=time.time()))
        self._joiner = Joiner(_PATIENCE_SECONDS)
        self._minutes, self._cpu = Minutes(kind, name, is_whole=works_here), TreeCpu()
        self._has_source = has_source
        self._kind, self._name, self._process = kind, name, uuid.uuid4().hex
        self._outbox: Outbox[_Item] = Outbox(_CAPACITY, self._publish)

    def event(self, event: QueryEvent) -> None:
        """Enqueue an event of the listener."""
        self._outbox.offer(event)

    def passed(self, result: PassResult) -> None:
        """Enqueue the result of a pass; it is published with Spark's progress of the same micro-batch."""
        self._outbox.offer(result)

    def caught_up(self, result: PassResult) -> None:
        """Enqueue the result of a catch-up chunk, which has no progress."""
        self._outbox.offer(Pass(result, None))

    def states(self, states: Sequence[StreamState], changes: Sequence[StatusEvent], sample: GroupSample) -> None:
        """Enqueue an evaluation of all streams of a group."""
        self.exposition.set_states(states)
        self.exposition.set_heartbeat(sample.group, sample.at)
        for change in changes:
            self._outbox.offer(change)
        self._outbox.offer(sample)
        self._outbox.offer(_States(tuple(states)))

    def landed(self, at: float, rows: int, refused: int) -> None:
        """Enqueue a commit to bronze (at: Unix seconds): its rows, of which some were refused."""
        self._outbox.offer(_Landed(at, rows, refused))

    def tick(self, listener_errors: int) -> None:
        """Update the numbers about the process and its telemetry; called with every heartbeat."""
        use = self._cpu.look(time.time())
        self.exposition.set_self(
            events_dropped=self._outbox.dropped,
            listener_errors=listener_errors + self._outbox.failures,
            outbox_items=len(self._outbox),
            flush_failures=self._tables.flush_failures,
            push_failures=sum(each.failures for each in self._pushers) if self._pushers else None,
            cpu_seconds=self._cpu.total,
        )
        if use is not None:
            self._outbox.offer(use)
        self._tables.add(self.exposition.sample(self._kind, self._name, self._process, time.time()))
        self._outbox.offer(_Alive(None))

    def waiting(self, source_backlog_seconds: float | None) -> None:
        """Enqueue the age of the oldest row that waits in the source; None: unknown."""
        self._outbox.offer(_Alive(source_backlog_seconds))

    def close(self) -> None:
        """Publish the queue, write the tables, and remove the process from Prometheus's list."""
        self._outbox.close(_CLOSE_SECONDS)
        for report in self._joiner.release():
            self._publish_pass(report)
        if (use := self._cpu.look(time.time())) is not None:
            self._minutes.add_cpu(use)
        for row in self._minutes.release():
            self._tables.add(row)
        self._tables.close(_CLOSE_SECONDS)
        remove_target(self._target, self.address)
        for each in self._pushers:
            each.stop()
        self._stop_serving()

    def _publish(self, item: _Item) -> None:
        now = time.time()
        self._fold(item, now)
        match item:
            case PassResult():
                ready = self._joiner.add_result(item, now)
            case Progressed():
                progress = progress_from_json(item.json)
                self.exposition.add_progress(progress)
                ready = self._joiner.add_progress(progress, now)
            case Pass():
                ready = [item]
            case StatusEvent() | GroupSample():
                self._tables.add(item)
                ready = self._joiner.expire(now)
            case _:
                ready = self._joiner.expire(now)
        for report in ready:
            self._publish_pass(report)

    def _fold(self, item: _Item, now: float) -> None:
        """Add the item to its minute, and the minutes that have ended to the tables."""
        match item:
            case PassResult():
                self._minutes.add_pass(item, now)
            case Pass():
                self._minutes.add_pass(item.result, now)
            case _States():
                self._minutes.add_states(item.states, now)
            case _Landed():
                self._minutes.add_landed(item.at, item.rows, item.refused, now)
            case CpuUse():
                self._minutes.add_cpu(item)
            case _Alive() if self._has_source:
                self._minutes.add_heartbeat(item.source_backlog_seconds, now)
            case _:
                pass
        for row in self._minutes.close(now):
            self._tables.add(row)

    def _publish_pass(self, report: Pass) -> None:
        self._tables.add(report)
        self.exposition.add_pass(report)


def write_target(file: Path, address: str, labels: Mapping[str, str]) -> None:
    """Write the target file for Prometheus's file discovery, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps([{"targets": [address], "labels": dict(labels)}]), PUBLIC)


def remove_target(file: Path, address: str) -> None:
    """Remove the file unless a successor has replaced it."""
    with suppress(FileNotFoundError):
        if json.loads(file.read_text("utf-8"))[0]["targets"] == [address]:
            file.unlink()


def otlp_headers(settings: Metrics) -> dict[str, str]:
    """Return the headers for the OTLP endpoint of the settings.

    Raises:
        Refused: the variable that has them cannot be read.
    """
    try:
        return read_headers(os.environ) if settings.otlp_endpoint else {}
    except ValueError as error:
        raise Refused(f"{error}. Correct the variable.") from error
