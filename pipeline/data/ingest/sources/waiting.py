"""The backlog of a source at one moment, as both kinds of sources measure it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Waiting:
    """The number of waiting rows, and the arrival of the oldest; None is unknown."""

    rows: int | None
    oldest_at: float | None  # Unix seconds by the source clock; None also without waiting rows
    reason: str | None = None  # why a number is unknown, as a clause
    of: Mapping[str, "Waiting"] = field(default_factory=dict)  # of each of several sources, by its name

    def age(self, now: float) -> float | None:
        """Return the age of the oldest row, 0 without waiting rows; a time in the future counts as age 0."""
        if self.oldest_at is not None:
            return max(0.0, now - self.oldest_at)
        return 0.0 if self.rows == 0 else None
