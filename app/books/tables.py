"""The books as rows of tables: games by days, and each day with its sums, its reasons, and the person who closed it.

Pure. Each text of others goes through `formatting.shown`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app import formatting
from app.books.queries import Shelf
from app.look.tokens import Tone
from pipeline.api.books import Closing, GameOverview, Sums, label, sums_text
from pipeline.base.texts import short_moment
from pipeline.data.books.days import MICROS, newest_revisions, said

CLOSED, CORRECTED, OPEN, NEEDS = "✓ closed", "✓ closed, corrected", "○ open", "▲ needs a person"
REOPENED: Final = "↻ reopened"
TONES: Final[Mapping[str, Tone]] = {
    CLOSED: "well", CORRECTED: "busy", REOPENED: "busy", OPEN: "plain", NEEDS: "late"
}  # fmt: skip

_MARKS: Final = {CLOSED: "✓", CORRECTED: "±", REOPENED: "↻"}
_DAYS: Final = 8  # columns of the matrix
_LONGEST: Final = 300


def sentence(shelf: Shelf) -> tuple[str, bool]:
    """Return what a person should do, and whether there is anything; else how many days are closed."""
    needing = sum(len({*game.reopened, *(day.day for day in game.open if day.needs)}) for game in shelf.games)
    if needing:
        return ("1 day needs a person to close" if needing == 1 else f"{needing} days need a person to close"), True
    closed = [len(newest_revisions(game.closed)) for game in shelf.games if game.closed]
    if not closed:
        return "No day is closed", False
    days = "1 day" if sum(closed) == 1 else f"{formatting.count(sum(closed))} days"
    games = "1 game" if len(closed) == 1 else f"{formatting.count(len(closed))} games"
    return f"{days} of {games} closed", False


def matrix(shelf: Shelf) -> list[dict[str, str]]:
    """Return a row for each game with days, with a column for each of the newest days of all."""
    games = [each for each in shelf.games if each.closed or each.open or each.obstacle]
    cells = {each.game.key: _cells(each) for each in games}
    days = sorted({day for own in cells.values() for day in own})[-_DAYS:]
    return [
        {
            "Game": formatting.shown(each.game.name, 60),
            "Open days": _known(each, shelf.read_at),
            **{_head(day): cells[each.game.key].get(day, _none(each)) for day in days},
        }
        for each in games
    ]


def days(shelf: Shelf, wanted: str) -> list[dict[str, object]]:
    """Return a row for each day of the games whose name has a text, the newest first, those with a need before."""
    text = wanted.casefold().strip()
    chosen = [each for each in shelf.games if text in f"{each.game.name} {each.game.key}".casefold()]
    rows = [row for each in chosen for row in _rows(each, shelf.read_at)]
    rows.sort(key=lambda row: str(row["Day"]), reverse=True)
    return sorted(rows, key=lambda row: row["State"] != [NEEDS])


def _cells(game: GameOverview) -> dict[str, str]:
    found = {}
    for day in game.open:
        found[label(day.day, game.day_seconds)] = "▲" if day.needs else "○"  # of a reopened one written over below
    for each, now, state in _closed(game):
        found[label(each.day, each.day_seconds)] = f"{_MARKS[state]} {formatting.count(now.accepted)}"
    return found


def _head(day: str) -> str:
    """Return the head of a day's column: `2026-11-30`, or `11-30 15:20` of a shorter one."""
    return day if "T" not in day else day[5:16].replace("T", " ")


def _none(game: GameOverview) -> str:
    return "" if game.looked_at is not None and game.obstacle is None else "?"


def _known(game: GameOverview, now: float) -> str:
    if game.looked_at is None:
        return "not known: no closer has looked"
    if game.obstacle is not None:
        return f"not known: {formatting.shown(game.obstacle, _LONGEST)}"
    return f"{len(game.open)}, seen {short_moment(game.looked_at, now)}"


def _closed(game: GameOverview) -> Iterator[tuple[Closing, Sums, str]]:
    """Yield the closing in force of each closed day, its sums with all entries since, and its state."""
    for each in newest_revisions(game.closed).values():
        entries = (entry for later in game.closed for entry in later.entries)
        corrected = any((entry.day, entry.revision) == (each.day, each.revision) for entry in entries)
        state = REOPENED if each.day in game.reopened else CORRECTED if corrected else CLOSED
        yield each, said(each, game.closed), state


def _rows(game: GameOverview, now: float) -> Iterator[dict[str, object]]:
    for day in game.open:
        if day.day in game.reopened:
            continue  # its last revision is shown until the next one is there
        why = [*day.needs, *day.reasons, *day.notes]
        yield {**_row(game, day.day, NEEDS if day.needs else OPEN, day.sums, why), **_signed("", None, ""), "Sums": ""}
    waits = {day.day: day.reasons for day in game.open}
    for each, sums, state in _closed(game):
        why = [*([each.reason] if each.reason else []), *each.notes]
        if (again := game.reopened.get(each.day)) is not None:
            why = [again.line, *waits.get(each.day, ()), *why]
        before = (other for other in game.closed if other.day == each.day and other.revision < each.revision)
        why += [
            f"Revision {other.revision} by {other.closed_by} had {formatting.count(other.sums.accepted)} accepted rows."
            for other in before
        ]
        signature = _signed(each.closed_by, each.closed_at / MICROS, each.hash, now)
        row_sums = formatting.shown(sums_text(each), _LONGEST) if each.column_sums else ""
        revision = f" · revision {each.revision}" if each.revision > 1 else ""
        row = _row(game, each.day, state, sums, why)
        yield {**row, "Day": f"{row['Day']}{revision}", **signature, "Sums": row_sums}


def _row(game: GameOverview, day: int, state: str, sums: Sums, why: Sequence[str]) -> dict[str, object]:
    return {
        "Game": formatting.shown(game.game.name, 60),
        "Day": label(day, game.day_seconds),
        "State": [state],
        "Accepted": formatting.count(sums.accepted),
        "Late": formatting.count(sums.late),
        "Duplicate": formatting.count(sums.duplicate),
        "Refused": formatting.count(sums.refused),
        "Reasons": formatting.shown(" ".join(why), _LONGEST) if why else "",
    }


def _signed(who: str, at: float | None, digest: str, now: float = 0.0) -> dict[str, str]:
    return {
        "Closed by": formatting.shown(who, 60) if who else "",
        "At, UTC": "" if at is None else short_moment(at, now),
        "Hash": digest[:8],
    }
