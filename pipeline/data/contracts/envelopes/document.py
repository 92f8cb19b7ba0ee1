"""The envelope `json`: a document whose paths lead to the game, the event's columns, and the payload's text.

msgspec finds the text at each path, and takes nothing but JSON. What it passes is looked for apart: bytes that are not
UTF-8, a key of a path twice, and more levels than MOST_LEVELS, which its stack may not hold.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import shown
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Rows, one_line
from pipeline.data.contracts.envelopes.document_values import numbers, sequences, texts, times
from pipeline.data.contracts.envelopes.envelope import COLUMNS, MALFORMED, TOMBSTONE, Opened, spread
from pipeline.data.contracts.envelopes.spans import Places, content, starts_and_ends
from pipeline.data.contracts.profile import SourceProfile

MOST_LEVELS: Final = 64
"""Levels of a document: 32 of a payload, and as many around it."""

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_NOTHING: Final = (b"", b"null")  # the texts of what is absent, and of null
_NO_TEXTS: Final = pa.array(_NOTHING, pa.binary())

_values_of: Final = msgspec.structs.astuple
_Path: TypeAlias = tuple[str, ...]


class DocumentEnvelope:
    """Documents with the fields of a profile. What becomes of one depends on it and the profile alone.

    Refused as `malformed_wrapper`: what is not one JSON object in UTF-8, is larger than MAX_PAYLOAD_BYTES, nests deeper
    than MOST_LEVELS, has a key of a path twice, or something else than an object where a path goes on. A value that
    a column of COLUMNS cannot hold is null, as for wrappers. Without a path for it the payload is the whole document.
    """

    def __init__(self, profile: SourceProfile) -> None:
        """Prepare for a profile without problems."""
        self._paths: Final = {name: tuple(path.split(".")) for name, path in profile.fields}
        self._reader: Final = _Reader(list(self._paths.values()))
        self._unit: Final = profile.time_unit
        keys = sorted({key for path in self._paths.values() for key in path})
        self._escaped: Final = re.compile(_escapes(keys).encode())
        self._suspect: Final = _suspect(keys)

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:
        """Find the fields of each document; known good ones have nothing that msgspec passes."""
        sizes = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
        reasons = dict.fromkeys(np.flatnonzero(sizes < 0).tolist(), TOMBSTONE)
        for row in np.flatnonzero(sizes > MAX_PAYLOAD_BYTES).tolist():
            reasons[row] = (MALFORMED, f"larger than {MAX_PAYLOAD_BYTES} bytes: {sizes[row]}")
        rows: Rows = np.flatnonzero((sizes >= 0) & (sizes <= MAX_PAYLOAD_BYTES)).astype(np.int64)
        documents = _chosen(values, rows)
        found, bad = self._read(documents, known_good=known_good)
        if bad:
            reasons |= {int(rows[place]): (MALFORMED, why) for place, why in bad.items()}
            good = np.delete(np.arange(len(rows)), list(bad))
            rows, documents = rows[good], _chosen(documents, good)
        parts = dict(zip(self._paths, zip(*found, strict=True) if found else [()] * len(self._paths), strict=True))
        columns = [self._column(each, parts.get(each.name), documents) for each in COLUMNS]
        return spread(pa.RecordBatch.from_arrays(columns, schema=COLUMNS), rows, len(values), reasons)

    def _read(self, documents: pa.BinaryArray, *, known_good: bool) -> tuple[list[Sequence[bytes]], dict[int, str]]:
        """Return the texts at the paths of each good document, in order, and by place why the others are bad."""
        doubtful = [False] * len(documents) if known_good else self._doubtful(documents)
        read = self._reader.read
        found: list[Sequence[bytes]] = []
        bad: dict[int, str] = {}
        for place, document in enumerate(documents.to_pylist()):
            try:
                if doubtful[place] and not self._is_sure(document):
                    _check(document, list(self._paths.values()))
                found.append(read(document))
            except (msgspec.MsgspecError, ValueError) as error:
                bad[place] = one_line(str(error))
        return found, bad

    def _is_sure(self, document: bytes) -> bool:
        """Return whether only texts and keys inside of values look like a key twice, which is quickly seen."""
        brackets = document.count(b"{") + document.count(b"[")
        plain = brackets <= MOST_LEVELS and _is_text(document) and self._escaped.search(document) is None
        return plain and self._reader.has_each_key_once(document)

    def _doubtful(self, documents: pa.BinaryArray) -> list[bool]:
        """Return for each document whether it may have what msgspec passes."""
        twice = pc.match_substring_regex(documents, self._suspect).to_numpy(zero_copy_only=False)
        found: list[bool] = (twice | (_openings(documents) > MOST_LEVELS)).tolist()
        try:
            documents.cast(pa.string())
        except pa.ArrowInvalid:
            return [each or not _is_text(document) for each, document in zip(found, documents.to_pylist(), strict=True)]
        return found

    def _column(self, wanted: pa.Field, found: Sequence[bytes] | None, documents: pa.BinaryArray) -> pa.Array:
        if found is None:
            return documents if wanted.name == "payload" else pa.nulls(len(documents), wanted.type)
        parts = pa.array(found, pa.binary())
        parts = pc.if_else(pc.is_in(parts, value_set=_NO_TEXTS), pa.scalar(None, pa.binary()), parts)
        if wanted.name == "event_time":
            return times(parts, self._unit)
        return _CONVERSIONS[wanted.name](parts)


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Reader:
    """Finds the texts at paths that begin in one object; the texts of null and of what is absent are `null` and empty.

    An object inside is read by a reader of its own, so a path may lead to it and others further.
    """

    def __init__(self, paths: Sequence[_Path]) -> None:
        keys = list(dict.fromkeys(path[0] for path in paths))
        listed = [(f"f{place}", msgspec.Raw, msgspec.Raw(b"")) for place in range(len(keys))]
        kind = msgspec.defstruct("Document", listed, rename={f"f{place}": key for place, key in enumerate(keys)})
        self._decode: Final = msgspec.json.Decoder(kind).decode
        self._whole: Final = [(place, keys.index(path[0])) for place, path in enumerate(paths) if len(path) == 1]
        self._inner: Final[list[tuple[int, list[int], _Reader]]] = []
        for number, key in enumerate(keys):
            if places := [place for place, path in enumerate(paths) if path[0] == key and len(path) > 1]:
                self._inner.append((number, places, _Reader([paths[place][1:] for place in places])))
        self._readers: Final = [(keys[number], reader) for number, _, reader in self._inner]
        self._keys: Final = [f'"{key}"'.encode() for key in keys]
        self._count: Final = len(paths)
        self._is_flat: Final = len(keys) == len(paths) and not self._inner

    def has_each_key_once(self, document: bytes) -> bool:
        """Return whether each key of the paths stands once where they lead; False where that is not sure.

        A repeated key stands there more often than in all values together, of which msgspec keeps one for each key.

        Raises:
            msgspec.MsgspecError: it is no JSON object.
        """
        members = _MEMBERS.decode(document)
        values = b"\n".join(map(bytes, members.values()))
        if any(document.count(key) - values.count(key) > 1 for key in self._keys):
            return False
        inner = ((members.get(key), reader) for key, reader in self._readers)
        return all(
            part is None or bytes(part)[:1] != b"{" or reader.has_each_key_once(bytes(part)) for part, reader in inner
        )

    def read(self, document: bytes) -> list[bytes]:
        """Return the text at each path.

        Raises:
            msgspec.MsgspecError: it is no JSON, or no object where a path goes on.
        """
        parts = _values_of(self._decode(document))
        if self._is_flat:
            return list(map(bytes, parts))
        found = [b""] * self._count
        for place, number in self._whole:
            found[place] = bytes(parts[number])
        for number, places, reader in self._inner:
            part = bytes(parts[number])
            if part not in _NOTHING:
                for place, text in zip(places, reader.read(part), strict=True):
                    found[place] = text
        return found


class _Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object, with repeated keys."""

    __slots__ = ()


def _check(document: bytes, paths: Sequence[_Path]) -> None:
    """Refuse what msgspec passes.

    Raises:
        ValueError: the document is not UTF-8, nests too deep, or has a key of a path twice.
    """
    text, level = document.decode(), 0
    for token in _TOKENS.finditer(document):
        level += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
        if level > MOST_LEVELS:
            raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
    root = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    for path in paths:
        inside = root
        for key in path:
            values = [value for each, value in inside if each == key] if isinstance(inside, _Pairs) else []
            if len(values) > 1:
                raise ValueError(f"the key {shown(key)} stands there {len(values)} times")
            inside = values[0] if values else None


def _suspect(keys: Sequence[str]) -> str:
    """Return an expression for documents that may have one of these keys twice, also written with escapes."""
    written = [f'"{re.escape(key)}"' for key in keys]  # Arrow matches the bytes of both
    return "(?s)" + "|".join([_escapes(keys), *(f"{each}.*{each}" for each in written)])


def _escapes(keys: Sequence[str]) -> str:
    """Return an expression for escapes that a key may be written with."""
    escaped = r"\\u00[2-7]" if all(key.isascii() for key in keys) else r"\\u"
    return escaped + (r"|\\/" if any("/" in key for key in keys) else "")


def _openings(documents: pa.BinaryArray) -> Places:
    """Return how many brackets each document opens, those in texts, too."""
    starts, ends = starts_and_ends(documents)
    places = np.flatnonzero((content(documents) | 0x20) == ord("{"))  # which [ is, too
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def _is_text(document: bytes) -> bool:
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True


def _chosen(values: pa.BinaryArray, rows: Rows) -> pa.BinaryArray:
    return values if len(rows) == len(values) else values.take(pa.array(rows))


_CONVERSIONS: Final[Mapping[str, Callable[[pa.BinaryArray], pa.Array]]] = {
    "game": texts,
    "schema_id": numbers,
    "payload": lambda parts: parts,
    "event_id": texts,
    "producer_id": texts,
    "sequence": sequences,
    "type": texts,
}
