"""The JSON Schema that declares an event type as its documents came: a property for each key. Pure."""

import json
import re
from dataclasses import replace

from pipeline.data.contracts.formats.json.definitions import rendered
from pipeline.data.contracts.formats.json.shapes import LIST, REST, cut
from pipeline.data.contracts.formats.json.superset import WRITTEN, Level, Slot, Superset, scalar_of
from pipeline.data.contracts.formats.json.types import JsonArray, JsonMap, Object, Property, Type


def definition_of(name: str, superset: Superset) -> bytes:
    """Return a JSON Schema of an event type, as text for people.

    A key's property has the type of the key's column; of one with side columns it is that of the first. The superset
    is older, and still reads what has values for the others.
    """
    declared = replace(_declared(superset.root), nullable=False)
    return json.dumps({"title": name, **rendered(declared)}, indent=2, ensure_ascii=False).encode() + b"\n"


def _declared(level: Level) -> Object:
    firsts = ((key, _first(slots)) for key, slots in sorted(level.slots.items()))
    return Object(tuple(Property(key, _type(slot), required=False) for key, slot in firsts if slot), nullable=True)


def _first(slots: tuple[Slot, ...]) -> Slot | None:
    return next((each for each in slots if cut(each.kind)[1] not in WRITTEN and REST not in each.kind), None)


def _type(slot: Slot) -> Type:
    outer, leaf = cut(slot.kind)
    held: Type = scalar_of(leaf) if slot.members is None else _declared(slot.members)
    for each in reversed(re.findall(r"\[\]|\{\}", outer)):
        held = JsonArray(held, nullable=True) if each == LIST else JsonMap(held, nullable=True)
    return held
