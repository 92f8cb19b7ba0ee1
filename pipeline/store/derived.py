"""Derived streams in the control store: their definitions as people applied them, and how drivers carry them.

The tables themselves know where they are; a row here saves readers the look.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, Engine, delete, insert, select

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.store import audit
from pipeline.store.database.engine import reading, writing
from pipeline.store.database.tables import derived_states, derived_streams, games
from pipeline.store.processes.leases import store_now
from pipeline.store.rows import DerivedState, DerivedStream


@dataclass(frozen=True, slots=True)
class AppliedStreams:
    """The definitions of one application."""

    number: int = 0  # 0: none was ever applied
    definitions: str = "[]"  # JSON


NONE: Final = AppliedStreams()
"""What is in force before the first application."""


def read_definitions(engine: Engine) -> AppliedStreams:
    """Return the definitions in force."""
    with reading(), engine.connect() as connection:
        return definitions_in(connection)


def apply(engine: Engine, definitions: str, seen: int, actor: str, reason: str) -> AppliedStreams:
    """Write definitions as the newest ones, with their audit entry, if the newest are still those that were seen.

    Raises:
        Refused: another person has applied some meanwhile.
    """
    with writing(engine) as connection:
        audit.lock_log(connection)
        if definitions_in(connection).number != seen:
            raise Refused("Other derived streams were applied after you looked. Plan again.")
        apply_within(connection, definitions, actor, reason)
        return definitions_in(connection)


def apply_within(
    connection: Connection, definitions: str, actor: str, reason: str, operation_id: str | None = None
) -> None:
    """Write definitions as the newest ones, with their audit entry; the caller's transaction holds the log's lock."""
    listed = json.loads(definitions)
    act = audit.Act(actor, "apply derived streams", ("derived",), operation_id, {"derived": listed, "reason": reason})
    audit.begin(connection, act)
    values = {"definitions": definitions, "actor": actor, "reason": reason, "applied_at": store_now()}
    connection.execute(insert(derived_streams).values(number=definitions_in(connection).number + 1, **values))
    named = [each["name"] for each in listed]
    connection.execute(delete(derived_states).where(derived_states.c.name.not_in(named)))
    audit.end(connection, act, "succeeded")


def read_states(engine: Engine) -> dict[str, DerivedState]:
    """Return how each derived stream is carried, by its name; those that no driver has carried yet are left out."""
    with reading(), engine.connect() as connection:
        return _states(connection)


def streams_in(connection: Connection) -> list[DerivedStream]:
    """Return the derived streams in force, with the groups of their games, in the order of their file."""
    trees = json.loads(definitions_in(connection).definitions)
    listed = [(each["name"], game_key(each.get("silver", each)["game"])) for each in trees]  # gold has its silver
    if not listed:
        return []
    named = games.c.game_key.in_({key for _, key in listed})
    rows = connection.execute(select(games.c.game_key, games.c.group_name).where(named))
    groups = {row.game_key: row.group_name for row in rows}
    states = _states(connection)
    return [DerivedStream(name, key, groups.get(key), states.get(name)) for name, key in listed]


def write_states(engine: Engine, states: Collection[DerivedState]) -> None:
    """Replace what is known of some derived streams."""
    with writing(engine) as connection:
        named = [each.name for each in states]
        connection.execute(delete(derived_states).where(derived_states.c.name.in_(named)))
        for each in states:
            connection.execute(insert(derived_states).values(asdict(each)))


def _states(connection: Connection) -> dict[str, DerivedState]:
    rows = connection.execute(select(*(derived_states.c[name] for name in DerivedState.__slots__)))
    return {row.name: DerivedState(*row) for row in rows}


def definitions_in(connection: Connection) -> AppliedStreams:
    """Return the definitions in force within a transaction."""
    table = derived_streams
    query = select(table.c.number, table.c.definitions).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return NONE if row is None else AppliedStreams(*row)
