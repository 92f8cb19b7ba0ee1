"""USE_SCHEMA and USE_CATALOG: granted with the first game a principal needs them for, revoked with the last.

They are shared by all games, and by all members of a group, so revoking them can hurt principals that the
change does not name.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from grants.model import BROWSE, USE_CATALOG, USE_SCHEMA, Observed, Securable, folded
from grants.observing.resolver import Holding, Resolver
from grants.planning.change_set import Draft, Spellings
from grants.planning.entitlements import Cell, ManagedGrant

_IDLE = frozenset({BROWSE, USE_SCHEMA, USE_CATALOG})  # what needs no USE_* to be of use


def uses(observed: Observed) -> Iterator[tuple[str, Securable]]:
    """Yield what is needed above a table, from the inside out, and on what."""
    yield USE_SCHEMA, observed.schema
    if observed.schema.parent is not None:
        yield USE_CATALOG, observed.schema.parent


def give(draft: Draft, resolver: Resolver, principals: Iterable[str]) -> None:
    """Grant the missing privileges above tables; members of a group that gets one need none of their own."""
    coming: set[Holding] = set()
    for who in sorted({folded(each) for each in principals}, key=lambda each: (len(resolver.closure(each)), each)):
        for need, where in uses(resolver.observed):
            by_group = any((where, holder, need) in coming for holder in resolver.together(who))
            if not by_group and not resolver.has(who, need, where):
                draft.add(where, resolver.name(who), need)
                coming.add((where, who, need))


def take(
    draft: Draft, resolver: Resolver, given: Iterable[ManagedGrant], allowed: AbstractSet[Cell] = frozenset()
) -> set[ManagedGrant]:
    """Take of these what is there and nobody reads by; return what stays since a principal does.

    The resolver's snapshot is the one in which everything else of the plan is done. `allowed` may lose by it.
    """
    gone: set[Holding] = set()
    kept: set[ManagedGrant] = set()
    spelled = Spellings(resolver.observed)
    for each in sorted(given, key=lambda each: (-len(each.securable.path), each)):
        if each.privilege not in (resolver.directly(each.principal, each.securable) or ()):
            continue
        holding = (each.securable, each.principal, each.privilege)
        if any(cell not in allowed for cell in _losses(resolver, gone, holding)):
            kept.add(each)
            continue
        holders = [name for name, held in spelled.of(each.securable, each.principal) if each.privilege in held]
        if len(holders) > 1 and not spelled.is_one(each.principal):
            continue  # which of them turnout gave it is not known
        gone.add(holding)
        for name in holders:
            draft.remove(each.securable, name, each.privilege)
    return kept


def readers_by(resolver: Resolver, given: ManagedGrant) -> set[Cell]:
    """Return who would lose what to read, or may read it, without one assignment."""
    return set(_losses(resolver, set(), (given.securable, given.principal, given.privilege)))


def idle(resolver: Resolver, principals: AbstractSet[str]) -> set[str]:
    """Return who of these folded names is known to have nothing directly that USE_* is needed for."""
    observed, left = resolver.observed, set(principals)
    for where in (*observed.schema.chain(), *(table.securable for table in observed.tables.values())):
        granted = resolver.granted(where)
        if granted is None or not left:
            return set()
        left -= {who for who in left & granted.keys() if granted[who] - _IDLE}
        if where.type != "catalog":
            left -= {resolver.owner(where)}
    return left


def _losses(resolver: Resolver, gone: set[Holding], holding: Holding) -> Iterator[Cell]:
    """Yield who would not read what without one more assignment; what may be read counts as read."""
    for who in resolver.members({holding[1]}, maybe=True):
        if resolver.apart or resolver.has(who, holding[2], holding[0], {*gone, holding}) is not True:
            before, after = resolver.reach(who, gone), resolver.reach(who, {*gone, holding})
            lost = (before.reads - after.reads) | (before.unknown - after.unknown)
            yield from ((who, key) for key in lost)
