"""Plans how a game's table takes the next schema: the changes, their policies, and the effect on rows.

A pure decision over the game's schemas and a new one. A table only grows: a column keeps its name and type for good,
and a field that does not fit gets a column beside it, or is refused.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pipeline.contracts.columns import type_text
from pipeline.contracts.formats.supported import message
from pipeline.contracts.layout import Level, Registered, Slot, layout, newest
from pipeline.contracts.model import MAX_COLUMNS, Field, FieldId, Kind, Message, rank, said
from pipeline.contracts.plans import KEEP, Step
from pipeline.contracts.policies import Policies
from pipeline.contracts.schemas import FieldPlacement, Schema
from pipeline.errors import Refused

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_LONGEST_BASE: Final = 235  # characters of a generated name's first part, so that the whole fits into 255
_NULL: Final = "have null there"


@lru_cache(maxsize=4096)
def evolve(held: Registered, new: Schema, policies: Policies) -> tuple[tuple[Step, ...], FieldPlacement]:
    """Return what a new schema changes in a game's table, and where its fields will lie.

    Names of messages and files, comments, the order of declarations and moves into a oneof do not matter: they affect
    neither the bytes nor the table. `held` are the schemas whose rows land; quarantined ones have no columns.

    Raises:
        Refused: the table would have too many columns.
    """
    walk = _Walk(policies)
    walk.message(_Place(layout(held), "", ""), message(new))
    steps = tuple(walk.steps)
    if any(step.policy == "refuse" for step in steps):
        return steps, FieldPlacement()
    if parked := [step for step in steps if step.policy == "quarantine"]:
        return steps, FieldPlacement(quarantined=str(parked[0]))
    placement = FieldPlacement(tuple(sorted(walk.names.items())))
    if (spread := layout((*held, (new, placement))).leaves()) > MAX_COLUMNS:
        raise Refused(
            f"The game's table would spread into {spread} columns, at most {MAX_COLUMNS} are supported. "
            "Let the schema add fewer fields."
        )
    return steps, placement


@dataclass(slots=True)
class _Place:
    """Where a message is looked at: what is there, and the path to it in the schema's and in the table's words."""

    level: Level
    path: str
    columns: str
    taken: dict[str, FieldId] = field(init=False)  # lower-case name of a column → its field

    def __post_init__(self) -> None:
        self.taken = {slot.column.lower(): number for number, slots in self.level.slots.items() for slot in slots}


@dataclass(frozen=True, slots=True)
class _Lands:
    """The column for the values of a changed field, when it is neither refused nor quarantined."""

    column: str
    type: str
    old_rows: str = KEEP
    new_rows: str = "have their value there"


@dataclass(slots=True)
class _Walk:
    """Collects the changes of a new schema, and the fields outside of the column of their name."""

    policies: Policies
    steps: list[Step] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    quiet: bool = False  # additions inside a new message are not reported again

    def message(self, place: _Place, new: Message) -> None:
        """Compare a message with its columns in the table."""
        for gone in sorted(place.level.newest - {each.id for each in new.fields}, key=rank):
            slot = newest(place.level.slots[gone])
            hint = "" if new.reserved.numbered(gone) else ", not reserved"
            lands = _Lands(slot.column, _type(slot.kind), new_rows=_NULL)
            self._note(place, slot.name, "remove", f"removed ({said(gone)}{hint})", lands)
        for one in new.fields:
            slots = place.level.slots.get(one.id, ())
            if (why := _not_its_own(place.level, one, slots)) is not None:
                self._note(place, one.name, "reuse", why)
            elif slots:
                self._known(place, one, slots)
            else:
                self._new(place, one)

    def _note(
        self, place: _Place, name: str, kind: str, what: str, lands: _Lands | None = None, policy: str | None = None
    ) -> None:
        chosen = policy or self.policies.of(kind)
        path = f"{place.path}{name}"
        if chosen == "refuse":
            step = Step(path, kind, chosen, what, new_rows="are not taken")
        elif chosen == "quarantine" or lands is None:
            step = Step(path, kind, chosen, what, new_rows="go to quarantine")
        else:
            column = f"{place.columns}{lands.column}"
            step = Step(path, kind, chosen, what, column, lands.type, lands.old_rows, lands.new_rows)
        self.steps.append(step)

    def _new(self, place: _Place, one: Field, renamed: str | None = None) -> None:
        """Give a field a new column; `renamed` is its number's earlier name."""
        column, why = _free_name(place, one)
        lands = _Lands(column, _type(one.kind), old_rows=_NULL)
        if why is not None:
            taken = column.lower() in place.taken
            self._note(place, one.given, "name", why, lands, "refuse" if taken else None)
        elif renamed is not None:
            self._note(place, one.name, "rename", renamed, lands)
        elif not self.quiet:
            self._note(place, one.name, "add", "is new", lands)
        self._lay(place, one, column, None)

    def _known(self, place: _Place, one: Field, slots: tuple[Slot, ...]) -> None:
        """Find the column of a field with a known number."""
        slot = _fitting(one, slots)
        current = slot or newest(slots)
        if not any(one.name in every.names for every in slots):
            what = f"its {said(one.id)} had the name {newest(slots).name}"
            if self.policies.of("rename") == "add":
                self._new(place, one, what)
                return
            self._note(place, one.name, "rename", what, _Lands(current.column, _type(current.kind)))
        if one.id not in place.level.newest:
            self._note(place, one.name, "add", "is back", _Lands(current.column, _type(current.kind)))
        if slot is None or slot.kind.text != one.kind.text:
            slot = self._retyped(place, one, slots, slot)
        if slot is not None:
            self._lay(place, one, slot.column, slot)
            self._compare(place, one, slot)

    def _retyped(self, place: _Place, one: Field, slots: tuple[Slot, ...], narrower: Slot | None) -> Slot | None:
        """Record a new type; return the column that can hold it, None when it gets its own or none at all."""
        what = f"its type changed from {newest(slots).kind.text} to {one.kind.text}"
        change = "incompatible" if narrower is None else "widen"
        policy = self.policies.of(change)
        if narrower is not None and policy == "widen" and narrower.kind.type == one.kind.type:
            self._note(place, one.name, "widen", what, _Lands(narrower.column, _type(one.kind)))
            return narrower
        if policy == "widen":
            policy = "side-column"  # a column's type never changes, and this one is too narrow
        column = _side_name(place, slots)
        self._note(place, one.name, change, what, _Lands(column, _type(one.kind), old_rows=_NULL), policy)
        self._lay(place, one, column, None)
        return None

    def _compare(self, place: _Place, one: Field, slot: Slot) -> None:
        """Record the changes in a column that stays: presence, and the names of an enum's values."""
        if one.optional != slot.optional:
            what = "may be absent now" if one.optional else "is never absent now"
            self._note(place, one.name, "add", what, _Lands(slot.column, _type(slot.kind)))
        names = one.labels
        for number, name in sorted(slot.labels.items(), key=_by_rank):
            if number not in names:
                lands = _Lands(slot.column, "string", new_rows="have the number, if it comes")
                self._note(place, one.name, "remove", f"its value {name} was removed ({said(number)})", lands)
            elif names[number] != name:
                lands = _Lands(slot.column, "string", new_rows="have the new name")
                what = f"its value {number} was renamed from {name} to {names[number]}"
                self._note(place, one.name, "value", what, lands)
        for number, name in sorted(names.items(), key=_by_rank):
            if number not in slot.labels:
                self._note(place, one.name, "add", f"has the new value {name}", _Lands(slot.column, "string"))

    def _lay(self, place: _Place, one: Field, column: str, slot: Slot | None) -> None:
        """Put a field into a column, and its members too when it holds messages."""
        place.taken[column.lower()] = one.id
        path = f"{place.path}{one.name}"
        if column != one.name:
            self.names[path] = column
        if one.inside is None:
            return
        level = Level() if slot is None or slot.inside is None else slot.inside
        was, self.quiet = self.quiet, self.quiet or slot is None
        self.message(_Place(level, f"{path}.", f"{place.columns}{column}."), one.inside)
        self.quiet = was


def _not_its_own(level: Level, one: Field, slots: tuple[Slot, ...]) -> str | None:
    """Return why a field's number or name belongs to another field, None when it does not."""
    for number, others in level.slots.items():
        if number != one.id and any(one.name in slot.names for slot in others):
            return f"its number changed from {number} to {one.id}"
    if one.id not in level.newest:
        if level.reserved.numbered(one.id):
            return f"its {said(one.id)} was reserved"
        if one.name in level.reserved.names:
            return "its name was reserved"
    if not slots or any(one.name in slot.names for slot in slots):
        return None
    if one.id not in level.newest or _fitting(one, slots) is None:
        return f"its {said(one.id)} belonged to the name {newest(slots).name} ({newest(slots).kind.text})"
    return None


def _fitting(one: Field, slots: tuple[Slot, ...]) -> Slot | None:
    """Return the column that already holds the same kind, or else one whose kind this one widens."""
    fitting = [slot for slot in slots if slot.kind.text == one.kind.text or one.kind.widens(slot.kind)]
    return max(fitting, key=lambda slot: (slot.kind.text == one.kind.text, one.name in slot.names), default=None)


def _free_name(place: _Place, one: Field) -> tuple[str, str | None]:
    """Return the name of a new column, and why it differs from the field's given name, None when it does not."""
    top, given = not place.path, one.given
    if one.name != given:
        why = "differs from another field of its message only by case or '_', which a table cannot distinguish"
    elif not _NAME.fullmatch(given):
        why = "a column needs a name of at most 255 letters, digits and '_'"
    elif top and given.startswith("_"):
        why = "names that begin with '_' belong to the table's own columns"
    elif (twin := place.taken.get(given.lower())) is not None:
        why = f"differs from the column of {said(twin)} at most by case, which a table cannot distinguish"
    else:
        return given, None
    base = re.sub(r"[^A-Za-z0-9_]", "_", given)[:_LONGEST_BASE]
    if top and not (base := base.lstrip("_"))[:1].isalpha():
        base = f"field{base}"  # a name of underscores would still begin with them
    return f"{base}__{one.suffix}", why


def _side_name(place: _Place, slots: tuple[Slot, ...]) -> str:
    base, number = slots[0].column[:_LONGEST_BASE], len(slots) + 1
    while f"{base}__v{number}".lower() in place.taken:
        number += 1
    return f"{base}__v{number}"


def _by_rank(value: tuple[FieldId, str]) -> tuple[int, str]:
    return rank(value[0])


def _type(kind: Kind) -> str:
    return "without members" if kind.type is None else type_text(kind.type)
