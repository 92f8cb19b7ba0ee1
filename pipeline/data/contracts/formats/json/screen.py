"""Finds documents that do not fit a schema, quickly: by msgspec's typed decoder, whose values are dropped at once.

It takes the last of repeated keys, so those are looked for apart, where the others are known to fit.
"""

import json
import re
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.names import shown
from pipeline.data.contracts.formats.json.types import JsonArray, JsonEnum, JsonMap, Nothing, Object, Scalar, Type

_LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_UNDECLARED: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `.*`)?", re.DOTALL)
_SCALARS: Final[dict[str, Any]] = {"string": str, "integer": _LONG, "number": float, "boolean": bool, "date-time": str}


class Screen:
    """Tells which documents may fit; those are parsed together. It takes repeated keys, which the parser refuses."""

    def __init__(self, root: Object) -> None:
        """Prepare for a schema."""
        self._decoder = msgspec.json.Decoder(type_of(root))

    def fits(self, documents: pa.BinaryArray) -> npt.NDArray[np.bool_]:
        """Return for each document whether it fits."""
        decode, found = self._decoder.decode, np.ones(len(documents), dtype=np.bool_)
        for place, document in enumerate(documents.to_pylist()):
            try:
                decode(document)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                found[place] = False
        return found

    def undeclared(self, document: bytes) -> str | None:
        """Return why a document is refused for a key that the schema lacks; None where that is not sure.

        It is what most documents of another version have, and the scalar decoder would take thirty times as long.
        """
        try:
            self._decoder.decode(document)
        except msgspec.ValidationError as error:
            found = _UNDECLARED.fullmatch(str(error))
            return None if found is None else f"has the key {shown(found[1])}, which its schema does not declare"
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return None


def each_key_once(documents: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Return for each document, which is JSON, whether no object in it has a key twice: six times as slow."""
    found = np.ones(len(documents), dtype=np.bool_)
    for place, document in enumerate(documents.to_pylist()):
        try:
            json.loads(document, object_pairs_hook=_once)
        except ValueError:
            found[place] = False
    return found


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
