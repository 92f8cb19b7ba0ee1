"""Books of games among the forty: closed days, one corrected since, days that wait, and a game nobody looked at."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pipeline.base.names import game_key
from pipeline.data.books.days import MICROS, Closing, DayEntry, Sums
from pipeline.data.books.ledger import Ledger
from pipeline.settings.tree import Paths, Settings
from pipeline.store import reopenings
from pipeline.store.books import write_report
from pipeline.store.database.engine import open_store

CHESS, GO, LUDO = "Aurora arena", "Basalt arena", "Cinder arena"
DAY: Final = 86_400 * MICROS
FIRST: Final = 20_000 * DAY  # 2024-10-04


def with_books(folder: Path) -> None:
    """Close two days of one game, the second with an entry for the first; leave days of two games open."""
    settings, paths = Settings(), Paths(folder)
    engine = open_store(settings, paths)
    ledger = Ledger(paths.books, settings.environment, game_key(CHESS))
    ledger.add(_closing(1, FIRST, Sums(3, 2, 1, 1_000, 5)))
    entry = DayEntry(FIRST, 1, Sums(0, 0, 4, -4, 0))
    ledger.add(_closing(2, FIRST + DAY, Sums(0, 0, 0, 900, 7), entry))
    waits = _open(FIRST + 2 * DAY, reasons=("Bronze is not known to be complete through its end.",))
    needs = _open(FIRST + DAY, needs=("Bronze lost rows that may have been of the day <b>.",))
    write_report(engine, game_key(CHESS), None, None, [waits])
    write_report(engine, game_key(GO), None, None, [needs])
    write_report(engine, game_key(LUDO), None, "its table cannot be read", [])
    engine.dispose()


def with_revisions(folder: Path) -> None:
    """Close the older of the two days again, with a second revision, and open the newer one again."""
    settings, paths = Settings(), Paths(folder)
    engine = open_store(settings, paths)
    ledger = Ledger(paths.books, settings.environment, game_key(CHESS))
    ledger.add(_closing(3, FIRST, Sums(3, 2, 0, 1_001, 6), revision=2))
    asked = reopenings.submit(engine, game_key(CHESS), FIRST + DAY, 86_400, 1, "eve", "wrong <u>")
    reopenings.decide(engine, asked, "approved", "bob", "")
    engine.dispose()


def _closing(number: int, day: int, sums: Sums, *entries: DayEntry, revision: int = 1) -> Closing:
    return Closing(
        game_key(CHESS), CHESS, number, day, 86_400, revision, sums, 0, 0, 9, 9, "t", 4, (), (), "",
        f"{number}abcdef1" * 8, True, int(time.time()) * MICROS, "ann", "agreed <i>", entries,
    )  # fmt: skip


def _open(day: int, reasons: tuple[str, ...] = (), needs: tuple[str, ...] = ()) -> dict[str, object]:
    return {
        "day": day, "sums": asdict(Sums(0, 0, 0, 12)), "without_event_time": 0, "clock_errors": 0,
        "reasons": list(reasons), "needs": list(needs), "notes": [],
    }  # fmt: skip
