"""The ledger of access: operations' changes, entitlements and grants by turnout.

A catalog knows neither reasons nor times at which access ends, nor who gave it; that is here: entitlements, what was
given for them, and of each operation its change set and how far each of its changes is.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update

from grants.catalog import Change
from grants.model import Securable, folded, securable
from grants.planning.change_set import ChangeSet
from grants.planning.effects import Effect
from grants.planning.entitlements import AccessIntent, Entitlement, ManagedAccess, ManagedGrant
from pipeline.base.errors import Refused
from pipeline.store.database.states import AccessItemState
from pipeline.store.database.tables import access_change_sets, access_items, entitlements, managed_grants
from pipeline.store.operations import Operation, lock_operation
from pipeline.store.processes.leases import store_now

DONE: Final[frozenset[AccessItemState]] = frozenset({"applied", "observed", "unseen"})
"""The states of an item that the catalog has taken."""


@dataclass(frozen=True, slots=True)
class Item:
    """One change of an operation with its state."""

    number: int  # from 1: their order
    change: Change
    state: AccessItemState
    message: str  # one sentence; empty before there is one

    @property
    def is_done(self) -> bool:
        """Whether the catalog has taken it."""
        return self.state in DONE


@dataclass(frozen=True, slots=True)
class Held:
    """A grant of a game's table to a principal, with all that is known of it."""

    entitlement_id: int
    principal: str  # as the catalog spells it
    game_key: str
    expires_at: float | None  # Unix seconds; None: it does not expire
    reason: str
    ticket: str
    table_id: str  # of the table it was given on
    principal_id: str  # the directory's; empty: not known
    operation_id: str
    given_at: float
    revoked_at: float | None  # when the catalog took its revoke, which no read has shown yet
    ended_at: float | None
    ended_by: str | None

    @property
    def until(self) -> float | None:
        """When it is over: at its end, or since it was revoked."""
        return self.expires_at if self.revoked_at is None else self.revoked_at

    @property
    def entitlement(self) -> Entitlement:
        """It as plans know it."""
        return Entitlement(self.principal, self.game_key, self.until, self.table_id, self.principal_id)


_HELD: Final = tuple(entitlements.c[name] for name in Held.__slots__)


def write(
    engine: Engine,
    operation: Operation,
    change_set: ChangeSet,
    effects: Iterable[Effect] = (),
    *,
    replaces: bool = False,
) -> None:
    """Record the plan of an operation, once; with `replaces`, instead of an earlier try's plan.

    Raises:
        OperationConflict: another writer has changed the operation since it was read.
    """
    with engine.begin() as connection:
        lock_operation(connection, operation)
        own_rows = access_change_sets.c.operation_id == operation.operation_id
        if replaces:
            connection.execute(delete(access_items).where(access_items.c.operation_id == operation.operation_id))
            connection.execute(delete(access_change_sets).where(own_rows))
        if connection.execute(select(access_change_sets.c.operation_id).where(own_rows)).first() is not None:
            return
        row = {"operation_id": operation.operation_id, "change_set": _as_json(change_set, effects)}
        connection.execute(insert(access_change_sets).values(row))
        for number, each in enumerate(change_set.changes, 1):
            connection.execute(
                insert(access_items).values(
                    operation_id=operation.operation_id, number=number, securable=each.securable.full_name,
                    principal=each.principal, adds=json.dumps(each.add), removes=json.dumps(each.remove),
                    state="planned", message="", changed_at=store_now(),
                )
            )  # fmt: skip


def items(engine: Engine, operation_id: str) -> list[Item]:
    """Return the changes of an operation in their order."""
    query = select(access_items).where(access_items.c.operation_id == operation_id).order_by(access_items.c.number)
    with engine.connect() as connection:
        return [_item(row) for row in connection.execute(query)]


def change_set(engine: Engine, operation_id: str) -> ChangeSet:
    """Return the plan of an operation.

    Raises:
        Refused: the operation has not planned yet.
    """
    return _from_json(_written(engine, operation_id))


def effects(engine: Engine, operation_id: str) -> list[Effect]:
    """Return what comes of the plan of an operation.

    Raises:
        Refused: the operation has not planned yet.
    """
    return [Effect(*each) for each in json.loads(_written(engine, operation_id))["effects"]]


def _written(engine: Engine, operation_id: str) -> str:
    query = select(access_change_sets.c.change_set).where(access_change_sets.c.operation_id == operation_id)
    with engine.connect() as connection:
        text: str | None = connection.scalar(query)
    if text is None:
        raise Refused(f"Operation {operation_id[:8]} has not planned any change of access.")
    return text


def done(engine: Engine, operation_id: str) -> ChangeSet:
    """Return the part of an operation's plan that the catalog has applied.

    An entitlement belongs to it if nothing that it rests on has failed.

    Raises:
        Refused: the operation has not planned yet.
    """
    planned, journal = change_set(engine, operation_id), items(engine, operation_id)
    failed = [each.change for each in journal if not each.is_done]
    tables = {(folded(each.principal), each.securable.path[-1]) for each in failed if each.securable.type == "table"}
    above = {folded(each.principal) for each in failed if each.add and each.securable.type != "table"}
    return replace(
        planned,
        changes=tuple(each.change for each in journal if each.is_done),
        made=tuple(each for each in planned.made if each.cell not in tables and each.cell[0] not in above),
        ended=tuple(each for each in planned.ended if each.cell not in tables),
    )


def mark(engine: Engine, operation: Operation, number: int, state: AccessItemState, message: str) -> None:
    """Record an item's state.

    Raises:
        OperationConflict: another writer has changed the operation since it was read.
    """
    with engine.begin() as connection:
        lock_operation(connection, operation)
        own_row = (access_items.c.operation_id == operation.operation_id) & (access_items.c.number == number)
        connection.execute(
            update(access_items).where(own_row).values(state=state, message=message, changed_at=store_now())
        )


def settle(engine: Engine, operation: Operation, intents: Iterable[AccessIntent]) -> None:
    """Record what an operation has given so far, and what was seen removed. Idempotent, and called after each look.

    What the catalog took back and no read has shown stays given. Its entitlement is over from now on, so that it is
    revoked again, with all that it brought along.

    Raises:
        Refused: the operation has not planned yet.
        OperationConflict: another writer has changed it since it was read.
    """
    applied = done(engine, operation.operation_id)
    journal = items(engine, operation.operation_id)
    unseen = [each.change for each in journal if each.change.remove and each.state != "observed"]
    tables = {(folded(each.principal), each.securable.path[-1]) for each in unseen if each.securable.type == "table"}
    above = {folded(each.principal) for each in unseen if each.securable.type != "table"}
    leaving = {each for each in applied.ended if each.cell in tables or each.cell[0] in above}
    seen = tuple(each for each in applied.changes if each not in unseen)
    ended = tuple(each for each in applied.ended if each not in leaving)
    keep(engine, operation, replace(applied, changes=seen, ended=ended), intents, leaving)


def keep(
    engine: Engine,
    operation: Operation,
    done: ChangeSet,
    intents: Iterable[AccessIntent],
    leaving: Collection[Entitlement] = (),
) -> None:
    """Record entitlements and grants after a change set, or after a part of it. Idempotent.

    Reasons and tickets are those of the intents; an entitlement that comes back has the operation's. `leaving` are
    over from now on, and held.

    Raises:
        OperationConflict: another writer has changed the operation since it was read.
    """
    terms = {(each.cell, each.until): (each.reason, each.ticket) for each in intents}
    with engine.begin() as connection:
        lock_operation(connection, operation)
        before = _managed(connection)
        after = done.kept(before)
        for each in before.given - after.given:
            connection.execute(delete(managed_grants).where(_is_given(each)))
        for each in sorted(after.given - before.given):
            connection.execute(insert(managed_grants).values(**_given_row(each), operation_id=operation.operation_id))
        for ended in done.ended:
            connection.execute(
                update(entitlements)
                .where(_is(ended), entitlements.c.ended_at.is_(None))
                .values(ended_at=store_now(), ended_by=operation.operation_id)
            )
        for left in leaving:
            in_force = entitlements.c.ended_at.is_(None) & entitlements.c.revoked_at.is_(None)
            not_over = entitlements.c.expires_at.is_(None) | (entitlements.c.expires_at > store_now())
            connection.execute(update(entitlements).where(_is(left), in_force, not_over).values(revoked_at=store_now()))
        for new in sorted(after.entitlements - before.entitlements, key=lambda each: (each.cell, each.until or 0.0)):
            reason, ticket = terms.get((new.cell, new.until), (operation.reason, ""))
            connection.execute(
                insert(entitlements).values(
                    principal=new.principal, game_key=new.key, expires_at=new.until, table_id=new.table_id,
                    principal_id=new.principal_id,
                    reason=reason, ticket=ticket, operation_id=operation.operation_id, given_at=store_now(),
                )
            )  # fmt: skip


def managed(engine: Engine) -> ManagedAccess:
    """Return all entitlements and grants, for a plan."""
    with engine.connect() as connection:
        return _managed(connection)


def held(engine: Engine) -> list[Held]:
    """Return the entitlements in force, oldest first."""
    return _held(engine, entitlements.c.ended_at.is_(None))


def over(engine: Engine) -> list[Held]:
    """Return those of them that are over by now, oldest first."""
    over_at = func.coalesce(entitlements.c.revoked_at, entitlements.c.expires_at)
    return _held(engine, entitlements.c.ended_at.is_(None) & (over_at <= store_now()))


def history(engine: Engine, game_key: str) -> list[Held]:
    """Return all entitlements of a game, past ones too, oldest first."""
    return _held(engine, entitlements.c.game_key == game_key)


def _managed(connection: Connection) -> ManagedAccess:
    kept = connection.execute(select(*_HELD).where(entitlements.c.ended_at.is_(None)))
    given = connection.execute(select(managed_grants))
    return ManagedAccess(
        frozenset(Held(*row).entitlement for row in kept),
        frozenset(ManagedGrant(_securable(row.securable), row.principal, row.privilege) for row in given),
    )


def _given_row(each: ManagedGrant) -> dict[str, str]:
    return {"securable": each.securable.full_name, "principal": each.principal, "privilege": each.privilege}


def _is_given(each: ManagedGrant) -> Any:
    row = _given_row(each)
    return (
        (managed_grants.c.securable == row["securable"])
        & (managed_grants.c.principal == row["principal"])
        & (managed_grants.c.privilege == row["privilege"])
    )


def _is(each: Entitlement) -> Any:
    """Return what finds an entitlement, also by the end that it had before it was revoked."""
    c = entitlements.c
    same = (c.principal == each.principal) & (c.game_key == each.key) & (c.table_id == each.table_id)
    if each.until is None:
        return same & c.expires_at.is_(None)
    return same & ((c.expires_at == each.until) | (c.revoked_at == each.until))


def _held(engine: Engine, where: Any) -> list[Held]:
    query = select(*_HELD).where(where).order_by(entitlements.c.entitlement_id)
    with engine.connect() as connection:
        return [Held(*row) for row in connection.execute(query)]


def _item(row: Row[Any]) -> Item:
    return Item(
        row.number,
        _change(row.securable, row.principal, json.loads(row.adds), json.loads(row.removes)),
        row.state,
        row.message,
    )


def _change(securable: str, principal: str, add: Sequence[str], remove: Sequence[str]) -> Change:
    return Change(_securable(securable), principal, tuple(add), tuple(remove))


def _securable(full_name: str) -> Securable:
    return securable(tuple(full_name.split(".")))


def _as_json(done: ChangeSet, effects: Iterable[Effect]) -> str:
    tree = {
        "changes": [[each.securable.full_name, each.principal, each.add, each.remove] for each in done.changes],
        "made": [each._asdict() for each in done.made],
        "ended": [each._asdict() for each in done.ended],
        **{
            name: [_given_row(each) for each in sorted(getattr(done, name))] for name in ("adopted", "ours", "disowned")
        },
        "brought": sorted(done.brought),
        "effects": [list(each) for each in effects],
        "delta_ids": done.delta_ids,
    }
    return json.dumps(tree, separators=(",", ":"))


def _from_json(text: str) -> ChangeSet:
    tree: Mapping[str, Any] = json.loads(text)
    given = {
        name: frozenset(
            ManagedGrant(_securable(each["securable"]), each["principal"], each["privilege"]) for each in tree[name]
        )
        for name in ("adopted", "ours", "disowned")
    }
    return ChangeSet(
        changes=tuple(_change(*each) for each in tree["changes"]),
        made=tuple(Entitlement(**each) for each in tree["made"]),
        ended=tuple(Entitlement(**each) for each in tree["ended"]),
        **given,
        brought=frozenset((who, key) for who, key in tree["brought"]),
        delta_ids=tuple((key, delta_id) for key, delta_id in tree.get("delta_ids", ())),
    )
