"""Plans how a game's table takes the next schema: the changes, their policies, and the effect on rows.

A pure decision over the game's schemas and a new one. A table only grows: a column keeps its name and type for good,
and a field that does not fit gets a column beside it, or is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from pipeline.base.errors import Refused
from pipeline.data.contracts.ages import Ages, in_order
from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.supported import message, numbering
from pipeline.data.contracts.known import LONGEST_BASE, FieldSlot, Known, Order, newest, same
from pipeline.data.contracts.layout import Layout, Registered, layout
from pipeline.data.contracts.model import MAX_COLUMNS, Field, FieldId, Kind, Message, noun, rank, remark
from pipeline.data.contracts.plans import KEEP, Step
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.schemas import FieldPlacement, Schema

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NULL: Final = "have null there"
_GONE: Final = "do not have it"


@lru_cache(maxsize=4096)
def evolve(
    held: Registered,
    new: Schema,
    policies: Policies,
    ages: Ages | None = None,
    taken: frozenset[str] = frozenset(),
) -> tuple[tuple[Step, ...], FieldPlacement]:
    """Return what a new schema changes in a game's table, and where its fields will lie.

    `held` are the game's schemas of its event type; quarantined ones have no columns, but show what was removed.
    Without `ages` they are in the order of their ages, and the new one is the newest. `taken` are names of the table's
    columns that are other event types' (in lower case).

    Fields of two formats, or of two full names in protobuf, meet by their names. Names of inner messages and files,
    comments, the order of declarations and moves into a oneof do not matter: they affect neither the bytes nor the
    table.

    Raises:
        Refused: the table would have too many columns.
    """
    level, own = layout(held), numbering(new)
    order = Order(in_order(len(held)) if ages is None else ages, frozenset(level.of(own).seen))
    walk = _Walk(own, policies, order)
    place = _Place(level, "", "")
    place.taken |= {each: each for each in taken - place.taken.keys()}
    walk.message(place, message(new))
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

    level: Layout
    path: str
    columns: str
    taken: dict[str, FieldId] = field(init=False)  # lower-case name of a column → its field
    used: set[str] = field(default_factory=set)  # columns that the new schema's fields have found

    def __post_init__(self) -> None:
        self.taken = {column.lower(): first for column, first in self.level.columns().items()}


@dataclass(frozen=True, slots=True)
class _Lands:
    """The column for the values of a changed field, when it is neither refused nor quarantined."""

    column: str
    type: str
    old_rows: str = KEEP
    new_rows: str = "have their value there"


@dataclass(frozen=True, slots=True)
class _Met:
    """A column of another numbering that a field meets."""

    numbering: Numbering
    by: str  # the field's name, or the alias that led there
    slot: FieldSlot


@dataclass(slots=True)
class _Walk:
    """Collects the changes of a new schema, and the fields outside of the column of their name."""

    numbering: Numbering  # of the new schema
    policies: Policies
    order: Order
    steps: list[Step] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    quiet: bool = False  # additions inside a new message are not reported again

    def message(self, place: _Place, new: Message) -> None:
        """Compare a message with its columns in the table."""
        known = place.level.of(self.numbering)
        continued = known.continued(new, self.order)
        ids = frozenset(each.id for each in new.fields)
        for gone in sorted((known.newest - {each.first for each in continued.values()}), key=rank):
            slot = newest(known.slots[gone])
            more = ", used again" if slot.id in ids else "" if new.reserved.numbered(slot.id) else ", not reserved"
            what = f"removed{remark(slot.id, more)}"
            self._note(place, slot.name, "remove", what, _Lands(slot.column, _type(slot.kind), new_rows=_NULL))
        for one in new.fields:
            first, reuse = continued[one.id].first, continued[one.id].reuse
            slots = known.slots.get(first, ()) if first is not None else ()
            if reuse is not None:
                self._reused(place, one, reuse, slots, ids)
            elif first is not None and slots:
                self._known(place, one, first, ids)
            elif others := self._others(place, one, ids):
                self._meet(place, one, others)
            else:
                self._new(place, one)
        if self.numbering not in place.level.numberings:
            self._unmet(place)

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

    def _new(self, place: _Place, one: Field, kind: str = "add", what: str = "is new") -> None:
        """Give a field a new column; `kind` and `what` say why it needs one."""
        column, why = _free_name(place, one)
        taken = column.lower() in place.taken
        if kind == "reuse":  # its policy allows a made name
            column = _numbered(place, column, 2) if taken else column
            why, taken = (None if one.given.lower() in place.taken else why), False
        lands = _Lands(column, _type(one.kind), old_rows=_NULL)
        if why is not None:
            self._note(place, one.given, "name", why, lands, "refuse" if taken else None)
        if kind != "add" or (why is None and not self.quiet):
            self._note(place, one.name, kind, what, lands)
        self._lay(place, one, column, None)

    def _reused(
        self, place: _Place, one: Field, why: str, slots: tuple[FieldSlot, ...], ids: frozenset[FieldId]
    ) -> None:
        """Find a column for a field whose number or name is another field's too: one of its name, or a new one."""
        if self.policies.of("reuse") != "side-column":
            self._note(place, one.name, "reuse", why)
        elif not slots:
            if others := self._others(place, one, ids):
                at = len(self.steps)
                self._meet(place, one, others)
                column = self.names.get(f"{place.path}{one.name}", one.name)
                self._note(place, one.name, "reuse", why, _Lands(column, _type(one.kind)))
                self.steps.insert(at, self.steps.pop())
            else:
                self._new(place, one, "reuse", why)
        elif (slot := _fitting(one, slots)) is not None and one.kind.lies_in(slot.kind):
            self._note(place, one.name, "reuse", why, _Lands(slot.column, _type(one.kind)))
            self._lay(place, one, slot.column, slot)
            self._compare(place, one, slot)
        else:
            column = _side_name(place, slots)
            self._note(place, one.name, "reuse", why, _Lands(column, _type(one.kind), old_rows=_NULL))
            self._lay(place, one, column, None)

    def _known(self, place: _Place, one: Field, first: FieldId, ids: frozenset[FieldId]) -> None:
        """Find the column of a field with a known number or name."""
        known = place.level.of(self.numbering)
        slots = known.slots[first]
        slot = _fitting(one, slots)
        current = slot or newest(slots)
        if not any(one.name in every.names for every in slots):
            what = _renamed(known, one, first, ids)
            if self.policies.of("rename") == "add":
                self._new(place, one, "rename", what)
                return
            self._note(place, one.name, "rename", what, _Lands(current.column, _type(current.kind)))
        if first not in known.newest:
            self._note(place, one.name, "add", "is back", _Lands(current.column, _type(current.kind)))
        if slot is None and (met := _fitting_of_another(one, self._named(place, one.name))):
            what = f"its type changed from {newest(slots).kind.text} to {one.kind.text}"
            self._note(place, one.name, "incompatible", what, _Lands(met.slot.column, _type(one.kind)))
            self._join(place, one, met)
            return
        if slot is None or not same(one, slot):
            slot = self._retyped(place, one, slots, slot)
        if slot is not None:
            self._lay(place, one, slot.column, slot)
            self._compare(place, one, slot)

    def _others(self, place: _Place, one: Field, ids: frozenset[FieldId]) -> list[_Met]:
        """Return the columns that a field meets by its name, else by an alias.

        These are all columns of the other numberings' field that lies, or once lay, in the column of this name; a
        column with a made name goes by its field's. Columns that this numbering has already are left out.
        """
        aliases = [] if self.policies.of("rename") == "add" else sorted(one.aliases - ids)
        return next((met for name in [one.name, *aliases] if (met := self._named(place, name))), [])

    def _named(self, place: _Place, name: str) -> list[_Met]:
        """Return the columns of other numberings by a name."""
        known = place.level.of(self.numbering)
        own = place.used | {slot.column for slots in known.slots.values() for slot in slots}
        return [
            _Met(other, name, slot)
            for other, fields in place.level.numberings.items()
            if other != self.numbering
            for slots in fields.slots.values()
            if any(_goes_by(slot, name) for slot in slots)
            for slot in slots
            if slot.column not in own
        ]

    def _meet(self, place: _Place, one: Field, others: list[_Met]) -> None:
        """Put a new field into a column of another numbering, or beside it when it does not fit."""
        fitting = _fitting_of_another(one, others)
        narrower = [each for each in others if one.kind.follows(each.slot.kind)]
        met = fitting or max(narrower or others, key=lambda each: each.slot.turn)
        lands = _Lands(met.slot.column, _type(one.kind))
        theirs, ours = met.numbering.beside(self.numbering), self.numbering.beside(met.numbering)
        if met.by != one.name:
            self._note(place, one.name, "rename", f"its alias {met.by} is a column of {theirs}", lands)
        what = f"its type changed from {met.slot.kind.text} in {theirs} to {one.kind.text} in {ours}"
        change = "widen" if narrower else "incompatible"
        if fitting is None or (met.slot.kind.values != one.kind.values and self.policies.of("widen") == "side-column"):
            self._beside(place, one, tuple(each.slot for each in others), change, what)
            return
        if met.slot.kind.values != one.kind.values:
            self._note(place, one.name, change, what, lands)
        self._join(place, one, met)

    def _join(self, place: _Place, one: Field, met: _Met) -> None:
        """Put a field into the column of another numbering."""
        lands = _Lands(met.slot.column, _type(one.kind))
        theirs, ours = met.numbering.beside(self.numbering), self.numbering.beside(met.numbering)
        self._note(place, one.name, "format", f"continues the column of {theirs} in {ours}", lands)
        self._lay(place, one, met.slot.column, met.slot)
        self._compare(place, one, replace(met.slot, labels=_by_name(met.slot.labels)), by_name=True)

    def _unmet(self, place: _Place) -> None:
        """Note which columns of other numberings' newest schemas have no field in the first one of this numbering."""
        held = {
            slot.column: (slot, other)
            for other, known in place.level.numberings.items()
            for slot in [newest(known.slots[first]) for first in known.newest]
            if slot.column not in place.used
        }
        for column, (slot, other) in sorted(held.items()):
            lands = _Lands(column, _type(slot.kind), new_rows=_NULL)
            theirs, ours = other.beside(self.numbering), self.numbering.beside(other)
            self._note(place, slot.name, "remove", f"is a field of {theirs}, not of {ours}", lands)

    def _retyped(
        self, place: _Place, one: Field, slots: tuple[FieldSlot, ...], narrower: FieldSlot | None
    ) -> FieldSlot | None:
        """Record a new type; return the column that can hold it, None when it gets its own or none at all."""
        what = f"its type changed from {newest(slots).kind.text} to {one.kind.text}"
        change = "incompatible" if narrower is None else "widen"
        if narrower is not None and self.policies.of(change) == "widen" and one.kind.lies_in(narrower.kind):
            what += one.kind.remark(newest(slots).kind)
            self._note(place, one.name, "widen", what, _Lands(narrower.column, _type(one.kind)))
            return narrower
        self._beside(place, one, slots, change, what)
        return None

    def _beside(self, place: _Place, one: Field, slots: tuple[FieldSlot, ...], change: str, what: str) -> None:
        """Give a field that does not fit its columns a further one."""
        policy = self.policies.of(change)
        if policy == "widen":
            policy = "side-column"  # a column's type never changes, and this one is too narrow
        column = _side_name(place, slots)
        self._note(place, one.name, change, what, _Lands(column, _type(one.kind), old_rows=_NULL), policy)
        self._lay(place, one, column, None)

    def _compare(self, place: _Place, one: Field, slot: FieldSlot, *, by_name: bool = False) -> None:
        """Record the changes in a column that stays: presence, and the names of an enum's values.

        With `by_name` a value is identified by its name, as numberings that meet have nothing else in common.
        """
        if one.optional != slot.optional:
            what = "may be absent now" if one.optional else "is never absent now"
            self._note(place, one.name, "add", what, _Lands(slot.column, _type(slot.kind)))
        labels = _by_name(one.labels) if by_name else one.labels
        for value, name in sorted(slot.labels.items(), key=_by_rank):
            hint = remark(value)
            if value not in labels:
                lands = _Lands(slot.column, "string", new_rows="have the number, if it comes" if hint else _GONE)
                self._note(place, one.name, "remove", f"its value {name} was removed{hint}", lands)
            elif labels[value] != name:
                lands = _Lands(slot.column, "string", new_rows="have the new name")
                what = f"its value {value} was renamed from {name} to {labels[value]}"
                self._note(place, one.name, "value", what, lands)
        for value, name in sorted(labels.items(), key=_by_rank):
            if value not in slot.labels:
                self._note(place, one.name, "add", f"has the new value {name}", _Lands(slot.column, "string"))

    def _lay(self, place: _Place, one: Field, column: str, slot: FieldSlot | None) -> None:
        """Put a field into a column, and its members too when it holds messages."""
        place.taken[column.lower()] = one.id
        place.used.add(column)
        path = f"{place.path}{one.name}"
        if column != one.name:
            self.names[path] = column
        if one.inside is None:
            return
        level = Layout() if slot is None else place.level.inside.get(column, Layout())
        was, self.quiet = self.quiet, self.quiet or slot is None
        self.message(_Place(level, f"{path}.", f"{place.columns}{column}."), one.inside)
        self.quiet = was


def _renamed(known: Known, one: Field, first: FieldId, ids: Collection[FieldId]) -> str:
    if alias := known.alias(one, ids):
        return f"its alias {alias} is a name that it had"
    return f"its {noun(one.id)} {one.id} had the name {newest(known.slots[first]).name}"


def _fitting(one: Field, slots: Iterable[FieldSlot]) -> FieldSlot | None:
    """Return the column that already holds the same kind, or else one whose kind this one follows."""
    fitting = [slot for slot in slots if same(one, slot) or one.kind.follows(slot.kind)]
    best = [(same(one, slot), one.kind.lies_in(slot.kind), one.name in slot.names) for slot in fitting]
    return max(zip(best, fitting, strict=True), key=lambda each: each[0], default=(None, None))[1]


def _fitting_of_another(one: Field, others: Iterable[_Met]) -> _Met | None:
    """Return the column of another numbering with the same values, or else one wide enough for this kind."""
    fitting = [each for each in others if one.kind.follows(each.slot.kind) and one.kind.lies_in(each.slot.kind)]
    return max(fitting, key=lambda each: (each.slot.kind.values == one.kind.values, each.slot.turn), default=None)


def _goes_by(slot: FieldSlot, name: str) -> bool:
    return slot.column == name or (slot.column not in slot.names and slot.name == name)


def _free_name(place: _Place, one: Field) -> tuple[str, str | None]:
    """Return the name of a new column, and why it is not the field's given name, None where it is."""
    top, given = not place.path, one.given
    if not _NAME.fullmatch(given):
        why = "a column needs a name of at most 255 letters, digits and '_'"
    elif one.name != given:
        why = "is the name of another field of its message: case and '_' make no difference"
    elif top and given.startswith("_"):
        why = "names that begin with '_' belong to the table's own columns"
    elif (twin := place.taken.get(given.lower())) is not None:
        why = f"is the name of a column of {noun(twin)} {twin}: case makes no difference"
    else:
        return given, None
    base = re.sub(r"[^A-Za-z0-9_]", "_", given)[:LONGEST_BASE]
    if top and not (base := base.lstrip("_"))[:1].isalpha():
        base = f"field{base}"  # a name of underscores would still begin with them
    return f"{base}__{one.suffix}", why


def _side_name(place: _Place, slots: tuple[FieldSlot, ...]) -> str:
    return _numbered(place, slots[0].column[:LONGEST_BASE], len(slots) + 1)


def _numbered(place: _Place, base: str, number: int) -> str:
    while f"{base}__v{number}".lower() in place.taken:
        number += 1
    return f"{base}__v{number}"


def _by_name(labels: Mapping[FieldId, str]) -> Mapping[FieldId, str]:
    return {each: each for each in labels.values()}


def _by_rank(value: tuple[FieldId, str]) -> tuple[int, str]:
    return rank(value[0])


def _type(kind: Kind) -> str:
    return "without members" if kind.type is None else type_text(kind.type)
