"""The twelve statuses of a stream, and what each of them means for those who look. Pure."""

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """How a stream is, from best to worst: a group is as bad as its worst stream.

    Each is exactly one of well, recovering, late and bad.
    """

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STARTING = "STARTING"
    BACKFILLING = "BACKFILLING"
    CATCHING_UP = "CATCHING_UP"
    AT_RISK = "AT_RISK"
    LAGGING = "LAGGING"
    UNKNOWN = "UNKNOWN"
    MISSING = "MISSING"
    STALLED = "STALLED"
    FAILED = "FAILED"
    CRASH_LOOP = "CRASH_LOOP"

    @property
    def severity(self) -> int:
        """Its place in this order, from 0; series hold a status by it."""
        return _SEVERITIES[self]

    @property
    def is_well(self) -> bool:
        """Whether the stream is as it should be: it runs, or is paused on purpose."""
        return self.severity <= Status.PAUSED.severity

    @property
    def is_recovering(self) -> bool:
        """Whether the stream works off what waits, and needs nobody."""
        return not self.is_well and not self.is_trouble

    @property
    def is_late(self) -> bool:
        """Whether a person should look although rows may still land."""
        return self.is_trouble and not self.is_bad

    @property
    def is_bad(self) -> bool:
        """Whether the stream's rows do not reach its table."""
        return self.severity >= Status.MISSING.severity

    @property
    def is_trouble(self) -> bool:
        """Whether a person should look: at risk or worse, unknown included."""
        return self.severity >= Status.AT_RISK.severity

    @property
    def is_level(self) -> bool:
        """Whether the stream keeps up with bronze."""
        return self in {Status.RUNNING, Status.AT_RISK}

    @property
    def holds_at_once(self) -> bool:
        """Whether one look shows it, so that no second look must confirm it."""
        return self in {Status.PAUSED, Status.UNKNOWN, Status.FAILED, Status.CRASH_LOOP}


STATUSES: Final = tuple(Status)
"""All of them, each at its severity."""

_SEVERITIES: Final = {status: severity for severity, status in enumerate(Status)}
