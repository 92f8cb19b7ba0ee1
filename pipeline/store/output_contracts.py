"""Output contracts in the control store: what tables promise their readers, under a number of the schema sets.

Each application of a file adds a whole set with the next number, so a pass that pinned a schema set has pinned its
contracts, too. An older set is never changed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, insert, select

from pipeline.base.errors import Refused
from pipeline.store import audit
from pipeline.store.database.engine import reading, writing
from pipeline.store.database.tables import output_contracts
from pipeline.store.processes.leases import store_now
from pipeline.store.writers import latest_number, lock


@dataclass(frozen=True, slots=True)
class AppliedContracts:
    """The contracts of one application."""

    number: int = 0  # of the schema sets; 0: none was ever applied
    contracts: str = "[]"  # JSON
    actor: str = ""
    applied_at: float = 0.0  # Unix seconds by the store's clock


NONE: Final = AppliedContracts()
"""What is in force before the first application."""


def read_contracts(engine: Engine) -> AppliedContracts:
    """Return the contracts in force."""
    with reading(), engine.connect() as connection:
        return contracts_in(connection)


def contracts_in(connection: Connection, above: int = 0, up_to: int | None = None) -> AppliedContracts:
    """Return the newest ones with a number in (above, up_to] within a transaction, `NONE` without any."""
    table = output_contracts
    query = select(table.c.number, table.c.contracts, table.c.actor, table.c.applied_at).where(table.c.number > above)
    if up_to is not None:
        query = query.where(table.c.number <= up_to)
    row = connection.execute(query.order_by(table.c.number.desc()).limit(1)).first()
    return NONE if row is None else AppliedContracts(*row)


def apply(
    engine: Engine, contracts: str, seen: int, actor: str, reason: str,
    within: Callable[[Connection], None] = lambda _: None,
) -> AppliedContracts:  # fmt: skip
    """Write contracts as the newest set, with its audit entry, if the newest is still the one that was seen.

    `within` may refuse it in the same transaction, while no operation can be submitted.

    Raises:
        Refused: another person has applied contracts meanwhile, or `within` refuses it.
    """
    with writing(engine) as connection:
        lock_contracts(connection)
        if contracts_in(connection).number != seen:
            raise Refused("Other contracts were applied after you looked. Plan again.")
        within(connection)
        apply_within(connection, contracts, actor, reason)
        return contracts_in(connection)


def lock_contracts(connection: Connection) -> None:
    """Let nobody else write contracts until the caller's transaction ends: call it first."""
    lock(connection)
    audit.lock_log(connection)


def apply_within(
    connection: Connection, contracts: str, actor: str, reason: str, operation_id: str | None = None
) -> None:
    """Write contracts as the newest set, with its audit entry, in the caller's transaction, which holds the lock."""
    detail = {"contracts": json.loads(contracts), "reason": reason}
    act = audit.Act(actor, "apply output contracts", ("contracts",), operation_id, detail)
    audit.begin(connection, act)
    values = {"contracts": contracts, "actor": actor, "reason": reason, "applied_at": store_now()}
    connection.execute(insert(output_contracts).values(number=latest_number(connection) + 1, **values))
    audit.end(connection, act, "succeeded")
