"""Unix times as dates that people read, also those that a hand has written into the control store."""

from datetime import UTC, datetime
from typing import Final

NO_DATE: Final = "no date"
"""What is shown of a number that lies in no year."""


def is_moment(at: object) -> bool:
    """Return whether it is a time that can be shown as a date."""
    try:
        return type(at) is float and bool(datetime.fromtimestamp(at, UTC))
    except (ValueError, OverflowError, OSError):
        return False


def in_utc(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a Unix time in UTC in a form of `strftime`, or that it is no date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return NO_DATE
