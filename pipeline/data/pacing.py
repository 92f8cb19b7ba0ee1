"""When a batch may begin, for a reader that looks for the next commit more often than it reads. Pure."""

import math
from typing import Final

_EARLIEST: Final = 0.125  # of the time between two batches, by which the next one may begin earlier


class Pace:
    """Keeps batches `period` seconds apart on average, though looks are only now and then."""

    def __init__(self, period: float, look: float) -> None:
        """Let the first batch begin at once; there is a look each `look` seconds, all in seconds."""
        self._period, self._look = period, look
        self._next_at = -math.inf
        self._commits = 0

    def is_due(self, now: float) -> bool:
        """Return whether a batch may begin, by a clock that never goes back."""
        return now >= self._next_at

    def begun(self, now: float, commits: int, waited: float) -> None:
        """Note the beginning of a batch, whose newest commit of `commits` had waited for `waited` seconds.

        Where it has as many as the one before, it has the rhythm of who commits: then the next one begins earlier by
        what this one waited above the time of a look, until batches follow commits. A look that comes late does not
        delay those after.
        """
        in_step = commits == self._commits and commits > 0
        lead = min(max(0.0, waited - self._look), _EARLIEST * self._period) if in_step else 0.0
        self._next_at = max(self._next_at, now - self._look / 2) + self._period - lead
        self._commits = commits
