"""Output contracts for the rows of one schema: their own rules, and those of its definition that they switch on. Pure.

A row keeps the rules of the definition by which it was written, so a stricter `.proto` refuses no older producer.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import GameKey
from pipeline.data.contracts.decoded import within_payload
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import given_rules
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.output_contracts.rules import ELEMENTS, Action, ContractRule, OutputContract, label

FROM_WRAPPER: Final = ("_event_time", "_event_id")
"""The columns that a wrapper fills by itself."""


def promised(
    contracts: Iterable[OutputContract], schema: Schema, placement: FieldPlacement
) -> tuple[OutputContract, ...]:
    """Return those of a game's contracts that are for rows of one of its schemas, each with all rules for them."""
    name = event_type(schema.message)
    return tuple(_with_given(each, schema, placement.names) for each in contracts if each.covers(name))


def by_definition(
    schemas: SchemaSet, key: GameKey, contract: OutputContract
) -> Iterator[tuple[str, Sequence[ContractRule], Sequence[str]]]:
    """Yield the rules that a contract switches on in the newest definition of each event type, and what is unchecked.

    Types whose definitions have no such rules are left out.
    """
    if contract.protovalidate == "off":
        return
    newest = {event_type(schema.message): (schema, at) for schema, at in schemas.placed(key) if at.has_columns}
    for name, (schema, at) in newest.items():
        rules, unchecked = given(schema, at.names, contract.protovalidate), given_rules(schema).unchecked
        if contract.covers(name) and (rules or unchecked):
            yield name, rules, unchecked


def of_landed(
    rows: pa.Table, schemas: SchemaSet, key: GameKey, contracts: Sequence[OutputContract]
) -> Iterator[tuple[str, pa.Table, tuple[OutputContract, ...]]]:
    """Yield rows of a game's table by schema, each with their event type and the contracts for them."""
    placed = {schema.schema_id: (schema, at) for schema, at in schemas.placed(key)}
    pairs = rows.select(["_schema_id", "_type"]).group_by(["_schema_id", "_type"]).aggregate([]).to_pylist()
    for schema_id, name in ((each["_schema_id"], each["_type"]) for each in pairs):
        if name is None:
            continue
        is_own = pc.and_(pc.equal(rows.column("_schema_id"), schema_id), pc.equal(rows.column("_type"), name))
        known = placed.get(schema_id)
        own = tuple(each for each in contracts if each.covers(name)) if known is None else promised(contracts, *known)
        if own:
            yield name, rows.filter(is_own).combine_chunks(), own


def _with_given(contract: OutputContract, schema: Schema, names: tuple[tuple[str, str], ...]) -> OutputContract:
    if contract.protovalidate == "off":
        return contract
    more = given(schema, names, contract.protovalidate)
    return replace(contract, rules=(*contract.rules, *more)) if more else contract


@lru_cache(maxsize=4096)
def given(schema: Schema, names: tuple[tuple[str, str], ...], action: Action) -> Sequence[ContractRule]:
    """Return the rules of a definition with an action, at the paths that a game's table has for its columns."""
    columns = dict(names)
    rules = given_rules(schema).rules
    return tuple(replace(each, column=_placed(each.column, columns), action=action) for each in rules)


def own_path(path: str, placement: FieldPlacement) -> str:
    """Return where a definition has a rule's column; a column that it lacks keeps its path in the table."""
    fields = {(name.rpartition(".")[0], column): name for name, column in placement.names}
    found, before = list[str](), ""
    for step in path.split("."):
        bare = step.rstrip(ELEMENTS)
        before = fields.get((before, bare), f"{before}.{bare}" if before else bare)
        found.append(before.rpartition(".")[2] + step[len(bare) :])
    return ".".join(found)


def fields_of(
    contracts: Sequence[OutputContract], placement: FieldPlacement, own: Collection[str] = ()
) -> dict[str, str]:
    """Return by rule the field that it is about, as producers know it: of the wrapper, or `payload.price`.

    Empty for the other `own` columns of the table, which no producer fills.
    """

    def field_of(column: str) -> str:
        if column in FROM_WRAPPER:
            return column.removeprefix("_")
        return "" if column in own else within_payload(own_path(column, placement))

    rules = ((contract, rule) for contract in contracts for rule in contract.rules)
    return {label(contract, rule): field_of(rule.column) for contract, rule in rules}


def _placed(path: str, names: dict[str, str]) -> str:
    found, before = list[str](), ""
    for step in path.split("."):
        bare = step.rstrip(ELEMENTS)
        before = f"{before}.{bare}" if before else bare
        found.append(names.get(before, bare) + step[len(bare) :])
    return ".".join(found)
