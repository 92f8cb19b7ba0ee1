"""Unix times as dates that people read, also those that a source gives its records."""

from datetime import UTC, datetime
from typing import Final

NO_DATE: Final = "no date"
"""What is shown of a number that lies in no year."""


def in_utc(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a Unix time in UTC in a form of `strftime`, or that it is no date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return NO_DATE
