"""What a plan does, in the order in which it is done, and what becomes of a catalog with it.

Added is USE_CATALOG, then USE_SCHEMA, then what is on tables; taken is what is on tables, then USE_SCHEMA, then
USE_CATALOG: at no time has somebody more of what is above than they need, and a break in between leaves too little.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from grants.catalog import Change
from grants.entitlements import Cell, Entitlement, Given, Managed, given_by
from grants.model import Observed, Securable, folded


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What is kept of a plan that was applied, so that it can be undone.

    Where only some of the changes were applied, replace `changes` by those.
    """

    changes: tuple[Change, ...] = ()
    made: tuple[Entitlement, ...] = ()
    ended: tuple[Entitlement, ...] = ()
    adopted: frozenset[Given] = frozenset()  # was there before, and is ours now
    ours: frozenset[Given] = frozenset()  # of what the changes take, what turnout had given
    disowned: frozenset[Given] = frozenset()  # is not ours afterwards, though it was or though the changes add it
    brought: frozenset[Cell] = frozenset()  # who came to read what by USE_* alone, with a SELECT from before

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.changes or self.made or self.ended or self.adopted or self.disowned)

    def kept(self, managed: Managed) -> Managed:
        """Return what turnout keeps when it was applied to the catalog and `managed` is what was kept before."""
        given = Managed(given=managed.given | self.adopted).after(self.changes).given - self.disowned
        return Managed(managed.entitlements.difference(self.ended) | set(self.made), given)


Assignments = dict[Securable, dict[str, set[str]]]
"""Securable → principal as the catalog spells it → privileges."""


@dataclass(slots=True)
class Draft:
    """Changes while they are thought of."""

    adds: Assignments = field(default_factory=dict)
    removes: Assignments = field(default_factory=dict)

    def add(self, where: Securable, principal: str, privilege: str) -> None:
        """Give a privilege."""
        self.adds.setdefault(where, {}).setdefault(principal, set()).add(privilege)

    def remove(self, where: Securable, principal: str, privilege: str) -> None:
        """Take a privilege."""
        self.removes.setdefault(where, {}).setdefault(principal, set()).add(privilege)

    def ordered(self) -> tuple[Change, ...]:
        """Return the changes, one principal and one securable each, in the order in which they must be done."""
        return (
            *(Change(where, who, add=tuple(sorted(rights))) for where, who, rights in _sorted(self.adds, 1)),
            *(Change(where, who, remove=tuple(sorted(rights))) for where, who, rights in _sorted(self.removes, -1)),
        )


def _sorted(assignments: Assignments, direction: int) -> Iterator[tuple[Securable, str, set[str]]]:
    for where in sorted(assignments, key=lambda each: (direction * len(each.path), each.path)):
        for who in sorted(assignments[where]):
            yield where, who, assignments[where][who]


def simulate(observed: Observed, changes: Iterable[Change]) -> Observed:
    """Return the picture after changes, as a catalog would give it; what was not read stays unread."""
    direct: dict[Securable, dict[str, frozenset[str]]] = {}
    for change in changes:
        if change.securable not in observed.direct:
            continue
        there = direct.setdefault(change.securable, dict(observed.direct[change.securable]))
        then = (there.pop(change.principal, frozenset()) | set(change.add)) - set(change.remove)
        if then:
            there[change.principal] = then
    return replace(observed, direct={**observed.direct, **direct})


class Spellings:
    """How a catalog spells those who were granted something, which is how it must be told what to take."""

    def __init__(self, observed: Observed) -> None:
        self._direct: Final = observed.direct
        self._found: Final[dict[Securable, dict[str, list[str]]]] = {}

    def of(self, where: Securable, principal: str) -> list[str]:
        """Return the spellings of a folded name on a securable; mostly one, none where nothing was granted."""
        if where not in self._found:
            self._found[where] = {}
            for each in self._direct.get(where, ()):
                self._found[where].setdefault(folded(each), []).append(each)
        return self._found[where].get(principal, [])


def ours_of(changes: Iterable[Change], managed: Managed) -> frozenset[Given]:
    """Return which of the assignments that changes take were given by turnout."""
    return managed.given & {given for change in changes if change.remove for given in given_by(change, change.remove)}
