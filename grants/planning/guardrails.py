"""What the executor refuses, no matter who asks and what a page has shown: catalogs themselves would allow most of it.

Each rule looks at one case and yields a sentence for each thing that is wrong; none trusts the planner.
"""

import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from grants.model import BROWSE, EVERYONE, GRANTABLE, SELECT, USE_CATALOG, USE_SCHEMA, Directory, Securable, folded
from grants.planning.entitlements import ManagedGrant, given_by
from grants.planning.plan import AccessPlan
from pipeline.base.errors import Refused
from pipeline.base.names import is_said

_LONGEST: Final = 255
_FITS: Final = {
    "table": frozenset({SELECT, BROWSE}),
    "schema": frozenset({USE_SCHEMA, BROWSE}),
    "catalog": frozenset({USE_CATALOG, BROWSE}),
}
"""What is given where: SELECT on a schema would reach tables that are no games, and games that do not exist yet."""
_EVERYONE: Final = folded(EVERYONE)


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester or approver, as the catalog's directory has them now."""

    name: str
    closure: Collection[str]  # folded names of themselves and of all groups they are in: `Resolver.closure`
    is_admin: bool
    is_known: bool  # which principal they are, so that it shows whether something is for them
    maybe: Collection[str] = ()  # folded names of groups of which it is not known whether they are in: `Resolver.maybe`

    def is_one_of(self, principals: Collection[str]) -> bool:
        """Return whether some of these folded names are theirs, or of a group they are in."""
        return any(folded(each) in principals for each in (self.name, *self.closure))

    def may_be_in(self, principals: Collection[str]) -> list[str]:
        """Return of which of these folded names it is not known whether they are a member."""
        return sorted({each for each in principals if each in self.maybe} - set(self.closure))


@dataclass(frozen=True, slots=True)
class Case:
    """All that is judged."""

    plan: AccessPlan
    actor: Requester
    approver: Requester | None
    schema: Securable  # the configured one
    inventory: Collection[str]  # keys of games, and of silver and gold tables in force
    executor: str
    directory: Directory
    given: Collection[ManagedGrant]
    everyone_allowed: bool = False  # a policy says that everybody may be granted games
    others: Mapping[str, str] = field(default_factory=dict)  # games of which the catalog shows another table → why

    @property
    def beneficiaries(self) -> frozenset[str]:
        """The folded names of all that get something, be it only more time.

        A table that follows its game gives nothing more than the game's grant, for which a person answered.
        """
        if self.plan.intents and all(each.follow or not each.read for each in self.plan.intents):
            return frozenset()
        adds = {folded(each.principal) for each in self.plan.changes if each.add}
        return frozenset(adds | {folded(each.principal) for each in self.plan.change_set.made})

    @property
    def principals(self) -> tuple[str, ...]:
        """All that get or lose something, as they are spelled."""
        entitlements = (*self.plan.change_set.made, *self.plan.change_set.ended)
        return tuple(
            dict.fromkeys((*(each.principal for each in self.plan.changes), *(each.principal for each in entitlements)))
        )


def require_allowed(case: Case) -> None:
    """Check a case.

    Raises:
        Refused: with the sentences of all rules that it breaks.
    """
    refused = refusals(case)
    if refused:
        raise Refused(" ".join(refused))


def refusals(case: Case) -> tuple[str, ...]:
    """Return one sentence for each broken rule; none: the case is allowed."""
    return tuple(dict.fromkeys(sentence for rule in RULES for sentence in rule(case)))


def is_name(principal: str) -> bool:
    """Return whether a text can be a principal's name: an e-mail, a display name or an id.

    That is 1 to 255 characters that can be seen, with blanks only between them.
    """
    if not 1 <= len(principal) <= _LONGEST or principal != principal.strip():
        return False
    return all(each == " " or unicodedata.category(each)[0] not in "CZ" for each in principal)


def _only_grantable(case: Case) -> Iterator[str]:
    for change in case.plan.changes:
        for privilege in (*change.add, *change.remove):
            if privilege not in GRANTABLE:
                yield f"turnout does not grant or revoke {privilege}, only {', '.join(sorted(GRANTABLE))}."
            elif privilege not in _FITS[change.securable.type]:
                yield f"turnout does not grant or revoke {privilege} on a {change.securable.type}: grant single games."
        both = sorted(set(change.add) & set(change.remove))
        if both:
            yield f"{' and '.join(both)} would be granted and revoked in one change. Plan again."


def _only_games(case: Case) -> Iterator[str]:
    above = set(case.schema.chain())
    for change in case.plan.changes:
        where = change.securable
        is_game = where.path[:-1] == case.schema.path and where.path[-1] in case.inventory
        ends_ours = not change.add and all(each in case.given for each in given_by(change, change.remove))
        if where not in above and not is_game and not ends_ours:
            yield (
                f"{where.full_name} is no table of a game, and no silver or gold one in force, in "
                f"{case.schema.full_name}: turnout grants nothing else."
            )
    for entitlement in case.plan.change_set.made:
        if entitlement.key not in case.inventory:
            yield f"{entitlement.key} is no registered game, and no silver or gold table in force. Register it first."


def _only_own_tables(case: Case) -> Iterator[str]:
    yield from (case.others[key] for key in sorted(case.plan.rests_on & case.others.keys()))


def _names(case: Case) -> Iterator[str]:
    gaining = case.beneficiaries
    for principal in case.principals:
        if not is_name(principal):
            yield f"{principal!r} cannot be a principal's name. Use 1 to {_LONGEST} visible characters."
            continue
        known = case.directory.principals.get(folded(principal))
        if folded(principal) not in gaining or folded(principal) == _EVERYONE:
            continue
        if known is None:
            yield f"The directory does not know {principal!r}: turnout can only revoke."
        elif not known.active:
            yield f"{principal} is not active: activate the principal first, or only revoke."


def _known_people(case: Case) -> Iterator[str]:
    granter = case.approver or case.actor
    if case.beneficiaries and not granter.is_known:
        yield (
            f"The catalog has no user {granter.name!r}, so turnout cannot check for self-approval: "
            "set access.identities in turnout.toml to the grantor's name in the catalog."
        )


def _never_oneself(case: Case) -> Iterator[str]:
    if case.approver is None and case.actor.is_one_of(case.beneficiaries):
        yield f"{case.actor.name} may not grant to themselves or their own groups; ask another admin to approve."
    elif case.approver is None and (unknown := case.actor.may_be_in(case.beneficiaries)):
        yield _unseen(case.actor, unknown)


def _four_eyes(case: Case) -> Iterator[str]:
    approver = case.approver
    if approver is None:
        return
    if not approver.is_admin:
        yield f"{approver.name} may not approve: not an access admin."
    if folded(approver.name) == folded(case.actor.name):
        yield f"{approver.name} may not approve their own request; ask another admin."
    if approver.is_one_of(case.beneficiaries - {_EVERYONE}):
        yield f"{approver.name} may not approve access for themselves or their own groups; ask another admin."
    elif unknown := approver.may_be_in(case.beneficiaries - {_EVERYONE}):
        yield _unseen(approver, unknown)


def _unseen(person: Requester, groups: list[str]) -> str:
    return (
        f"The directory does not show who is in {' and '.join(groups)}, so it is unknown whether {person.name} gains. "
        "Give turnout's principal the right to see the members of groups, and add the groups in them to the workspace."
    )


def _admins_only(case: Case) -> Iterator[str]:
    if not case.actor.is_admin and case.approver is None:
        yield f"{case.actor.name} is not an access admin: request access, and an admin must approve."


def _never_the_executor(case: Case) -> Iterator[str]:
    if folded(case.executor) in {folded(each) for each in case.principals}:
        yield f"{case.executor} executes the changes: turnout never changes its access."


def _never_everyone(case: Case) -> Iterator[str]:
    if _EVERYONE in case.beneficiaries and not case.everyone_allowed:
        yield f"{EVERYONE} means everybody: use a policy with allow_everyone: true."


def _only_ours_is_taken(case: Case) -> Iterator[str]:
    reverted = {intent.cell for intent in case.plan.intents if intent.revert}
    for change in case.plan.changes:
        where = change.securable
        for given in given_by(change, change.remove):
            is_reverted = where.type == "table" and (given.principal, where.path[-1]) in reverted
            if given not in case.given and not is_reverted:
                yield f"{given.privilege} of {change.principal} on {where.full_name} is not from turnout: revert it."


def _a_reason(case: Case) -> Iterator[str]:
    if any(not is_said(intent.reason) for intent in case.plan.intents):
        yield "Enter a reason: each change of access needs one."


RULES: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    _only_grantable, _only_games, _only_own_tables, _names, _admins_only, _known_people, _never_oneself, _four_eyes,
    _never_the_executor, _never_everyone, _only_ours_is_taken, _a_reason,
)  # fmt: skip
