"""What a superset of undeclared documents added to the one before, as the steps of plans. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.base.texts import join_limited
from pipeline.data.contracts.formats.json.merging import column_type
from pipeline.data.contracts.formats.json.shapes import LIST, MAP, REST
from pipeline.data.contracts.formats.json.superset import OTHER_COLUMN, STRUCT, Level, Superset
from pipeline.data.contracts.plans import TYPE, Step

_NULL: Final = "have null there"
_WORDS: Final = {REST: "map of ", MAP: "map of ", LIST: "array of "}


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    kind: str
    column: str
    beside: bool  # its key had a column before it


def superset_steps(before: Superset, after: Superset, message: str) -> tuple[Step, ...]:
    """Return a step for each column that the first superset lacks, and for what a person chose between them."""
    held, now = set(_places(before.root, "", "")), list(_places(after.root, "", ""))
    gone = held - set(now)
    steps = []
    for each in now:
        if each in held:
            continue
        if moved := sorted(one.column for one in gone if one.path == each.path):
            what = f"its values come from {join_limited(moved)}"
            steps.append(Step(each.path, TYPE, "merge", what, each.column, _words(each.kind), "follow by the rebuild"))
        else:
            steps.append(Step(each.path, "add", "add", _what(each), each.column, _words(each.kind), _NULL))
    if after.other and not before.other:
        what = "documents land whole that have too many columns, or an id as a key"
        steps.append(Step(message, "add", "add", what, OTHER_COLUMN, "string", _NULL))
    if after.closed and not before.closed:
        what = "a limit is reached: documents with something new land whole"
        steps.append(Step(message, TYPE, "close", what, OTHER_COLUMN, "string", _NULL))
    return (*steps, *_choices(before, after, message))


def _choices(before: Superset, after: Superset, message: str) -> Iterator[Step]:
    if bool(before.pinned) is not bool(after.pinned):
        what, policy = ("is pinned", "quarantine") if after.pinned else ("grows again", "accept")
        new = "go to quarantine if they have something new" if after.pinned else "open columns if they do"
        yield Step(message, TYPE, policy, what, new_rows=new)
    earlier, now = dict(before.refused), dict(after.refused)
    for name in sorted(now.keys() - earlier.keys()):
        yield Step(message, TYPE, "quarantine", f"variation {name} is refused", new_rows="with it go to quarantine")
    for name in sorted(earlier.keys() - now.keys()):
        yield Step(message, TYPE, "accept", f"variation {name} is allowed again", new_rows="with it land")


def _places(level: Level, path: str, columns: str) -> Iterator[_Place]:
    for key, slots in sorted(level.slots.items()):
        for number, slot in enumerate(slots):
            own = f"{path}{key}"
            yield _Place(own, slot.kind, f"{columns}{slot.name}", bool(number))
            if slot.members is not None:
                yield from _places(slot.members, f"{own}.", f"{columns}{slot.name}.")


def _what(place: _Place) -> str:
    return "has values of another kind than before" if place.beside else "is new"


def _words(kind: str) -> str:
    for begin, words in _WORDS.items():
        if kind.startswith(begin):
            return words + _words(kind[len(begin) :])
    return kind if kind == STRUCT else column_type(kind)
