"""Drift of a catalog from turnout's grants: findings by class, each with its acts. It never acts itself."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from grants.model import ALL_PRIVILEGES, KNOWN, MODIFY, SELECT, Observed, Securable, folded, is_far
from grants.observing.resolver import Resolver
from grants.observing.verdict import place
from grants.planning.entitlements import NO_GAME, AccessIntent, Cell, Entitlement, ManagedAccess, ManagedGrant
from grants.planning.following import Following
from grants.planning.usage_privileges import idle, readers_by, uses
from pipeline.base.errors import Refused
from pipeline.base.names import parted_table_key

Class = Literal[
    "other_table", "extra", "missing", "expired", "recreated", "gone", "unclear", "broader", "writing", "unknown"
]
Act = Literal["adopt", "revert", "ignore", "unignore"]
"""Ways to end a finding: adopt declares what is there, revert restores what was declared."""

CLASSES: Final[Mapping[Class, str]] = {
    "other_table": "the catalog shows another table than the game's: nothing is granted, reverted or adopted there",
    "extra": "a grant that turnout did not make, or a USE_* of turnout's that no game needs",
    "missing": "a grant of turnout's is missing, or does not suffice to read",
    "expired": "a grant is over but still exists",
    "recreated": "a table was recreated and lost its grants",
    "gone": "a principal with a grant is missing from the directory, or inactive",
    "unclear": "a principal with a grant is not known in this workspace, or shares its name: turnout takes nothing",
    "broader": "a grant above the tables, or of all privileges, exceeds what was declared",
    "writing": "a principal may write to tables of games in an object store, where only turnout may",
    "unknown": "a privilege whose effect turnout does not know",
}


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """One difference."""

    kind: Class
    principal: str  # as the catalog spells it; empty: a deleted principal
    securable: Securable
    privileges: tuple[str, ...]
    sentence: str
    acts: tuple[Act, ...]
    entitlement: Entitlement | None = None  # the one that is not fulfilled, or is over
    table_id: str = ""  # the catalog's of the table it is on; empty above the tables, or where there is none
    ignored: str | None = None  # why an access admin decided to leave it as it is

    @property
    def needs_act(self) -> bool:
        """Whether it needs anything: a privilege without a known effect does not, nor a deleted principal's grants."""
        return self.kind != "unknown" and not (self.kind == "gone" and "revert" not in self.acts)

    @property
    def mark(self) -> str:
        """Identity of the finding across reads; a table that is made again has other findings."""
        until = "" if self.entitlement is None or self.entitlement.until is None else f" {self.entitlement.until}"
        rights = "+".join(self.privileges)
        return f"{self.kind} {self.securable.full_name} {self.table_id} {rights}{until} {folded(self.principal)}"


@dataclass(frozen=True, slots=True)
class Drift:
    """All findings, and the unread places."""

    findings: tuple[DriftFinding, ...]
    unread: tuple[Securable, ...]  # of these it is not known whether they have drifted

    @property
    def open(self) -> tuple[DriftFinding, ...]:
        """Findings that nobody ignores."""
        return tuple(each for each in self.findings if each.ignored is None)

    @property
    def open_counts(self) -> dict[str, int] | None:
        """How many need an act and nobody ignores, by class with zeros; None: not known, as not all was read."""
        counts = Counter(each.kind for each in self.open if each.needs_act)
        return None if self.unread else {kind: counts[kind] for kind in CLASSES}

    @property
    def counts(self) -> Counter[Class]:
        """How many there are of each class, ignored ones too."""
        return Counter(each.kind for each in self.findings)

    @property
    def ignored_counts(self) -> Counter[Class]:
        """How many of them are ignored."""
        return Counter(each.kind for each in self.findings if each.ignored is not None)


def drift(observed: Observed, managed: ManagedAccess, now: float, ignored: Mapping[str, str]) -> Drift:
    """Return where the catalog differs from what turnout keeps; `ignored` are reasons by `Finding.mark`."""
    resolver = Resolver(observed)
    by_cell: dict[Cell, list[Entitlement]] = {}
    for each in managed.entitlements:
        by_cell.setdefault(each.cell, []).append(each)
    findings = [
        *_of_other_tables(observed, managed),
        *_of_entitlements(resolver, managed, by_cell, now),
        *_of_assignments(resolver, managed, by_cell),
        *_of_following(resolver, managed, by_cell, now),
    ]
    ids = {table.securable: table.table_id for table in observed.tables.values()}
    findings = [_of_whom(resolver, each) for each in findings]
    findings = [replace(each, table_id=ids.get(each.securable, "")) for each in findings]
    ordered = sorted(findings, key=lambda each: (list(CLASSES).index(each.kind), each.securable, each.mark))
    securables = (*observed.schema.chain(), *(table.securable for table in observed.tables.values()))
    unread = tuple(sorted(each for each in securables if each not in observed.direct))
    return Drift(tuple(_decided(each, ignored.get(each.mark)) for each in ordered), unread)


def _of_whom(resolver: Resolver, finding: DriftFinding) -> DriftFinding:
    """Return a finding that says so where its address belongs to another person than at its grant."""
    ours = finding.entitlement
    if ours is None or not ours.principal_id or resolver.identity(ours.principal) in {"", ours.principal_id}:
        return finding
    sentence = (
        f"{finding.sentence} {ours.principal} belongs to another person now, by its id in the directory: the grant was "
        "not for them."
    )
    gives = finding.kind in {"missing", "recreated"}
    acts = tuple(act for act in finding.acts if not (gives and act == "revert"))
    return replace(finding, sentence=sentence, acts=acts)


def _decided(finding: DriftFinding, why: str | None) -> DriftFinding:
    return finding if why is None else replace(finding, ignored=why, acts=(*finding.acts, "unignore"))


def intent(finding: DriftFinding, act: Act, reason: str, ticket: str = "") -> AccessIntent:
    """Return the intent that does an act about a finding; to ignore it or not is none, and is kept by `Finding.mark`.

    Raises:
        Refused: the act is not possible for it.
    """
    if act in {"ignore", "unignore"} or act not in finding.acts:
        raise Refused(f"{finding.mark}: cannot {act} this finding. Possible: {', '.join(finding.acts)}.")
    who, key, ours = finding.principal, finding.securable.path[-1], finding.entitlement
    if finding.kind == "extra" and SELECT not in finding.privileges:
        return AccessIntent(who, NO_GAME, read=False, reason=reason, ticket=ticket)
    if finding.kind == "extra":
        given = act == "adopt"
        return AccessIntent(who, key, read=given, reason=reason, ticket=ticket, adopt=given, revert=not given)
    if ours is None and finding.kind == "missing":
        return AccessIntent(who, key, read=True, reason=reason, ticket=ticket, follow=True)
    if ours is None:
        return AccessIntent(who, key, read=False, reason=reason, ticket=ticket, revert=True)
    if finding.kind == "recreated" and not finding.privileges:
        return AccessIntent(who, key, read=True, until=ours.until, reason=reason, ticket=ticket, adopt=True)
    read = act == "revert" and finding.kind in {"missing", "recreated"}
    return AccessIntent(who, key, read=read, until=ours.until, reason=reason, ticket=ticket)


def _of_other_tables(observed: Observed, managed: ManagedAccess) -> Iterator[DriftFinding]:
    """Report tables that are not their game's, one finding each; of others' grants there turnout says nothing."""
    for key, table in observed.tables.items():
        if table.other is not None:
            granted = len({each.principal for each in managed.entitlements if each.key == key})
            effect = "they do not read it" if table.is_left else "who has SELECT reads other rows"
            sentence = f"{table.other} turnout granted the game to {granted} principals: {effect}."
            yield DriftFinding("other_table", "", table.securable, (), sentence, ("ignore",))


def _of_entitlements(
    resolver: Resolver, managed: ManagedAccess, by_cell: Mapping[Cell, list[Entitlement]], now: float
) -> Iterator[DriftFinding]:
    use = {who: _lacks_use(resolver, who) for who in {who for who, _ in by_cell}}
    selected = {who: resolver.selected_by_itself(who) for who in use}
    in_force = {who for (who, _), some in by_cell.items() if not all(each.is_over(now) for each in some)}
    for (who, key), entitlements in by_cell.items():
        where = resolver.observed.table(key)
        lacks = [SELECT] if key not in selected[who] and where in resolver.observed.direct else []
        live = [each for each in entitlements if not each.is_over(now)]
        for each in entitlements:
            if resolver.standing(who) in {"inactive", "gone"}:
                yield _gone(resolver, each)
            elif each.is_over(now):
                left = [] if live else [*_left_of(resolver, managed, where, who, needed=who in in_force)]
                if left:
                    yield _expired(resolver, each, tuple(left))
            elif resolver.standing(who) == "unknown":
                yield _unclear(resolver, each.principal, where, (SELECT,))
            elif not resolver.observed.is_other(key):
                yield from _unfulfilled(resolver, each, (*lacks, *use[who]))


def _lacks_use(resolver: Resolver, who: str) -> list[str]:
    return [need for need, above in uses(resolver.observed) if resolver.has(who, need, above) is False]


def _gone(resolver: Resolver, ours: Entitlement) -> DriftFinding:
    state = "is not active" if resolver.standing(ours.principal) == "inactive" else "is no longer in the directory"
    sentence = f"{ours.principal} holds a grant on {ours.key} but {state}. Revoke it, or ignore it if they return."
    return DriftFinding(
        "gone", ours.principal, resolver.observed.table(ours.key), (SELECT,), sentence, ("revert", "ignore"), ours
    )


def _left_of(resolver: Resolver, managed: ManagedAccess, where: Securable, who: str, *, needed: bool) -> Iterator[str]:
    """Yield what a principal still holds by a grant that is over; `needed`: another grant of theirs needs USE_*."""
    if resolver.holds(where, who, SELECT):
        yield SELECT
    for need, above in uses(resolver.observed):
        if not needed and ManagedGrant(above, who, need) in managed.given and resolver.holds(above, who, need):
            yield need


def _expired(resolver: Resolver, ours: Entitlement, left: tuple[str, ...]) -> DriftFinding:
    sentence = (
        f"{ours.principal} still holds {' and '.join(left)} for {ours.key}, though that grant is over. A running "
        "controller revokes it, and tries again where the catalog does not."
    )
    return DriftFinding(
        "expired", ours.principal, resolver.observed.table(ours.key), left, sentence, ("revert", "ignore"), ours
    )


def _unfulfilled(resolver: Resolver, ours: Entitlement, lacks: tuple[str, ...]) -> Iterator[DriftFinding]:
    who, where, table = ours.principal, resolver.observed.table(ours.key), resolver.observed.tables.get(ours.key)
    if table is None:
        sentence = f"{who} was granted {ours.key}, but the catalog has no such table. Register it, or revert the grant."
        yield DriftFinding("missing", who, where, (SELECT,), sentence, ("adopt", "ignore"), ours)
    elif table.table_id != ours.table_id:
        what = f"lost {' and '.join(lacks)}" if lacks else "was granted it again since, the grantor is unknown"
        sentence = f"The table of {ours.key} was recreated after {who} was granted it: {who} {what}."
        acts: tuple[Act, ...] = ("adopt", "revert", "ignore") if lacks else ("adopt", "ignore")
        yield DriftFinding("recreated", who, where, lacks, sentence, acts, ours)
    elif lacks:
        reads = resolver.reading(who).of(ours.key)
        still = "still reads it by another grant" if reads else "does not read it"
        still = "may or may not read it" if reads is None else still
        sentence = f"{who} was granted {ours.key}, but {' and '.join(lacks)} is missing: {who} {still}."
        yield DriftFinding("missing", who, where, lacks, sentence, ("adopt", "revert", "ignore"), ours)


def _of_assignments(
    resolver: Resolver, managed: ManagedAccess, by_cell: Mapping[Cell, list[Entitlement]]
) -> Iterator[DriftFinding]:
    observed = resolver.observed
    keys = {table.securable: key for key, table in observed.tables.items()}
    entitled = {who for who, _ in by_cell}
    declared = Counter(who for who, _ in by_cell)
    for where, direct in observed.direct.items():
        if observed.is_other(keys.get(where, "")):
            continue  # it is another's table, with their grants
        for principal, privileges in direct.items():
            cell = (folded(principal), keys.get(where, ""))
            holder = principal or "A deleted principal"
            for privilege in sorted(privileges - KNOWN):
                sentence = f"{holder} holds {privilege} on {place(where)}: turnout does not know its effect."
                yield DriftFinding("unknown", principal, where, (privilege,), sentence, ("ignore",))
            if resolver.standing(principal) == "gone" or not principal:
                if cell not in by_cell and (where in keys or cell[0] not in entitled):
                    yield _gone_holder(principal, where, privileges, is_table=where in keys)
                continue
            if resolver.standing(principal) == "unknown":
                if cell not in by_cell and (where in keys or cell[0] not in entitled):
                    yield _unclear(resolver, principal, where, tuple(sorted(privileges)))
                continue
            yield from _broader(resolver, principal, where, privileges, declared[cell[0]])
            if where in keys and SELECT in privileges and cell not in by_cell and not _follows(managed, where, cell[0]):
                sentence = f"{principal} has SELECT on {place(where)}, and turnout knows no grant of it."
                yield DriftFinding("extra", principal, where, (SELECT,), sentence, ("adopt", "revert", "ignore"))
    above = set(uses(observed))
    for given in managed.given:
        if given.principal not in entitled and (given.privilege, given.securable) in above and resolver.holds(*given):
            yield from _left_over(resolver, given)


def _follows(managed: ManagedAccess, where: Securable, who: str) -> bool:
    """Return whether turnout made a grant on a silver or gold table, without an entitlement there: with its game's."""
    return parted_table_key(where.path[-1]) is not None and ManagedGrant(where, who, SELECT) in managed.given


def _of_following(
    resolver: Resolver, managed: ManagedAccess, by_cell: Mapping[Cell, list[Entitlement]], now: float
) -> Iterator[DriftFinding]:
    """Report grants on silver and gold tables that are not as those of their games."""
    following = Following(resolver, now)
    tables = {table.securable: table for table in resolver.observed.tables.values() if table.other is None}
    for given in sorted(managed.given):
        where, who, table = given.securable, given.principal, tables.get(given.securable)
        cell = who, where.path[-1]
        if table is None or cell in by_cell or not _follows(managed, where, who) or resolver.granted(where) is None:
            continue
        name, is_due = resolver.name(who), following.keeps(by_cell, cell)
        if is_due and not resolver.holds(where, who, SELECT) and resolver.standing(who) == "active":
            sentence = f"{name} was granted {table.key} with {table.game}, but SELECT is missing there."
            yield DriftFinding("missing", name, where, (SELECT,), sentence, ("revert", "ignore"))
        elif not is_due and resolver.holds(where, who, SELECT):
            sentence = (
                f"{name} still holds SELECT for {table.key}, though nothing grants it any more. A running controller "
                "revokes it, and tries again where the catalog does not."
            )
            yield DriftFinding("expired", name, where, (SELECT,), sentence, ("revert", "ignore"))


def _unclear(resolver: Resolver, principal: str, where: Securable, rights: tuple[str, ...]) -> DriftFinding:
    if resolver.is_ambiguous(principal):
        why = "several principals share that name, but for its case. Rename one of them."
    elif resolver.observed.directory.is_read:
        why = "is not known in this workspace: who reads by it is not known. Assign it to the workspace to see it."
    else:
        why = "the directory could not be read."
    sentence = f"{principal} holds {' and '.join(rights)} on {place(where)}: {why}"
    return DriftFinding("unclear", principal, where, rights, sentence, ("ignore",))


def _gone_holder(principal: str, where: Securable, privileges: frozenset[str], *, is_table: bool) -> DriftFinding:
    rights = tuple(sorted(privileges))
    who = principal or "A deleted principal"
    acts: tuple[Act, ...] = ("revert", "ignore") if is_table and principal else ("ignore",)
    sentence = f"{who} holds {' and '.join(rights)} on {place(where)}, but is not in the directory."
    return DriftFinding("gone", principal, where, rights, sentence, acts)


def _broader(
    resolver: Resolver, principal: str, where: Securable, privileges: frozenset[str], declared: int
) -> Iterator[DriftFinding]:
    tables = len(resolver.observed.tables)
    yield from _writing(resolver, principal, where, privileges)
    for privilege in sorted(privileges & {SELECT, ALL_PRIVILEGES}):
        if where.type != "table":
            sentence = (
                f"{principal} holds {privilege} on {place(where)}: that counts for all {tables} games, and {declared} "
                "were declared. Its owner can revoke it there; turnout does not."
            )
            yield DriftFinding("broader", principal, where, (privilege,), sentence, ("ignore",))
        elif privilege == ALL_PRIVILEGES:
            sentence = f"{principal} holds {privilege} on {place(where)}: more than reading. Its owner can revoke it."
            yield DriftFinding("broader", principal, where, (privilege,), sentence, ("ignore",))


def _writing(
    resolver: Resolver, principal: str, where: Securable, privileges: frozenset[str]
) -> Iterator[DriftFinding]:
    """Report who may write to our tables in an object store, where no lock is shared with other writers."""
    tables = resolver.observed.tables.values()
    far = [each for each in tables if is_far(each.location) and where in each.securable.chain()]
    held = tuple(sorted(privileges & {MODIFY, ALL_PRIVILEGES}))
    if not held or not far:
        return
    which = f"the table of {far[0].key}" if where.type == "table" else f"{len(far)} tables of games"
    sentence = (
        f"{principal} holds {' and '.join(held)} on {place(where)} and may write to {which}: a commit of theirs stops "
        "the game, and may lose its rows. Its owner can revoke it."
    )
    yield DriftFinding("writing", principal, where, held, sentence, ("ignore",))


def _left_over(resolver: Resolver, given: ManagedGrant) -> Iterator[DriftFinding]:
    if not idle(resolver, {given.principal}):
        return
    who, readers = resolver.name(given.principal), readers_by(resolver, given)
    sentence = f"{who} still has {given.privilege} on {place(given.securable)}, but no grant of turnout's needs it"
    if readers:
        name, key = min(readers)
        more = f" ({len(readers)} cells in all)" if len(readers) > 1 else ""
        sentence += f". {resolver.name(name)} reads {key} by it{more}: revoke it when nobody does"
    acts: tuple[Act, ...] = ("ignore",) if readers else ("revert", "ignore")
    yield DriftFinding("extra", who, given.securable, (given.privilege,), f"{sentence}.", acts)
