"""A game's table that was removed, and what its successor, made again from bronze, keeps of it in its log.

The removed table had all rows up to a seq. Those that bronze no longer holds are lost, and recorded as accepted gaps.
Rows from before the game was known have no game's key, so no stream reads them: they go back into quarantine.
"""

import logging
import time
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import MALFORMED, GameKey, bronze_app_id, remade_app_id, repair_app_id
from pipeline.lake.delta import accepted_gaps, parquet
from pipeline.lake.delta.bronze import BRONZE, text
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.foreign import cursor_lost
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE, UNKNOWN_GAME, without_present
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location

_log: Final = logging.getLogger("turnout")

_BATCH_ROWS: Final = 2_048  # payloads may be a megabyte each
_READ: Final = pa.schema([BRONZE.field(name) for name in (*QUARANTINE.names, "refused") if name in BRONZE.names])


class TableGone(Refused):
    """A game's table has been removed: no driver makes it again before a person has decided."""


def removal(table: Location, bronze: Location | None) -> TableGone | Transient:
    """Return why no row lands in a table that is gone; without bronze the disk may not be mounted.

    Raises:
        OSError: storage does not serve.
    """
    if bronze is not None and not exists(bronze):
        return Transient(f"Neither the table's folder {table} nor bronze at {bronze} is there. Mount their disk again.")
    return TableGone(
        f"The table's folder {table} is gone. Put it back, or let bronze make it again with "
        f"`turnout repair retry {table.name}`."
    )


def refuse_removed(table: Location, bronze: Location, reported: int) -> None:
    """Check that a table that a driver has reported is there: only its driver, or a rebuild, makes it again.

    Raises:
        TableGone: it is gone, as bronze is there.
        Transient: neither is there.
    """
    if reported and not exists(table):
        raise removal(table, bronze)


def require_bronze(table: Location, bronze: Location, environment: str, through: int) -> None:
    """Check that bronze can be read, and reaches as far as a removed table did.

    Raises:
        Transient: it cannot be read, or does not reach so far; the table must not be made again.
    """
    try:
        opened = CursorTable.open(bronze, bronze_app_id(environment))
    except (DeltaError, OSError) as error:
        raise Transient(
            f"The table's folder {table} is gone, and bronze at {bronze} cannot be read: {error}"
        ) from error
    if opened is None:
        raise removal(table, bronze)
    if (opened.cursor or 0) < through:
        raise Transient(
            f"The table's folder {table} is gone, and bronze at {bronze} ends at seq {opened.cursor or 0}, before seq "
            f"{through}, which the table had. Put the table or bronze back."
        )


def require_cursor(table: Location, environment: str, key: GameKey, reported: int) -> None:
    """Check that a table without a cursor, of which one was reported, is being made again and has no rows yet.

    Raises:
        ForeignChange: its log has lost the cursor.
    """
    opened = open_table(table)
    remade = opened.transaction_version(remade_app_id(environment, key))
    if remade is None and pa.table(opened.get_add_actions()).num_rows:
        raise cursor_lost(table, reported)


def warn_of_older(table: Location, cursor: int, before: int) -> None:
    """Say in the log that a table ends before it did: a power cut took commits, or it was put back from a copy."""
    _log.warning(
        "%s: its table ends at seq %d, and ended at seq %d before: bronze is read again from there. If the table was "
        "put back from an older copy, rows that a replay landed since are missing: `turnout verify` names them, and "
        "`turnout repair rebuild %s` brings them",
        table.name,
        cursor,
        before,
        table.name,
    )


def refuse_again(bronze: Location, quarantine: Location, environment: str, key: GameKey, game: str) -> int:
    """Put a game's rows from before it was known back into quarantine; return how many were not there.

    A replay had landed them in the table that is gone. Call before its successor is made; to call it again is harmless.

    Raises:
        TableConflict: another process removed rows of the game from quarantine meanwhile.
    """
    app_id = repair_app_id(environment, key)
    target, opened = CursorTable.create(quarantine, QUARANTINE, app_id), open_table(bronze)
    target.add_missing_columns(QUARANTINE)
    removals = target.cursor  # before quarantine is read
    head = int(opened.transaction_version(bronze_app_id(environment)) or 0)
    files = files_with(opened, bronze, "seq", range(1, head + 1), [key, MALFORMED])
    if not files:
        return 0
    rows = parquet.dataset(files, _READ).scanner(
        filter=(pc.field("seq") <= head) & (text("refused") == UNKNOWN_GAME) & (text("game") == game),
        batch_size=_BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    written = []
    for batches in parquet.bounded(rows.to_batches()):
        found = without_present(_refused(pa.Table.from_batches(batches)), quarantine).select(QUARANTINE.names)
        if found.num_rows:
            written.append(write_file(found, quarantine, ["seq", "game_key"]))
    if written:
        target.commit(written, removals, (removals or 0) + 1)
    count = sum(file.rows for file in written)
    if count:
        _log.warning(
            "%s: %d rows from before the game was known are in quarantine again, as its table is made again: run "
            "`turnout repair replay %s`",
            key,
            count,
            key,
        )
    return count


def _refused(rows: pa.Table) -> pa.Table:
    """Return bronze's rows as quarantine has them."""
    now = pa.scalar(int(time.time() * 1_000_000), pa.timestamp("us", "UTC"))
    columns = {name: rows.column(name) for name in QUARANTINE.names if name in rows.column_names}
    columns["reason"] = rows.column("refused")
    columns["detail"] = pa.repeat(pa.scalar("nobody knew the game when the row came"), rows.num_rows)
    columns["quarantined_at"] = pa.repeat(now, rows.num_rows)
    columns["field"] = pa.nulls(rows.num_rows, pa.string())
    return pa.table({name: columns[name] for name in QUARANTINE.names}).cast(QUARANTINE)


def record(table: Location, environment: str, key: GameKey, through: int) -> None:
    """Note in the log of a table that it is made again, and up to which seq the removed one had all rows."""
    app_id = remade_app_id(environment, key)
    opened = CursorTable.open(table, app_id)
    if opened is not None and (opened.cursor or 0) < through:
        opened.commit([], opened.cursor, through, note={"turnout": "made again from bronze"})


def record_lost(
    table: Location, environment: str, key: GameKey, app_id: str, above: int, through: int, cursor: int | None = None
) -> None:
    """Record that bronze no longer holds the rows of a removed table above a seq up to another one.

    With `cursor` the application id moves there; else it stays.

    Raises:
        TableConflict: another process moved it.
    """
    opened = CursorTable.open(table, app_id)
    if opened is None:
        return
    gap = accepted_gaps.record(opened.transaction_version, environment, key, above, through)
    note = {"turnout": f"made again: bronze no longer holds the rows above seq {above} up to seq {through}"}
    opened.commit([], opened.cursor, opened.cursor or 0 if cursor is None else cursor, note=note, also=gap)
