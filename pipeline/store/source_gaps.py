"""How long the source brought nothing: of each ten minutes the longest gap that began in them, for eight days."""

from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from pipeline.store.database.report_tables import source_gaps
from pipeline.store.rows import SourceGap

KEPT_SECONDS: Final = 8 * 86_400.0
"""Seven days, and the gaps that lasted at the begin of the first."""

_SLOT_SECONDS: Final = 600.0
_COLUMNS: Final = tuple(source_gaps.c[name] for name in SourceGap._fields)


def slot_of(began_at: float) -> int:
    """Return the ten minutes in which a gap began, counted since 1970."""
    return int(began_at // _SLOT_SECONDS)


def joined(known: SourceGap | None, began_at: float, seconds: float) -> SourceGap:
    """Return what is kept of ten minutes in which one more gap began; None: it is their first."""
    if known is None:
        return SourceGap(began_at, seconds, 1)
    longest = max((known.seconds, known.began_at), (seconds, began_at))
    return SourceGap(longest[1], longest[0], known.number + 1)


def keep_gap(connection: Connection, began_at: float, seconds: float, now: float) -> None:
    """Add a gap that has ended, and forget those that are older than eight days."""
    connection.execute(delete(source_gaps).where(source_gaps.c.slot < slot_of(now - KEPT_SECONDS)))
    mine = source_gaps.c.slot == slot_of(began_at)
    row = connection.execute(select(*_COLUMNS).where(mine)).first()
    gap = joined(None if row is None else SourceGap(*row), began_at, seconds)
    if row is None:
        connection.execute(insert(source_gaps).values(slot=slot_of(began_at), **gap._asdict()))
    else:
        connection.execute(update(source_gaps).where(mine).values(gap._asdict()))


def gaps_in(connection: Connection) -> list[SourceGap]:
    """Return the gaps that are kept, the oldest first."""
    return [SourceGap(*row) for row in connection.execute(select(*_COLUMNS).order_by(source_gaps.c.slot))]
