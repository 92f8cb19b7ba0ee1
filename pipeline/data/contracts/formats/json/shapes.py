"""The shapes of JSON documents that nobody declared: paths, and the kinds of values there, without any value. Pure.

A shape is a set of facts, and the join of two shapes is their union: in whatever order shapes are joined, the result is
the same. Null, `{}`, `[]` and what holds nothing else are nothing: they add no fact.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pipeline.data.contracts.formats.json.scalar import Fraction, Misfit, Whole, is_held

ALGORITHM: Final = 1
"""The version of these rules: a shape's form begins with it."""
MOST_MEMBERS: Final = 300
"""Most keys of an object that is not a map."""
LIST, MAP, REST = "[]", "{}", "{+}"
"""What a kind begins with: an array of it, a map of it, and a map beside a struct."""
ROOT: Final = "$"
"""What is around the members of the document itself, which is never a map."""
MARK: Final = "\x7f"
"""Stands in keys of ours; a key with it is never a member."""

MOST_WEIGHT: Final = 512 * 1024
"""Most weight of a superset's shape: its declared schema has at most twice as many bytes."""

_LONGEST_KEY: Final = 255  # bytes of a member's; longer ones are keys of a map
_OF_KEY: Final = 80  # bytes of a declared schema for each key, beside its letters
SHORT: Final = 15
"""A double holds any whole number of as many characters, and any fraction without an exponent."""
_NUMBERS: Final = frozenset({"whole", "long", "fraction", "digits"})
_ID: Final = re.compile(
    r"-?[0-9]+|[^@]+@[^@]+|[0-9a-fA-F]{16,}"
    r"|\{?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\}?"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PREFIX: Final = re.compile(r"(?:\[\]|\{\}|\{\+\})*")
_SPECIAL: Final = re.compile(r"[\\.:\[\]{}*+]")


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands at one path. Kinds of values are named by what is around them: `[]text` is an array of texts.

    Kinds: `boolean`, `text`; `whole` (both long and double hold it), `long` (a double does not), `fraction` (a double
    holds it), `digits` (any other number); `json`: an array of unlike elements.
    """

    kinds: frozenset[str] = frozenset()
    objects: Mapping[str, Mapping[str, "Shape"]] = field(default_factory=lambda: MappingProxyType({}))
    """The members of objects that are not maps, by what is around them, such as `[]`."""

    def __bool__(self) -> bool:
        return bool(self.kinds or self.objects)


NOTHING: Final = Shape()


def is_member(key: str) -> bool:
    """Return whether a key may be a column: it looks like no id, is not too long, and has no control character."""
    return _ID.fullmatch(key) is None and _CONTROL.search(key) is None and _bytes(key) <= _LONGEST_KEY


def _bytes(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode(errors="surrogatepass"))


def weight_of_key(key: str) -> int:
    """Return what a key weighs; see MOST_WEIGHT."""
    return _bytes(key) + _OF_KEY


def weight(shape: Shape) -> int:
    """Return what the keys of a shape weigh, so that what holds few facts in many objects is bounded too."""
    every = (each for members in shape.objects.values() for each in members.items())
    return sum(weight_of_key(key) + weight(each) for key, each in every)


@lru_cache(maxsize=4096)
def cut(kind: str) -> tuple[str, str]:
    """Return what is around a kind, and the kind itself."""
    end = _PREFIX.match(kind).end()  # type: ignore[union-attr] # it matches everything
    return kind[:end], kind[end:]


def is_short(value: Fraction) -> bool:
    """Return whether a double surely holds a number with a fraction or exponent."""
    return len(value) <= SHORT and "e" not in value and "E" not in value


def number_kind(value: Whole | Fraction) -> str:
    """Return the kind of a number, by its text."""
    if isinstance(value, Whole):
        if len(value) <= SHORT:
            return "whole"
        if len(value) > 20 or not -(2**63) <= int(value) < 2**63:
            return "digits"
        return "whole" if is_held(value, float(value), whole=True) else "long"
    if is_short(value):
        return "fraction"
    try:
        return "fraction" if is_held(value, float(value), whole=False) else "digits"
    except Misfit:  # an exponent beyond decimal's
        return "digits"


def joined(one: Shape, other: Shape) -> Shape:
    """Return the facts of both. Commutative, associative and idempotent."""
    if one is other or not other:
        return one
    if not one:
        return other
    objects = dict(one.objects)
    for around, members in other.objects.items():
        objects[around] = _joined_members(objects.get(around, {}), members)
    return made(one.kinds | other.kinds, objects)


def _joined_members(one: Mapping[str, Shape], other: Mapping[str, Shape]) -> dict[str, Shape]:
    both = dict(one)
    for key, shape in other.items():
        both[key] = joined(both[key], shape) if key in both else shape
    return both


def made(kinds: Iterable[str], objects: Mapping[str, Mapping[str, Shape]]) -> Shape:
    """Return a shape in its one form: objects with many keys are maps, and a wider kind of number includes `whole`."""
    held, objects = set(kinds), {around: members for around, members in objects.items() if members}
    while wide := [each for each in objects if each != ROOT and _is_wide(each, held, objects)]:
        around = min(wide, key=len)
        for shape in objects.pop(around).values():
            held |= {f"{around}{MAP}{kind}" for kind in shape.kinds}
            for inner, members in shape.objects.items():
                place = f"{around}{MAP}{inner}"
                objects[place] = _joined_members(objects.get(place, {}), members)
    for kind in [each for each in held if each.endswith("whole")]:
        around = kind[: -len("whole")]
        if f"{around}long" in held or f"{around}fraction" in held:
            held.discard(kind)
    return Shape(frozenset(held), objects)


def _is_wide(around: str, kinds: Iterable[str], objects: Mapping[str, Mapping[str, Shape]]) -> bool:
    return len(objects[around]) > MOST_MEMBERS or _is_map(around, kinds, objects)


def _is_map(around: str, kinds: Iterable[str], objects: Iterable[str]) -> bool:
    """Return whether something says that the objects at a place are maps."""
    begin = around + MAP
    return any(each.startswith(begin) for each in kinds) or any(each.startswith(begin) for each in objects)


def around(prefix: str, shape: Shape) -> Shape:
    """Return the shape of what holds such values."""
    if not shape:
        return shape
    objects = {f"{prefix}{inner}": members for inner, members in shape.objects.items()}
    return Shape(frozenset(f"{prefix}{kind}" for kind in shape.kinds), objects)


def of_elements(elements: Iterable[Shape]) -> Shape:
    """Return the shape of an array; `json` where its elements are unlike, or no column of numbers holds them all."""
    kinds: set[str] = set()
    objects: dict[str, Mapping[str, Shape]] = {}
    for each in elements:
        kinds |= each.kinds
        for inner, members in each.objects.items():
            before = objects.get(inner)
            objects[inner] = members if before is None else _joined_members(before, members)
    if not kinds and not objects:
        return NOTHING
    shape = made(kinds, objects)
    classes = {_class(kind) for kind in shape.kinds} | {_class(inner) for inner in shape.objects}
    numbers = {cut(kind)[1] for kind in shape.kinds} if classes and next(iter(classes))[1] == "number" else set()
    if len(classes) > 1 or "json" in shape.kinds or "digits" in numbers or len(numbers) > 1:
        return Shape(frozenset({"json"}))
    return around(LIST, shape)


def _class(kind: str) -> tuple[int, str]:
    """Return how many arrays are around what, by which elements of an array are alike."""
    depth = 0
    while kind.startswith(LIST):
        depth, kind = depth + 1, kind[len(LIST) :]
    if not kind or kind[0] == "{":
        return depth, "object"
    return depth, "number" if kind in _NUMBERS else kind


def beyond(shape: Shape, known: Shape) -> Shape:
    """Return the facts of a shape that another one lacks."""
    if not shape or not known:
        return shape
    kinds = {kind for kind in shape.kinds if not _has(known.kinds, kind)}
    objects: dict[str, dict[str, Shape]] = {}
    for inner, members in shape.objects.items():
        if _is_map(inner, known.kinds, known.objects):
            return beyond(made(shape.kinds | known.kinds, {**known.objects, **shape.objects}), known)
        held = known.objects.get(inner, {})
        new = {key: more for key, each in members.items() if (more := beyond(each, held.get(key, NOTHING)))}
        if new:
            objects[inner] = new
    return Shape(frozenset(kinds), objects) if kinds or objects else NOTHING


def _has(kinds: frozenset[str], kind: str) -> bool:
    if kind in kinds:
        return True
    if not kind.endswith("whole"):
        return False
    outer = kind[: -len("whole")]
    return f"{outer}long" in kinds or f"{outer}fraction" in kinds


def facts(shape: Shape, path: str = "") -> Iterator[str]:
    """Yield a line for each fact, `path:kind`; keys are escaped, those of maps are `*`."""
    for kind in sorted(shape.kinds):
        outer, leaf = cut(kind)
        yield f"{path}{_shown_around(outer)}:{leaf}"
    for outer, members in sorted(shape.objects.items()):
        begin = f"{path}{_shown_around(outer)}"
        for key, each in sorted(members.items()):
            yield from facts(each, f"{begin}.{escaped(key)}" if begin else escaped(key))


def count(shape: Shape) -> int:
    """Return the number of facts."""
    return len(shape.kinds) + sum(count(each) for members in shape.objects.values() for each in members.values())


def form(shape: Shape) -> str:
    """Return the one text of equal shapes, with the version of these rules."""
    return "\n".join([f"shape/{ALGORITHM}", *sorted(facts(shape))])


def fingerprint(shape: Shape) -> str:
    """Return 16 hex digits that name a variation."""
    return hashlib.sha256(form(shape).encode()).hexdigest()[:16]


def _shown_around(outer: str) -> str:
    return "" if outer == ROOT else outer.replace(REST, ".+*").replace(MAP, ".*")


def escaped(key: str) -> str:
    """Return a key as facts write it: one line, in which no other character separates the parts of a path."""
    return _SPECIAL.sub(r"\\\g<0>", json.dumps(key)[1:-1]) or '""'


def kind_of(value: Any) -> str:
    """Return the kind of a value without parts.

    Raises:
        Misfit: it is text without a form as UTF-8.
    """
    if isinstance(value, Whole | Fraction):
        return number_kind(value)
    if isinstance(value, bool):
        return "boolean"
    require_text(value)
    return "text"


def require_text(value: str) -> None:
    """Refuse half of a surrogate pair.

    Raises:
        Misfit: the text has one.
    """
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Misfit("a text or key has half of a surrogate pair") from error
