"""Closes days of a game: accepted rows into `closed/GAME`, then one row of the ledger.

Whatever decides is in the commit to `closed/GAME`: it has the rows, the record of the closing, and the closing's number
as a Delta transaction, by which a second closer conflicts. The ledger's row repeats the record. A process that is
killed between the two leaves a day that is *closing*, and the next look finishes it. Before that commit nothing counts.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import closed_app_id, plain
from pipeline.base.texts import in_utc, join_limited
from pipeline.data.books import ledger
from pipeline.data.books.book_days import BookDay, GameBooks, closed_day, reopened_days, report_tree
from pipeline.data.books.classes import Classified, DayCounts, classified
from pipeline.data.books.column_sums import ColumnSums
from pipeline.data.books.days import (
    MICROS,
    NONE,
    Closing,
    DayEntry,
    Reopened,
    Sums,
    from_json,
    label,
    newest_revisions,
    said,
)
from pipeline.data.books.hashing import closed_schema, digest_of, marked_rows
from pipeline.data.books.ledger import Ledger
from pipeline.data.books.tables import ReadTables, pin
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import SilverDefinition, loads
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.log import read_commit
from pipeline.lake.delta.marks import info_of
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.delta.through import closing_seq
from pipeline.settings.tree import Paths, Settings
from pipeline.store import operations, reopenings
from pipeline.store.books import write_report
from pipeline.store.derived import read_in_force
from pipeline.store.games import Game
from pipeline.store.processes.leases import store_time
from pipeline.store.sources import gaps_with_seqs

NOTE: Final = "turnout.closing"
"""The key of a closing's record in the commit with its rows."""

_MOST_ODD: Final = 0.1  # share of rows that are late, or clock errors, above which a person must say that it is right


class Books:
    """The books of one environment in this process."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine) -> None:
        """Prepare; reads nothing."""
        self._settings, self._paths, self._engine = settings, paths, engine
        self._registry = LocalRegistry(engine, paths.bronze)

    def look(self, game: Game) -> GameBooks:
        """Return the days of a game as they are now; changes nothing.

        Raises:
            Refused: the ledger or the control store cannot be read.
            Transient: a table lost files while it was read.
        """
        own = Ledger(self._paths.books, self._settings.environment, game.key)
        closing = self.unsettled(game, own.number)
        known = (*ledger.read(self._paths.books, game.key), *closing)
        try:
            with self._opened(game, known) as book:
                found = book.report()
        except Refused as refused:
            found = self._unknown(game, known, refused)
        unfinished = {each.day for each in closing}
        days = tuple(replace(each, state="closing") if each.day in unfinished else each for each in found.days)
        return replace(found, days=days)

    def close(self, game: Game, day: int, actor: str, reason: str = "") -> Closing:
        """Close a day by its begin (microseconds since 1970); a day that is closed, and not reopened, stays as it is.

        Raises:
            Refused: it cannot close yet, with all reasons, or needs a person's reason.
            TableConflict: another process closed a day of the game at the same moment.
            Transient: a table lost files while it was read.
        """
        known = self.settle(game)
        if (closed := newest_revisions(known).get(day)) is not None and day not in self.reopened(game, known):
            return closed
        with self._opened(game, known) as book:
            found = next((each for each in book.report().days if each.day == day), None)
            if found is None:
                raise Refused(f"{game.key} has no row of the day {label(day, book.seconds)}.")
            if found.reasons:
                raise Refused(f"The day {label(day, book.seconds)} cannot close: {' '.join(found.reasons)}")
            if found.needs and not reason:
                raise Refused(
                    f"The day {label(day, book.seconds)} closes only with a person's --reason: {' '.join(found.needs)}"
                )
            made = book.close(found, actor, reason)
            self._report(book.report())
            return made

    def close_due(self, game: Game, actor: str) -> GameBooks:
        """Close all days of a game that can close and need nobody, the oldest first; return and report its days then.

        Raises:
            TableConflict: another process closed a day of the game at the same moment.
            Transient: a table lost files while it was read.
        """
        known = self.settle(game)
        try:
            with self._opened(game, known) as book:
                for each in book.report().open:
                    if not each.reasons and not each.needs:
                        book.close(each, actor, "")
                found = book.report()
        except Refused as refused:
            found = self._unknown(game, known, refused)
        self._report(found)
        return found

    def settle(self, game: Game) -> tuple[Closing, ...]:
        """Give the ledger what a killed process left out of it; return the game's closings.

        Raises:
            Refused: the closed days or the ledger are an older copy.
        """
        own = Ledger(self._paths.books, self._settings.environment, game.key)
        for each in self.unsettled(game, own.number):
            own.add(each)
        return ledger.read(self._paths.books, game.key)

    def unsettled(self, game: Game, number: int) -> list[Closing]:
        """Return the closings above a number that `closed/GAME` has, the first one first."""
        place = self._paths.closed(game.key)
        table = CursorTable.open(place, closed_app_id(self._settings.environment, game.key))
        last = 0 if table is None else table.cursor or 0
        if last < number:
            raise Refused(
                f"{place} has {last} closings, and the ledger {number}: it is an older copy. Restore the newest."
            )
        found: list[Closing] = []
        version = -1 if table is None else table.version
        while len(found) < last - number:
            actions = read_commit(place, version) if version >= 0 else None
            if actions is None:
                raise Refused(f"The log of {place} no longer has closing {last - len(found)}, which the ledger lacks.")
            if (text := info_of(actions).get(NOTE)) is not None:
                found.append(from_json(str(text)))
            version -= 1
        return found[::-1]

    def reopened(self, game: Game, known: Sequence[Closing]) -> dict[int, Reopened]:
        """Return the days that are open again, by their begins, for the closings of a game."""
        return reopened_days(reopenings.approved(self._engine, game.key), known)

    def _report(self, found: GameBooks) -> None:
        """Report the open days, for pages and metrics."""
        days = [report_tree(each) for each in found.open]
        write_report(self._engine, found.game.key, found.through, found.obstacle, days)

    def _unknown(self, game: Game, known: Sequence[Closing], why: Refused) -> GameBooks:
        """Return the days of a game whose rows cannot be classified now: those that are closed."""
        again = self.reopened(game, known)
        days = tuple(
            replace(closed_day(each, known), state="reopened") if day in again else closed_day(each, known)
            for day, each in sorted(newest_revisions(known).items())
        )
        return GameBooks(game, _length(known, self._settings), days, None, str(why))

    @contextmanager
    def _opened(self, game: Game, known: Sequence[Closing]) -> Iterator["_Book"]:
        """Classify a game's rows, and hold them while the block runs."""
        environment = self._settings.environment
        now = store_time(self._engine)
        silvers = [
            each for each in loads(read_in_force(self._engine))
            if isinstance(each, SilverDefinition) and each.game_key == game.key
        ]  # fmt: skip
        lost = gaps_with_seqs(self._engine)
        tables = pin(self._paths, environment, game, silvers, self._registry.snapshot(), now, lost)
        obstacles = tuple(
            f"The {each.kind} {each.operation_id[:8]} of the game is open."
            for each in operations.open_by_target(self._engine, [f"game:{game.key}"]).values()
        )
        seconds = _length(known, self._settings)
        again = self.reopened(game, known)
        closed = {day: each for day, each in newest_revisions(known).items() if day not in again}

        def due(day: int) -> float:
            ends = day / MICROS + seconds + self._settings.books.lateness_seconds
            return max(ends, again[day].at / MICROS) if day in again else ends

        def closing(day: int) -> int | None:
            return closed[day].closing_seq if day in closed else closing_seq(tables.pairs, due(day))

        with classified(tables, self._paths.table(game.key), self._settings.books, seconds, closing) as rows:
            still_open = {*rows.days, *again} - closed.keys()
            days = {day: OpenDay(due(day), closing(day), again.get(day)) for day in still_open}
            yield _Book(self._settings, self._paths, self._engine, tables, rows, list(known), days, obstacles, seconds)


@dataclass(frozen=True, slots=True)
class OpenDay:
    """When an open day can close."""

    due: float  # the time through which the source must be complete, Unix seconds
    seq: int | None  # its closing seq; None: not known yet
    reopened: Reopened | None  # of a day that was closed before


@dataclass(slots=True)
class _Book:
    """The classified rows of one game beside its closings."""

    settings: Settings
    paths: Paths
    engine: Engine
    tables: ReadTables
    rows: Classified
    known: list[Closing]
    open: dict[int, OpenDay]
    obstacles: tuple[str, ...]
    seconds: int

    def report(self) -> GameBooks:
        """Return all days."""
        closed = newest_revisions(self.known)
        days = [
            self._open(day, self.open[day]) if day in self.open else self._closed(closed[day])
            for day in sorted({*closed, *self.open})
        ]
        through = max((pair.at for pair in self.tables.pairs), default=None)
        return GameBooks(self.tables.game, self.seconds, tuple(days), through)

    def close(self, found: BookDay, actor: str, reason: str) -> Closing:
        """Close an open day: first its rows with the record, then the ledger."""
        tables, settings = self.tables, self.settings
        place, app = self.paths.closed(tables.game.key), closed_app_id(settings.environment, tables.game.key)
        number, opened = len(self.known) + 1, self.open[found.day]
        revision = 1 + max((each.revision for each in self.known if each.day == found.day), default=0)
        assert opened.seq is not None, "a day without a closing seq has a reason not to close"
        columns = closed_schema(self.rows.columns)
        target = CursorTable.create(place, columns, app, description=f"closed days of {tables.game.key}")
        target.add_missing_columns(columns)
        files, sums = list[DataFile](), ColumnSums(self.rows.columns)
        try:
            digest = digest_of(self._written(found, revision, columns, files, sums))
            closing = Closing(
                game_key=tables.game.key, game=tables.game.name, number=number, day=found.day,
                day_seconds=self.seconds, revision=revision, sums=found.sums,
                without_event_time=found.without_event_time, clock_errors=found.clock_errors,
                closing_seq=opened.seq, seq=tables.cursor,
                table_id=str(tables.table.metadata().id), table_version=tables.table.version(),
                silver=tuple(f"{each.definition.name}@{each.version}" for each in tables.silvers),
                notes=(*found.needs, *found.notes), schema=tables.table.schema().to_json(), hash=digest,
                keeps_rows=settings.books.keep_rows, closed_at=int(store_time(self.engine) * MICROS),
                closed_by=actor, reason=reason, entries=tuple(self._entries()),
                column_sums=sums.texts, reopened=opened.reopened,
            )  # fmt: skip
            target.commit(files, number - 1 or None, number, {NOTE: closing.to_json()})
        except TableConflict:
            discard(place, files)
            raise
        Ledger(self.paths.books, settings.environment, tables.game.key).add(closing)
        self.known.append(closing)
        del self.open[found.day]
        return closing

    def _written(
        self, found: BookDay, revision: int, columns: pa.Schema, files: list[DataFile], sums: ColumnSums
    ) -> Iterator[Sequence[str]]:
        """Write the accepted rows where they are kept, and add them up; yield the hash of each."""
        for rows, digests in self.rows.accepted(found.day):
            sums.add(rows)
            if self.settings.books.keep_rows:
                whole = marked_rows(rows, found.day, revision).cast(columns)
                file = write_file(whole, self.paths.closed(self.tables.game.key), compression="zstd")
                files.append(replace(file, stats=stats_of(whole, ["_seq", "_day"])))
            yield digests

    def _entries(self) -> Iterator[DayEntry]:
        """Yield by how much each closed day has changed since the books last said what it has.

        A day that is open again has no entry: its next revision says all of it.
        """
        for day, closing in sorted(newest_revisions(self.known).items()):
            if day not in self.open and (change := self._now(day) - said(closing, self.known)) != NONE:
                yield DayEntry(day, closing.revision, change)

    def _now(self, day: int) -> Sums:
        counts = self.rows.days.get(day)
        return NONE if counts is None else counts.sums

    def _closed(self, closing: Closing) -> BookDay:
        pending = self._now(closing.day) - said(closing, self.known)
        return replace(closed_day(closing, self.known), pending=pending)

    def _open(self, day: int, opened: OpenDay) -> BookDay:
        counts = self.rows.days.get(day) or DayCounts(day)
        return BookDay(
            day, "open" if opened.reopened is None else "reopened", counts.sums, counts.without_event_time,
            counts.clock_errors, tuple(self._reasons(counts, opened)), tuple(self._needs(counts, opened)),
            tuple(self._notes(counts)), earlier=tuple(each for each in self.known if each.day == day), due=opened.due,
        )  # fmt: skip

    def _reasons(self, counts: DayCounts, opened: OpenDay) -> Iterator[str]:
        """Yield why a day cannot close yet."""
        lacks = self.tables.next_seq
        if opened.seq is None:
            known = max((pair.at for pair in self.tables.pairs), default=None)
            till = "no time" if known is None else f"times through {in_utc(known)} UTC"
            yield f"It waits until the source is complete through {in_utc(opened.due)} UTC; {till} is known."
        elif lacks is not None and lacks <= opened.seq:
            yield f"The game's tables lack its rows of seq {lacks}, and the day ends at seq {opened.seq}."
        if counts.lost:
            yield f"{counts.lost:,} rows are neither in the game's table nor in quarantine: run `turnout verify`."
        if counts.doubled:
            yield f"{counts.doubled:,} rows are in the game's table more than once: run `turnout repair dedupe`."
        yield from self.obstacles

    def _needs(self, counts: DayCounts, opened: OpenDay) -> Iterator[str]:
        """Yield what a person must give a reason for."""
        if opened.reopened is not None:
            yield plain(opened.reopened.line)
        last = opened.seq or counts.last_seq
        begin = counts.day / MICROS - self.settings.books.ahead_seconds  # of the source's times of its rows
        for loss in self.tables.losses:
            is_amid = counts.first_seq < loss.seqs.stop and loss.seqs.start <= last
            if is_amid or (loss.after < opened.due and loss.before > begin):
                yield f"{plain(loss.what)}, which may have had rows of the day."
        for what, number in (("late", counts.sums.late), ("clock errors", counts.clock_errors)):
            if number > _MOST_ODD * counts.rows:
                yield f"{number:,} of {counts.rows:,} rows are {what}."

    def _notes(self, counts: DayCounts) -> Iterator[str]:
        if counts.untold:
            named = join_limited([each or "unknown" for each in counts.untold], 10)
            yield f"No row is a duplicate of types without a silver table: {named}."


def _length(known: Sequence[Closing], settings: Settings) -> int:
    """Return the length of a game's days: that of those that are closed."""
    return known[-1].day_seconds if known else settings.books.day_seconds
