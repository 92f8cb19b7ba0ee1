"""The flat columns of one event type: which ones there are, and the rows of a game's table laid out as them. Pure."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.columns import members, type_text
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.further_types import GameType, game_types
from pipeline.data.contracts.known import LONGEST_BASE
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.contracts.shape import placed_columns, table_schema
from pipeline.data.derived.definitions import Mask, SilverDefinition
from pipeline.data.streams.writing.columns import OWN_COLUMNS

KEPT: Final = ("_seq", "_pos", "_event_time", "_event_id", "_source_time")
"""The game table's own columns that a silver table has, too."""

_SIDE_COLUMN: Final = re.compile(r"(.+)__v[0-9]+")
"""A column or member that continues a field whose kind has changed (docs/evolution.md)."""

_UNMASKED: Final = ("_seq", "_pos", "_source_time")  # a row's place, and what decides which rows are the same event


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """One column of a silver table."""

    name: str
    kind: pa.DataType
    path: tuple[str, ...]  # from a column of the game's table through the members of structs
    mask: Mask | None = None


@dataclass(frozen=True, slots=True)
class FlatType:
    """One event type of a game, and its columns in a silver table."""

    names: tuple[str, ...]  # that its rows have in `_type`
    others: tuple[str, ...]  # that rows of the game's other types have there
    columns: tuple[FlatColumn, ...]
    id: str | None  # the column with the id; None: rows are not compared
    read: pa.Schema  # the columns of the game's table that are read

    @property
    def schema(self) -> pa.Schema:
        """The columns of the silver table."""
        return pa.schema([(each.name, each.kind) for each in self.columns])


def chosen_type(schemas: SchemaSet, key: GameKey, game: str, name: str | None) -> GameType:
    """Return the event type that a definition means.

    Raises:
        Refused: the game has no such type, or several.
    """
    types = [each for each in game_types(schemas, key) if each.state != "waits"]
    exact = [each for each in types if name is not None and event_type(name) in each.names]
    short = [each for each in types if any(one.rsplit(".", 1)[-1] == name for one in each.names)]
    found = (exact or short) if name is not None else (types if len(types) == 1 else _firsts(types))
    if len(found) == 1:
        return found[0]
    known = join_limited([shown(each.name) for each in types], 10) or "none yet"
    what = "first event type" if name is None else f"one event type {shown(name)}"
    raise Refused(f"The game {shown(game)} has no {what}. Name one of its types: {known}.")


def _firsts(types: Sequence[GameType]) -> list[GameType]:
    """Return the type whose fields are columns of the game's table, as a list."""
    return [each for each in types if each.state == "first"]


def require_layout(table: pa.Schema, schemas: SchemaSet, definition: SilverDefinition) -> None:
    """Check that a game's table has its fields where the schema set has them: nesting changes that by a rebuild.

    Raises:
        Transient: the rebuild is still to come.
    """
    key = definition.game_key
    structs = {each.struct for each in game_types(schemas, key)}
    known, is_nested = {*OWN_COLUMNS.names, *structs}, structs != {None}
    suspects = [each for each in table if each.name not in known and (is_nested or pa.types.is_struct(each.type))]
    if not suspects:
        return
    placed = [(each, replace(at, quarantined=None) if at.landed else at) for each, at in schemas.placed(key)]
    here = set(table_schema(placed).names)
    fields = {
        name for each, at in placed if at.has_columns for name in placed_columns(each, replace(at, struct=None)).names
    }
    # A column that no schema ever had is another writer's: no rebuild is to come for it.
    others = [each for each in suspects if each.name not in here and not fields.isdisjoint(_names(each))]
    if others:
        raise Transient(
            f"The table of {shown(definition.game)} still has the columns "
            f"{join_limited([shown(each.name) for each in others], 10)} that its schemas place elsewhere: silver "
            f"{definition.name} waits for the game's rebuild."
        )


def _names(field: pa.Field) -> set[str]:
    """Return the name of a column, with those of its members."""
    return {field.name, *(each.name for each in members(field.type))}


def flat_type(table: pa.Schema, schemas: SchemaSet, definition: SilverDefinition) -> FlatType:
    """Return the columns of a definition's event type that a game's table has.

    `schemas` are at least as new as the table's rows.

    Raises:
        Refused: the game has no such type, two columns would have one name, or a column that the definition names
            does not exist.
    """
    key = definition.game_key
    of = chosen_type(schemas, key, definition.game, definition.type)
    types = game_types(schemas, key)
    others = tuple(name for each in types if each is not of and each.state != "waits" for name in each.names)
    mask = dict(definition.mask)
    leaves = list(_leaves(table, of, {each.struct for each in types}))
    columns = [_column(path, kind, below, mask) for path, kind, below in leaves]
    kept = tuple(each for each in columns if each.mask != "drop")
    has_fields = of.struct is None or of.struct in table.names
    paths = {".".join(below[:end]) for _, _, below in leaves for end in range(1, len(below) + 1)}
    named = {*mask, *({definition.id} if definition.within is not None else ())}
    if definition.rule is not None:  # whose mask is for all types, so it stands before a column comes
        named -= mask.keys()
    if definition.within is not None and (sides := _sides(paths, definition.id)):
        raise Refused(
            f"The field {definition.id} of {shown(definition.game)} has further values in "
            f"{join_limited([shown(each) for each in sides], 10)}, as its kind has changed: silver {definition.name} "
            f"cannot compare rows by it. Compare them by the event id, or by another column."
        )
    if has_fields and (lacking := sorted(named - paths)):
        raise Refused(
            f"The event type {shown(of.name)} of {shown(definition.game)} has no column "
            f"{join_limited([shown(each) for each in lacking], 10)}, which silver {definition.name} names."
        )
    names = [each.name.lower() for each in kept]
    if doubled := sorted({each for each in names if names.count(each) > 1}):
        raise Refused(
            f"Silver {definition.name} would have several columns {join_limited(doubled, 10)}: mask all but one of "
            f"them by drop."
        )
    own = None
    if definition.within is not None:
        id_ = next((each for each in kept if each.name == definition.id.replace(".", "_")), None)
        if id_ is not None and pa.types.is_nested(id_.kind):
            raise Refused(
                f"Silver {definition.name} cannot compare rows by {definition.id}, which is {type_text(id_.kind)}: "
                f"name a column with one value."
            )
        own = None if id_ is None else id_.name
    if own is None and has_fields and definition.within is not None:
        raise Refused(f"Silver {definition.name} drops {definition.id}, by which it compares rows.")
    read = dict.fromkeys([*(each.path[0] for each in kept), "_type"])
    return FlatType(of.names, others, kept, own, pa.schema([table.field(name) for name in read]))


def _leaves(
    table: pa.Schema, of: GameType, structs: set[str | None]
) -> Iterator[tuple[tuple[str, ...], pa.DataType, tuple[str, ...]]]:
    """Yield the path of each column without members, its type, and its path below the event type."""
    own = set(OWN_COLUMNS.names)
    for field in table:
        if field.name in KEPT:
            yield (field.name,), field.type, (field.name,)
        elif of.struct is None and field.name not in own | structs:
            yield from ((path, kind, path) for path, kind in _below((field.name,), field.type))
        elif field.name == of.struct:
            yield from ((path, kind, path[1:]) for path, kind in _below((field.name,), field.type))


def _below(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    if not pa.types.is_struct(kind):
        yield path, kind
        return
    for member in kind:
        yield from _below((*path, member.name), member.type)


def _column(path: tuple[str, ...], kind: pa.DataType, below: tuple[str, ...], mask: Mapping[str, Mask]) -> FlatColumn:
    how = _mask_of(below, kind, mask)
    if how == "hash":
        kind = pa.string()
    if how is not None and path[0] in _UNMASKED:
        raise Refused(f"The column {path[0]} cannot be masked: silver tells rows apart by it.")
    return FlatColumn("_".join(below), kind, path, how)


def _mask_of(below: tuple[str, ...], kind: pa.DataType, mask: Mapping[str, Mask]) -> Mask | None:
    """Return how a column is masked: by its own path, by one above it, or by that of the field that it continues.

    What continues a hashed field and cannot be hashed is left out: its values came without anybody's leave.
    """
    prefixes = [below[:end] for end in range(1, len(below) + 1)]
    if (named := next((each for each in prefixes if ".".join(each) in mask), None)) is not None:
        how = mask[".".join(named)]
        if how == "hash" and not (named == below and _is_hashable(kind)):
            raise Refused(f"The column {'.'.join(below)} cannot be hashed: only texts, bytes and whole numbers can.")
        return how
    for prefix in prefixes:
        for name, how in mask.items():
            if _continues(prefix, name):
                return how if prefix == below and _is_hashable(kind) else "drop"
    return "drop" if any(_may_hold(below, kind, name) for name in mask) else None


def _may_hold(path: tuple[str, ...], kind: pa.DataType, name: str) -> bool:
    """Return whether a column may hold a field within its values: it is, or continues, the message with the field."""
    above = name.split(".")[: len(path)]
    is_above = len(above) < len(name.split(".")) and _continues(path, ".".join(above))
    return is_above and (pa.types.is_nested(kind) or path != tuple(above))


def _sides(paths: Collection[str], name: str) -> list[str]:
    """Return the paths that continue a field's."""
    return sorted(each for each in paths if each != name and _continues(tuple(each.split(".")), name))


def _continues(path: tuple[str, ...], name: str) -> bool:
    """Return whether a path is that of a field, by the field's own name or through side columns."""
    field = name.split(".")
    return len(path) == len(field) and all(map(_is_of, path, field))


def _is_of(member: str, name: str) -> bool:
    side = _SIDE_COLUMN.fullmatch(member)
    return member == name or (side is not None and side[1] == name[:LONGEST_BASE])


def _is_hashable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.scale == 0)  # a whole number beyond 64 bits, or an unsigned one
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_integer))


def laid_out(rows: pa.RecordBatch, columns: Sequence[FlatColumn]) -> list[pa.Array]:
    """Return the columns of rows of a game's table as a silver table has them."""
    return [_masked(_at(rows, each.path), each) for each in columns]


def _at(rows: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    values = rows.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    return values


def _masked(values: pa.Array, column: FlatColumn) -> pa.Array:
    if column.mask is None:
        return values
    coded = values.dictionary_encode()
    hashed = [None if each is None else hash_of(each) for each in coded.dictionary.to_pylist()]
    return pa.array(hashed, pa.string()).take(coded.indices)


def hash_of(value: str | bytes | int) -> str:
    """Return what a hashed column has for a value: the SHA-256 of its bytes, of a number those of its digits."""
    content = value if isinstance(value, bytes) else str(value).encode()
    return hashlib.sha256(content).hexdigest()
