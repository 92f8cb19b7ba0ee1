"""Takes back what a change set did, and only that: what was there before, and what came since, stays."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from grants.catalog import Change
from grants.change_set import ChangeSet, Draft, Spellings, simulate
from grants.entitlements import Given, Managed, given_by
from grants.model import SELECT, USE_CATALOG, USE_SCHEMA, Observed, folded
from grants.plan import AccessPlan, Cells, assembled
from grants.resolver import Resolver
from grants.use import take
from grants.verdict import place
from pipeline.errors import Refused

_USE: Final = frozenset({USE_SCHEMA, USE_CATALOG})


def undo(done: ChangeSet, observed: Observed, managed: Managed, now: float) -> AccessPlan:
    """Plan the way back of a change set, from how things are now.

    What it gave is taken, unless a newer entitlement or somebody else's reading rests on it; what it took is given
    again, unless its time has come meanwhile. Where that is not the exact inverse a warning says so.

    Raises:
        Refused: an entitlement that it made was changed since, or a newer one stands where it ended one.
    """
    before = Resolver(observed)
    cells = Cells.of(managed.entitlements)
    notes = list(_take_back(cells, done, now))
    draft, spelled = Draft(), Spellings(observed)
    for change in done.changes:
        notes += _remove(draft, before, spelled, change, managed, cells)
        notes += _add(draft, before, change, done, cells)
    gave = {given for change in done.changes for given in given_by(change, change.add) if given.privilege in _USE}
    allowed = done.brought - cells.then.keys()
    for each in sorted(take(draft, Resolver(simulate(observed, draft.ordered())), gave & managed.given, allowed)):
        notes.append(f"{before.name(each.principal)} keeps {each.privilege} on {place(each.securable)}: it is needed.")
    added = {given for change in draft.ordered() for given in given_by(change, change.add)}
    planned = assembled(before, (), draft, cells, managed, (), {*done.adopted, *(added - done.ours)})
    return replace(planned, warnings=(*notes, *planned.warnings))


def _take_back(cells: Cells, done: ChangeSet, now: float) -> Iterator[str]:
    for each in done.made:
        if each in cells.then.get(each.cell, ()):
            cells.end(each)
        elif not each.is_over(now):
            raise Refused(f"What {each.principal} may do with {each.key} was changed since: undo that first.")
    for each in done.ended:
        if any(other.permanent == each.permanent for other in cells.then.get(each.cell, ())):
            raise Refused(f"{each.principal} was given {each.key} anew since: undo that first.")
        if each.is_over(now):
            yield f"{each.principal} does not get {each.key} back: its time has come meanwhile."
        else:
            cells.make(each)


def _remove(
    draft: Draft, before: Resolver, spelled: Spellings, change: Change, managed: Managed, cells: Cells
) -> Iterator[str]:
    """Take what the change added to a table; what is above the tables waits until nobody reads by it."""
    who, where = folded(change.principal), change.securable
    for given in given_by(change, change.add):
        what = f"{given.privilege} of {change.principal} on {place(where)}"
        if given.privilege in _USE:
            continue
        if (who, where.path[-1]) in cells.then:
            yield f"{what} stays: another grant of turnout's rests on it."
        elif given.privilege not in (before.directly(who, where) or ()):
            yield f"{what} is gone already."
        elif given not in managed.given:
            yield f"{what} stays: it is not turnout's any more."
        else:
            for spelling in spelled.of(where, who):
                if given.privilege in before.observed.direct[where][spelling]:
                    draft.remove(where, spelling, given.privilege)


def _add(draft: Draft, before: Resolver, change: Change, done: ChangeSet, cells: Cells) -> Iterator[str]:
    """Give again what the change took."""
    who, where = folded(change.principal), change.securable
    held = before.directly(who, where)
    for given in given_by(change, change.remove):
        what = f"{given.privilege} of {change.principal} on {place(where)}"
        if held is None:
            yield f"{what} cannot be given again: it is not there any more, or was not read."
        elif before.standing(who) == "gone":
            yield f"{what} cannot be given again: the directory does not know it any more."
        elif given.privilege in held:
            yield f"{what} is there again already."
        elif _is_for(given, done, cells):
            draft.add(where, change.principal, given.privilege)


def _is_for(given: Given, done: ChangeSet, cells: Cells) -> bool:
    """Return whether what turnout had given is for an entitlement that stands again; what it had not, always is."""
    if given not in done.ours:
        return True
    if given.privilege == SELECT:
        return (given.principal, given.securable.path[-1]) in cells.then or not _had_entitlement(given, done)
    others = {who for who, _ in cells.then}
    return given.principal in others or not any(each.cell[0] == given.principal for each in done.ended)


def _had_entitlement(given: Given, done: ChangeSet) -> bool:
    return any(each.cell == (given.principal, given.securable.path[-1]) for each in done.ended)
