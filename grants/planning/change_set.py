"""What a plan does, in the order in which it is done, and what becomes of a catalog with it.

Added is USE_CATALOG, then USE_SCHEMA, then what is on tables; taken is what is on tables, then USE_SCHEMA, then
USE_CATALOG: at no time has a principal more of what is above than they need, and a break in between leaves too little.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from grants.catalog import Change
from grants.model import Observed, Securable, folded
from grants.planning.entitlements import Cell, Entitlement, ManagedAccess, ManagedGrant, added_by, taken_by
from pipeline.base.errors import Refused


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What is kept of a plan that was applied, so that it can be undone.

    Where only some of the changes were applied, replace `changes` by those.
    """

    changes: tuple[Change, ...] = ()
    made: tuple[Entitlement, ...] = ()
    ended: tuple[Entitlement, ...] = ()
    adopted: frozenset[ManagedGrant] = frozenset()  # was there before, and is ours now
    ours: frozenset[ManagedGrant] = frozenset()  # of what the changes take, what turnout had given
    disowned: frozenset[ManagedGrant] = (
        frozenset()
    )  # is not ours afterwards, though it was or though the changes add it
    brought: frozenset[Cell] = frozenset()  # who gained which read by USE_* alone, with a SELECT from before
    delta_ids: tuple[tuple[str, str], ...] = ()  # game key → Delta id of the own table, as it was when this was checked

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.changes or self.made or self.ended or self.adopted or self.disowned)

    def kept(self, managed: ManagedAccess) -> ManagedAccess:
        """Return what turnout keeps when it was applied to the catalog and `managed` is what was kept before."""
        left = managed.given.union(self.adopted).difference(taken_by(self.changes))
        given = left.union(added_by(self.changes))
        return ManagedAccess(managed.entitlements.difference(self.ended).union(self.made), given - self.disowned)


Assignments = dict[Securable, dict[str, tuple[str, ...]]]
"""Securable → principal as the catalog spells it → privileges, sorted."""

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Draft:
    """Changes while they are thought of."""

    adds: Assignments = field(default_factory=dict)
    removes: Assignments = field(default_factory=dict)

    def add(self, where: Securable, principal: str, privilege: str) -> None:
        """Give a privilege."""
        _put(self.adds, where, principal, privilege)

    def remove(self, where: Securable, principal: str, privilege: str) -> None:
        """Take a privilege."""
        _put(self.removes, where, principal, privilege)

    def ordered(self) -> tuple[Change, ...]:
        """Return the changes, one principal and one securable each, in the order in which they must be done."""
        return (
            *(Change(where, who, add=rights) for where, who, rights in _sorted(self.adds, 1)),
            *(Change(where, who, remove=rights) for where, who, rights in _sorted(self.removes, -1)),
        )


def _put(assignments: Assignments, where: Securable, principal: str, privilege: str) -> None:
    on_securable = assignments.setdefault(where, {})
    held = on_securable.get(principal)
    if held is None:
        on_securable[principal] = (privilege,)
    elif privilege not in held:
        on_securable[principal] = tuple(sorted((*held, privilege)))


def _sorted(assignments: Assignments, direction: int) -> Iterator[tuple[Securable, str, tuple[str, ...]]]:
    for where in sorted(assignments, key=lambda each: (direction * len(each.path), each.path)):
        for who, rights in sorted(assignments[where].items()):
            yield where, who, rights


def simulate(observed: Observed, changes: Iterable[Change]) -> Observed:
    """Return the snapshot after changes, as a catalog would give it; what was not read stays unread."""
    direct: dict[Securable, dict[str, frozenset[str]]] = {}
    for change in changes:
        if change.securable not in observed.direct:
            continue
        on_securable = direct.get(change.securable)
        if on_securable is None:
            on_securable = direct[change.securable] = dict(observed.direct[change.securable])
        then = _changed(on_securable.pop(change.principal, _NONE), change.add, change.remove)
        if then:
            on_securable[change.principal] = then
    return replace(observed, direct={**observed.direct, **direct})


@lru_cache(maxsize=1_024)  # tens of thousands of changes have the same few sets, which are then one object
def _changed(held: frozenset[str], add: tuple[str, ...], remove: tuple[str, ...]) -> frozenset[str]:
    return held.union(add).difference(remove)


class Spellings:
    """How a catalog spells those who were granted something, which is how a revoke must spell them."""

    def __init__(self, observed: Observed) -> None:
        self._direct: Final = observed.direct
        self._directory: Final = observed.directory
        self._found: Final[dict[Securable, dict[str, list[tuple[str, frozenset[str]]]]]] = {}

    def of(self, where: Securable, principal: str) -> list[tuple[str, frozenset[str]]]:
        """Return the spellings of a folded name on a securable, each with what it holds there.

        Mostly there is one; none where nothing was granted.
        """
        by_name = self._found.get(where)
        if by_name is None:
            by_name = self._found[where] = {}
            for each, held in self._direct.get(where, {}).items():
                by_name.setdefault(folded(each), []).append((each, held))
        return by_name.get(principal, [])

    def is_one(self, principal: str) -> bool:
        """Return whether all spellings of a folded name are known to be one principal's."""
        known = self._directory
        return known.is_read and known.is_whole and principal not in known.ambiguous

    def given(self, where: Securable, names: Collection[str], privilege: str) -> list[str]:
        """Return the spellings that hold what was given to these names, which fold to one and are all of one cell.

        Where all spellings are one principal's these are all. Else a spelling that is one of the names is the only one,
        and of a name that several principals are known to share no other spelling is ever meant.

        Raises:
            Refused: several other spellings hold it, and it is not known whose it is.
        """
        who = {folded(each) for each in names}
        holders = [each for name in sorted(who) for each, held in self.of(where, name) if privilege in held]
        if all(map(self.is_one, who)):
            return holders
        exact = [each for each in holders if each in names]
        if exact or not who.isdisjoint(self._directory.ambiguous):
            return exact
        if len(holders) > 1:
            several, known = (" and ".join(map(repr, sorted(some))) for some in (holders, names))
            raise Refused(
                f"{several} hold {privilege} on {where.full_name}, and turnout knows {known}: which of them it granted "
                "is not known. Revoke it in the catalog."
            )
        return holders


def ours_of(changes: Iterable[Change], managed: ManagedAccess) -> frozenset[ManagedGrant]:
    """Return which of the assignments that changes take were given by turnout."""
    return managed.given.intersection(taken_by(changes))
