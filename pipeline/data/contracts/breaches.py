"""Which output contracts a schema's registration would break, and whose they are: lines for its plan.

A new column and a widened one break nothing. Nothing is read but the control store.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.names import game_key, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.plans import RegistrationPlan
from pipeline.data.contracts.registrations import Registration, ready
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import placed_columns
from pipeline.data.output_contracts.masks import type_at, unsuited
from pipeline.data.output_contracts.rules import OWN, Action, ContractRule, OutputContract, label, loads
from pipeline.store.output_contracts import read_contracts

_EFFECTS: Final[Mapping[Action, str]] = {
    "warn": "each new row would be counted", "quarantine": "each new row would go to quarantine",
    "stop": "the first new row would stop the stream",
}  # fmt: skip


def breach_lines(
    engine: Engine, schemas: SchemaSet, plans: Iterable[RegistrationPlan], new: Schema | None = None
) -> Iterator[str]:
    """Yield a line for each rule of a contract that a registration breaks, with the readers who rely on it.

    Args:
        engine: the control store.
        schemas: the newest set.
        plans: of one game's registrations; schemas that come with one are judged, too.
        new: the schema of the plans that the set lacks.
    """
    contracts = loads(read_contracts(engine).contracts)
    known = {schemas.fingerprints[each]: schema for each, schema in schemas.schemas.items()}
    for plan in plans:
        own = [each for each in contracts if each.is_for(plan.game)]
        for each in (plan, *plan.with_it) if own and plan.new else ():
            schema = known.get(each.fingerprint, new)
            if schema is not None and each.placement.has_columns and not each.placement.withdrawn:
                yield from _breaches(own, schemas, each, schema)


def registration_breaches(
    engine: Engine, registry: LocalRegistry, registration: Registration, plan: RegistrationPlan
) -> Iterator[str]:
    """Yield such lines for the plan of a registration."""
    return breach_lines(engine, registry.snapshot(), [plan], ready([registration])[0].schema)


def readers_of(contract: OutputContract) -> str:
    """Return who relies on a contract, as a sentence for people."""
    return f"Readers: {join_limited(contract.readers, 10, shown)}." if contract.readers else "It names no reader."


def _breaches(
    contracts: Sequence[OutputContract], schemas: SchemaSet, plan: RegistrationPlan, schema: Schema
) -> Iterator[str]:
    name, before = event_type(schema.message), plan.placement.continues
    columns = _columns(schema, plan.placement)
    others = [
        _columns(other, at)
        for other, at in schemas.placed(game_key(plan.game))
        if at.has_columns and event_type(other.message) in {name, before}
    ]
    for each in contracts:
        if before is not None and each.covers(before) and not each.covers(name):
            yield f"! {each.name}: it is for {shown(before)}, and would not be for {shown(name)}. {readers_of(each)}"
        for rule in each.rules if each.covers(name) else ():
            if (why := _why(rule, columns, others)) is not None:
                yield f"! {label(each, rule)}: {why}. {readers_of(each)}"


def _columns(schema: Schema, at: FieldPlacement) -> pa.Schema:
    """Return the columns of an event type, at which the paths of rules begin."""
    return placed_columns(schema, replace(at, struct=None))


def _why(rule: ContractRule, columns: pa.Schema, others: Sequence[pa.Schema]) -> str | None:
    """Return what becomes of a rule for rows of new columns; None: it is for them as for those before."""
    if rule.column.split(".")[0] in OWN:
        return None
    now, before = type_at(columns, rule.column), [type_at(each, rule.column) for each in others]
    if now is not None:
        return f"{shown(rule.column)} would be {now}: {_EFFECTS[rule.action]}" if unsuited(now, rule) else None
    if rule.required:
        return f"{shown(rule.column)} would be missing: {_EFFECTS[rule.action]}"
    return f"{shown(rule.column)} would have no values" if any(each is not None for each in before) else None
