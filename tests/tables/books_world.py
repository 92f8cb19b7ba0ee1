"""A game whose days close: its rows come in any order, and an oracle says what the books must have of them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
from sqlalchemy import update

from pipeline.data.books.book_days import BookDay
from pipeline.data.books.closing import Books
from pipeline.data.books.days import MICROS, Closing, Sums, newest_revisions, said
from pipeline.data.books.hashing import rehashed
from pipeline.data.derived.definitions import SilverDefinition, dumps
from pipeline.data.derived.held_ids import SilverMemory
from pipeline.data.derived.silver import Silver
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.delta.through import ThroughPair, ThroughTable
from pipeline.settings.books import BooksSettings
from pipeline.store import derived, reopenings
from pipeline.store.database.report_tables import book_reopenings
from pipeline.store.games import known_games
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.repair_world import BROKEN, CHESS, FIRST, SECOND, Event, World, copied, make_world

DAY: Final = 100
"""The length of a day in seconds."""

LATENESS: Final = 10
BEGIN: Final = 1_700_000_000
"""A day's begin, Unix seconds."""

SILVER: Final = SilverDefinition("chess", "Chess", within=30)


@dataclass(frozen=True)
class Timed(Event):
    """An event with times and an id."""

    at: float | None = None  # its time, seconds after BEGIN
    taken: float | None = None  # by the source
    id: str | None = None

    @property
    def raw(self) -> bytes:
        wrapper = Wrapper(game=self.game.name, schema_id=self.schema_id, payload=self.payload, event_id=self.id or "")
        if self.at is not None:
            wrapper.event_time.FromMicroseconds(round((BEGIN + self.at) * MICROS))
        return wrapper.SerializeToString()


def row(
    at: float | None, taken: float | None = None, *, name: str | None = None, points: int = 1, kind: str = "good"
) -> Timed:
    """Return an event of Chess: good, broken for ever, or early: of a schema that is registered later."""
    taken = at if taken is None else taken
    match kind:
        case "broken":
            return Timed(CHESS, 1, BROKEN, at, taken, name)
        case "early":
            return Timed(CHESS, 2, SECOND.payload(points=points, player=f"p{points}"), at, taken, name)
        case _:
            return Timed(CHESS, 1, FIRST.payload(points=points), at, taken, name)


@dataclass
class BooksWorld(World):
    """The tables of Chess, a clock of the source, and closers that may be killed."""

    has_silver: bool = True
    opened_at: dict[int, float] = field(default_factory=dict)  # of days that were reopened, seconds after BEGIN
    seen: tuple[Closing, ...] = ()  # the ledger as it was
    promised: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=dict)  # rows by day and revision

    def _placed(self, event: Event, pos: int, known: bool) -> dict[str, Any]:
        placed = super()._placed(event, pos, known)
        assert isinstance(event, Timed)
        return placed | {
            "event_time": _moment(event.at), "source_time": _moment(event.taken), "event_id": event.id,
            "ingest_time": _moment(0.0),
        }  # fmt: skip

    def silver(self) -> None:
        """Let a new driver carry the silver table until it has read all."""
        if not self.has_silver or not self.paths.table(CHESS.key).is_folder():
            return
        driver = Silver(
            self.paths.table(CHESS.key), self.paths.silver / SILVER.name, self.environment, SILVER,
            self.registry.snapshot, memory=SilverMemory(2),
        )  # fmt: skip
        while True:
            try:
                position = driver.step()
            except TableConflict:
                continue
            if position is None or position.is_level:
                return

    def complete(self, through: float) -> None:
        """Note that bronze has all that its source had by a time, seconds after BEGIN."""
        table = ThroughTable(self.paths.through)
        pairs = table.read()
        assert table.write((*pairs, ThroughPair(self.seq, BEGIN + through, "{}")))

    def replay(self) -> None:
        """Register the schema that early rows have, and replay them."""
        if 2 not in self.registry.snapshot().games[CHESS.key]:
            self.register(message=SECOND)
        replay_all(
            self.paths, self.environment, self.registry.snapshot, known_games(self.engine), Selection(), dry_run=False
        )

    def rebuild(self) -> None:
        if self.paths.table(CHESS.key).is_folder():
            rebuild(self.paths, self.environment, self.engine, self.registry.snapshot, CHESS)
            self.streams.clear()

    def books(self) -> Books:
        """A closer that starts now."""
        return Books(self.settings, self.paths, self.engine)

    def close(self) -> list[Closing]:
        """Let a new closer close all days that can close, and a person those that were reopened; return them."""
        before = len(self.books().settle(CHESS))
        for each in self.books().close_due(CHESS, "closer").open:
            if each.state == "reopened" and not each.reasons:
                self.books().close(CHESS, each.day, "ann", "again")
        return list(self.books().settle(CHESS)[before:])

    def reopen(self, day: int, at: float) -> None:
        """Let two people reopen a closed day, by a clock that shows a time, seconds after BEGIN."""
        revision = newest_revisions(self.books().settle(CHESS))[day].revision
        asked = reopenings.submit(self.engine, CHESS.key, day, DAY, revision, "ann", "a mistake")
        reopenings.decide(self.engine, asked, "approved", "bob", "")
        own = book_reopenings.c.request_id == asked.request_id
        with self.engine.begin() as connection:
            connection.execute(update(book_reopenings).where(own).values(decided_at=BEGIN + at))
        self.opened_at[day] = at

    def day(self, number: int) -> BookDay:
        """Return the day of this number, 0 the one that begins at BEGIN."""
        begin = (BEGIN + number * DAY) * MICROS
        return next(each for each in self.books().look(CHESS).days if each.day == begin)

    def closed_rows(self, day: int, revision: int = 1) -> list[dict[str, Any]]:
        """Return the rows of `closed/GAME` of a day's revision, as any Delta reader has them."""
        rows = open_table(self.paths.closed(CHESS.key)).to_pyarrow_table()
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("rows", rows)
            own = f"epoch_us(_day) = {day} AND _revision = {revision}"
            found = database.sql(f"FROM rows WHERE {own} ORDER BY _seq, _pos").to_arrow_table()
        return [{name: value for name, value in each.items() if value is not None} for each in found.to_pylist()]

    def expected(self, closing: Mapping[int, int | None]) -> dict[int, dict[str, list[tuple[int, int]]]]:
        """Return the places of each class of each day, by a batch computation over all tables as they are now."""
        bronze = open_table(self.paths.bronze).to_pyarrow_table().to_pylist()
        landed = {(each["_seq"], each["_pos"]) for each in self.contents()}
        kept = landed
        if self.has_silver:
            table = open_table(self.paths.silver / SILVER.name).to_pyarrow_table(columns=["_seq", "_pos"])
            kept = {(each["_seq"], each["_pos"]) for each in table.to_pylist()}
        cursor = self.stream(CHESS).position.cursor
        found: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for each in bronze:
            place = each["seq"], each["pos"]
            if each["seq"] > cursor:
                continue
            base, event = each["source_time"] or each["ingest_time"], each["event_time"]
            books = self.settings.books
            is_far = event is not None and (
                event > base + timedelta(seconds=books.ahead_seconds)
                or event < base - timedelta(days=books.behind_days)
            )
            at = base if event is None or is_far else event
            day = int(at.timestamp() // DAY) * DAY * MICROS
            last = closing.get(day)
            if place not in landed:
                name = "refused"
            elif place not in kept:
                name = "duplicate"
            else:
                name = "accepted" if last is None or each["seq"] <= last else "late"
            found.setdefault(day, {}).setdefault(name, []).append(place)
        return found

    def check(self) -> None:
        """Check each law of the books by the tables as they are now."""
        look = self.books().look(CHESS)
        assert look.obstacle is None, look.obstacle
        known = self.books().settle(CHESS)
        closed = newest_revisions(known)
        expected = self.expected(
            {
                each.day: self._closing(each.day) if each.closing is None else each.closing.closing_seq
                for each in look.days
            }
        )
        assert {each.day for each in look.days} == expected.keys() | closed.keys()
        for each in look.days:
            now = Counter({name: len(places) for name, places in expected.get(each.day, {}).items()})
            sums = each.sums if each.closing is None else said(each.closing, known) + each.pending
            assert counted(sums) == counted(Sums(**now)), each
        assert known[: len(self.seen)] == self.seen
        for closing in known:
            rows = self.closed_rows(closing.day, closing.revision)
            assert rows == self.promised[closing.day, closing.revision]
            assert rehashed(self.paths.closed(CHESS.key), closing) == closing.hash

    def promise(self) -> None:
        """Note what the days that closed now have: their rows never change from here on."""
        known = self.books().settle(CHESS)
        assert known[: len(self.seen)] == self.seen
        self.seen = known
        for day, each in newest_revisions(known).items():
            if (day, each.revision) not in self.promised:
                places = set(self.expected({day: each.closing_seq}).get(day, {}).get("accepted", []))
                rows = [
                    {name: value for name, value in row.items() if value is not None}
                    for row in self.contents() if _place(row) in places
                ]  # fmt: skip
                marks = {"_day": datetime.fromtimestamp(day / MICROS, UTC), "_revision": each.revision}
                self.promised[day, each.revision] = [row | marks for row in rows]
                assert each.sums.accepted == len(rows)

    def _closing(self, day: int) -> int | None:
        at = max(day / MICROS + DAY + LATENESS, BEGIN + self.opened_at.get(day, 0.0))
        return next((pair.seq for pair in ThroughTable(self.paths.through).read() if pair.at >= at), None)


def counted(sums: Sums) -> tuple[int, ...]:
    return sums.refused, sums.duplicate, sums.late, sums.accepted


def make_books(root: Path, *, silver: bool = True, base: World | None = None, **settings: Any) -> BooksWorld:
    """Return a world whose days have 100 s, on a copy of `base` if given."""
    made = make_world(root) if base is None else copied(base, root)
    books = BooksSettings(day_seconds=DAY, lateness_seconds=LATENESS, **settings)
    world = BooksWorld(made.paths, replace(made.settings, books=books), made.engine, has_silver=silver)
    if silver:
        derived.apply(world.engine, dumps([SILVER]), 0, "ann", "a test")
    return world


@contextmanager
def books_of(root: Path, base: World) -> Iterator[BooksWorld]:
    """Yield a world on a copy of an empty one."""
    world = make_books(root, base=base)
    try:
        yield world
    finally:
        world.engine.dispose()


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["_seq"], row["_pos"]


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(BEGIN + at, UTC)
