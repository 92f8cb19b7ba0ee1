"""A gold table in the file of derived streams: its fields, read and written."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.problems import shown
from pipeline.base.yaml_nodes import line_of
from pipeline.control.derived.values import NAME, SECONDS, FieldValues, grant_tree, spelled
from pipeline.data.derived.definitions import (
    FUNCTIONS,
    LATENESS,
    Aggregate,
    Function,
    GoldDefinition,
    SilverDefinition,
)

FIELDS: Final = ("name", "kind", "source", "window", "lateness", "by", "aggregates", "grant")
"""What a gold stream has."""

REQUIRED: Final = ("name", "source", "window", "aggregates")
"""What it must have."""

_DAY: Final = SECONDS["d"]
_SHORTEST: Final = 10
_LATEST: Final = 31 * _DAY
_PARTS: Final = 10_000  # of a percentile
_OWN: Final = ("window_start", "window_end")


def read(
    fields: Mapping[str, yaml.Node], name: str, silver: Mapping[str, SilverDefinition], values: FieldValues
) -> GoldDefinition | None:
    """Return a gold stream over one of the silver streams of its file; None where a part of it does not fit."""
    source = _source(fields.get("source"), silver, values)
    window, lateness = _window(fields.get("window"), values), _lateness(fields.get("lateness"), values)
    by = _by(fields.get("by"), values)
    aggregates = _aggregates(fields.get("aggregates"), by, values)
    if source is None or window is None or not aggregates:
        return None
    own_grants = values.has_own_grants(fields.get("grant"))
    return GoldDefinition(name, source, window, aggregates, by, lateness, own_grants)


def tree(definition: GoldDefinition) -> dict[str, Any]:
    """Return a gold stream as its file says it, without name, kind, and what it leaves at the default."""
    fields: dict[str, Any] = {"source": definition.silver.name, "window": spelled(definition.window)}
    if definition.lateness != LATENESS:
        fields["lateness"] = spelled(definition.lateness)
    if definition.by:
        fields["by"] = list(definition.by)
    fields["aggregates"] = {each.name: _said(each) for each in definition.aggregates}
    return {**fields, **grant_tree(own=definition.own_grants)}


def _said(each: Aggregate) -> Any:
    if each.column is None:
        return each.function
    place = {} if each.at is None else {"at": float(Decimal(each.at) / _PARTS)}
    return {each.function: each.column, **place}


def _source(
    node: yaml.Node | None, silver: Mapping[str, SilverDefinition], values: FieldValues
) -> SilverDefinition | None:
    name = values.text(node, "source")
    if node is None or name is None:
        return None
    if name not in silver:
        values.problems.add(line_of(node), f"no silver stream of this file is named {shown(name)}")
    return silver.get(name)


def _window(node: yaml.Node | None, values: FieldValues) -> int | None:
    window = values.seconds(node, "window")
    if node is None or window is None:
        return None
    if not _SHORTEST <= window <= _DAY or _DAY % window:
        values.problems.add(line_of(node), "window must be such as 1m, 5m, 1h or 1d: at least 10s, a part of a day")
        return None
    return window


def _lateness(node: yaml.Node | None, values: FieldValues) -> int:
    lateness = values.seconds(node, "lateness")
    if node is not None and lateness is not None and lateness > _LATEST:
        values.problems.add(line_of(node), "lateness must be at most 31d")
    return LATENESS if lateness is None else lateness


def _by(node: yaml.Node | None, values: FieldValues) -> tuple[str, ...]:
    columns: dict[str, None] = {}
    for each in () if node is None else yaml_nodes.items(node, "by", values.problems):
        column = values.text(each, "a column")
        if column is not None and column in {*columns, *_OWN}:
            values.problems.add(line_of(each), f"by cannot have {shown(column)} here: the table has it already")
        elif column is not None:
            columns[column] = None
    return tuple(columns)


def _aggregates(node: yaml.Node | None, by: tuple[str, ...], values: FieldValues) -> tuple[Aggregate, ...]:
    if node is None:
        return ()
    if not isinstance(node, yaml.MappingNode) or not node.value:
        values.problems.add(line_of(node), "aggregates must be a mapping of names to such as count or {sum: price}")
        return ()
    found: dict[str, Aggregate | None] = {}
    taken = {*_OWN, *(each.lower() for each in by)}  # readers may not tell cases apart
    for key, value in node.value:
        name = values.text(key, "the name of an aggregate")
        if name is None:
            continue
        if not NAME.fullmatch(name):
            said = f"{shown(name)} cannot name a column: use 1 to 40 of a-z, 0-9 and '_', beginning with a letter"
            values.problems.add(line_of(key), said)
        elif name in {*found, *taken}:
            values.problems.add(line_of(key), f"the table has a column {name} already; choose another name")
        found.setdefault(name, _aggregate(name, value, values))
    return tuple(each for each in found.values() if each is not None)


def _aggregate(name: str, node: yaml.Node, values: FieldValues) -> Aggregate | None:
    if isinstance(node, yaml.ScalarNode):
        if values.text(node, name) != "count":
            values.problems.add(line_of(node), f"{name} must be count, or such as {{sum: price}}")
            return None
        return Aggregate(name, "count")
    fields = yaml_nodes.fields(node, f"the aggregate {name}", (*FUNCTIONS, "at"), values.problems)
    functions: list[Function] = [each for each in FUNCTIONS if each in fields]
    if len(functions) != 1 or ("at" in fields) != (functions == ["percentile"]):
        said = f"{name} must have one of {', '.join(FUNCTIONS)}; a percentile, and nothing else, has at"
        values.problems.add(line_of(node), said)
        return None
    column = values.text(fields[functions[0]], f"the column of {name}")
    at = _at(fields["at"], values) if "at" in fields else None
    return None if column is None else Aggregate(name, functions[0], column, at)


def _at(node: yaml.Node, values: FieldValues) -> int | None:
    text = values.text(node, "at")
    try:
        at = Decimal(text or "") * _PARTS
    except InvalidOperation:
        at = Decimal(0)
    if not (at.is_finite() and 0 < at <= _PARTS and at == at.to_integral_value()):
        values.problems.add(line_of(node), "at must be such as 0.5 or 0.9999, above 0 and at most 1")
        return None
    return int(at)
