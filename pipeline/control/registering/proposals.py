"""A schema that a person registers: first its plan, then the write, or a request that a second person approves.

Called by `turnout schemas plan | register | approve | reject` and by the page Schemas. It is no operation of the
controller: a registration is one transaction of the control store, a fleet's first one comes before any controller, and
a definition of megabytes belongs into no audit entry. Role and audit are the gate's, as for every other act.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.base.texts import join_limited
from pipeline.control import gate, roles
from pipeline.control.acts import DirectAct
from pipeline.control.registering import requests
from pipeline.control.registering.requests import SchemaRequest
from pipeline.control.roles import is_self
from pipeline.data.contracts.breaches import registration_breaches
from pipeline.data.contracts.plans import RegistrationPlan, Step, render_plan
from pipeline.data.contracts.registry import LocalRegistry, Registered, Registration
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Settings
from pipeline.store.audit import Act
from pipeline.store.database.engine import writing
from pipeline.store.writers import lock

_SHOWN_NAMES: Final = 5

Outcome: TypeAlias = Registered | SchemaRequest
"""The schema is registered, or the request waits for a second person and nothing has changed."""


@dataclass(frozen=True, slots=True, eq=False)
class SchemaProposal:
    """What a registration would do now: the preview of `turnout schemas plan` and of the page."""

    registration: Registration  # with the hash of this plan: `register` refuses it once the plan is another one
    plan: RegistrationPlan
    lines: tuple[str, ...]  # for people; raw texts are in them
    needs_approval: bool  # a second person must approve it, by the setting schemas.second_person

    @property
    def possible(self) -> bool:
        """Whether `register` would take it: no change has the policy to refuse it."""
        return not self.plan.refused

    @property
    def breaking(self) -> tuple[Step, ...]:
        """Return the changes that readers or producers must know of."""
        return self.plan.breaking


@dataclass(frozen=True, slots=True, eq=False)
class Review:
    """What an open request would do now, for the person who decides."""

    request: SchemaRequest
    lines: tuple[str, ...]  # the plan that was shown to the requester, which is the one that is approved
    stale: str | None  # why it cannot be approved any more, a sentence; None: it can


def propose(settings: Settings, engine: Engine, bronze: Location, registration: Registration) -> SchemaProposal:
    """Plan a registration; writes nothing, and the plan may have refused changes.

    Raises:
        Refused: a name, or a definition that no table can hold; or the control store has lost schemas of the game.
    """
    registry = LocalRegistry(engine, bronze)
    plan = registry.plan(registration)
    needs_approval = _needs_approval(settings, plan)
    *lines, last = _lines(engine, registry, registration, plan)
    lines += [" a second person must approve it"] if needs_approval else []
    lines.append(last)
    return SchemaProposal(replace(registration, plan_hash=plan.hash), plan, tuple(lines), needs_approval)


def register(
    settings: Settings, engine: Engine, bronze: Location, registration: Registration, actor: str, reason: str = ""
) -> Outcome:
    """Register a schema as planned, or request it where a second person must approve it; audited, begun and ended.

    Give the registration of a `SchemaProposal`: with the hash of its plan nothing is done once that plan has changed,
    as when another version was registered between.

    Args:
        settings: of the environment, as they are now.
        engine: the control store.
        bronze: beside which a new schema gets its id.
        registration: what to register.
        actor: who registers it.
        reason: kept in the audit log; a request needs one.

    Raises:
        Refused: the actor has not the role, a change is refused, the plan is another one than was shown, or a request
            has no reason; or the place of the ids does not serve. Then nothing is registered.
        Transient: the control store is busy or away.
    """
    given = replace(registration, actor=actor)
    act = _act(given, actor, str(DirectAct.REGISTER_SCHEMA), reason)
    gate.permit(settings, engine, actor, DirectAct.REGISTER_SCHEMA)
    try:
        registry = LocalRegistry(engine, bronze)
        plan = registry.require_possible(given)
    except Refused:
        with gate.acting(settings, engine, DirectAct.REGISTER_SCHEMA, act):
            raise  # the attempt is in the audit log, too
    given = replace(given, plan_hash=plan.hash)  # what was judged and audited is what is done
    act = replace(act, detail={**act.detail, "plan": plan.hash})
    if not _needs_approval(settings, plan):
        with gate.acting(settings, engine, DirectAct.REGISTER_SCHEMA, act):
            return LocalRegistry(engine, bronze).register_many([given])[0]
    act = replace(act, action="request a schema")
    with gate.acting(settings, engine, DirectAct.REGISTER_SCHEMA, act):
        lines = tuple(_lines(engine, registry, given, plan))
        return requests.submit(engine, given, plan.hash, lines, actor, reason)


def _lines(
    engine: Engine, registry: LocalRegistry, registration: Registration, plan: RegistrationPlan
) -> Iterator[str]:
    """Yield a plan in lines, with the contracts that it breaks before its hash, which is the last one."""
    *lines, last = render_plan(plan)
    yield from lines
    yield from registration_breaches(engine, registry, registration, plan)
    yield last


def review(engine: Engine, bronze: Location, request: SchemaRequest) -> Review:
    """Return what an open request would do now."""
    request, stale = requests.request(engine, request.request_id), None
    try:
        if request.state != "asked":
            raise requests.already_decided(request)
        LocalRegistry(engine, bronze).require_possible(request.registration)
    except Refused as refused:
        stale = str(refused)
    return Review(request, request.plan, stale)


def approve(
    settings: Settings, engine: Engine, bronze: Location, request: SchemaRequest, actor: str, reason: str = ""
) -> Registered:
    """Register what another person requested, exactly as it was shown to them, in one transaction with the decision.

    Args:
        settings: of the environment, as they are now.
        engine: the control store.
        bronze: beside which a new schema gets its id.
        request: what was requested.
        actor: who approves.
        reason: kept in the audit log and with the request.

    Raises:
        Refused: the actor is the requester or has not the role, the plan has changed since it was requested, or
            another person has decided meanwhile. Then nothing is registered, and an open request stays open.
        Transient: the control store is busy or away.
    """
    request = requests.request(engine, request.request_id)

    def decided(connection: Connection, done: list[Registered]) -> None:
        requests.decide(connection, request, "approved", actor, reason, done[0].version)

    act = _decision(request, actor, str(DirectAct.APPROVE_SCHEMA), reason)
    with gate.acting(settings, engine, DirectAct.APPROVE_SCHEMA, act):
        if is_self(settings.access, actor, request.requester):
            raise Refused("You cannot approve your own request; ask another person.")
        if request.state != "asked":
            raise requests.already_decided(request)
        return LocalRegistry(engine, bronze).register_many([request.registration], decided)[0]


def reject(settings: Settings, engine: Engine, request: SchemaRequest, actor: str, reason: str) -> SchemaRequest:
    """End a request; by the requester it is withdrawn, by another person rejected. Nothing is registered.

    Raises:
        Refused: the actor has not the role, gives no reason, or another person has decided meanwhile.
    """
    is_own = is_self(settings.access, actor, request.requester)
    act = _decision(request, actor, "withdraw a schema" if is_own else str(DirectAct.REJECT_SCHEMA), reason)
    with gate.acting(settings, engine, DirectAct.REJECT_SCHEMA, act), writing(engine) as connection:
        lock(connection)
        return requests.decide(connection, request, "withdrawn" if is_own else "rejected", actor, reason)


def describe(settings: Settings, engine: Engine, request: SchemaRequest) -> tuple[str, ...]:
    """Return for the requester for whom a request waits, and how those approve it, as sentences."""
    name = request.request_id[:8]
    waits = "waits already, with its first reason" if request.repeated else "waits"
    return (
        f"Request {name} {waits}: nothing is registered yet.",
        _who_approves(settings, engine, request.requester),
        f"They approve it with `turnout schemas approve {name}` or on the page Schemas.",
    )


def _who_approves(settings: Settings, engine: Engine, requester: str) -> str:
    needed = DirectAct.APPROVE_SCHEMA.role
    now = roles.current(settings, engine)
    if roles.roles_of(now, requester) is None:
        return "Another person who can reach this environment must approve it."
    people = [
        each
        for each in dict.fromkeys([*now.operators, *now.movers])
        if not each.startswith("group:") and not is_self(settings.access, each, requester)
    ]
    if not people:
        return f"Nobody else has the role {needed}, which approving needs: add a person to roles.{needed}s."
    return f"One of these must approve it: {join_limited(people, _SHOWN_NAMES, str)}."


def _needs_approval(settings: Settings, plan: RegistrationPlan) -> bool:
    return settings.schemas.second_person and bool(plan.breaking) and not plan.refused


def _act(registration: Registration, actor: str, action: str, reason: str) -> Act:
    policies = [f"{kind}={policy}" for kind, policy in registration.policies.chosen]
    detail = {
        "game": registration.game, "message": registration.message, "format": registration.format,
        "policies": policies, "plan": registration.plan_hash, "reason": reason,
        **({} if registration.continues is None else {"continues": registration.continues}),
        **({"new_type": True} if registration.new_type else {}),
    }  # fmt: skip
    return Act(actor, action, (f"game:{game_key(registration.game)}",), None, detail)


def _decision(request: SchemaRequest, actor: str, action: str, reason: str) -> Act:
    act = _act(request.registration, actor, action, reason)
    return replace(act, detail={**act.detail, "request": request.request_id, "requester": request.requester})
