"""Writes documents again, each value under the property of the slot that takes it. Pure; one document at a time.

What is written fits the superset's declared schema, by which it is decoded as any other document is. Nothing is left
out but nothing: null, `{}`, `[]`, and what holds nothing else.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.json.choices import pinned_refusal, require_wanted
from pipeline.data.contracts.formats.json.scalar import Fraction, Whole
from pipeline.data.contracts.formats.json.shapes import LIST, MAP, REST, Shape, kind_of, require_text
from pipeline.data.contracts.formats.json.superset import (
    ANY,
    OTHER,
    STRUCT,
    Level,
    Slot,
    Superset,
    goes_to_map,
    properties,
    shape_of,
    slot_kind,
    struct_at,
)

_quoted: Final = json.encoder.encode_basestring
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


MOST_WRITTEN: Final = 4 * MAX_PAYLOAD_BYTES
"""Most bytes of a document that is written again: as a text in itself it has a backslash before each quote."""


class NotCovered(Exception):
    """A document with a fact for which the superset has no slot: its row waits for a registration."""


def written_again(superset: Superset, document: bytes) -> bytes:
    """Return a document as the superset's declared schema takes it.

    Raises:
        Misfit: it is not a JSON object, is too large, nests too deep, or has a key twice.
        NotCovered: the superset has no slot for a fact of it, and is neither closed nor pinned.
        Unwanted: it is pinned, or refuses a variation with a fact of the document.
    """
    return text_of(split(superset, document)).encode()


def split(superset: Superset, document: bytes) -> dict[str, Any]:
    """Return a document's values by the properties of the declared schema; see `written_again`."""
    read = superset.read(document)
    require_wanted(superset, read)
    try:
        return _split(superset, document, read)
    except NotCovered:
        if not superset.pinned:
            raise
        raise pinned_refusal(superset, read, len(document)) from None


def _split(superset: Superset, document: bytes, read: dict[str, Any]) -> dict[str, Any]:
    if superset.must_land_whole(read, len(document)):
        if not superset.other:
            raise NotCovered
        return {OTHER: document.decode()}
    try:
        return _members(read, superset.root, None, {})
    except NotCovered:
        if not superset.closed:
            raise
        return {OTHER: document.decode()}


def text_of(value: Any) -> str:
    """Return a value as compact JSON; numbers are as they were written."""
    if isinstance(value, Whole | Fraction):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        members = [f"{_quoted(key)}:{text_of(each)}" for key, each in value.items()]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    return _CONSTANTS[value]


def _members(value: Mapping[str, Any], level: Level, struct: Slot | None, rest: dict[str, Any]) -> dict[str, Any]:
    """Return an object's values by property; entries of the map beside a struct are added to `rest`."""
    found: dict[str, Any] = {}
    for key, each in value.items():
        if (own_property := level.sure_property(key, each)) is not None:
            found[own_property] = each
            continue
        require_text(key)
        slots = level.of(key)
        if struct is not None and not slots and goes_to_map(key, struct):
            rest[key] = each
            continue
        own = {slot.kind: name for name, slot in zip(properties(key, slots), slots, strict=True)}
        for kind, part in _parts(each, slots, "").items():
            found[own[kind]] = part
    return found


def _parts(value: Any, slots: Sequence[Slot], outer: str) -> dict[str, Any]:
    """Return a value's parts by the kinds of the slots that take them; nothing has none."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return _of_object(value, slots, outer)
    if isinstance(value, list):
        return _of_array(value, slots, outer)
    wanted = _slot(f"{outer}{kind_of(value)}", slots)
    return {wanted: _written(value) if wanted == ANY else str(value) if wanted.endswith("digits") else value}


def _written(value: Any) -> str:
    return str(value) if isinstance(value, str) else text_of(value)


def _slot(kind: str, slots: Sequence[Slot]) -> str:
    found = slot_kind(kind, slots, {each.kind for each in slots})
    if found is None:
        raise NotCovered
    return found


def _of_object(value: Mapping[str, Any], slots: Sequence[Slot], outer: str) -> dict[str, Any]:
    struct = struct_at(slots, outer)
    made: dict[str, Any] = {}
    if struct is None or struct.members is None:
        if not any(each.kind.startswith(outer + MAP) for each in slots) and shape_of(value, ()):
            raise NotCovered
        return _entries(value, slots, outer + MAP)
    rest: dict[str, Any] = {}
    if members := _members(value, struct.members, struct, rest):
        made[f"{outer}{STRUCT}"] = members
    return made | _entries(rest, slots, outer + REST)


def _entries(value: Mapping[str, Any], slots: Sequence[Slot], outer: str) -> dict[str, Any]:
    made: dict[str, dict[str, Any]] = {}
    for key, each in value.items():
        require_text(key)
        for kind, part in _parts(each, slots, outer).items():
            made.setdefault(kind, {})[key] = part
    return made


def _of_array(value: Sequence[Any], slots: Sequence[Slot], outer: str) -> dict[str, Any]:
    shape = shape_of(value, slots, outer)
    if not shape:
        return {}
    if "json" in shape.kinds:
        return {_slot(f"{outer}json", slots): text_of(value)}
    if (kind := _plain(shape)) is not None:
        return {_slot(f"{outer}{kind}", slots): _without_nothing(value)}
    parts = [_parts(each, slots, outer + LIST) for each in value]
    kinds = {kind for each in parts for kind in each}
    return {kind: [each.get(kind) for each in parts] for kind in kinds}


def _plain(shape: Shape) -> str | None:
    """Return the kind of an array of values without parts, None of another one."""
    kind = next(iter(shape.kinds), "{")
    return None if shape.objects or "{" in kind else kind


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return None
    if not isinstance(value, list):
        return value
    inside = [_without_nothing(each) for each in value]
    return inside if any(each is not None for each in inside) else None
