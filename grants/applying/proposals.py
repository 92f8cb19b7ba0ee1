"""Turns intents into one operation: reads the catalog, plans, previews and submits.

The command line, the dashboard and the controller's expiry ask here, so all three show and refuse the same.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Engine

from grants import derived_tables
from grants.applying import ledger, own_tables
from grants.catalog import Catalog, CatalogUnavailable, Change, NotFound
from grants.model import Directory, Observed, Securable, folded
from grants.observing import snapshot
from grants.observing.resolver import Resolver
from grants.planning import guardrails
from grants.planning.elsewhere import elsewhere, with_elsewhere
from grants.planning.entitlements import NO_GAME, AccessIntent, ManagedAccess
from grants.planning.guardrails import Case, Requester
from grants.planning.plan import AccessPlan, plan
from grants.planning.undo import undo
from pipeline.base.errors import Refused
from pipeline.base.names import parted_table_key
from pipeline.control.roles import CONTROLLER, Role, current, may, same_person
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit, operations
from pipeline.store.audit import AccessChange
from pipeline.store.database.states import OperationKind
from pipeline.store.processes.leases import store_time

KIND: Final = OperationKind.ACCESS
AUTHORISED_BY: Final = "authorised_by"
"""The parameter of the controller's own operations that names the person who authorised what they grant."""

_FRESH_SECONDS: Final = 300.0  # so old may be what is known of tables that are not touched
_TARGET: Final = 60  # characters of a principal that its target shows


@dataclass(frozen=True, slots=True)
class AccessProposal:
    """A plan from a fresh snapshot, with its intents."""

    intents: tuple[AccessIntent, ...]
    plan: AccessPlan
    observed: Observed
    undoes: str | None = None  # the operation it takes back
    delta_ids: Mapping[str, str] | None = (
        None  # of the tables it counts on, by game key; None: they cannot be read here
    )

    @property
    def preview(self) -> dict[str, Any]:
        """What must still be so when the controller begins, and what is to come of it."""
        return {
            "fingerprint": self.plan.fingerprint,
            "changes": len(self.plan.changes),
            "effects": [[each.principal, each.key, each.was, each.then] for each in self.plan.effects],
            "delta_ids": None if self.delta_ids is None else dict(self.delta_ids),
        }

    def to_intent(self, actor: str, reason: str, **more: str) -> operations.Intent:
        """Return the operation to ask for; `more` is kept with it, such as who requested it."""
        keys = {intent.key for intent in self.intents} - {NO_GAME} | {each.key for each in self.plan.effects}
        cells = [*(each.principal for each in self.plan.changes), *(intent.principal for intent in self.intents)]
        entitlements = (*self.plan.change_set.made, *self.plan.change_set.ended)
        who = {folded(each) for each in (*cells, *(each.principal for each in entitlements))}
        parameters = {"intents": [asdict(each) for each in self.intents], "games": sorted(keys), **more}
        parameters |= audit.kept(self._audited())
        targets = tuple(sorted(target(each) for each in who)) if not self.plan.is_empty else ()
        return operations.Intent(KIND, targets, actor, reason, parameters, self.preview, undoes=self.undoes)

    def _audited(self) -> list[AccessChange]:
        """Return what the audit log keeps: what was requested, or of an undo what comes of it."""
        if self.undoes is None:
            brought = [*audit.requested((asdict(each) for each in self.intents), self._table_name), *self._followers()]
            return list(dict.fromkeys(brought))
        moved = [each for each in self.plan.effects if None not in (each.was, each.then) and each.was != each.then]
        return [
            AccessChange("grant" if each.then else "revoke", each.principal, each.key, self._table_name(each.key))
            for each in moved
        ]

    def _followers(self) -> Iterator[AccessChange]:
        """Yield what becomes of silver and gold tables with their games."""
        for each in self.plan.changes:
            if each.securable.type == "table" and parted_table_key(key := each.securable.path[-1]) is not None:
                yield AccessChange("grant" if each.add else "revoke", each.principal, key, each.securable.full_name)

    def _table_name(self, key: str) -> str:
        return self.observed.table(key).full_name if key != NO_GAME else ""


def schema_of(access: Access) -> Securable:
    """Return the schema that the tables of games lie in."""
    return Securable((access.catalog_name, access.schema_name))


def principal_of(access: Access, actor: str) -> str:
    """Return the principal that an actor is; actors are compared as for roles.

    Raises:
        Refused: the settings name several principals for one actor.
    """
    named = {folded(name): name for each, name in access.identities.items() if same_person(each, actor)}
    if len(named) > 1:
        raise Refused(
            f"The setting access.identities names {actor!r} twice, as {' and '.join(sorted(named.values()))}."
        )
    return next(iter(named.values()), actor)


def target(principal: str) -> str:
    """Return the lock of operations on a principal: one at a time, so that no two plans use one snapshot."""
    name = folded(principal)
    if len(name) <= _TARGET and name.isprintable():
        return f"reader:{name}"
    return f"reader:{hashlib.sha256(name.encode()).hexdigest()[:_TARGET]}"


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What was read for intents, of which some or all are then planned."""

    at: float  # Unix seconds, by the store's clock
    observed: Observed
    elsewhere: Mapping[Securable, Observed | None]  # other schemas that have grants of turnout's; None: it is gone
    managed: ManagedAccess


def prepare(
    engine: Engine, catalog: Catalog, access: Access, paths: Paths, intents: Sequence[AccessIntent]
) -> AccessProposal:
    """Read the tables of intents, and plan them.

    Raises:
        Refused: see `plan`; a game has no table yet; or access is requested for longer than the setting
            access.max_grant_days allows.
        CatalogUnavailable: the catalog cannot be read.
    """
    return propose(paths, read_inputs(engine, catalog, access, paths, intents), intents)


def read_inputs(
    engine: Engine, catalog: Catalog, access: Access, paths: Paths, intents: Sequence[AccessIntent]
) -> PlanInputs:
    """Read what intents are planned from.

    Raises:
        Refused: the catalog does not let us look, or access is requested for too long.
        CatalogUnavailable: the catalog cannot be read.
    """
    now = store_time(engine)
    for intent in intents:
        if intent.read and intent.until is not None and intent.until - now > access.max_grant_days * 86_400:
            raise Refused(
                f"{intent.principal} cannot be granted {intent.key} for longer than {access.max_grant_days:g} days: "
                "choose an earlier end, or none. The limit is the setting access.max_grant_days."
            )
    everything = any(intent.key == NO_GAME for intent in intents)  # whether nobody needs it is decided by all tables
    keys = None if everything else [intent.key for intent in intents]
    gives = any(intent.read or intent.revert for intent in intents)
    directory = None if gives else _directory_if_read(catalog)
    observed, managed = _observe_games(engine, catalog, access, paths, now, keys, directory), ledger.managed(engine)
    others: dict[Securable, Observed | None] = {}
    for schema in elsewhere(intents, managed, schema_of(access)):
        try:
            places = own_tables.places(engine, paths)
            others[schema] = snapshot.observe(catalog, schema, now, places, directory=observed.directory)
        except NotFound:
            others[schema] = None
    return PlanInputs(now, observed, others, managed)


def propose(paths: Paths, inputs: PlanInputs, intents: Sequence[AccessIntent]) -> AccessProposal:
    """Plan intents, or some of those, from what was read for them.

    Raises:
        Refused: see `plan`; or a game has no table yet.
    """
    there = elsewhere(intents, inputs.managed, inputs.observed.schema)
    others = {schema: (some, inputs.elsewhere[schema]) for schema, some in there.items()}
    whole = with_elsewhere(plan(inputs.observed, intents, inputs.managed, inputs.at), others, inputs.at)
    return _identified(paths, AccessProposal(tuple(intents), whole, inputs.observed))


def prepare_undo(
    engine: Engine, catalog: Catalog, access: Access, paths: Paths, done: operations.Operation
) -> AccessProposal:
    """Read the tables of an operation, and plan its undo.

    Raises:
        Refused: it was not about access, is not over, or cannot be taken back any more.
        CatalogUnavailable: the catalog cannot be read.
    """
    name = done.operation_id[:8]
    if done.kind != KIND:
        raise Refused(f"Operation {name} is a {done.kind}: use `turnout ops undo`, where that is possible.")
    if done.is_open:
        raise Refused(f"Operation {name} is {done.state}: undo it when it has ended.")
    now = store_time(engine)
    change_set = ledger.done(engine, done.operation_id)
    observed = _observe_games(engine, catalog, access, paths, now, done.parameters["games"])
    planned = undo(change_set, observed, ledger.managed(engine), now)
    return _identified(paths, AccessProposal((), planned, observed, done.operation_id))


def _identified(paths: Paths, prepared: AccessProposal) -> AccessProposal:
    """Return a proposal with the Delta ids of the tables it counts on, as far as they can be read from here."""
    try:
        found = own_tables.delta_ids(paths, sorted(prepared.plan.rests_on))
    except own_tables.Unreadable as problem:  # the controller reads them again, and waits where it cannot
        note = f"{problem} The controller checks it before it applies the change."
        return replace(prepared, plan=replace(prepared.plan, warnings=(*prepared.plan.warnings, note)))
    return replace(prepared, delta_ids=found)


def _observe_games(
    engine: Engine,
    catalog: Catalog,
    access: Access,
    paths: Paths,
    now: float,
    keys: Sequence[str] | None,
    directory: Directory | None = None,
) -> Observed:
    """Read the tables of these games again, with None of all; the others are in it as they were read a short while ago.

    Who gains what by USE_*, and whether anyone still needs it, follows from all tables; a catalog of hundreds
    of tables is not read whole for every change.
    """
    schema = schema_of(access)
    kept = None if keys is None else snapshot.read(engine).observed
    places = own_tables.places(engine, paths)
    if kept is None or kept.schema != schema or now - kept.read_at > _FRESH_SECONDS:
        return snapshot.observe(catalog, schema, now, places, directory=directory)
    return snapshot.with_fresh(kept, snapshot.observe(catalog, schema, now, places, keys, directory))


def _directory_if_read(catalog: Catalog) -> Directory:
    """Return the catalog's directory, without which turnout revokes too, but no USE_*."""
    try:
        return catalog.directory()
    except (CatalogUnavailable, Refused):
        return Directory(is_read=False)


def replan(
    engine: Engine, catalog: Catalog, access: Access, paths: Paths, operation: operations.Operation
) -> AccessProposal:
    """Plan an operation again from how things are now, just before it begins.

    Raises:
        Refused: it cannot be done any more.
        CatalogUnavailable: the catalog cannot be read.
    """
    if operation.undoes is not None:
        undone = operations.operation(engine, operation.undoes)
        return prepare_undo(engine, catalog, access, paths, undone)
    return prepare(engine, catalog, access, paths, intents_of(operation.parameters["intents"]))


def require_permitted(
    engine: Engine,
    settings: Settings,
    catalog: Catalog,
    prepared: AccessProposal,
    by: operations.Operation | operations.Intent,
) -> None:
    """Check a plan against the guardrails: requester, approver and recipients.

    Raises:
        Refused: with a sentence for each broken rule.
    """
    resolver, roles = Resolver(prepared.observed), current(settings, engine)

    def person(actor: str) -> Requester:
        name = principal_of(settings.access, actor)
        principal = prepared.observed.directory.principals.get(folded(name))
        # who has the embedded catalog's folder may act as all its users; none of them is a person of another system
        is_known = settings.access.catalog == "embedded" or (principal is not None and principal.kind != "group")
        closure, is_admin = resolver.closure(name), may(roles, actor, Role.ACCESS_ADMIN)
        return Requester(name, closure, is_admin, is_known, resolver.maybe(name).keys() - closure.keys())

    requester = by.parameters.get("requested_by")
    guardrails.require_allowed(
        Case(
            plan=prepared.plan,
            actor=person(requester or _granter(by)),
            approver=person(by.actor) if requester else None,
            schema=schema_of(settings.access),
            inventory=derived_tables.inventory(engine).keys(),
            executor=catalog.executor,
            directory=prepared.observed.directory,
            given=ledger.managed(engine).given,
            everyone_allowed=settings.access.allow_everyone,
            others={key: why for key, each in prepared.observed.tables.items() if (why := each.other)},
        )
    )


def _granter(by: operations.Operation | operations.Intent) -> str:
    """Return who answers for an operation without a request: of the controller's, who authorised it."""
    return str(by.parameters.get(AUTHORISED_BY, by.actor)) if by.actor == CONTROLLER else by.actor


def intents_of(tree: Iterable[Mapping[str, Any]]) -> list[AccessIntent]:
    """Return intents from what was kept of them."""
    return [AccessIntent(**each) for each in tree]


def lines(prepared: AccessProposal) -> list[str]:
    """Return a plan's changes and effects as lines."""
    planned = prepared.plan
    listed = [each.sentence for each in planned.effects]
    listed += [each.sentence for each in planned.unmoved]
    listed += [f"Note: {each}" for each in planned.warnings]
    changes = [f"  {each}" for change in planned.changes for each in statements(change)]
    gains = sum(each.then is True for each in planned.effects)
    loses = sum(each.was is True for each in planned.effects)
    kept = len(planned.change_set.made), len(planned.change_set.ended)
    comes = f"{gains} gain read access, {loses} lose it; {len(planned.changes)} catalog changes"
    return [*listed, *changes, f"{comes}; {kept[0]} entitlements begin, {kept[1]} end."]


def statements(change: Change) -> list[str]:
    """Return a change as SQL says it, for people to read."""
    where = f"ON {change.securable.type.upper()} {change.securable.full_name}"
    granted = [f"GRANT {', '.join(change.add)} {where} TO {change.principal}"] if change.add else []
    return [
        *granted,
        *([f"REVOKE {', '.join(change.remove)} {where} FROM {change.principal}"] if change.remove else []),
    ]
