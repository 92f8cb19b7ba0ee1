"""Events that a fault sends to the demo's source, as a producer of its own."""

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Final

from pipeline.demo.samples.protobuf import noise
from pipeline.demo.simulator import Event
from protos.turnout.v1.wrapper_pb2 import Wrapper

PRODUCER: Final = "break it"
"""The wrapper's producer of these rows, by which people tell them from the simulator's."""

_MICROSECONDS: Final = 1_000_000


def batches(
    game: str, schema_id: int, payload: Callable[[int], bytes], size: int, kind: str,
    clock: Callable[[], float] = time.time,
) -> Iterator[list[Event]]:  # fmt: skip
    """Yield endless lists of `size` events of one game; `payload` makes each one's bytes from its number.

    `clock` returns the event time of each.
    """
    run = secrets.token_hex(4)  # so that no event id stands twice
    numbers = itertools.count(1)
    while True:
        yield [
            Event(game.encode(), _wrapped(game, schema_id, payload(number), run, number, clock()), game, number, kind)
            for number in itertools.islice(numbers, size)
        ]


def garbage(number: int) -> bytes:
    """Return bytes that no format accepts as a payload of the samples: an endless number first, and no UTF-8."""
    return b"\xff" * 11 + noise(number)


def _wrapped(game: str, schema_id: int, payload: bytes, run: str, number: int, at: float) -> bytes:
    wrapper = Wrapper(
        game=game,
        schema_id=schema_id,
        payload=payload,
        event_id=f"{run}-{number}",
        producer_id=PRODUCER,
        sequence=number,
    )
    wrapper.event_time.seconds, micros = divmod(int(at * _MICROSECONDS), _MICROSECONDS)
    wrapper.event_time.nanos = micros * 1000
    return wrapper.SerializeToString()
