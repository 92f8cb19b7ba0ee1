"""Logs which games fail: at the first failure, then at growing intervals, and when a game has recovered.

The clock is an argument. Values of rows are never logged.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.reasons import innermost
from pipeline.data.streams.lanes import Failure

_log = logging.getLogger("turnout")

_FIRST_SECONDS: Final = 30.0  # until the second line about a game; doubled each time
_LONGEST_SECONDS: Final = 3600.0


@dataclass(slots=True)
class _Failing:
    """The logged failures of one game."""

    since: float
    next_at: float
    pause_seconds: float = _FIRST_SECONDS
    failures: int = 1


class FailureLog:
    """The games that fail now; for one thread at a time."""

    def __init__(self) -> None:
        """Begin without failing games."""
        self._failing: dict[str, _Failing] = {}

    def note(
        self, failures: Mapping[str, Failure], committed: Iterable[str], parked: Collection[str], now: float
    ) -> None:
        """Record the result of a pass or chunk; `now` only grows.

        Losing to another owner is no failure. The `parked` games are not retried.
        """
        for key, failure in failures.items():
            if failure.kind != "expected":
                self._failed(key, failure, now)
            if key in parked and failure.stopped_by is not None:
                _log.error("%s: stopped by its output contract; it goes on once those rules change", key)
            elif key in parked and failure.parks:
                _log.error("%s: parked until a person has looked at it; then run `turnout repair retry`", key)
            elif key in parked:
                _log.error("%s: parked, its retries are used up; run `turnout repair retry`", key)
        for key in self._failing.keys() & committed:
            before = self._failing.pop(key)
            _log.info("%s: recovered %s", key, _tally(before, now))

    def _failed(self, key: str, failure: Failure, now: float) -> None:
        known = self._failing.get(key)
        if known is None:
            self._failing[key] = _Failing(now, now + _FIRST_SECONDS)
            _log.warning("%s: failed: %s", key, _cause(failure))
            return
        known.failures += 1
        if now >= known.next_at:
            known.pause_seconds = min(2 * known.pause_seconds, _LONGEST_SECONDS)
            known.next_at = now + known.pause_seconds
            _log.warning("%s: still failing %s: %s", key, _tally(known, now), _cause(failure))


def _tally(known: _Failing, now: float) -> str:
    return f"after {known.failures} failure{'' if known.failures == 1 else 's'} in {now - known.since:.0f} s"


def _cause(failure: Failure) -> str:
    if failure.may_quote:
        return f"{failure.evidence.partition(':')[0]} (its message may quote a row; `turnout status` shows it)"
    return innermost(failure.evidence)
