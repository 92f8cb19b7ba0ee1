"""The fields of one numbering in a table, or in one struct of it, and which field of a new message continues which.

Pure values. A number or name is a field's id; a field keeps the identity that it had first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pipeline.contracts.model import Field, FieldId, Kind, Message, Reserved, noun

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Slot:
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
class Continued:
    """What a field of a new message continues."""

    first: FieldId | None  # the identity of an earlier field, None: it is a field of its own
    reuse: str | None = None  # why its number or name belongs to another field too; None: it does not


@dataclass(frozen=True, slots=True)
class Known:
    """The fields of one numbering in a level."""

    slots: Mapping[FieldId, tuple[Slot, ...]] = field(default_factory=lambda: _EMPTY)  # in the order of arrival
    """By the field's identity: the id that it had first, and where another field has that one, id and column."""
    ids: Mapping[FieldId, FieldId] = field(default_factory=lambda: _EMPTY)  # the identity of its last field
    names: Mapping[str, FieldId] = field(default_factory=lambda: _EMPTY)  # the identity of its last field
    pairs: Mapping[tuple[FieldId, str], FieldId] = field(default_factory=lambda: _EMPTY)  # of id and name
    newest: frozenset[FieldId] = frozenset()  # the fields of the numbering's newest schema, by identity
    reserved: Reserved = field(default_factory=Reserved)

    def continued(self, new: Message) -> dict[FieldId, Continued]:
        """Return what each field of a message continues, by its id; no two continue the same.

        First come the fields whose id and name have belonged together, then those with a known name, then those with a
        known id, or with an alias that is one: these are renamed, where the field was not removed and its kind fits.
        An alias counts where the field's own id is unknown, and no other field of the message has the alias as its id.
        """
        fields = {each.id: each for each in new.fields}
        made: dict[FieldId, FieldId] = {}
        searches: tuple[Callable[[Field], FieldId | None], ...] = (
            self._together,
            lambda each: self.names.get(each.name),
            lambda each: self._renamed(each, fields),
        )
        for search in searches:
            wanted: dict[FieldId, Field] = {}
            for each in new.fields:
                first = None if each.id in made else search(each)
                if first is None or first in made.values():
                    continue
                if first not in wanted or newest(self.slots[first]).name == each.name:
                    wanted[first] = each
            made |= {each.id: first for first, each in wanted.items()}
        holders = {first: identity for identity, first in made.items()}
        return {
            each.id: Continued(made.get(each.id), self._reuse(each, made.get(each.id), fields, holders))
            for each in new.fields
        }

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

    def _renamed(self, one: Field, ids: Collection[FieldId]) -> FieldId | None:
        """Return the identity of the field of the newest schema that has another name now."""
        if one.name in self.names or (known_id := self._known_id(one, ids)) is None:
            return None
        first = self.ids[known_id]
        # An alias says that it is the same field. An equal number does not, so there each old value must be a new one.
        follows = one.kind.widens if known_id == one.id else one.kind.follows
        if isinstance(known_id, int) and newest(self.slots[first]).id != known_id:
            return None  # the field has another number by now
        fits = any(same(one, slot) or follows(slot.kind) for slot in self.slots[first])
        return first if first in self.newest and fits else None

    def _reuse(
        self,
        one: Field,
        first: FieldId | None,
        ids: Collection[FieldId],
        holders: Mapping[FieldId, FieldId],
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
        if first not in self.newest:
            if self.reserved.numbered(one.id):
                return f"its number {one.id} was reserved"
            if one.name in self.reserved.names:
                return "its name was reserved"
        if first is not None or earlier is None:
            return None
        by = f"{noun(one.id)} {one.id}" if known_id == one.id else f"alias {known_id}"
        last = newest(self.slots[earlier])
        return f"its {by} belonged to the name {last.name} ({last.kind.text})"


def newest(slots: Iterable[Slot]) -> Slot:
    """Return the column that was used last."""
    return max(slots, key=lambda slot: slot.turn)


def same(one: Field, slot: Slot) -> bool:
    """Return whether a column holds values of the very kind of a field."""
    return one.kind.text == slot.kind.text and one.kind.lies_in(slot.kind)
