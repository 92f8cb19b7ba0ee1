"""Carries events to a source: appends to the Delta landing table, produces to a Kafka topic, or sends to an edge.

Called by the command line, the demo, the bench and tests with the batches of a simulator. A batch is taken only when
it is due and is then sent whole, so after a stop the simulator's counts are what was sent.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event as StopEvent
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tqdm import tqdm  # type: ignore[import-untyped]  # its types are another package

from pipeline.base.errors import Refused
from pipeline.data.ingest.sources.landing_appends import landing_for_appends
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.demo.heard import EdgeFollower, Heard
from pipeline.demo.simulator import Event
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.kafka.producer import TopicProducer
from pipeline.lake.storage.location import Location

if TYPE_CHECKING:
    from pipeline.edge.client import EdgeOutcome

_FAILED: Final = "failed"
_MOST_FOLLOWED: Final = 100_000  # events without an outcome, of a run without an end
_EDGE_SECONDS: Final = 15.0  # for an edge to start, and to learn of a new producer


def write_landing(
    path: Location,
    batches: Iterator[Sequence[Event]],
    *,
    rate_per_second: float | None = None,
    total: int | None = None,
    stop: StopEvent | None = None,
    bar: bool = True,
) -> Counter[str]:
    """Append each batch to the landing table in one commit, creating the table if there is none.

    `rate_per_second` spaces the batches on a fixed schedule, None sends at once; `total` is only for the progress
    bar, which `bar` may leave out; `stop` ends it between two batches. Returns the events written, by kind.

    Raises:
        Refused: the path holds something else, or cannot be written.
    """
    written: Counter[str] = Counter()
    table = landing_for_appends(path, create=True)
    for batch in _due(batches, rate_per_second, total, stop or StopEvent(), bar):
        keys, values = [event.key for event in batch], [event.value for event in batch]
        rows = pa.Table.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=LANDING)
        try:
            table.append([write_file(rows, path, [])])
        except (DeltaError, OSError) as error:
            raise Refused(
                f"The landing table {path} cannot be written: {_line(error)}. Check its disk and permissions."
            ) from error
        written.update(event.kind for event in batch)
    return written


def write_kafka(
    bootstrap: str,
    topic: str,
    batches: Iterator[Sequence[Event]],
    *,
    rate_per_second: float | None = None,
    total: int | None = None,
    stop: StopEvent | None = None,
    bar: bool = True,
) -> tuple[int, int]:
    """Produce each event once, acknowledged by all replicas, and return (delivered, failed).

    Failed are those not acknowledged in time: a few of them may yet be in the topic. The options are those of
    `write_landing`.

    Raises:
        Refused: no broker answers within about 8 seconds, or it has no such topic.
        Transient: the broker ended the producer's session for good; start again.
    """
    producer = TopicProducer(bootstrap, topic)
    for batch in _due(batches, rate_per_second, total, stop or StopEvent(), bar):
        for event in batch:
            producer.produce(event.value, event.key)
        producer.poll()
    return producer.flush()


@dataclass(frozen=True, slots=True)
class EdgeDoor:
    """An edge, and the token of a producer that it knows or will know within seconds."""

    address: str
    token: str
    roots: Path | None = None  # certificates that the edge's leads to; None: no TLS


@dataclass(frozen=True, slots=True)
class SentToEdge:
    """What became of events that were sent to an edge."""

    acknowledged: int
    refused: Mapping[str, int]  # by reason code
    failed: int  # not acknowledged in time: a few of them may be in the log
    heard: Heard | None = None  # of those that were acknowledged; None: nobody followed them


def write_edge(
    edge: EdgeDoor,
    batches: Iterator[Sequence[Event]],
    *,
    rate_per_second: float | None = None,
    total: int | None = None,
    stop: StopEvent | None = None,
    bar: bool = True,
    follow: Path | None = None,
) -> SentToEdge:
    """Send each event to an edge until it is acknowledged or refused. The options are those of `write_landing`.

    With a folder to `follow` into it goes on until each acknowledged event has an outcome behind the log.

    Raises:
        Refused: the edge does not answer, or does not take the token, within 15 seconds; it is another machine's, and
            there are no roots; or they cannot be read.
    """
    from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeGaveUp
    from pipeline.edge.client_channel import EdgeTls

    counts: Counter[str] = Counter()
    lock, stop, heard = Lock(), stop or StopEvent(), None

    def count(future: "Future[EdgeOutcome]") -> None:
        error = future.exception()
        outcome = None if error is not None else future.result()
        name = "" if isinstance(outcome, EdgeAcknowledged) else _FAILED if outcome is None else outcome.reason
        with lock:
            counts[name] += 1

    try:
        opened = EdgeClient(edge.address, edge.token, tls=None if edge.roots is None else EdgeTls(edge.roots))
    except (ValueError, OSError) as error:
        raise Refused(f"Nothing goes to the edge {edge.address}: {error}. Give --edge-ca FILE.") from None
    with opened as client:
        try:
            client.wait_until_ready(_EDGE_SECONDS)
        except EdgeGaveUp as error:
            raise Refused(
                f"The edge {edge.address} takes no events: {_line(error)}. Start it, or see its log."
            ) from None
        follower = None
        if follow is not None:
            follower = EdgeFollower(client.follow(max(_MOST_FOLLOWED, total or 0)), follow)
        for batch in _due(batches, rate_per_second, total, stop, bar):
            for event in batch:
                client.send_wrapper(event.value).add_done_callback(count)
        client.flush()
        heard = None if follower is None else follower.close(stop)
    refused = {name: events for name, events in counts.items() if name not in {"", _FAILED}}
    return SentToEdge(counts[""], refused, counts[_FAILED], heard)


def _due(
    batches: Iterator[Sequence[Event]], rate_per_second: float | None, total: int | None, stop: StopEvent, bar: bool
) -> Iterator[Sequence[Event]]:
    """Take each batch when it is due on a schedule that does not wait for slow sends (open loop)."""
    started, sent = time.monotonic(), 0
    hidden = None if bar else True  # None: terminals only
    with tqdm(total=total, unit="event", file=sys.stderr, disable=hidden, mininterval=0.5) as progress:
        while not stop.is_set():
            if rate_per_second is not None and stop.wait(max(0.0, started + sent / rate_per_second - time.monotonic())):
                return
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
            sent += len(batch)
            progress.update(len(batch))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
