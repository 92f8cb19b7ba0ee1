"""What waits in a source at one moment, as the two kinds of sources measure it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many rows wait, and when the oldest of them came; None is unknown."""

    rows: int | None
    oldest_at: float | None  # Unix seconds by the source clock; None also where nothing waits
    reason: str | None = None  # why a number is unknown, as a clause

    def age(self, now: float) -> float | None:
        """Return how old the oldest row is, 0 where none waits; a time in the future is no age."""
        if self.oldest_at is not None:
            return max(0.0, now - self.oldest_at)
        return 0.0 if self.rows == 0 else None
