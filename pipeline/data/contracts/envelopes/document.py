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
from pipeline.base.texts import utf8
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Rows, one_line
from pipeline.data.contracts.envelopes.document_values import numbers, sequences, texts, times
from pipeline.data.contracts.envelopes.envelope import COLUMNS, MALFORMED, PAYLOADS, TOMBSTONE, Opened, spread
from pipeline.data.contracts.envelopes.spans import Flags, content, starts_and_ends
from pipeline.data.contracts.profile import SourceProfile

MOST_LEVELS: Final = 64
"""Levels of a document: 32 of a payload, and as many around it."""

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_HALVES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Each escape; its group is the half of a surrogate pair that stands alone."""
_NOTHING: Final = (b"", b"null")  # the texts of what is absent, and of null
_NO_TEXTS: Final = pa.array(_NOTHING, pa.binary())

_values_of: Final = msgspec.structs.astuple
_Path: TypeAlias = tuple[str, ...]
_Text: TypeAlias = bytes | msgspec.Raw
_Texts: TypeAlias = Sequence[_Text]


class DocumentEnvelope:
    """Documents with the fields of a profile. What becomes of one depends on it and the profile alone.

    Refused as `malformed_wrapper`: what is not one JSON object in UTF-8, is larger than MAX_PAYLOAD_BYTES, nests deeper
    than MOST_LEVELS, has a key of a path twice, or something else than an object where a path goes on. A value that
    a column of COLUMNS cannot hold is null, as for wrappers. Without a path for it the payload is the whole document.
    """

    def __init__(self, profile: SourceProfile) -> None:
        """Prepare for a profile without problems."""
        self._paths: Final = {name: tuple(path.split(".")) for name, path in profile.fields}
        self._of_payloads: Final = {name: path for name, path in self._paths.items() if name in PAYLOADS}
        self._reader: Final = _Reader(list(self._paths.values()))
        self._payload_reader: Final = _Reader(list(self._of_payloads.values()))
        self._unit: Final = profile.time_unit
        keys = sorted({key for path in self._paths.values() for key in path})
        self._escapes: Final = _escapes(keys)
        self._twice: Final = _twice(keys)
        self._keys: Final = [f'"{key}"'.encode() for key in keys]
        self._values: Final = _places_of_values(list(self._paths.values()))

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:
        """Find the fields of each document; known good ones have nothing that msgspec passes.

        Of known good ones only the payload, the time and the event's id are looked for.
        """
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
        names = self._of_payloads if known_good else self._paths
        parts = dict(zip(names, zip(*found, strict=True) if found else [()] * len(names), strict=True))
        columns = [self._column(each, parts.get(each.name), documents) for each in COLUMNS]
        return spread(pa.RecordBatch.from_arrays(columns, schema=COLUMNS), rows, len(values), reasons)

    def _read(self, documents: pa.BinaryArray, *, known_good: bool) -> tuple[list[_Texts], dict[int, str]]:
        """Return the texts at the paths of each good document, in order, and by place why the others are bad."""
        if known_good:
            return list(map(self._payload_reader.read, documents.to_pylist())), {}
        read, doubtful = self._reader.read, self._doubtful(documents)
        twice = pc.match_substring_regex(documents, self._twice).to_pylist()
        found: list[_Texts] = []
        bad: dict[int, str] = {}
        for place, document in enumerate(documents.to_pylist()):
            try:
                if doubtful[place]:
                    _check(document, list(self._paths.values()))
                texts_found = read(document)
                if twice[place] and not doubtful[place] and self._may_repeat(document, texts_found):
                    _check(document, list(self._paths.values()))
                found.append(texts_found)
            except (msgspec.MsgspecError, ValueError) as error:
                bad[place] = one_line(_why(document, error))
        return found, bad

    def _may_repeat(self, document: bytes, found: _Texts) -> bool:
        """Return whether a key of the paths may stand twice where they lead.

        It then stands there more often than in the values at their ends, which are those of the last one.
        """
        values = sorted((bytes(found[place]) for place in self._values), key=len)
        around = document.removesuffix(values[-1] + b"}")  # the payload, in most: so little is left to look at
        if len(around) < len(document):
            values.pop()
        for key in self._keys:
            count = around.count(key)
            if count > 1 and count - sum(value.count(key) for value in values) > 1:
                return not self._reader.has_each_key_once(document)
        return False

    def _doubtful(self, documents: pa.BinaryArray) -> list[bool]:
        """Return for each document whether it may be no text, nest too deep, or have a key written with escapes."""
        found = _has_many_brackets(documents)
        if (content(documents) == ord("\\")).any():
            found |= pc.match_substring_regex(documents, self._escapes).to_numpy(zero_copy_only=False)
        doubtful: list[bool] = found.tolist()
        try:
            documents.cast(pa.string())
        except pa.ArrowInvalid:
            texts_of = documents.to_pylist()
            return [each or not _is_text(document) for each, document in zip(doubtful, texts_of, strict=True)]
        return doubtful

    def _column(self, wanted: pa.Field, found: _Texts | None, documents: pa.BinaryArray) -> pa.Array:
        if found is None:
            return documents if wanted.name == "payload" else pa.nulls(len(documents), wanted.type)
        parts = _joined(found)
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

    def read(self, document: _Text) -> _Texts:
        """Return the text at each path.

        Raises:
            msgspec.MsgspecError: it is no JSON, or no object where a path goes on.
        """
        parts = _values_of(self._decode(document))
        if self._is_flat:
            return parts
        found: list[_Text] = [b""] * self._count
        for place, number in self._whole:
            found[place] = parts[number]
        for number, places, reader in self._inner:
            part = parts[number]
            if bytes(part) not in _NOTHING:
                for place, text in zip(places, reader.read(part), strict=True):
                    found[place] = text
        return found


def _why(document: bytes, error: Exception) -> str:
    """Return why a document is refused; of half of a surrogate pair msgspec says that the document is cut off."""
    if any(_HALVES.findall(document)):
        return "a text or key has half of a surrogate pair"
    return str(error)


class _Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object, with repeated keys."""

    __slots__ = ()


def _check(document: bytes, paths: Sequence[_Path]) -> None:
    """Refuse what msgspec passes.

    Raises:
        ValueError: the document is not UTF-8, nests too deep, or has a key of a path twice.
    """
    text, level = utf8(document), 0
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


def _twice(keys: Sequence[str]) -> str:
    """Return an expression for documents that have one of these keys twice, wherever that is."""
    written = [f'"{re.escape(key)}"' for key in keys]  # Arrow matches the bytes of both
    return "(?s)" + "|".join(f"{each}.*{each}" for each in written)


def _places_of_values(paths: Sequence[_Path]) -> list[int]:
    """Return the places of paths that are there once, and into whose values no other path leads."""
    inner = {path[:length] for path in paths for length in range(1, len(path))}
    return [place for path, place in {path: place for place, path in enumerate(paths)}.items() if path not in inner]


def _joined(found: _Texts) -> pa.BinaryArray:
    """Return texts as one array; they are not copied one by one."""
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, found), np.int64, len(found)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(found))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(found), buffers).cast(pa.binary())


def _escapes(keys: Sequence[str]) -> str:
    """Return an expression for escapes that a key may be written with."""
    escaped = r"\\u00[2-7]" if all(key.isascii() for key in keys) else r"\\u"
    return escaped + (r"|\\/" if any("/" in key for key in keys) else "")


def _has_many_brackets(documents: pa.BinaryArray) -> Flags:
    """Return for each document whether it opens more than MOST_LEVELS brackets, those in texts, too."""
    found = np.zeros(len(documents), np.bool_)
    starts, ends = starts_and_ends(documents)
    places = np.flatnonzero((content(documents) | 0x20) == ord("{"))  # which [ is, too
    first, last = places[:-MOST_LEVELS], places[MOST_LEVELS:]
    rows = np.searchsorted(ends, first[last - first <= (ends - starts).max(initial=0)], side="right")
    rows = rows[rows < len(documents)]  # the others are behind a slice
    found[rows] = np.searchsorted(places, ends[rows]) - np.searchsorted(places, starts[rows]) > MOST_LEVELS
    return found


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
