"""What turnout granted in another schema than the settings name now: who loses a game loses it there, too.

The settings `access.catalog_name` and `access.schema_name` may change while grants in the schema before are in force.
Pure, as all plans.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from grants.model import Observed, Securable
from grants.planning.change_set import ChangeSet
from grants.planning.entitlements import AccessIntent, ManagedAccess, ManagedGrant, taken_by
from grants.planning.plan import AccessPlan, plan


def elsewhere(
    intents: Iterable[AccessIntent], managed: ManagedAccess, schema: Securable
) -> Mapping[Securable, tuple[AccessIntent, ...]]:
    """Return the intents that end what turnout granted in other schemas than this one, by schema."""
    ending = {intent.cell: intent for intent in intents if not intent.read and not intent.revert}
    found: dict[Securable, dict[AccessIntent, None]] = {}
    for each in sorted(managed.given):
        where, parent = each.securable, each.securable.parent
        intent = ending.get((each.principal, where.path[-1]))
        if where.type == "table" and parent is not None and parent != schema and intent is not None:
            found.setdefault(parent, {})[intent] = None
    return {where: tuple(some) for where, some in found.items()}


def with_elsewhere(
    planned: AccessPlan, others: Mapping[Securable, tuple[tuple[AccessIntent, ...], Observed | None]], now: float
) -> AccessPlan:
    """Return a plan that also ends what other schemas have, each with its intents and what was read of it.

    None was read of a schema that the catalog has no more: its grants went with it. What lies above the schema of the
    plan is left to the plan.

    Raises:
        Refused: see `plan`.
    """
    for schema, (intents, observed) in others.items():
        changes = ChangeSet(disowned=_given_in(schema, intents, planned.managed))
        facts: Mapping[str, object] = {}
        if observed is not None:
            there = plan(observed, intents, planned.managed, now)
            changes, facts = there.change_set, there.facts
        theirs = tuple(each for each in changes.changes if each.securable.path[: len(schema.path)] == schema.path)
        before = planned.change_set
        planned = replace(
            planned,
            change_set=replace(
                before,
                changes=(*before.changes, *theirs),
                ours=before.ours | changes.ours.intersection(taken_by(theirs)),
                disowned=before.disowned | changes.disowned,
            ),
            warnings=(*planned.warnings, _note(schema, intents)),
            facts={**planned.facts, schema.full_name: facts},
        )
    return planned


def _given_in(schema: Securable, intents: Iterable[AccessIntent], managed: ManagedAccess) -> frozenset[ManagedGrant]:
    who = {intent.cell[0] for intent in intents}
    return frozenset(each for each in managed.given if each.principal in who and schema in each.securable.chain())


def _note(schema: Securable, intents: tuple[AccessIntent, ...]) -> str:
    games = intents[0].key if len(intents) == 1 else f"{len(intents)} games"
    return (
        f"turnout granted {games} in {schema.full_name} before the settings named another schema, and revokes it there."
    )
