"""Plans access: the fewest changes that fulfil intents, their effects, and the facts they depend on.

Pure, as all of its kind: `now` is an argument. What turnout did not give it does not take, unless an intent says so.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from grants.catalog import Change
from grants.model import BROWSE, SELECT, Observed, Securable, folded
from grants.observing.blindness import require_shown
from grants.observing.resolver import Resolver
from grants.observing.verdict import place
from grants.planning.change_set import ChangeSet, Draft, Spellings, ours_of, simulate
from grants.planning.effects import Effect, UnmetIntent, effects, unmoved, warnings
from grants.planning.entitlements import NO_GAME, NOTHING, AccessIntent, Cell, Entitlement, ManagedAccess, ManagedGrant
from grants.planning.following import Following
from grants.planning.usage_privileges import give, idle, take, uses
from pipeline.base.errors import Refused
from pipeline.store.operations import hash_of

_TAKEN: Final = frozenset({SELECT})
_REVERTED: Final = frozenset({SELECT, BROWSE})


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """Changes, effects and facts; planned again after it is applied, the plan is empty."""

    intents: tuple[AccessIntent, ...] = ()
    change_set: ChangeSet = field(default_factory=ChangeSet)
    managed: ManagedAccess = NOTHING  # what was kept before it
    effects: tuple[Effect, ...] = ()
    unmoved: tuple[UnmetIntent, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What must still be so when it is applied, as JSON takes it."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, in the order in which they must be applied."""
        return self.change_set.changes

    @property
    def after(self) -> ManagedAccess:
        """What is kept when all changes are applied; of fewer, ask `ChangeSet.kept` of those."""
        return self.change_set.kept(self.managed)

    @property
    def rests_on(self) -> frozenset[str]:
        """Games whose own table the catalog must show: what is granted, adopted or reverted there counts for them."""
        by_intent = {intent.key for intent in self.intents if intent.adopt or intent.revert}
        added = {
            change.securable.path[-1] for change in self.changes if change.add and change.securable.type == "table"
        }
        return frozenset(by_intent | added | {each.key for each in self.change_set.made}) - {NO_GAME}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do and nothing to keep."""
        return self.change_set.is_empty

    @property
    def fingerprint(self) -> str:
        """A hash of the facts: planned again from a newer snapshot it is another one only if they have changed."""
        return hash_of(self.facts)


@dataclass(slots=True)
class Cells:
    """The entitlements of cells while they are planned."""

    then: dict[Cell, list[Entitlement]]
    made: list[Entitlement] = field(default_factory=list)
    ended: list[Entitlement] = field(default_factory=list)

    @classmethod
    def of(cls, entitlements: Iterable[Entitlement]) -> "Cells":
        """Return those there are."""
        then: dict[Cell, list[Entitlement]] = {}
        for each in entitlements:
            then.setdefault(each.cell, []).append(each)
        return cls(then)

    def make(self, new: Entitlement) -> None:
        """Make one; it takes the place of the one of its kind, and leaves the one of the other kind alone."""
        entitlements = self.then.get(new.cell, ())
        if new not in entitlements:
            for old in [each for each in entitlements if each.permanent == new.permanent]:
                self.end(old)
            self.then.setdefault(new.cell, []).append(new)
            self.made.append(new)

    def ended_of(self, cell: Cell) -> list[Entitlement]:
        """Return those of a cell that were ended."""
        return [each for each in self.ended if each.cell == cell]

    def end(self, old: Entitlement) -> None:
        """End one."""
        cell = old.cell
        self.then[cell].remove(old)
        if not self.then[cell]:
            del self.then[cell]
        self.ended.append(old)


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a plan is thought through."""

    changes: tuple[Change, ...]
    resolver: Resolver  # of the snapshot after these

    def then(self, draft: Draft) -> "Stage":
        """Return what comes after a draft too."""
        more = draft.ordered()
        return Stage((*self.changes, *more), Resolver(simulate(self.resolver.observed, more))) if more else self


def plan(observed: Observed, intents: Sequence[AccessIntent], managed: ManagedAccess, now: float) -> AccessPlan:
    """Plan what makes intents true.

    Raises:
        Refused: a game to be read has no table, a principal is not known, a time has passed, two intents
            contradict each other, or something that decides was not read.
    """
    before = Resolver(observed)
    following = Following(before, now)
    requested = _checked(before, following.due_of(intents, managed), now)
    cells = _entitled(before, requested, managed)
    draft, adopted = Draft(), set[ManagedGrant]()
    selected = {who: before.selected_by_itself(who) for who in {intent.cell[0] for intent in requested}}
    spelled = Spellings(observed)
    vanished = following.draft(draft, spelled, cells.then, managed, requested)
    about_games = (intent for intent in requested if intent.key != NO_GAME and not intent.follow)
    for key, theirs in _by_key(about_games).items():
        where = observed.table(key)
        granted = before.granted(where) or {}
        for intent in theirs:
            cell = who, _ = intent.cell
            is_held = SELECT in granted.get(who, ())
            if intent.read:
                if key not in selected[who]:
                    draft.add(where, intent.principal, SELECT)
                elif intent.adopt and is_held:
                    adopted.add(ManagedGrant(where, who, SELECT))
            elif cell not in cells.then and (intent.revert or not following.keeps(cells.then, cell)):
                is_ours = ManagedGrant(where, who, SELECT) in managed.given
                ended = cells.ended_of(cell)
                lost = is_anothers(observed, intent.key, ended)  # with its table
                names = _granted_to(before, spelled, where, intent, ended)
                if is_ours and (lost or not spelled.given(where, names, SELECT)):
                    if not lost:
                        require_shown(before, where, who, SELECT)
                    vanished.add(ManagedGrant(where, who, SELECT))  # it was revoked outside turnout
                if intent.revert or (is_ours and not lost):
                    for privilege in _REVERTED if intent.revert else _TAKEN:
                        for spelling in spelled.given(where, names, privilege):
                            draft.remove(where, spelling, privilege)
    give(draft, before, {intent.principal for intent in requested if intent.read})
    on_tables = Stage((), before).then(draft)
    done = on_tables.then(_use_left_over(on_tables.resolver, requested, managed, cells))
    return assembled(before, done, requested, cells, managed, adopted - managed.given, vanished)


def assembled(
    before: Resolver,
    done: Stage,
    intents: tuple[AccessIntent, ...],
    cells: Cells,
    managed: ManagedAccess,
    adopted: Iterable[ManagedGrant] = (),
    disowned: Iterable[ManagedGrant] = (),
) -> AccessPlan:
    """Return the plan of a finished draft, with all its effects.

    Raises:
        Refused: it grants, adopts or reverts on a table that is not the game's.
    """
    changes, after = done.changes, done.resolver
    change_set = ChangeSet(
        changes, tuple(cells.made), tuple(cells.ended), frozenset(adopted), ours_of(changes, managed),
        frozenset(disowned), frozenset(_brought(before, changes)),
    )  # fmt: skip
    planned = AccessPlan(
        intents, change_set, managed, tuple(effects(before, after, changes)),
        tuple(unmoved(before, after, intents, cells.then)), tuple(warnings(before, after, intents, changes)),
        _facts(before, intents, change_set, managed),
    )  # fmt: skip
    for key in sorted(planned.rests_on & before.observed.tables.keys()):
        other = before.observed.tables[key].other
        if other is not None:
            raise Refused(other)
    return planned


def _granted_to(
    before: Resolver, spelled: Spellings, where: Securable, intent: AccessIntent, ended: Iterable[Entitlement]
) -> frozenset[str]:
    """Return under which names was granted what an intent ends; its own where turnout granted nothing.

    Raises:
        Refused: it is spelled otherwise, and there are several spellings, so that it may mean another principal.
    """
    names = frozenset(each.principal for each in ended)
    who, _ = intent.cell
    if not names or intent.principal in names or spelled.is_one(who):
        return names or frozenset({intent.principal})
    if before.is_ambiguous(who) or len(spelled.of(where, who)) > 1:
        granted = " and ".join(map(repr, sorted(names)))
        raise Refused(
            f"turnout granted {intent.key} to {granted}, and {intent.principal!r} may be another principal. "
            "Name the principal as turnout granted it."
        )
    return names


def is_anothers(observed: Observed, key: str, granted: Iterable[Entitlement]) -> bool:
    """Return whether the catalog shows another table than the game's, and none on which one of these was granted."""
    table = observed.tables.get(key)
    if table is None or table.other is None:
        return False
    return all(each.table_id != table.table_id for each in granted)


def _checked(before: Resolver, intents: Sequence[AccessIntent], now: float) -> tuple[AccessIntent, ...]:
    observed = before.observed
    requested: dict[tuple[Cell, bool], AccessIntent] = {}
    for raw in intents:
        name = before.name(raw.principal) if raw.read else raw.principal  # what ends is spelled as it was granted
        intent = raw if name == raw.principal else replace(raw, principal=name)
        _require_known(before, intent, now)
        cell, permanent = intent.cell, intent.until is None
        same = requested.setdefault((cell, permanent), intent)
        other = requested.get((cell, not permanent), intent)
        if same.until != intent.until or same.read is not intent.read or other.read is not intent.read:
            raise Refused(f"{intent.principal} and {intent.key} are requested twice with different terms. Request one.")
    if requested:
        keys = dict.fromkeys(intent.key for intent in requested.values())
        tables = [observed.tables[key].securable for key in keys if key in observed.tables]
        for where in (*observed.schema.chain(), *tables):
            if where not in observed.direct:
                raise Refused(
                    f"The grants on {place(where)} were not read, so no change can be planned. Read the catalog again."
                )
    return tuple(requested.values())


def _require_known(before: Resolver, intent: AccessIntent, now: float) -> None:
    if before.is_ambiguous(intent.principal) and (intent.read or intent.revert):
        names = " and ".join(map(repr, before.observed.directory.ambiguous[folded(intent.principal)]))
        raise Refused(f"{names} share a name, but for its case: a grant could mean either. Rename one of them.")
    if not intent.read:
        return
    before.table(intent.key)
    if not before.observed.directory.is_read:
        raise Refused("The catalog's directory cannot be read, so nothing can be granted. turnout can only revoke.")
    if before.standing(intent.principal) in {"gone", "unknown"}:
        raise Refused(f"The directory does not know {intent.principal!r}. Check the spelling.")
    if intent.until is not None and intent.until <= now:
        raise Refused(f"{intent.principal} cannot be granted {intent.key} until a past time. Choose a later end.")


def _entitled(before: Resolver, intents: Iterable[AccessIntent], managed: ManagedAccess) -> Cells:
    cells = Cells.of(managed.entitlements)
    for intent in intents:
        if intent.follow:
            continue
        if intent.read:
            table_id = before.table(intent.key).table_id
            person = before.identity(intent.principal)
            cells.make(Entitlement(intent.principal, intent.key, intent.until, table_id, person))
            continue
        for each in tuple(cells.then.get(intent.cell, ())):
            if intent.until is None or each.is_over(intent.until):
                cells.end(each)
    return cells


def _use_left_over(resolver: Resolver, intents: Iterable[AccessIntent], managed: ManagedAccess, cells: Cells) -> Draft:
    """Take what turnout gave above the tables from those who need it for nothing any more."""
    losing = {folded(intent.principal) for intent in intents if not intent.read} - {who for who, _ in cells.then}
    losing -= resolver.observed.directory.ambiguous.keys()
    if not resolver.observed.directory.is_read:  # who needs it as a member is not known
        return Draft()
    given = {
        ManagedGrant(where, who, need) for who in idle(resolver, losing) for need, where in uses(resolver.observed)
    }
    draft = Draft()
    take(draft, resolver, given & managed.given)
    return draft


def _brought(before: Resolver, changes: Sequence[Change]) -> Iterable[Cell]:
    """Yield who gains what by the USE_* of these changes alone, as far as anything is known."""
    above = set(before.observed.schema.chain())
    use = [each for each in changes if each.add and each.securable in above]
    if use:
        after = Resolver(simulate(before.observed, use))
        for who in before.members({folded(each.principal) for each in use}):
            was, then = before.reach(who), after.reach(who)
            yield from ((who, key) for key in (then.reads | then.unknown) - was.reads)


def _facts(
    before: Resolver, intents: Iterable[AccessIntent], done: ChangeSet, managed: ManagedAccess
) -> dict[str, Any]:
    """Return what the plan depends on: no assignment of anybody else, and no securable that it does not touch."""
    observed, above = before.observed, tuple(before.observed.schema.chain())
    touched: dict[Securable, set[str]] = defaultdict(set)
    for key, theirs in _by_key(intents).items():
        where = observed.schema if key == NO_GAME else observed.table(key)
        touched[where] |= {folded(each.principal) for each in theirs}
    for where, changes in groupby(done.changes, key=attrgetter("securable")):
        touched[where] |= {folded(each.principal) for each in changes}
    who = set[str]().union(*touched.values())
    touched |= dict.fromkeys(above, who)
    entitled = defaultdict(set, {where.path[-1]: set(names) for where, names in touched.items()})
    for each in (*done.made, *done.ended):
        entitled[each.key].add(folded(each.principal))
    ours: dict[Securable, set[str]] = defaultdict(set)
    for given in managed.given:
        ours[given.securable].add(given.principal)
    return {
        "changes": [(each.principal, each.securable.path, each.add, each.remove) for each in done.changes],
        "direct": {
            where.full_name: {
                name: (*sorted(held), name in ours[where]) for name in names if (held := before.directly(name, where))
            }
            for where, names in touched.items()
        },
        "groups": {each: [before.standing(each), *sorted(before.closure(each))] for each in sorted(who)},
        "tables": {
            table.key: [table.table_id, table.location]
            for table in observed.tables.values()
            if table.securable in touched
        },
        "entitlements": sorted(
            f"{each.principal} {each.key} {each.until} {each.table_id}"
            for each in managed.entitlements
            if folded(each.principal) in entitled.get(each.key, ())
        ),
    }


def _by_key(intents: Iterable[AccessIntent]) -> Mapping[str, list[AccessIntent]]:
    by_key: dict[str, list[AccessIntent]] = defaultdict(list)
    for intent in intents:
        by_key[intent.key].append(intent)
    return by_key
