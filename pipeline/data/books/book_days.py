"""The days of a game as commands, pages and the control store have them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from pipeline.data.books.days import MICROS, NONE, Closing, Reopened, Sums, newest_revisions, said
from pipeline.store.games import Game
from pipeline.store.reopenings import Reopening

DayState: TypeAlias = Literal["open", "reopened", "closing", "closed"]


@dataclass(frozen=True, slots=True)
class BookDay:
    """One day of a game as the books have it now."""

    day: int  # its begin, microseconds since 1970
    state: DayState
    sums: Sums  # of a closed day those of its closing
    without_event_time: int
    clock_errors: int
    reasons: tuple[str, ...] = ()  # why it cannot close yet, in sentences
    needs: tuple[str, ...] = ()  # what a person must give a reason for, in sentences
    notes: tuple[str, ...] = ()
    closing: Closing | None = None  # of a closed day
    corrected: Sums = NONE  # of a closed day: the sum of all entries that refer to it
    pending: Sums = NONE  # of a closed day: the entry that the next closing will have for it
    earlier: tuple[Closing, ...] = ()  # revisions that do not count any more, of a reopened day all of them
    due: float = 0.0  # of an open day: when it can close at the earliest, Unix seconds by the source's times


@dataclass(frozen=True, slots=True)
class GameBooks:
    """The days of one game with rows, the oldest first."""

    game: Game
    day_seconds: int
    days: tuple[BookDay, ...]
    through: float | None  # the newest time that is known of the source, Unix seconds
    obstacle: str | None = None  # why its rows cannot be classified now: the open days are not known then

    @property
    def open(self) -> tuple[BookDay, ...]:
        """The days that are not closed."""
        return tuple(each for each in self.days if each.state in {"open", "reopened"})


def closed_day(closing: Closing, known: Sequence[Closing]) -> BookDay:
    """Return a closed day by its closing in force, without what changed since the last closing of the game."""
    earlier = tuple(each for each in known if each.day == closing.day and each.revision < closing.revision)
    return BookDay(
        closing.day, "closed", closing.sums, closing.without_event_time, closing.clock_errors, notes=closing.notes,
        closing=closing, corrected=said(closing, known) - closing.sums, earlier=earlier,
    )  # fmt: skip


def reopened_days(approved: Iterable[Reopening], known: Sequence[Closing]) -> dict[int, Reopened]:
    """Return the days that are open again, by their begins: an approved request opens the revision that it names.

    Args:
        approved: requests of one game.
        known: its closings.
    """
    newest, found = newest_revisions(known), dict[int, Reopened]()
    for each in approved:
        if each.day in newest and newest[each.day].revision == each.revision and each.decided_at is not None:
            at = int(each.decided_at * MICROS)
            found.setdefault(each.day, Reopened(each.requester, str(each.decided_by), each.reason, at))
    return found


def report_tree(day: BookDay) -> dict[str, Any]:
    """Return an open day as the control store keeps it."""
    return {
        "day": day.day, "sums": asdict(day.sums), "without_event_time": day.without_event_time,
        "clock_errors": day.clock_errors, "reasons": day.reasons, "needs": day.needs, "notes": day.notes,
        "due": day.due,
    }  # fmt: skip


def from_report(tree: Mapping[str, Any]) -> BookDay:
    """Return an open day that the control store keeps."""
    counts = tree["without_event_time"], tree["clock_errors"]
    reasons, needs, notes = (tuple(tree[name]) for name in ("reasons", "needs", "notes"))
    return BookDay(tree["day"], "open", Sums(**tree["sums"]), *counts, reasons, needs, notes)
