"""Reverts a change set and nothing else: earlier and later grants stay."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from grants.catalog import Change
from grants.model import SELECT, USE_CATALOG, USE_SCHEMA, Observed, folded
from grants.observing.blindness import require_shown
from grants.observing.resolver import Resolver
from grants.observing.verdict import place
from grants.planning.change_set import ChangeSet, Draft, Spellings
from grants.planning.entitlements import AccessIntent, ManagedAccess, ManagedGrant, added_by, given_by
from grants.planning.following import Following
from grants.planning.plan import AccessPlan, Cells, Stage, assembled, is_anothers
from grants.planning.usage_privileges import take
from pipeline.base.errors import Refused
from pipeline.base.names import parted_table_key

_USE: Final = frozenset({USE_SCHEMA, USE_CATALOG})


def undo(done: ChangeSet, observed: Observed, managed: ManagedAccess, now: float) -> AccessPlan:
    """Plan the undo of a change set from the present state.

    What it gave is taken, unless a newer entitlement or another principal's reading rests on it; what it took is given
    again, unless it has expired meanwhile. Where that is not the exact inverse a warning says so.

    Raises:
        Refused: an entitlement that it made was changed since, or a newer one stands where it ended one.
    """
    before = Resolver(observed)
    cells = Cells.of(managed.entitlements)
    notes = list(_take_back(cells, done, now))
    following, draft, spelled = Following(before, now), Draft(), Spellings(observed)
    wanted = _wanted(done, cells, following)
    for change in done.changes:
        notes += _remove(draft, before, spelled, change, managed, cells, following)
        notes += _add(draft, before, change, wanted)
    games = (AccessIntent(each.principal, each.key, read=each.cell in cells.then) for each in (*done.made, *done.ended))
    following.draft(draft, spelled, cells.then, managed, games)
    use = [each for each in done.changes if not _USE.isdisjoint(each.add)]
    gave = {given for given in added_by(use) if given.privilege in _USE}
    allowed = done.brought - cells.then.keys()
    first, above = Stage((), before).then(draft), Draft()
    for each in sorted(take(above, first.resolver, gave & managed.given, allowed)):
        notes.append(
            f"{before.name(each.principal)} keeps {each.privilege} on {place(each.securable)}: it is still needed."
        )
    anew = set(added_by(first.changes)) - done.ours
    planned = assembled(before, first.then(above), (), cells, managed, (), done.adopted | anew)
    return replace(planned, warnings=(*notes, *planned.warnings))


def _take_back(cells: Cells, done: ChangeSet, now: float) -> Iterator[str]:
    for each in done.made:
        if each in cells.then.get(each.cell, ()):
            cells.end(each)
        elif not each.is_over(now):
            raise Refused(f"Access of {each.principal} to {each.key} was changed since. Undo that first.")
    for each in done.ended:
        same = (other for other in cells.then.get(each.cell, ()) if other.permanent == each.permanent)
        if not all(other.is_over(now) for other in same):
            raise Refused(f"{each.principal} was granted {each.key} again since. Undo that first.")
        if each.is_over(now):
            yield f"{each.principal} does not get {each.key} back: the grant has expired meanwhile."
        else:
            cells.make(each)


def _remove(
    draft: Draft,
    before: Resolver,
    spelled: Spellings,
    change: Change,
    managed: ManagedAccess,
    cells: Cells,
    following: Following,
) -> Iterator[str]:
    """Take what the change added to a table; what is above the tables waits until nobody reads by it."""
    who, where = folded(change.principal), change.securable
    for given in given_by(change, change.add):
        if given.privilege in _USE:
            continue
        cell = who, where.path[-1]
        if cell in cells.then or following.keeps(cells.then, cell):
            yield f"{_what(change, given)} stays: another grant by turnout depends on it."
        elif not before.holds(*given):
            if given in managed.given and not is_anothers(before.observed, where.path[-1], cells.ended_of(cell)):
                require_shown(before, *given)
            yield f"{_what(change, given)} is already gone."
        elif given not in managed.given or is_anothers(before.observed, where.path[-1], cells.ended_of(cell)):
            yield f"{_what(change, given)} stays: turnout no longer manages it."
        else:
            for spelling in spelled.given(where, {change.principal}, given.privilege):
                draft.remove(where, spelling, given.privilege)


def _add(draft: Draft, before: Resolver, change: Change, wanted: Callable[[ManagedGrant], bool]) -> Iterator[str]:
    """Grant again what the change revoked."""
    for given in given_by(change, change.remove):
        held = before.directly(given.principal, given.securable)
        if held is None:
            yield f"{_what(change, given)} cannot be granted again: the object no longer exists, or was not read."
        elif before.standing(given.principal) == "gone":
            yield f"{_what(change, given)} cannot be granted again: the principal is no longer in the directory."
        elif given.privilege in held:
            yield f"{_what(change, given)} is already granted again."
        elif wanted(given):
            draft.add(given.securable, change.principal, given.privilege)


def _wanted(done: ChangeSet, cells: Cells, following: Following) -> Callable[[ManagedGrant], bool]:
    """Return what tells whether something taken is for an entitlement that stands again.

    What turnout had given is given again only for one; what it had not, always is.
    """
    ended = {each.cell for each in done.ended}
    lost, entitled = {who for who, _ in ended}, {who for who, _ in cells.then}

    def wanted(given: ManagedGrant) -> bool:
        if given not in done.ours:
            return True
        cell = given.principal, given.securable.path[-1]
        if given.privilege == SELECT and parted_table_key(cell[1]) is not None:
            return cell in cells.then or following.gains(cells.then, cell)
        if given.privilege == SELECT:
            return cell in cells.then or cell not in ended
        return given.principal in entitled or given.principal not in lost

    return wanted


def _what(change: Change, given: ManagedGrant) -> str:
    return f"{given.privilege} of {change.principal} on {place(change.securable)}"
