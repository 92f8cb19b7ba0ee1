"""Finds documents that do not fit a schema, quickly: by msgspec's typed decoder, whose values are dropped at once.

It takes the last of repeated keys, so those are looked for apart, where the others are known to fit.
"""

import json
import re
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from pipeline.base.names import shown
from pipeline.data.contracts.formats.json.scalar import Misfit
from pipeline.data.contracts.formats.json.types import JsonArray, JsonEnum, JsonMap, Nothing, Object, Scalar, Type

_LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_UNDECLARED: Final = re.compile(
    r"Object contains unknown field `(.*?)`(?: - at `\$\.([A-Za-z0-9_.]+)`| - at `.*`)?", re.DOTALL
)
_MISTYPED: Final = re.compile(r"Expected `([a-z| ]+)`, got `([a-z]+)` - at `\$\.([A-Za-z0-9_.]+)`")
_NAMES: Final = {
    "str": ("text", "text"), "int": ("a number", "an integer"), "float": ("a number", "a number"),
    "bool": ("a boolean", "a boolean"), "array": ("an array", "an array"), "object": ("an object", "an object"),
    "null": ("null", "null"),
}  # fmt: skip
"""The types of msgspec as what a value is, and as what it was expected to be."""
_SCALARS: Final[dict[str, Any]] = {"string": str, "integer": _LONG, "number": float, "boolean": bool, "date-time": str}

Misfits: TypeAlias = dict[int, Misfit | None]
"""Place → why a document is refused; None where that is not sure."""


class Screen:
    """Tells which documents may fit; those are parsed together. It takes repeated keys, which the parser refuses."""

    def __init__(self, root: Object) -> None:
        """Prepare for a schema."""
        self._decoder = msgspec.json.Decoder(type_of(root))

    def misfits(self, documents: pa.BinaryArray) -> Misfits:
        """Return which documents do not fit, and why they are refused; None where it takes a closer look.

        Documents of another version mostly have a key that the schema lacks, or a value of another type. The scalar
        decoder would take five times as long to say so.
        """
        decode, found = self._decoder.decode, Misfits()
        for place, document in enumerate(documents.to_pylist()):
            try:
                decode(document)
            except msgspec.ValidationError as error:
                found[place] = _why(str(error))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                found[place] = None
        return found


def with_a_key_twice(documents: pa.BinaryArray) -> Misfits:
    """Return which documents, that are JSON, have an object with a key twice: six times as slow."""
    found = Misfits()
    for place, document in enumerate(documents.to_pylist()):
        try:
            json.loads(document, object_pairs_hook=_once)
        except ValueError:
            found[place] = None
    return found


@lru_cache(maxsize=1024)
def _why(message: str) -> Misfit | None:
    """Return what a message of msgspec says of every document that has it; None where it may be wrong."""
    if (found := _UNDECLARED.fullmatch(message)) is not None:
        where = f"{found[2]}.{found[1]}" if found[2] else found[1]
        return Misfit(f"has the key {shown(found[1])}, which its schema does not declare", where)
    if (found := _MISTYPED.fullmatch(message)) is None:
        return None
    wanted, given, path = found[1].removesuffix(" | null"), found[2], found[3]
    if wanted not in _NAMES or (wanted, given) == ("int", "float"):  # which may be whole
        return None
    return Misfit(f"{shown(path[-200:])} is {_NAMES[given][0]}, not {_NAMES[wanted][1]}", path)


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        raise ValueError


def type_of(of: Type) -> Any:
    """Return the type by which msgspec takes what fits a schema."""
    match of:
        case Nothing():
            return None
        case Scalar():
            return _SCALARS[of.name]
        case JsonEnum():
            return str
        case JsonArray():
            return list[_or_null(of.items) if of.items.nullable else type_of(of.items)]  # type: ignore[misc]
        case JsonMap():
            return dict[str, _or_null(of.values) if of.values.nullable else type_of(of.values)]  # type: ignore[misc]
        case Object() if not all(is_plain(each.key) for each in of.properties):
            return dict[str, Any]  # which may fit
        case Object():
            listed = [(f"f{index}", _or_null(each.type), None) for index, each in enumerate(of.properties)]
            keys = {f"f{index}": each.key for index, each in enumerate(of.properties)}
            return msgspec.defstruct("Document", listed, rename=keys, forbid_unknown_fields=True)


def is_plain(key: str) -> bool:
    """Return whether msgspec takes the name of a field: it has no quote, backslash or control character."""
    return json.dumps(key, ensure_ascii=False) == f'"{key}"'


def _or_null(of: Type) -> Any:
    return None if isinstance(of, Nothing) else type_of(of) | None
