"""The books of games: days that are open, closing or closed, with their sums, and the act that closes one.

`closed` reads the ledger alone, `overview` also what the last closer reported. `days` classifies all rows of a game.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey
from pipeline.base.texts import join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.data.books import ledger
from pipeline.data.books.book_days import BookDay, DayState, GameBooks, from_report, reopened_days
from pipeline.data.books.closing import Books
from pipeline.data.books.days import MICROS, Closing, Reopened, Sums, begin_of, label
from pipeline.data.books.hashing import rehashed
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.table import TableConflict
from pipeline.store import reopenings
from pipeline.store.audit import Act
from pipeline.store.books import read_reports
from pipeline.store.database.engine import reading
from pipeline.store.games import Game, known_names

__all__ = [
    "BookDay", "Closing", "DayState", "GameBooks", "GameOverview", "Reopened", "Sums", "as_dict", "close", "closed",
    "closing_dict", "closing_line", "days", "label", "lines", "overview", "revision_label", "sums_text",
    "verify",
]  # fmt: skip


_COLUMNS: Final = 10  # whose sums a line has


@reading()
def closed(environment: OpenEnvironment, game: Game | None = None) -> tuple[Closing, ...]:
    """Return the closings of a game, or of all games, in their order, from the ledger alone.

    Raises:
        Refused: the ledger cannot be read.
    """
    try:
        return ledger.read(environment.paths.books, None if game is None else game.key)
    except (DeltaError, OSError) as error:
        raise Refused(f"The ledger of closed days cannot be read: {first_line(error)}.") from error


@dataclass(frozen=True, slots=True)
class GameOverview:
    """The days of one game as the ledger and the last closer have them."""

    game: Game
    day_seconds: int
    closed: tuple[Closing, ...]  # in the order of their closing
    open: tuple[BookDay, ...]  # as the last closer found them, the oldest first
    looked_at: float | None  # when that was, Unix seconds; None: no closer has looked, so open days are not known
    obstacle: str | None  # why it could not classify the rows
    reopened: Mapping[int, Reopened] = field(default_factory=dict)  # days that are open again, by their begins


@reading()
def overview(environment: OpenEnvironment) -> tuple[GameOverview, ...]:
    """Return the days of all games without reading their rows, by name.

    Raises:
        Refused: the ledger or the control store cannot be read.
    """
    reports, known = read_reports(environment.engine), known_names(environment.engine)
    approved = reopenings.approved(environment.engine)
    closings: dict[str, list[Closing]] = {}
    for each in closed(environment):
        closings.setdefault(each.game_key, []).append(each)
    found = []
    for key, name in sorted(known.items(), key=lambda each: each[1]):
        own, report = tuple(closings.get(key, ())), reports.get(key)
        again = reopened_days([each for each in approved if each.game_key == key], own)
        shut = {each.day for each in own} - again.keys()
        days = (
            () if report is None else tuple(day for each in report.days if (day := from_report(each)).day not in shut)
        )
        seconds = own[-1].day_seconds if own else environment.settings.books.day_seconds
        looked, obstacle = (None, None) if report is None else (report.reported_at, report.obstacle)
        found.append(GameOverview(Game(GameKey(key), name), seconds, own, days, looked, obstacle, again))
    return tuple(found)


@reading()
def days(environment: OpenEnvironment, game: Game) -> GameBooks:
    """Return all days of a game that have rows, as they are now.

    Raises:
        Refused: the ledger, the control store or a table cannot be read.
    """
    try:
        return _books(environment).look(game)
    except (DeltaError, OSError, Transient) as error:
        raise Refused(f"The days of {game.key} cannot be read now: {first_line(error)}.") from error


@reading()
def verify(environment: OpenEnvironment, game: Game) -> tuple[tuple[Closing, str | None], ...]:
    """Return each closed day of a game with the hash that its rows have now; None where its rows were not kept.

    Raises:
        Refused: the ledger or the closed days cannot be read.
    """
    place = environment.paths.closed(game.key)
    return tuple((each, rehashed(place, each) if each.keeps_rows else None) for each in closed(environment, game))


def close(environment: OpenEnvironment, actor: str, game: Game, moment: float, reason: str = "") -> Closing:
    """Close the day of a game that a moment (Unix seconds) lies in, as a person; a closed day stays as it is.

    Raises:
        Refused: the actor has not the role, the day cannot close yet, or needs a reason; nothing is closed then.
    """
    known = closed(environment, game)
    seconds = known[-1].day_seconds if known else environment.settings.books.day_seconds
    day = begin_of(moment, seconds)
    act = Act(actor, DirectAct.CLOSE_DAY, (f"game:{game.key}",), detail={"day": label(day, seconds), "reason": reason})
    with gate.acting(environment.settings, environment.engine, DirectAct.CLOSE_DAY, act):
        try:
            return _books(environment).close(game, day, actor, reason)
        except TableConflict as error:
            raise Refused(f"Another process closed a day of {game.key} at this moment. Try again.") from error
        except (DeltaError, OSError, Transient) as error:
            raise Refused(f"The day cannot close now: {first_line(error)}. Try again.") from error


def as_dict(books: GameBooks) -> dict[str, Any]:
    """Return the days of a game for JSON; times are Unix seconds."""
    return {
        "game": books.game.name, "game_key": books.game.key, "day_seconds": books.day_seconds,
        "through": books.through, "obstacle": books.obstacle,
        "days": [_day(each, books.day_seconds) for each in books.days],
    }  # fmt: skip


def _day(day: BookDay, seconds: int) -> dict[str, Any]:
    found = {
        "day": label(day.day, seconds), "begin": day.day // MICROS, "state": day.state, **_sums(day.sums),
        "without_event_time": day.without_event_time, "clock_errors": day.clock_errors, "reasons": list(day.reasons),
        "needs": list(day.needs), "notes": list(day.notes), "earlier": [closing_dict(each) for each in day.earlier],
    }  # fmt: skip
    if day.closing is None:
        return found
    return found | closing_dict(day.closing) | {"corrected": _sums(day.corrected), "pending": _sums(day.pending)}


def closing_dict(closing: Closing) -> dict[str, Any]:
    """Return a closed day for JSON; times are Unix seconds."""
    seconds = closing.day_seconds
    entries = [
        {"day": label(each.day, seconds), "revision": each.revision, **_sums(each.sums)} for each in closing.entries
    ]
    return {
        "game_key": closing.game_key, "game": closing.game, "day": label(closing.day, seconds),
        "begin": closing.day // MICROS, "day_seconds": seconds, "revision": closing.revision, **_sums(closing.sums),
        "without_event_time": closing.without_event_time, "clock_errors": closing.clock_errors,
        "closing_seq": closing.closing_seq, "seq": closing.seq, "hash": closing.hash,
        "table_version": closing.table_version, "silver": list(closing.silver), "keeps_rows": closing.keeps_rows,
        "closed_at": closing.closed_at / MICROS, "closed_by": closing.closed_by, "reason": closing.reason,
        "notes": list(closing.notes), "entries": entries,
        "sums": dict(closing.column_sums), "reopened": None if closing.reopened is None else asdict(closing.reopened),
    }  # fmt: skip


def closing_line(closing: Closing) -> str:
    """Return a closed day as a line for people; raw texts are in it."""
    sums = ", ".join(f"{value:,} {name}" for name, value in _sums(closing.sums).items())
    return f"{label(closing.day, closing.day_seconds)} closed: {sums}{_added(closing)}; {_signature(closing)}"


def _added(closing: Closing) -> str:
    return f"; sums: {sums_text(closing)}" if closing.column_sums else ""


def sums_text(closing: Closing) -> str:
    """Return the sums by column for people, of many columns the first ones; raw names are in it."""
    return join_limited(closing.column_sums, _COLUMNS, " ".join)


def revision_label(closing: Closing) -> str:
    """Return a closed day as people write it, with its revision where that is not the first."""
    day = label(closing.day, closing.day_seconds)
    return day if closing.revision == 1 else f"{day} revision {closing.revision}"


def _signature(closing: Closing) -> str:
    why = f": {closing.reason}" if closing.reason else ""
    return f"revision {closing.revision} by {closing.closed_by}{why}; hash {closing.hash[:16]}"


def _sums(sums: Sums) -> dict[str, int]:
    return {name: value for name, value in asdict(sums).items() if name != "places"}


def lines(books: GameBooks) -> list[str]:
    """Return the days of a game as lines for people; raw texts are in them."""
    found = [line for each in books.days for line in _lines(each, books.day_seconds)]
    if books.obstacle is not None:
        found.append(f"open days are not known: {books.obstacle}")
    return found or [f"{books.game.key} has no day with rows."]


def _lines(day: BookDay, seconds: int) -> list[str]:
    sums = ", ".join(f"{value:,} {name}" for name, value in _sums(day.sums).items())
    found = [f"{label(day.day, seconds)} {day.state}: {sums}{_odd(day)}"]
    if (closing := day.closing) is not None:
        found.append(f"  {_signature(closing)}")
        found += [f"  sums: {sums_text(closing)}"] if closing.column_sums else []
        found += [f"  corrects {label(each.day, seconds)}: {_signed(each.sums)}" for each in closing.entries]
    if day.corrected != Sums():
        found.append(f"  corrected by later days: {_signed(day.corrected)}")
    if day.pending != Sums():
        found.append(f"  changed since: {_signed(day.pending)}; the next day that closes says so")
    found += [f"  earlier: {closing_line(each)}" for each in day.earlier]
    found += [f"  waits: {each}" for each in day.reasons]
    found += [f"  needs a reason: {each}" for each in day.needs]
    return found + [f"  note: {each}" for each in day.notes]


def _odd(day: BookDay) -> str:
    odd = ((day.without_event_time, "without event time"), (day.clock_errors, "clock errors"))
    named = [f"{number:,} {what}" for number, what in odd if number]
    return f" ({', '.join(named)})" if named else ""


def _signed(sums: Sums) -> str:
    changed = [f"{value:+,} {name}" for name, value in _sums(sums).items() if value]
    return ", ".join(changed) or "other rows of the same number are accepted"


def _books(environment: OpenEnvironment) -> Books:
    return Books(environment.settings, environment.paths, environment.engine)
