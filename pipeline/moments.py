"""Unix times as dates for people, including implausible times of records."""

from datetime import UTC, datetime
from typing import Final

NO_DATE: Final = "no date"
"""Text for a number outside of all calendar years."""


def in_utc(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a Unix time in UTC with `strftime`'s format, or return that it is not a date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return NO_DATE
