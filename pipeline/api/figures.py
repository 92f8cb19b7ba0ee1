"""The part that figures of the fleet and of one game share: the minute that they are of, and floors. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from listeners.series import Series
from pipeline.base.texts import in_utc

REFUSED_FLOOR: Final = 3.0
"""Rows a second below which a course of refusals stays low."""

BACKLOG_FLOOR: Final = 30.0
"""Seconds below which a course of ages stays low."""

LATEST_SLOTS: Final = 3
"""Slots, back from now, in which the newest reported one counts as now."""

NOT_REPORTED: Final = "not reported for that minute"
"""Why a figure has no value while others have one."""

NO_MINUTE_YET: Final = "no whole minute is reported yet"
"""Why no minute has figures while drivers report: they write a minute once it is over."""

NOT_READ: Final = "not read"
"""Why figures have no value where nobody has read the minutes, and nobody says why."""

NO_ROW: Final = "no row in that minute"
"""Why a minute has no latency though all of it was reported."""

MAY_LACK: Final = "a report of that minute may be missing"
"""What a figure that is no sum says of such a minute."""

IN_PART: Final = f"at least: {MAY_LACK}"
"""What a figure says beside a sum that may lack rows of a driver that ended, or stands still."""

WITHOUT_CAUGHT_UP: Final = "without rows that were caught up"
"""Which rows a latency is of: those that a driver reads after a start or an outage are not in it."""

ONLY_CAUGHT_UP: Final = "only rows that were caught up"
"""Why a minute in which rows landed has no latency."""


def newest_slot(recent: Series | None) -> int | None:
    """Return the newest of the last few slots of which ingest or a driver reported: all figures are of it.

    A figure that is not known in it has no value: that of an earlier minute would stand under this one's name.
    """
    if recent is None:
        return None
    known = np.flatnonzero(~np.isnan(recent.events) | recent.known.any(axis=0))
    return int(known[-1]) if len(known) and recent.slots - known[-1] <= LATEST_SLOTS else None


def value_at(points: Sequence[float | None], slot: int | None) -> float | None:
    """Return the value of a slot, None where it is not known."""
    return None if slot is None else points[slot]


def minute(recent: Series | None) -> str:
    """Return of which minute figures are; nothing where none is known."""
    slot = newest_slot(recent)
    if recent is None or slot is None:
        return ""
    begin = recent.since + recent.slot_seconds * slot
    return " to ".join(in_utc(each, "%H:%M") for each in (begin, begin + recent.slot_seconds)) + " UTC"
