"""The settings of days that close: `[books]`."""

from dataclasses import dataclass
from typing import Annotated

from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class BooksSettings:
    """How the days of games close: see docs/books.md."""

    games: tuple[str, ...] = ()
    """Exact names of the games whose days close by themselves, `*` for all. The days of others close by
    `turnout books close`."""

    day_seconds: Annotated[int, Range(1, 86_400)] = 86_400
    """Length of a day of event time, counted from midnight UTC of 1970-01-01. A game whose first day is closed keeps
    its length."""

    lateness_seconds: Annotated[int, Range(0, 31 * 86_400)] = 7_200
    """How long after a day's end rows still count as in time, by the time at which the source had taken them."""

    ahead_seconds: Annotated[int, Range(0, 31 * 86_400)] = 3_600
    """An event time that lies further ahead of the time at which the source took the record is a clock error."""

    behind_days: Annotated[int, Range(0, 3_650)] = 30
    """An event time that lies further behind that time is a clock error."""

    keep_rows: bool = True
    """Whether the accepted rows of a closed day are copied into the table `closed/GAME`. Without, the ledger has their
    counts and hash."""
