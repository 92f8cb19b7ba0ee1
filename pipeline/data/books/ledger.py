"""The ledger: the Delta table `books` with the closed days of all games, which any Delta reader reads.

Rows are only added. The number of a game's last closing is a Delta transaction, in the commit that adds its row.
"""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import GameKey, closed_app_id
from pipeline.data.books.days import Closing, from_tree
from pipeline.lake.delta.data_files import discard, write_file
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.opening import rows_of
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location

_TIME: Final = pa.timestamp("us", "UTC")
_SUMS: Final = tuple((name, pa.int64()) for name in ("refused", "duplicate", "late", "accepted", "places"))
_ENTRY: Final = pa.struct([("day", _TIME), ("revision", pa.int32()), *_SUMS])
_REOPENED: Final = pa.struct(
    [("requested_by", pa.string()), ("approved_by", pa.string()), ("reason", pa.string()), ("at", _TIME)]
)
LEDGER: Final = pa.schema(
    [
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("number", pa.int64()),
        ("day", _TIME),
        ("day_seconds", pa.int64()),
        ("revision", pa.int32()),
        *_SUMS,
        ("without_event_time", pa.int64()),
        ("clock_errors", pa.int64()),
        ("closing_seq", pa.int64()),
        ("seq", pa.int64()),
        ("table_id", pa.string()),
        ("table_version", pa.int64()),
        ("silver", pa.list_(pa.string())),
        ("notes", pa.list_(pa.string())),
        ("schema", pa.string()),
        ("hash", pa.string()),
        ("keeps_rows", pa.bool_()),
        ("closed_at", _TIME),
        ("closed_by", pa.string()),
        ("reason", pa.string()),
        ("entries", pa.list_(_ENTRY)),
        ("sums", pa.map_(pa.string(), pa.string())),
        ("reopened", _REOPENED),
    ]
)
"""Its columns: see docs/books.md."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read(folder: Location, key: str | None = None) -> tuple[Closing, ...]:
    """Return the closings of a game, or of all, in their order; none where no day was ever closed."""
    try:
        rows = rows_of(folder)
    except TableNotFoundError:
        return ()
    wanted = None if key is None else pc.field("game_key").cast(pa.string()) == key
    there = [name for name in LEDGER.names if name in rows.schema.names]  # an older ledger lacks some
    found = [_closing(row) for row in rows.to_table(columns=there, filter=wanted).to_pylist()]
    return tuple(sorted(found, key=lambda each: (each.game_key, each.number)))


class Ledger:
    """The ledger, open for the closings of one game."""

    def __init__(self, folder: Location, environment: str, key: GameKey) -> None:
        """Keep the folder; reads nothing yet."""
        self._folder, self._app = folder, closed_app_id(environment, key)

    @property
    def number(self) -> int:
        """The number of the game's last closing that it has; 0 without any."""
        table = CursorTable.open(self._folder, self._app)
        return 0 if table is None else table.cursor or 0

    def add(self, closing: Closing) -> None:
        """Add a closing; where another process was first, it is there already."""
        table = CursorTable.create(self._folder, LEDGER, self._app, description="closed days of games")
        if (table.cursor or 0) >= closing.number:
            return
        table.add_missing_columns(LEDGER)
        file = write_file(pa.Table.from_pylist([_row(closing)], LEDGER), self._folder)
        try:
            table.commit([file], closing.number - 1 or None, closing.number)
        except TableConflict:
            discard(self._folder, [file])
            if self.number < closing.number:
                raise


def _row(closing: Closing) -> dict[str, Any]:
    tree = asdict(closing)
    sums = tree.pop("sums")
    entries = [{"day": each.day, "revision": each.revision, **asdict(each.sums)} for each in closing.entries]
    return {**tree, **sums, "entries": entries, "sums": tree.pop("column_sums")}


def _closing(row: dict[str, Any]) -> Closing:
    sums = {name: row.pop(name) for name, _ in _SUMS}
    entries = [
        {
            "day": _micros(each["day"]), "revision": each["revision"],
            "sums": {name: each[name] for name, _ in _SUMS},
        }
        for each in row["entries"]
    ]  # fmt: skip
    times: dict[str, Any] = {name: _micros(row[name]) for name in ("day", "closed_at")}
    if (reopened := row.get("reopened")) is not None:
        times["reopened"] = {**reopened, "at": _micros(reopened["at"])}
    by_column = row.pop("sums", None)
    return from_tree({**row, **times, "sums": sums, "entries": entries, "column_sums": by_column})


def _micros(moment: datetime) -> int:
    return int((moment - _EPOCH) // timedelta(microseconds=1))
