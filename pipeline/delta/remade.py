"""A game's table that was removed, and what its successor, made again from bronze, keeps of it in its log.

The removed table had all rows up to a seq. Those that bronze no longer holds are lost, and recorded as accepted gaps.
"""

from pipeline.delta import accepted_gaps
from pipeline.delta.errors import DeltaError
from pipeline.delta.log import exists
from pipeline.delta.table import CursorTable
from pipeline.errors import Refused, Transient
from pipeline.names import GameKey, bronze_app_id, remade_app_id
from pipeline.storage.location import Location


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
