"""The part that figures of the fleet and of one game share: the newest value of a course, and floors. Pure."""

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


def newest(points: Sequence[float | None]) -> float | None:
    """Return the newest known value of the last few slots, None where there is none."""
    return next((value for value in reversed(points[-LATEST_SLOTS:]) if value is not None), None)


def minute(recent: Series | None) -> str:
    """Return of which minute rates are, the newest that is closed; nothing where none is known."""
    if recent is None:
        return ""
    known = np.flatnonzero(~np.isnan(recent.events))
    if not len(known) or recent.slots - known[-1] > LATEST_SLOTS:
        return ""
    begin = recent.since + recent.slot_seconds * int(known[-1])
    return " to ".join(in_utc(each, "%H:%M") for each in (begin, begin + recent.slot_seconds)) + " UTC"
