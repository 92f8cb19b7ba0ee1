"""Effects of a plan: gained and lost read access, and unmet intents."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from grants.catalog import Change
from grants.model import EVERYONE, SELECT, folded
from grants.observing.resolver import Resolver
from grants.observing.verdict import OWNERSHIP, Way, place
from grants.planning.entitlements import NO_GAME, AccessIntent, Cell, Entitlement
from grants.planning.usage_privileges import uses

_WORDS: Final[Mapping[bool | None, str]] = {True: "reads", False: "does not read", None: "not known"}


class Effect(NamedTuple):
    """A change in whether a principal can read a game."""

    principal: str
    key: str
    was: bool | None  # None: not known
    then: bool | None

    @property
    def sentence(self) -> str:
        """It for a person."""
        return f"{self.principal}, {self.key}: {_WORDS[self.was]} → {_WORDS[self.then]}"


class UnmetIntent(NamedTuple):
    """An intent that its cell does not fulfil after the plan."""

    intent: AccessIntent
    reads: bool | None  # after the plan; None: not known
    sentence: str


def effects(before: Resolver, after: Resolver, changes: Iterable[Change]) -> Iterator[Effect]:
    """Yield all changes of reading, of those who are changed and all they count for."""
    for who in before.members({folded(each.principal) for each in changes}):
        name, was, then = before.name(who), before.reading(who), after.reading(who)
        for key in sorted((was.reads ^ then.reads) | (was.unknown ^ then.unknown)):
            yield Effect(name, key, was.of(key), then.of(key))


def unmoved(
    before: Resolver, after: Resolver, intents: Iterable[AccessIntent], left: Mapping[Cell, Sequence[Entitlement]]
) -> Iterator[UnmetIntent]:
    """Yield each intent without effect on reading, with the reason and a fix."""
    tables = after.observed.tables
    for principal, theirs in groupby(intents, key=attrgetter("principal")):
        first, last = before.reading(principal), after.reading(principal)
        for intent in theirs:
            then = last.of(intent.key)
            if intent.key == NO_GAME:
                yield from _left(after, intent)
            elif intent.key not in tables:
                yield UnmetIntent(
                    intent, reads=False, sentence=f"{intent.key} has no table in the catalog: nothing to revoke."
                )
            elif then is not intent.read:
                yield UnmetIntent(intent, then, _why_not(after, intent, then, left.get(intent.cell, ())))
            elif then is first.of(intent.key):
                yield UnmetIntent(intent, then, f"{principal} {_WORDS[then]} {intent.key} already.")


def warnings(
    before: Resolver, after: Resolver, intents: Sequence[AccessIntent], changes: Iterable[Change]
) -> Iterator[str]:
    """Yield what a person should consider before they apply a plan, one sentence each."""
    by_principal: dict[tuple[str, bool], list[AccessIntent]] = defaultdict(list)
    for intent in intents:
        by_principal[folded(intent.principal), intent.read].append(intent)
    for (who, gives), requested in sorted(by_principal.items()):
        yield from _about_giving(before, who, requested) if gives else _about_taking(before, after, who, requested)
    above = {where for _, where in uses(before.observed)}
    for change in changes:
        if change.remove and change.securable in above:
            what = f"{' and '.join(change.remove)} on {place(change.securable)}"
            yield f"{change.principal} loses {what}, also for objects that are not games; turnout does not see those."


def _about_giving(before: Resolver, who: str, requested: Sequence[AccessIntent]) -> Iterator[str]:
    known = before.observed.directory.principals.get(who)
    if known is not None and known.kind == "user":
        yield f"{known.name} is a user: prefer a group, so that members can change without new grants."
    if before.apart and known is not None and known.kind == "group":
        yield f"The catalog does not know groups: it admits {known.name} itself, and refuses its members by name."
    if who in before.hidden:
        yield f"The directory does not show who is in {before.name(who)}: who gains by it is not known."
    if who == folded(EVERYONE):
        yield f"{EVERYONE} means everybody: every user will read {len(requested)} of these games."
    reads = before.reading(who).reads
    selected = before.selected_by_itself(who)
    covered = [intent for intent in requested if intent.key in reads and intent.key not in selected]
    if covered:
        ways = _select_ways(before, covered[0])
        yield f"{before.name(who)} already reads {len(covered)} of these games: {covered[0].key} by {ways[0].words}."


def _about_taking(before: Resolver, after: Resolver, who: str, requested: Sequence[AccessIntent]) -> Iterator[str]:
    if who in before.hidden:
        yield f"The directory does not show who is in {after.name(who)}: who loses by it is not known."
    could = [intent for intent in requested if intent.key in after.reading(who).could]
    if could:
        way = after.verdict(who, could[0].key).granting[0]
        yield f"{after.name(who)} could grant itself {len(could)} of these games again, by {way.words}."


def _left(after: Resolver, intent: AccessIntent) -> Iterator[UnmetIntent]:
    """Yield what a principal keeps above the tables after a revocation of all that nobody needs."""
    who = after.name(intent.principal)
    for need, where in uses(after.observed):
        if need in (after.directly(who, where) or ()):
            why = "turnout did not grant it, or another game needs it"
            yield UnmetIntent(intent, None, f"{who} keeps {need} on {place(where)}: {why}.")


def _select_ways(resolver: Resolver, intent: AccessIntent) -> tuple[Way, ...]:
    return resolver.verdict(intent.principal, intent.key).needs[0].ways


def _why_not(after: Resolver, intent: AccessIntent, then: bool | None, left: Sequence[Entitlement]) -> str:
    who, key = after.name(intent.principal), intent.key
    if then is None or intent.read:
        verdict = after.verdict(who, key)
        if verdict.standing == "inactive":
            return f"{who} does not read {key} yet: it is not active. Activate it in the directory."
        return verdict.sentence
    if left:
        kept = "a permanent grant" if any(each.permanent for each in left) else "a grant that lasts longer"
        return f"{who} still reads {key} by {kept}. Revoke that too."
    fixes = dict.fromkeys(_fix(after, intent, way) for way in _select_ways(after, intent))
    return f"{who} still reads {key} {'; and '.join(fixes)}."


def _fix(after: Resolver, intent: AccessIntent, way: Way) -> str:
    words = f"by {way.words}"
    if way.by == OWNERSHIP:
        return f"{words}: change the owner"
    if way.by == SELECT and way.securable == after.table(intent.key).securable:
        if way.groups:
            return f"{words}: revoke it from that group, or take {after.name(intent.principal)} out of it"
        if after.observed.tables[intent.key].follows:
            game = after.observed.tables[intent.key].game
            return f"{words}: turnout grants it with {game}, else revert it"
        return f"{words}, which turnout did not grant: revert it, or adopt it first"
    out = ", or remove it from the group" if way.groups else ""
    return f"{words}: revoke it there (turnout does not){out}"
