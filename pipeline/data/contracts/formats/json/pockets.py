"""Reads the maps of many JSON documents by msgspec, quickly, as Arrow's parser knows none. Called by `parser` only.

Arrow's parser then ignores what it does not know, so undeclared keys are found here as well.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.json.screen import is_plain, type_of
from pipeline.data.contracts.formats.json.types import (
    JsonArray,
    JsonEnum,
    JsonMap,
    Object,
    Property,
    Scalar,
    Type,
    has_maps,
    inside,
)

_ESCAPED: Final = r"\u00"  # an escape that may stand for a letter of a key

Path: TypeAlias = tuple[int, ...]
"""The places of a property and of those around it among the properties of their objects."""


def pockets_of(root: Object) -> dict[Path, Property] | None:
    """Return the maps in objects; None where some map lies elsewhere, or holds more than scalars.

    None, too, where there are maps and some key is not plain: msgspec tells undeclared keys by plain ones only.
    """
    found = dict(_pockets(root, ()))
    return None if found and (any(map(_is_odd, found.values())) or not _has_plain_keys(root)) else found


def _has_plain_keys(of: Type) -> bool:
    keys = [each.key for each in of.properties] if isinstance(of, Object) else []
    return all(map(is_plain, keys)) and all(map(_has_plain_keys, inside(of)))


def _pockets(of: Object, path: Path) -> Iterator[tuple[Path, Property]]:
    for place, each in enumerate(of.properties):
        if isinstance(each.type, Object):
            yield from _pockets(each.type, (*path, place))
        elif has_maps(each.type):
            yield (*path, place), each


def _is_odd(one: Property) -> bool:
    return not (
        is_plain(one.key)
        and one.key.isascii()
        and isinstance(one.type, JsonMap)
        and isinstance(one.type.values, Scalar | JsonEnum)
    )


@dataclass(slots=True)
class Entries:
    """The entries of one map in all documents."""

    holds_texts: bool
    keys: list[str] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])  # of each document's entries, behind those of all before
    nulls: list[bool] = field(default_factory=list)  # by document

    def add(self, made: dict[str, Any] | None) -> int:
        """Add one document's map; return how many quotes it is written with, if no key was there twice."""
        self.nulls.append(made is None)
        quotes = 0
        if made:
            values = list(made.values())
            self.keys.extend(made)
            self.items.extend(values)
            quotes = 2 * (len(values) + (len(values) - values.count(None) if self.holds_texts else 0))
        self.ends.append(len(self.keys))
        return quotes


class Pockets:
    """Reads all maps of a schema."""

    def __init__(self, root: Object, pockets: Mapping[Path, Property]) -> None:
        """Prepare for a schema with its maps."""
        self._decode = msgspec.json.Decoder(_shape(root)).decode
        self._pockets = pockets
        self._entries = [
            (path, _getter(path), msgspec.json.Decoder(type_of(each.type) | None).decode)
            for path, each in pockets.items()
        ]

    def read(self, documents: pa.BinaryArray) -> tuple[dict[Path, Entries], Rows] | None:
        """Return the entries of each map, and the rows that may have a key twice; None where one does not fit."""
        found = {path: Entries(_holds_texts(each.type)) for path, each in self._pockets.items()}
        reading = [(found[path], getter, decode) for path, getter, decode in self._entries]
        doubtful = list[int]()
        try:
            for row, document in enumerate(documents.to_pylist()):
                whole = self._decode(document)
                for entries, getter, decode in reading:
                    raw = getter(whole)
                    made = None if raw is None else decode(raw)
                    if entries.add(made) != (bytes(raw).count(b'"') if made else 0):
                        doubtful.append(row)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return found, np.array(doubtful, dtype=np.int64)

    def twice(self, texts: pa.StringArray) -> Rows:
        """Return the rows that may have a map twice: its key stands there more than once, or may, escaped."""
        suspects = pc.match_substring(texts, _ESCAPED)
        for each in self._pockets.values():
            suspects = pc.or_(suspects, pc.greater(pc.count_substring(texts, f'"{each.key}"'), 1))
        return np.flatnonzero(suspects.to_numpy(zero_copy_only=False)).astype(np.int64)


def _shape(of: Type) -> Any:
    """Return a type that tells undeclared keys and leaves all else as it is written, null included."""
    match of:
        case Object():
            listed = [(f"f{place}", _shape(each.type), None) for place, each in enumerate(of.properties)]
            keys = {f"f{place}": each.key for place, each in enumerate(of.properties)}
            return msgspec.defstruct("Shape", listed, rename=keys, forbid_unknown_fields=True, gc=False) | None
        case JsonArray() if _has_objects(of.items):
            return list[_shape(of.items)] | None  # type: ignore[misc]
        case _:
            return msgspec.Raw


def _has_objects(of: Type) -> bool:
    return isinstance(of, Object) or (isinstance(of, JsonArray) and _has_objects(of.items))


def _holds_texts(of: Type) -> bool:
    return isinstance(of, JsonMap) and (isinstance(of.values, JsonEnum) or type_of(of.values) is str)


def _getter(path: Path) -> Callable[[Any], Any]:
    names = [f"f{place}" for place in path]

    def get(whole: Any) -> Any:
        for name in names:
            if whole is None:
                return None
            whole = getattr(whole, name)
        return whole

    return get
