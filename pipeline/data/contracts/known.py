"""The fields of one numbering in a table, or in one struct of it, and which field of a new message continues which.

Pure values. A number or name is a field's id; a field keeps the identity that it had first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pipeline.data.contracts.ages import Ages
from pipeline.data.contracts.model import Field, FieldId, Kind, Message, Reserved, noun

LONGEST_BASE: Final = 235
"""Most characters of a made name's first part, so that the whole fits into 255."""
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """One column (or member of a struct), as a field of one numbering uses it."""

    column: str
    id: FieldId  # of the newest field in it
    name: str  # of the newest field in it
    names: frozenset[str]  # of all fields ever in it
    kind: Kind  # of the newest field
    optional: bool  # the newest field may be absent
    labels: Mapping[FieldId, str]  # the names of an enum's values, also of removed ones
    turn: int  # the schema that used it last


@dataclass(frozen=True, slots=True)
class Seen:
    """A field as one schema has it."""

    first: FieldId | None  # its identity; None: that of a schema whose rows wait is not known
    name: str


@dataclass(frozen=True, slots=True)
class Order:
    """The schemas of one numbering, by the place of their registration, and how old they are."""

    ages: Ages
    turns: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Continued:
    """What a field of a new message continues."""

    first: FieldId | None  # the identity of an earlier field, None: it is a field of its own
    reuse: str | None = None  # why its number or name belongs to another field too; None: it does not


@dataclass(frozen=True, slots=True)
class Known:
    """The fields of one numbering in a level."""

    slots: Mapping[FieldId, tuple[FieldSlot, ...]] = field(default_factory=lambda: _EMPTY)  # in the order of arrival
    """Slots by the field's identity: the id that it had first, and where another field has that one, id and column."""
    ids: Mapping[FieldId, FieldId] = field(default_factory=lambda: _EMPTY)  # the identity of its last field
    names: Mapping[str, FieldId] = field(default_factory=lambda: _EMPTY)  # the identity of its last field
    pairs: Mapping[tuple[FieldId, str], FieldId] = field(default_factory=lambda: _EMPTY)  # of id and name
    newest: frozenset[FieldId] = frozenset()  # the fields of the schema that was registered last, by identity
    reserved: Reserved = field(default_factory=Reserved)
    seen: Mapping[int, Mapping[FieldId, Seen]] = field(default_factory=lambda: _EMPTY)
    """The fields of each schema by id, also of one whose rows wait: which of them has a field, and under which number.
    """

    def named(self, new: Message) -> dict[FieldId, FieldId]:
        """Return what each field of a message continues by its name, by its id; no two continue the same.

        First come the fields whose id and name have belonged together, then those with a known name.
        """
        return self._made(new, (self._together, lambda each: self.names.get(each.name)))

    def continued(self, new: Message, order: Order) -> dict[FieldId, Continued]:
        """Return what each field of a message continues, by its id; no two continue the same.

        After those that continue one by their name come those with a known id, or with an alias that is one: these are
        renamed, where the field was not removed and its kind fits. An id counts where it is certain that no schema
        between lacks the field, or has another number for it. An alias counts where the field's own id is unknown, and
        no other field of the message has the alias as its id.
        """
        fields = {each.id: each for each in new.fields}
        made = self._made(new, (lambda each: self._renamed(each, fields, order),), self.named(new))
        holders = {first: identity for identity, first in made.items()}
        return {
            each.id: Continued(made.get(each.id), self._reuse(each, made.get(each.id), fields, holders, order))
            for each in new.fields
        }

    def beside(self, one: Field, column: str) -> FieldId | None:
        """Return the field that a renamed one continues in a side column, by the column's name."""
        base, _, number = column.rpartition("__v")
        if not number.isdigit() or one.given.startswith(base) or base.endswith(f"__{one.suffix}"):
            return None  # a made name of its own
        firsts = sorted({self.ids[each] for each in (one.id, *one.aliases) if each in self.ids}, key=str)
        return next((each for each in firsts if self.slots[each][0].column[:LONGEST_BASE] == base), None)

    def _made(
        self,
        new: Message,
        searches: Iterable[Callable[[Field], FieldId | None]],
        before: Mapping[FieldId, FieldId] = _EMPTY,
    ) -> dict[FieldId, FieldId]:
        made = dict(before)
        for search in searches:
            wanted: dict[FieldId, Field] = {}
            for each in new.fields:
                first = None if each.id in made else search(each)
                if first is None or first in made.values():
                    continue
                if first not in wanted or newest(self.slots[first]).name == each.name:
                    wanted[first] = each
            made |= {each.id: first for first, each in wanted.items()}
        return made

    def alias(self, one: Field, ids: Collection[FieldId]) -> str | None:
        """Return the alias by which a field continues an earlier one, None where its own id does, or nothing."""
        found = self._known_id(one, ids)
        return found if isinstance(found, str) and found != one.id else None

    def _known_id(self, one: Field, ids: Collection[FieldId]) -> FieldId | None:
        return next((each for each in (one.id, *sorted(one.aliases - set(ids))) if each in self.ids), None)

    def _together(self, one: Field) -> FieldId | None:
        """Return the identity of a field's id and name, where both are of one field."""
        agreed = self.ids.get(one.id)
        return self.pairs.get((one.id, one.name), agreed if agreed == self.names.get(one.name) else None)

    def _renamed(self, one: Field, ids: Collection[FieldId], order: Order) -> FieldId | None:
        """Return the identity of the field that has another name now."""
        if one.name in self.names or (known_id := self._known_id(one, ids)) is None:
            return None
        # An alias says that it is the same field. An equal number does not, so there each old value must be a new one.
        is_alias = known_id != one.id
        follows = one.kind.follows if is_alias else one.kind.widens
        for first in self._had(known_id):
            kept = (is_alias and first in self.newest) or self._kept(one, known_id, first, order)
            if kept and any(same(one, slot) or follows(slot.kind) for slot in self.slots[first]):
                return first
        return None

    def _had(self, known_id: FieldId) -> list[FieldId]:
        """Return the fields that ever had an id, the last one first."""
        turns = (fields[known_id].first for _, fields in sorted(self.seen.items(), reverse=True) if known_id in fields)
        return list(dict.fromkeys([self.ids[known_id], *(each for each in turns if each is not None)]))

    def _kept(self, one: Field, known_id: FieldId, first: FieldId, order: Order) -> bool:
        """Return whether a field has had its id in all schemas from the first that has it to the new one."""
        having = {turn for turn, fields in self.seen.items() if _has(fields.get(known_id), first, one.name)}
        return order.ages.joined(having, order.turns)

    def _reuse(
        self,
        one: Field,
        first: FieldId | None,
        ids: Collection[FieldId],
        holders: Mapping[FieldId, FieldId],
        order: Order,
    ) -> str | None:
        """Return why the number or name of a field that continues `first` belongs to another field too."""
        together = self._together(one)
        if together is None and (named := self.names.get(one.name)) is not None:
            return f"its {noun(one.id)} changed from {newest(self.slots[named]).id} to {one.id}"
        known_id = self._known_id(one, ids)
        earlier = self.ids.get(one.id if known_id is None else known_id) if together is None else together
        if (
            first is None
            and earlier is not None
            and earlier in holders
            and (together is not None or known_id != one.id)
        ):
            return f"it and {holders[earlier]} are both the earlier field {earlier}"
        if first is None or not (first in self.newest or self._kept(one, one.id, first, order)):
            if self.reserved.numbered(one.id):
                return f"its number {one.id} was reserved"
            if one.name in self.reserved.names:
                return "its name was reserved"
        if first is not None or earlier is None:
            return None
        by = f"{noun(one.id)} {one.id}" if known_id == one.id else f"alias {known_id}"
        last = newest(self.slots[earlier])
        return f"its {by} belonged to the name {last.name} ({last.kind.text})"


def _has(seen: Seen | None, first: FieldId, name: str) -> bool:
    return seen is not None and (seen.first == first or (seen.first is None and seen.name == name))


def newest(slots: Iterable[FieldSlot]) -> FieldSlot:
    """Return the column that was used last."""
    return max(slots, key=lambda slot: slot.turn)


def same(one: Field, slot: FieldSlot) -> bool:
    """Return whether a column holds values of the very kind of a field."""
    return one.kind.text == slot.kind.text and one.kind.lies_in(slot.kind)
