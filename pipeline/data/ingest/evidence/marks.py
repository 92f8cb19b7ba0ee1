"""Marks: what tells a source from another one in its place. The ids, leader epochs and last records of one moment.

Pure values and comparisons: witnesses of `sources` look, `kept` keeps, `batch_checks` and `adopt` act on the verdict.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


def digest(content: bytes | None) -> str | None:
    """Return what bytes are compared by."""
    return None if content is None else hashlib.sha256(content).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A record as it can be compared: hashes of its bytes, None where it has none, or where its time is unknown."""

    offset: int
    time_ms: int | None
    key: str | None
    value: str | None

    def as_list(self) -> list[Any]:
        """Return it as JSON can hold it."""
        return [self.offset, self.time_ms, self.key, self.value]

    def is_other(self, there: "LastRecord") -> bool:
        """Return whether the source has another record at this offset; an unknown time is no difference."""
        times = {self.time_ms, there.time_ms} - {None}
        return len(times) > 1 or (self.key, self.value) != (there.key, there.value)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a topic or a landing table is known by at one moment."""

    id: str | None = None  # None: the broker gives none
    epochs: Mapping[int, int] = field(default_factory=dict)  # by partition, the leader epoch
    first: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # without an id: first record, offset and ms
    last: Mapping[int, LastRecord] = field(default_factory=dict)  # by partition, the last record in bronze; a commit

    def with_last(self, last: Mapping[int, LastRecord]) -> "Mark":
        """Return it with later last records of some partitions."""
        return replace(self, last={**self.last, **last})

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for `parse`."""
        last = {number: at.as_list() for number, at in self.last.items()}
        return {"id": self.id, "epochs": dict(self.epochs), "first": dict(self.first), "last": last}


def parse(kept: Mapping[str, Any]) -> Mark:
    """Parse what `as_dict` gave."""
    return Mark(
        kept["id"],
        {int(number): int(epoch) for number, epoch in kept["epochs"].items()},
        {int(number): (int(at), int(ms)) for number, (at, ms) in kept["first"].items()},
        {int(number): LastRecord(*each) for number, each in kept["last"].items()},
    )


def is_elected(before: Mark, now: Mark) -> bool:
    """Return whether a partition has another leader epoch: the new leader may lack what the old one had."""
    return any(now.epochs.get(number, epoch) != epoch for number, epoch in before.epochs.items())


def replaced(before: Mark, now: Mark) -> str | None:
    """Return why this is another topic of the same name, as a clause; None where nothing says so.

    Without an id on one side the evidence is weaker, and the clause says so.
    """
    if before.id is not None and now.id is not None:
        return None if before.id == now.id else f"its id is {now.id}, ingest has read {before.id}"
    for number, epoch in sorted(before.epochs.items()):
        found = now.epochs.get(number)
        if found is not None and 0 <= found < epoch:
            return (
                f"its broker gives no topic ids, but the leader epoch of partition {number} went back from {epoch} to "
                f"{found}"
            )
    for number, (offset, ms) in sorted(before.first.items()):
        at = now.first.get(number)
        if at is not None and at[0] == offset and at[1] != ms:
            return (
                f"its broker gives no topic ids, but its first record in partition {number}, offset {offset}, has the "
                f"time {at[1]} ms instead of {ms} ms"
            )
    return None
