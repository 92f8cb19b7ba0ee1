"""Onboards a game: makes the name one, registers its schema, places it, wants its readers, lands what came before.

A person approves a name, or a rule has made it a game already; then the controller submits the operation, so that the
rows that introduced the name land, too, and the rule's readers get access. Readers are only written down here: what
knows the catalog grants them, by an operation of its own, and takes that back where the onboarding is undone. The
inverse is to retire the game: nothing is deleted.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey, game_key
from pipeline.base.texts import join_limited
from pipeline.control.operations import renaming, repairs
from pipeline.control.operations.definition import (
    ControlContext,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    of_one_game,
)
from pipeline.control.operations.tries import worked
from pipeline.control.roles import CONTROLLER, Role, require_current
from pipeline.data.contracts.breaches import registration_breaches
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.ingest.admission import begun_without
from pipeline.data.ingest.pending import approval
from pipeline.data.repair import asking
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.replay import replay_all
from pipeline.health.facts.placing import placing_by
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.quarantine import UNKNOWN_GAME
from pipeline.settings.tree import Settings
from pipeline.store.assignments import read_assignments, reported_cursors
from pipeline.store.database.states import PRIORITIES, OperationKind, Priority
from pipeline.store.game_proposals import GameProposal, discard, read_proposals
from pipeline.store.games import (
    Game,
    assign_waiting,
    discover_within,
    find,
    known_names,
    known_priorities,
    registered_keys,
)
from pipeline.store.groups import read_groups
from pipeline.store.onboarding import (
    Onboarded,
    OnboardingCandidate,
    approve_within,
    number_of,
    read_sketch,
    refusals,
)
from pipeline.store.onboarding_rules import OnboardingRule, read_rules
from pipeline.store.operations import Intent, Operation, lock_operation, steps
from pipeline.store.output_contracts import lock_contracts
from pipeline.store.processes.leases import store_time
from pipeline.store.wanted_readers import WantedReader, read_lasting, want_within

_SCHEMA_SECONDS: Final = 60.0  # rows that came before wait this time for a schema, as of a registry that is asked
_INGEST_SECONDS: Final = 300.0
_LAND_SECONDS: Final = 6 * 3600.0  # as a replay
_LIVE_SECONDS: Final = 300.0


LEFT_WAITING: Final = "Rows that came before, if any, wait in quarantine until a schema is registered."
"""What the step `land` says where it ends before there is a schema; `OnboardingKeeper` looks for it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person wants for a game beside what its rule says."""

    group: str | None = None
    priority: Priority | None = None
    readers: tuple[str, ...] = ()
    renames: str | None = None  # key of the game whose studio gave it this name

    def over(self, proposal: GameProposal | None) -> "Wishes":
        """Return these wishes over those of a proposal."""
        if proposal is None:
            return self
        return Wishes(
            self.group or proposal.group,
            self.priority or proposal.priority,
            self.readers or proposal.readers,
            self.renames,
        )


def approve(
    settings: Settings, engine: Engine, name: str, wishes: Wishes, actor: str, reason: str = ""
) -> OperationProposal:
    """Plan to make a game of a name, as its proposal and its rule say and as a person wishes.

    Raises:
        Refused: it cannot name a game, is one already, its key is another game's, or there are too many games; a group
            does not exist; the actor may not grant access to the readers that are wished for; or a new name of a game
            has a schema of its own, or is proposed with one.
    """
    wishes = wishes.over(read_proposals(engine).get(game_key(name)))
    preview = _plan(settings, engine, name, wishes, actor)
    parameters = {
        "games": [game_key(name)], "game": name, "group": wishes.group, "priority": wishes.priority,
        "readers": list(wishes.readers), "by_rule": False, "rows": _has_rows(engine, name), "renames": wishes.renames,
    }  # fmt: skip
    target = f"game:{game_key(name)}"
    intent = Intent(OperationKind.ONBOARD, (target,), actor, reason, parameters, preview)
    renamed = () if wishes.renames is None else renaming.lines(engine, GameKey(wishes.renames), preview)
    return OperationProposal(intent, [*renamed, *_lines(preview), *_breaches(engine, name)])


def rename(settings: Settings, engine: Engine, game: str, name: str, actor: str, reason: str = "") -> OperationProposal:
    """Plan to make a game of the new name of a game, named by key or name, with what the old one has.

    Raises:
        Refused: there is no such game; or as `approve`.
    """
    old = find(game, known_names(engine))
    readers = tuple(each.principal for each in read_lasting(engine, old.key))
    priority = next(each for each in PRIORITIES if each == known_priorities(engine).get(old.key, "normal"))
    assignment = read_assignments(engine).get(old.key)  # None: no row of it has come
    group = None if assignment is None else assignment.group
    return approve(settings, engine, name, Wishes(group, priority, readers, old.key), actor, reason)


def by_rule(game: Onboarded) -> Intent:
    """Return the operation that follows a rule's onboarding; asked again it is the same one."""
    candidate = game.candidate
    parameters = {
        "games": [candidate.game_key], "game": candidate.game, "group": None, "priority": None, "readers": [],
        "by_rule": True, "rows": candidate.how in {"name", "prefix"},  # of an exact name, too: it may have waited
    }  # fmt: skip
    preview = {"game": candidate.game, "rule": candidate.rule}
    return Intent(
        OperationKind.ONBOARD, (f"game:{candidate.game_key}",), CONTROLLER, f"onboarding rule {candidate.rule}",
        parameters, preview, idempotency_key=f"onboard-{game.number}",
    )  # fmt: skip


def landing_later(done: Operation, schemas: int) -> Intent:
    """Return the replay that lands what an onboarding left waiting; asked again it is the same one."""
    key = _key(done)
    rows = repairs.choice(UNKNOWN_GAME, None, None)
    intent = repairs.intent(OperationKind.REPLAY, {key: schemas}, CONTROLLER, "its first schema came", rows)
    return replace(intent, idempotency_key=f"land-{done.operation_id}")


def _plan(settings: Settings, engine: Engine, name: str, wishes: Wishes, actor: str) -> dict[str, Any]:
    """Return what an approval is about: what the game will get, and from which rule."""
    candidate = approval(engine, settings.onboarding, name, actor)
    if wishes.group is not None and wishes.group not in read_groups(engine):
        raise Refused(f"No such group: {wishes.group}. Create it first: `turnout groups create {wishes.group}`.")
    if wishes.readers:
        require_current(settings, engine, actor, Role.ACCESS_ADMIN, "approve a game with readers")
    rule, proposal = _rule(engine, candidate.rule), read_proposals(engine).get(candidate.game_key)
    rejected = refusals(engine).get(name)
    renamed = {} if wishes.renames is None else renaming.facts(engine, wishes.renames, name, proposal)
    return {
        **renamed,
        "game": name,
        "rule": candidate.rule,
        "group": wishes.group or (rule.group if rule else None),
        "priority": wishes.priority or (rule.priority if rule else "normal"),
        "readers": sorted({*wishes.readers, *(rule.readers if rule else ())}),
        "schema": None if proposal is None else proposal.message,
        "definition": _digest(proposal),
        "rejected_at": None if rejected is None else rejected.refused_at,  # a later rejection counts more
    }


def _digest(proposal: GameProposal | None) -> str | None:
    """Return a short hash of a proposal's schema, by which a later one differs from it; None: it has none."""
    if proposal is None or proposal.definition is None:
        return None
    return hashlib.sha256(proposal.definition).hexdigest()[:16]


def _lines(preview: Mapping[str, Any]) -> list[str]:
    by = "no rule" if preview["rule"] is None else f"rule {preview['rule']}"
    readers = join_limited(preview["readers"]) if preview["readers"] else "nobody"
    group = preview["group"] or "as placement chooses"
    return [
        f"{preview['game']!r}: group {group}, priority {preview['priority']}, by {by}",
        f"schema {preview['schema'] or 'none given'}; readers {readers}",
        "It becomes a game from ingest's next micro-batch on; rows that came before are replayed.",
    ]


def _breaches(engine: Engine, name: str) -> Iterator[str]:
    """Yield the output contracts that the proposed schema of a name breaks, which are for it by its name."""
    proposal = read_proposals(engine).get(game_key(name))
    if proposal is not None and proposal.definition is not None and proposal.message and proposal.format:
        registry = LocalRegistry(engine)
        registration = Registration(name, proposal.message, proposal.definition, format=proposal.format)
        yield from registration_breaches(engine, registry, registration, registry.plan(registration))


def _has_rows(engine: Engine, name: str) -> bool:
    """Return whether rows of a name have arrived, as far as the bounded list of names knows."""
    from pipeline.data.ingest import name_sketch

    return name in name_sketch.loads(read_sketch(engine)).names


def _rule(engine: Engine, name: str | None) -> OnboardingRule | None:
    return None if name is None else read_rules(engine).by_name.get(name)


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    if operation.parameters["by_rule"]:
        if operation.actor != CONTROLLER:
            raise Refused("Only the controller submits what follows from a rule.")
        return operation.preview
    return _plan(context.settings, context.engine, operation.parameters["game"], _wishes(operation), operation.actor)


def _wishes(operation: Operation) -> Wishes:
    given = operation.parameters
    return Wishes(given["group"], given["priority"], tuple(given["readers"]), given.get("renames"))


def _key(operation: Operation) -> str:
    return game_key(operation.parameters["game"])


def _onboard(context: ControlContext, operation: Operation) -> StepResult:
    """Make it a game that is placed, with readers and contracts: in one transaction, so all of it can be undone."""
    name, key, wishes = operation.parameters["game"], _key(operation), _wishes(operation)
    rule = _rule(context.engine, operation.preview["rule"])
    candidate = OnboardingCandidate(
        GameKey(key), name, "approval", None, operation.actor, operation.reason or None, operation.preview["rule"]
    )
    readers = [_reader(operation, principal, operation.actor) for principal in wishes.readers]
    if rule is not None:
        readers += [_reader(operation, each, rule.changed_by) for each in rule.readers if each not in wishes.readers]
    old = None if wishes.renames is None else known_names(context.engine)[wishes.renames]
    with context.engine.begin() as connection:
        if old is not None:
            lock_contracts(connection)
        lock_operation(connection, operation)
        if old is not None:
            renaming.carry_contracts(connection, operation, old, name)
            renaming.carry_derived(connection, operation, old, name)
        approve_within(connection, candidate)
        discover_within(connection, key, name, wishes.group, wishes.priority)
        want_within(connection, readers)
    assign_waiting(context.engine, placing_by(context.settings))
    return StepResult("done", _readers_sentence([each.principal for each in readers]))


def _reader(operation: Operation, principal: str, authorised_by: str) -> WantedReader:
    rule = operation.preview["rule"]
    reason = operation.reason or (f"onboarding rule {rule}" if rule is not None else "approved as a game")
    return WantedReader(_key(operation), principal, reason, authorised_by, operation.operation_id)


def _readers_sentence(readers: Sequence[str]) -> str:
    if not readers:
        return ""
    return f"Once the catalog has its table, an operation of access grants it to {join_limited(readers)}."


def _register(context: ControlContext, operation: Operation) -> StepResult:
    """Register the schema of the proposal, where it has one; the proposal is decided then."""
    proposal, message = read_proposals(context.engine).get(_key(operation)), "No schema was proposed."
    is_approved = operation.parameters["by_rule"] or _digest(proposal) == operation.preview["definition"]
    if proposal is not None and not is_approved:
        message = "Its proposal was replaced after the approval: register a schema by `turnout schemas register`."
    elif proposal is not None and proposal.definition is not None and proposal.message and proposal.format:
        author = proposal.proposed_by if operation.parameters["by_rule"] else operation.actor
        registration = Registration(
            proposal.game, proposal.message, proposal.definition, format=proposal.format, actor=author
        )
        (done,) = context.registry.register_many([registration])
        message = f"Schema {done.schema_id}, version {done.version}, proposed by {proposal.proposed_by}."
    if (old := operation.parameters.get("renames")) is not None:
        key, name = GameKey(old), operation.parameters["game"]
        versions = [each for game in read_versions(context.engine, key).values() for each in game.versions]
        registering = list(renaming.registrations(context.registry.snapshot(), versions, key, name, operation.actor))
        message = f"{len(context.registry.register_many(registering))} schemas of {old}."
    discard(context.engine, _key(operation))
    return StepResult("done", message)


def _see_ingest(context: ControlContext, operation: Operation) -> StepResult:
    """Look whether a micro-batch that does not know the game is under way; its rows would be refused after a replay."""
    name, tasks = f"{operation.operation_id} ingest", context.background_tasks

    def look() -> str:
        number = number_of(context.engine, _key(operation))
        return begun_without(context.paths, context.settings.environment, context.engine, number) or ""

    tasks.submit(name, look)  # tables may lie in a bucket
    try:
        batch = tasks.pop_result(name)
    except (Transient, DeltaError, OSError) as error:  # as of a bucket that is away for a moment
        return StepResult("waiting", f"Ingest cannot be looked at: {first_line(error)}")
    if batch:
        return StepResult("waiting", f"Ingest has begun micro-batch {batch} without it. Start ingest if it is stopped.")
    return StepResult("waiting", "Ingest is looked at.") if batch is None else StepResult("done", "Ingest knows it.")


def _land(context: ControlContext, operation: Operation) -> StepResult:
    """Replay the rows that came before it was a game; they wait a while for a schema."""
    key = _key(operation)
    if not context.background_tasks.contains(operation.operation_id) and not registered_keys(context.engine).get(key):
        if operation.parameters["rows"] and _waited(context, operation, "land") <= _SCHEMA_SECONDS:
            return StepResult("waiting", "Its rows wait for a schema.")
        return StepResult("done", LEFT_WAITING if operation.parameters["rows"] else "")
    return worked(context, operation, partial(_replay, context, operation), "Rows that came before are being decoded.")


def _waited(context: ControlContext, operation: Operation, step: str) -> float:
    began = [each.started_at for each in steps(context.engine, operation.operation_id) if each.name == step]
    return store_time(context.engine) - began[-1] if began else 0.0


def _replay(context: ControlContext, operation: Operation) -> str:
    key, name = _key(operation), operation.parameters["game"]
    selection = Selection(Game(GameKey(key), name), UNKNOWN_GAME)
    ask = partial(asking.ask_drivers, context.engine)
    done = replay_all(
        context.paths, context.settings.environment, context.registry.snapshot,
        {key: name}, selection, dry_run=False, ask=ask, reported=reported_cursors(context.engine),
    )  # fmt: skip
    if not done:
        return "No row came before."
    if done[0].error is not None:
        raise Refused(done[0].error)
    outcome = done[0].done
    still = sum(outcome.refused.values())
    return f"{outcome.landed + outcome.present:,} rows that came before are in its table, {still:,} are refused."


def _see_live(context: ControlContext, operation: Operation) -> StepResult:
    """Look whether a driver reports its stream."""
    assignment = context.read(read_assignments)[_key(operation)]
    if assignment.retired_at is not None:
        return StepResult("done", "Another request has retired it since.")
    if assignment.group is None:
        return StepResult("waiting", "There is no group for it yet.")
    is_reported = (
        assignment.reported_group == assignment.group and (assignment.reported_at or 0.0) > operation.requested_at
    )
    if not is_reported or not assignment.is_settled:
        return StepResult("waiting", f"Group {assignment.group} does not run its stream yet.")
    waits = "" if assignment.waits_for is None else f" Its rows wait: {assignment.waits_for}."
    return StepResult("done", f"Its stream is live in group {assignment.group}.{waits}")


def _done(operation: Operation) -> str:
    return f"{operation.parameters['game']!r} is a game."


ONBOARD: Final = OperationDefinition(
    OperationKind.ONBOARD,
    Role.OPERATOR,
    of_one_game(1),
    (
        StepDefinition("onboard", _onboard, 30.0, reports=True),
        StepDefinition("schema", _register, 60.0),
        StepDefinition("ingest", _see_ingest, _INGEST_SECONDS, seen=_see_ingest),
        StepDefinition("land", _land, _LAND_SECONDS, reports=True),
        StepDefinition("verify", _see_live, _LIVE_SECONDS, verifies=True, looks=True, reports=True),
    ),
    _facts,
    _done,
    OperationKind.RETIRE,
    unchanged="is a game already",
)
