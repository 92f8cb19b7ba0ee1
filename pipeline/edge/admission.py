"""How much is on its way into the log, by producer and together; no queue and no clock of its own. One thread only."""

from collections import Counter
from typing import Final

from pipeline.edge.statuses import EdgeStatus, exhausted
from pipeline.store.edge_producers import EdgeProducer

MAX_BYTES_IN_FLIGHT: Final = 128 * 1024 * 1024
"""Most bytes of all producers that wait for the log: half of what Kafka's client holds."""

MAX_CALLS: Final = 200
"""Most open calls and streams of one producer."""

MAX_STREAMS: Final = 5_000
"""Most open streams of all producers. It is less than gRPC's own cap, so that calls find a place beside them."""

_RETRY_SECONDS: Final = 0.2
_BURST_EVENTS: Final = 1_000  # a producer with a small rate may send one whole request


class Admission:
    """Counts events from their request until their delivery report."""

    def __init__(self, events: int, events_of_producer: int) -> None:
        """Take at most these numbers of events, of all and of one producer."""
        self._most, self._most_of_one = events, events_of_producer
        self.events, self.bytes = 0, 0
        self._of: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._streams = 0
        self._rates: dict[str, _Bucket] = {}

    def enter(self, producer: EdgeProducer, *, is_stream: bool = False) -> None:
        """Count a call or a stream of a producer until `leave`.

        Raises:
            EdgeStatus: it has too many, or all producers together have too many streams.
        """
        if self._calls[producer.name] >= MAX_CALLS:
            raise exhausted("TOO_MANY_CALLS", f"the producer has {MAX_CALLS} open calls, the most it may", 1.0)
        if is_stream and self._streams >= MAX_STREAMS:
            raise exhausted("TOO_MANY_STREAMS", f"the edge has {MAX_STREAMS:,} open streams, the most it may", 5.0)
        self._calls[producer.name] += 1
        self._streams += is_stream

    def leave(self, producer: EdgeProducer, *, is_stream: bool = False) -> None:
        """Forget a call or a stream."""
        self._streams -= is_stream
        self._calls[producer.name] -= 1
        if not self._calls[producer.name]:
            del self._calls[producer.name]

    def charge(self, producer: EdgeProducer, events: int, now: float) -> None:
        """Count events, also refused ones, against a producer's rate.

        Raises:
            EdgeStatus: it has sent too many in the last second.
        """
        if producer.events_per_second is None:
            return
        bucket = self._rates.get(producer.name)
        if bucket is None or bucket.rate != producer.events_per_second:
            bucket = self._rates[producer.name] = _Bucket(producer.events_per_second, now)
        if (wait := bucket.take(events, now)) > 0:
            message = f"the producer may send {producer.events_per_second:,} events a second"
            raise exhausted("RATE_LIMIT", message, wait)

    def lacks_room(self, producer: EdgeProducer, events: int, size: int) -> EdgeStatus | None:
        """Return why there is no room for events now, None where there is."""
        if self._of[producer.name] + events > self._most_of_one:
            what = f"{self._most_of_one:,} events of the producer wait for the log, the most that may"
            return exhausted("PRODUCER_QUEUE_FULL", what, _RETRY_SECONDS)
        if self.events + events > self._most or self.bytes + size > MAX_BYTES_IN_FLIGHT:
            return exhausted("QUEUE_FULL", "as many events wait for the log as the edge holds", _RETRY_SECONDS)
        return None

    def take(self, producer: EdgeProducer, events: int, size: int) -> None:
        """Count events that go to the log."""
        self.events, self.bytes = self.events + events, self.bytes + size
        self._of[producer.name] += events

    def release(self, producer: EdgeProducer, events: int, size: int) -> None:
        """Forget events whose delivery reports have come."""
        self.events, self.bytes = self.events - events, self.bytes - size
        self._of[producer.name] -= events
        if not self._of[producer.name]:
            del self._of[producer.name]


class _Bucket:
    """Tokens that come back at a rate; one second's worth at most, and always enough for one request."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._most = float(max(rate, _BURST_EVENTS))
        self._left, self._at = self._most, now

    def take(self, events: int, now: float) -> float:
        """Take tokens; where there are too few take none, and return after how many seconds there are enough."""
        self._left = min(self._most, self._left + (now - self._at) * self.rate)
        self._at = now
        if events <= self._left:
            self._left -= events
            return 0.0
        return (events - self._left) / self.rate
