"""The events of an operation's targets: when the controller saw that a step was over for one game or one group.

They are for people. No step is decided by them, so one that is missing or late changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, insert, select, true
from sqlalchemy.exc import IntegrityError

from pipeline.store.database.report_tables import operation_events
from pipeline.store.processes.leases import store_now


@dataclass(frozen=True, slots=True)
class TargetEvent:
    """What became of one target of an operation; there is one of each name for a target."""

    target: str  # such as game:KEY
    name: str  # such as `release`
    detail: str  # one sentence
    at: float | None = None  # when it was seen, Unix seconds by the store's clock; None: it is not written yet


def note_events(engine: Engine, seen: Sequence[tuple[str, TargetEvent]]) -> None:
    """Write what was seen of the targets of operations (by their ids); what is written already stays as it is."""
    if not seen:
        return
    keys = operation_events.c.operation_id, operation_events.c.target, operation_events.c.name
    with engine.begin() as connection:
        ids = sorted({operation_id for operation_id, _ in seen})
        known = {tuple(row) for row in connection.execute(select(*keys).where(keys[0].in_(ids)))}
        rows = {(operation_id, each.target, each.name): each.detail for operation_id, each in seen}
        missing = [(*key, detail) for key, detail in rows.items() if key not in known]
    names = ("operation_id", "target", "name", "detail")
    if missing:
        try:
            with engine.begin() as connection:
                query = insert(operation_events).values(at=store_now())
                connection.execute(query, [dict(zip(names, row, strict=True)) for row in missing])
        except IntegrityError:
            return  # another process has just written some of them; what is missing is seen again


def read_events(
    engine: Engine, operation_ids: Iterable[str], target: str | None = None
) -> dict[str, list[TargetEvent]]:
    """Return the events of operations by id, in the order in which they were seen; only of a target that is named."""
    columns = [operation_events.c[name] for name in TargetEvent.__slots__]
    named = true() if target is None else operation_events.c.target == target
    wanted = operation_events.c.operation_id.in_(list(operation_ids)) & named
    query = select(operation_events.c.operation_id, *columns).where(wanted)
    found: dict[str, list[TargetEvent]] = {}
    with engine.connect() as connection:
        for operation_id, *event in connection.execute(query.order_by(operation_events.c.at, operation_events.c.name)):
            found.setdefault(operation_id, []).append(TargetEvent(*event))
    return found
