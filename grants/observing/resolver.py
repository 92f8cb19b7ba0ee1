"""Who reads which game, and why: the only place that interprets grants.

Reading takes SELECT, USE_SCHEMA and USE_CATALOG. Each counts where it is granted on its own level or above, also as a
part of ALL_PRIVILEGES, to a principal or to a group they are in, directly or not; the owner of a table, schema or
catalog has the one of that level. What was not read leaves an answer unknown, unless what was read decides it.

Where groups are emulated the catalog does not put together what a principal and their groups have: one of them alone
must have all three.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from grants.model import (
    ALL_PRIVILEGES,
    EVERYONE,
    KNOWN,
    MANAGE,
    SELECT,
    USE_CATALOG,
    USE_SCHEMA,
    GameTable,
    Observed,
    Securable,
    folded,
)
from grants.observing.verdict import OWNERSHIP, AccessVerdict, RequiredPrivilege, Standing, Unknown, Way, best, every
from pipeline.base.errors import Refused
from pipeline.base.names import parted_table_key

NEEDS: Final = (SELECT, USE_SCHEMA, USE_CATALOG)
_LEVEL: Final[Mapping[str, int]] = {SELECT: 3, USE_SCHEMA: 2, USE_CATALOG: 1}  # the length of the path it belongs to
_EVERYONE: Final = folded(EVERYONE)
_NOBODY: Final[frozenset[tuple[Securable, str, str]]] = frozenset()
_NO_KEYS: Final[frozenset[str]] = frozenset()
_SELECTS: Final = (SELECT, ALL_PRIVILEGES)
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of a service principal

Chains = Mapping[str, tuple[str, ...]]
"""Whose grants count for a principal: folded name → the shortest chain of groups to it."""

Holding = tuple[Securable, str, str]
"""A direct assignment: securable, folded principal, privilege."""


@dataclass(frozen=True, slots=True)
class ReadableGames:
    """What a principal reads, of all games: keys that are in none of these are known not to be read."""

    reads: frozenset[str] = _NO_KEYS
    unknown: frozenset[str] = _NO_KEYS
    could: frozenset[str] = _NO_KEYS
    """Not read, but it could grant itself that."""

    def of(self, key: str) -> bool | None:
        """Return whether it reads a game; None: not known."""
        return True if key in self.reads else None if key in self.unknown else False


class Resolver:
    """Answers for one snapshot of a catalog, which it indexes once."""

    def __init__(self, observed: Observed) -> None:
        self.observed: Final = observed
        self._above: Final = tuple(observed.schema.chain())
        self._granted: Final = {where: _by_folded(direct) for where, direct in observed.direct.items()}
        self._owner: Final = {where: folded(who) for where, who in observed.owners.items() if who is not None}
        self._selecting: Final[dict[str, set[str]]] = defaultdict(
            set
        )  # folded principal → games by the table's own grants or owner
        self._managing: Final[dict[str, set[str]]] = defaultdict(set)
        self._unreported: Final[set[str]] = set()  # games of whose tables not everything was read
        self._closures: Final[dict[str, Chains]] = {}
        self._maybes: Final[dict[str, Chains]] = {}
        self._readings: Final[dict[str, ReadableGames]] = {}
        for key, table in observed.tables.items():
            self._index(key, table)

    def _index(self, key: str, table: GameTable) -> None:
        where = table.securable
        if where not in self._owner and table.owner is not None:
            self._owner[where] = folded(table.owner)
        owner, granted = self._owner.get(where), self._granted.get(where)
        if owner is None or granted is None:
            self._unreported.add(key)
        if owner is not None:
            self._selecting[owner].add(key)
        for holder, privileges in (granted or {}).items():
            if not privileges.isdisjoint(_SELECTS):
                self._selecting[holder].add(key)
            if MANAGE in privileges:
                self._managing[holder].add(key)

    def standing(self, principal: str) -> Standing:
        """Return whether a principal exists and may do anything at all."""
        directory = self.observed.directory
        known = directory.principals.get(folded(principal))
        if known is not None:
            return "active" if known.active else "inactive"
        if folded(principal) == _EVERYONE:
            return "active"
        is_told = directory.is_read and directory.is_whole and folded(principal) not in directory.ambiguous
        return "gone" if is_told or not principal else "unknown"

    def is_ambiguous(self, principal: str) -> bool:
        """Return whether several principals share a name, but for its case."""
        return folded(principal) in self.observed.directory.ambiguous

    def name(self, principal: str) -> str:
        """Return a principal's name as the directory spells it, or as it came."""
        known = self.observed.directory.principals.get(folded(principal))
        return known.name if known else principal

    def identity(self, principal: str) -> str:
        """Return the directory's id of a principal; empty where it is not known."""
        known = self.observed.directory.principals.get(folded(principal))
        return known.principal_id if known else ""

    @property
    def apart(self) -> bool:
        """Whether the catalog does not put together what a principal and their groups have: its groups are emulated."""
        return self.observed.directory.emulated_groups

    def together(self, principal: str) -> Chains:
        """Return all whose grants count for a principal together with their own."""
        return {folded(principal): ()} if self.apart else self.closure(principal)

    def closure(self, principal: str) -> Chains:
        """Return all whose grants count for a principal, be it only by themselves."""
        start = folded(principal)
        if start not in self._closures:
            self._closures[start] = self._chains(start, self.observed.directory.groups_of, ())
        return self._closures[start]

    def maybe(self, principal: str) -> Chains:
        """Return `closure` with the groups of which nobody knows whether the principal is a member."""
        start, doubtful = folded(principal), self.observed.directory.doubtful
        if not (self.hidden or doubtful) or start == _EVERYONE:
            return self.closure(start)
        if start not in self._maybes:
            groups_of = self.observed.directory.groups_of
            more = {each: groups_of.get(each, _NO_KEYS) | groups for each, groups in doubtful.items()}
            self._maybes[start] = self._chains(start, {**groups_of, **more}, sorted(self.hidden - {start}))
        return self._maybes[start]

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The groups, by folded name, whose members are not known.

        Where the directory is not whole, those are also the groups that it does not list and that hold a grant.
        """
        directory = self.observed.directory
        if directory.is_whole:
            return directory.hidden
        holders = {who for granted in self._granted.values() for who in granted}
        unlisted = {each for each in holders if self.standing(each) == "unknown" and _is_group(each)}
        return directory.hidden | (unlisted - directory.ambiguous.keys())

    def _chains(self, start: str, groups_of: Mapping[str, frozenset[str]], hidden: Iterable[str]) -> Chains:
        chains: dict[str, tuple[str, ...]] = {start: ()}
        waiting = [start]
        for each in waiting:  # grows while it is read; who was met once is not met again, so circles end
            parents = sorted(groups_of.get(each, ()))
            for group in [*parents, *([_EVERYONE, *hidden] if each == start else [])]:
                if group not in chains:
                    chains[group] = (*chains[each], group)
                    waiting.append(group)
        return chains

    def members(self, principals: AbstractSet[str], *, maybe: bool = False) -> Iterator[str]:
        """Yield the folded names of all that these folded names count for, themselves first; with `maybe` may count."""
        closure = self.maybe if maybe else self.closure
        yield from sorted(principals)
        for each in self.observed.directory.principals:
            if each not in principals and not principals.isdisjoint(closure(each)):
                yield each

    def verdict(self, principal: str, key: str) -> AccessVerdict:
        """Return whether a principal reads a game, and why.

        Raises:
            Refused: the catalog has no table of that game.
        """
        table = self.table(key)
        known = best([self._verdict(principal, table, chains) for chains in self._parts(principal)])
        chains = self.maybe(principal)
        if known.reads is not False or known.standing != "active" or chains is self.closure(principal):
            return known
        widest = best([self._verdict(principal, table, some) for some in self._parts(principal, chains)])
        if widest.reads is False:
            return known
        by = {name: None for need in widest.needs for way in need.ways for name in way.groups}
        groups = [name for name in by if folded(name) not in self.closure(principal)]
        return replace(known, maybe_in=tuple(groups) or tuple(map(self.name, sorted(chains.keys() - {_EVERYONE}))))

    def _parts(self, principal: str, chains: Chains | None = None) -> list[Chains]:
        """Return whose grants count together: all at once, or each by itself, the nearest first."""
        chains = self.closure(principal) if chains is None else chains
        if not self.apart:
            return [chains]
        who = folded(principal)
        return [{each: chain} for each, chain in chains.items() if each == who or self.standing(each) == "active"]

    def _verdict(self, principal: str, table: GameTable, chains: Chains) -> AccessVerdict:
        needs = tuple(self._need(privilege, table.securable, chains) for privilege in NEEDS)
        granting = tuple(self._granting(table.securable, needs, chains))
        standing = self.standing(principal)
        return AccessVerdict(
            principal=self.name(principal), key=table.key, standing=standing, needs=needs, granting=granting,
            could_grant_itself=False if standing != "active" else self._could(needs, granting, table.securable),
            unknown=tuple(self._unknown(table.securable, chains)),
            has_row_filter=table.has_row_filter, masked_columns=table.masked_columns, apart=self.apart,
        )  # fmt: skip

    def table(self, key: str) -> GameTable:
        """Return a game's table.

        Raises:
            Refused: the catalog has none.
        """
        if key not in self.observed.tables and parted_table_key(key) is not None:
            raise Refused(
                f"{key} is not yet made: its stream has written nothing, or the controller has not registered it. "
                "Try again later."
            )
        if key not in self.observed.tables:
            raise Refused(
                f"{self.observed.schema.full_name} has no table of game {key!r}. Check that the game is registered."
            )
        return self.observed.tables[key]

    def reading(self, principal: str) -> ReadableGames:
        """Return what a principal reads of all games, without the why."""
        who = folded(principal)
        if who not in self._readings:
            reading_of, could = ReadableGames(), _NO_KEYS
            if self.standing(who) == "unknown":
                reach = self.reach(who)
                reading_of = ReadableGames(unknown=reach.reads | reach.unknown)
            elif self.standing(who) == "active":
                reading_of = self.reach(who)
                could = _NO_KEYS.union(*map(self._could_read, self._parts(who))) - reading_of.reads - reading_of.unknown
            self._readings[who] = ReadableGames(reading_of.reads, reading_of.unknown, could)
        return self._readings[who]

    def reach(self, principal: str, without: AbstractSet[Holding] = _NOBODY) -> ReadableGames:
        """Return what a principal would read if they exist and are active, and if some USE_* were not there."""
        reading = self._reach_together(self._parts(principal), without)
        chains = self.maybe(principal)
        if chains is self.closure(principal):
            return reading
        wide = self._reach_together(self._parts(principal, chains), without)
        return ReadableGames(reading.reads, (reading.unknown | wide.reads | wide.unknown) - reading.reads)

    def _reach_together(self, some: Iterable[Chains], without: AbstractSet[Holding]) -> ReadableGames:
        parts = [self._reach(chains, without) for chains in some]
        reads = _NO_KEYS.union(*(each.reads for each in parts))
        return ReadableGames(reads, _NO_KEYS.union(*(each.unknown for each in parts)) - reads)

    def _reach(self, holders: Chains, without: AbstractSet[Holding]) -> ReadableGames:
        use = self._use(holders, without)
        if use is False:
            return ReadableGames()
        if self._has(holders, SELECT, self.observed.schema, without):
            selects, unreported = frozenset(self.observed.tables), _NO_KEYS
        else:
            selects = _NO_KEYS.union(*(self._selecting.get(holder, _NO_KEYS) for holder in holders))
            unreported = (
                frozenset(self._unreported if self._all_read(SELECT, self._above) else self.observed.tables) - selects
            )
        return ReadableGames(selects, unreported) if use else ReadableGames(unknown=selects | unreported)

    def has(self, principal: str, need: str, where: Securable, without: AbstractSet[Holding] = _NOBODY) -> bool | None:
        """Return whether a principal has one of the three needs on a securable or above it; None: not known."""
        return self._has(self.together(principal), need, where, without)

    def _has(self, holders: Chains, need: str, where: Securable, without: AbstractSet[Holding]) -> bool | None:
        above = tuple(where.chain())
        if next(self._held(need, above, holders, without), None) is not None:
            return True
        return False if self._all_read(need, above) else None

    def _use(self, holders: Chains, without: AbstractSet[Holding] = _NOBODY) -> bool | None:
        return every(self._has(holders, need, self.observed.schema, without) for need in (USE_SCHEMA, USE_CATALOG))

    def directly(self, principal: str, where: Securable) -> frozenset[str] | None:
        """Return what was granted to a principal on a securable itself, not to a group; None: it was not read."""
        granted = self._granted.get(where)
        return None if granted is None else granted.get(folded(principal), frozenset())

    def granted(self, where: Securable) -> Mapping[str, frozenset[str]] | None:
        """Return who was granted what on a securable itself, by folded name; None: it was not read."""
        return self._granted.get(where)

    def holds(self, where: Securable, principal: str, privilege: str) -> bool:
        """Return whether a privilege was seen to be granted to a folded name on a securable itself."""
        return privilege in self._granted.get(where, {}).get(principal, _NO_KEYS)

    def selected_directly(self, principal: str) -> AbstractSet[str]:
        """Return the games that a principal has SELECT on by the table's own grants to it, or as the table's owner."""
        return self._selecting.get(folded(principal), _NO_KEYS)

    def selects_above(self, principal: str) -> bool:
        """Return whether SELECT on the schema or the catalog was seen to count for a principal."""
        return next(self._held(SELECT, self._above, self.closure(principal)), None) is not None

    def selected_by_itself(self, principal: str) -> AbstractSet[str]:
        """Return the games that a principal has SELECT on by no group: itself, on any level, or as the owner."""
        who = folded(principal)
        above = (self._granted.get(where, {}).get(who, _NO_KEYS) for where in self._above)
        if any(not held.isdisjoint(_SELECTS) for held in above):
            return self.observed.tables.keys()
        return self._selecting.get(who, _NO_KEYS)

    def owner(self, where: Securable) -> str | None:
        """Return the folded name of a securable's owner; None: not known."""
        return self._owner.get(where)

    def _held(
        self, need: str, above: Iterable[Securable], holders: Iterable[str], without: AbstractSet[Holding] = _NOBODY
    ) -> Iterator[tuple[Securable, str, str]]:
        """Yield (securable, by, holder) of each way in which some of the holders have one of the three needs."""
        for where in above:
            level = len(where.path)
            if level > _LEVEL[need]:
                continue
            granted = self._granted.get(where, {})
            owner = self._owner.get(where) if level == _LEVEL[need] else None
            for holder in holders:
                held = granted.get(holder, frozenset())
                for by in (need, ALL_PRIVILEGES):
                    if by in held and (where, holder, by) not in without:
                        yield where, by, holder
                if owner == holder:
                    yield where, OWNERSHIP, holder

    def _unread(self, need: str, above: Iterable[Securable]) -> Iterator[Securable]:
        for where in above:
            level = len(where.path)
            owned = level == _LEVEL[need] and where not in self._owner
            if owned or (level <= _LEVEL[need] and where not in self._granted):
                yield where

    def _all_read(self, need: str, above: Iterable[Securable]) -> bool:
        return next(self._unread(need, above), None) is None

    def _need(self, need: str, table: Securable, chains: Chains) -> RequiredPrivilege:
        above = tuple(table.chain())
        ways = [self._way(where, by, chains[holder]) for where, by, holder in self._held(need, above, chains)]
        return RequiredPrivilege(
            need, Securable(table.path[: _LEVEL[need]]), tuple(ways), tuple(self._unread(need, above))
        )

    def _way(self, where: Securable, by: str, chain: Iterable[str]) -> Way:
        return Way(where, by, tuple(self.name(group) for group in chain))

    def _granting(self, table: Securable, needs: Iterable[RequiredPrivilege], chains: Chains) -> Iterator[Way]:
        """Yield the ways to grant oneself reading: the principal owns or manages the table or a securable above it."""
        for where in self._above:
            if self._owner.get(where) in chains:
                yield self._way(where, OWNERSHIP, chains[self._owner[where]])
        if every(need.met for need in needs if need.privilege != SELECT) is False:
            return
        for where in table.chain():
            granted = self._granted.get(where, {})
            for holder, chain in chains.items():
                if MANAGE in granted.get(holder, ()):
                    yield self._way(where, MANAGE, chain)

    def _could(self, needs: Iterable[RequiredPrivilege], granting: Iterable[Way], table: Securable) -> bool | None:
        use = every(need.met for need in needs if need.privilege != SELECT)
        ways = list(granting)
        if any(way.by == OWNERSHIP for way in ways) or (ways and use):
            return True
        unreported = any(where not in self._owner for where in self._above)
        unread = use is not False and (bool(ways) or any(where not in self._granted for where in table.chain()))
        return None if unreported or unread else False

    def _could_read(self, chains: Chains) -> frozenset[str]:
        everything = frozenset(self.observed.tables)
        if any(self._owner.get(where) in chains for where in self._above):
            return everything
        if not self._use(chains):
            return _NO_KEYS
        for where in self._above:
            granted = self._granted.get(where, {})
            if any(MANAGE in granted.get(holder, ()) for holder in chains):
                return everything
        return _NO_KEYS.union(*(self._managing.get(holder, _NO_KEYS) for holder in chains))

    def _unknown(self, table: Securable, chains: Chains) -> Iterator[Unknown]:
        for where in table.chain():
            granted = self._granted.get(where, {})
            for holder in chains:
                for privilege in sorted(granted.get(holder, frozenset()) - KNOWN):
                    yield Unknown(where, self.name(holder), privilege)


def _is_group(name: str) -> bool:
    """Return whether a name that no directory lists may be a group's: it is neither an address nor an id."""
    return "@" not in name and _ID.fullmatch(name) is None


def _by_folded(direct: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Fold principals, and join what two spellings of one have. The name of a deleted principal is empty: nobody's."""
    by_name: dict[str, frozenset[str]] = {}
    for principal, privileges in direct.items():
        if principal:
            name = folded(principal)
            by_name[name] = by_name[name] | privileges if name in by_name else privileges
    return by_name
