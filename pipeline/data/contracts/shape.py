"""The columns of payloads: only Delta's types, and for each game the union over its schemas."""

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.data.contracts.columns import members, merge
from pipeline.data.contracts.declared_types import without_older
from pipeline.data.contracts.formats.json.merging import merges
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema


def placed_columns(schema: Schema, placement: FieldPlacement = PLAIN) -> pa.Schema:
    """Return the columns of one schema's payloads with the names they have in a game's table.

    Raises:
        Refused: the definition has no form as columns.
    """
    own = columns(schema)
    return wrapped(pa.schema(_renamed(own, dict(placement.names), "")) if placement.names else own, placement.struct)


def wrapped(own: pa.Schema, struct: str | None) -> pa.Schema:
    """Return the columns of an event type in the table: its own, or the struct column with them."""
    if struct is None or not len(own):
        return own
    return pa.schema([pa.field(struct, pa.struct(list(own)))])


def table_schema(placed: Iterable[tuple[Schema, FieldPlacement]]) -> pa.Schema:
    """Return the payload columns of a game's table: the union over its schemas, in the order of registration.

    The first event type's come first. Schemas whose rows never landed have none.

    Raises:
        Refused: two schemas disagree on a column's type; registered ones never do.
    """
    result = pa.schema([])
    for schema, placement in sorted(without_older(placed), key=lambda each: each[1].struct is not None):
        if placement.has_columns:
            result = merge(result, placed_columns(schema, placement))
    return result


def has_columns(held: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether columns have all the wanted ones at every depth, with their types; they may have more."""
    try:
        return bool(merge(held, wanted) == held)
    except Refused:
        return False


def merges_in(placed: Iterable[tuple[Schema, FieldPlacement]]) -> str:
    """Return which columns of a game are merged now, as its table notes it; empty for none.

    Those of a type whose rows wait count, too, so that the answer changes by merges alone.
    """
    supersets = [(each.message, superset_of(each)) for each, _ in placed if each.format == UNDECLARED]
    newest = dict(sorted(supersets, key=lambda each: each[1].version))
    kept = {message: found for message, superset in newest.items() if (found := merges(superset))}
    return json.dumps(kept, sort_keys=True) if kept else ""


def beyond(schemas: Iterable[Schema], named: str) -> set[int]:
    """Return the ids of a game's supersets by which no row has landed yet: they come after a merge, or its undo.

    Until its rebuild a table names the merges before it. The newest superset with those says how its rows lie; where
    none has them, that is the newest one.
    """
    in_table = json.loads(named or "{}")
    by_type: dict[str, list[Schema]] = {}
    for each in schemas:
        if each.format == UNDECLARED:
            by_type.setdefault(each.message, []).append(each)
    found = set[int]()
    for name, chain in by_type.items():
        later = set[int]()
        for each in sorted(chain, key=lambda one: version_of(one.definition), reverse=True):
            if merges(superset_of(each)) == in_table.get(name, {}):
                found |= later
                break
            later.add(each.schema_id)
    return found


def _renamed(fields: Iterable[pa.Field], names: Mapping[str, str], prefix: str) -> list[pa.Field]:
    paths = [(f"{prefix}{field.name}", field) for field in fields]
    return [pa.field(names.get(path, each.name), _renamed_type(each.type, names, path)) for path, each in paths]


def _renamed_type(kind: pa.DataType, names: Mapping[str, str], path: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_renamed(members(kind), names, f"{path}."))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _renamed_type(kind.value_type, names, path)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _renamed_type(kind.item_type, names, path))
    return kind
