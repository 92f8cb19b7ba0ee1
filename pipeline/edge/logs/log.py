"""Where an edge writes accepted events, as its service sees it. `supported` makes one by the settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pipeline.lake.kafka.acknowledged import DeliveredOffsets


class LandedFile(NamedTuple):
    """A file of a landing table."""

    path: str
    version: int  # of the table, that has it


Offsets: TypeAlias = Mapping[int, DeliveredOffsets] | Mapping[LandedFile, DeliveredOffsets]
"""Where a batch is: its first and last offset by partition of a topic, or row by file of a landing table."""


class Logged(Protocol):
    """What became of a batch."""

    @property
    def why(self) -> str | None:
        """Why not all of it is known to be in the log, None where it is."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether a part of it found no room."""
        ...

    @property
    def offsets(self) -> Offsets:
        """Where it is."""
        ...


class EdgeLog(Protocol):
    """A log: `lake.kafka.acknowledged`, or `landing`. Safe to use from any thread."""

    record_bytes: int

    @property
    def fatal(self) -> str | None:
        """Why it takes no more, None while it does."""
        ...

    @property
    def topic_id(self) -> str:
        """What tells its topic or table from another one of that name; empty where nothing does."""
        ...

    def send(self, keys: Sequence[bytes], values: Sequence[bytes], done: Callable[[Logged], None]) -> None:
        """Hand over a batch; `done` is called once, in any thread."""
        ...

    def close(self, seconds: float) -> int:
        """Wait for what was handed over, give up the rest, and return how many events that were."""
        ...
