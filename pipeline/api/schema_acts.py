"""Acts about schemas: previews planned as by `turnout schemas`, and the acts themselves.

They take effect at once, without an operation: role, reason and audit entry are the gate's. Previews raise `Refused`
where the control store cannot be read, acts where it does not answer.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from pipeline.api.acts import Follows, Preview, writing
from pipeline.api.environment import OpenEnvironment
from pipeline.api.versions import GameVersions, Version
from pipeline.base.errors import Refused, Transient
from pipeline.base.names import game_key
from pipeline.control.acts import DirectAct
from pipeline.control.registering import proposals, requests, trust
from pipeline.control.registering.proposals import SchemaProposal
from pipeline.control.registering.requests import SchemaRequest
from pipeline.control.registering.trust import TrustProposal
from pipeline.control.roles import is_self
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registrations import Registration
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind
from pipeline.store.operations import Intent

_MOST_LINES: Final = 200  # of a plan; an enum may have a hundred thousand values
_LAST_LINES: Final = 4
_INDENT: Final = " " * 4  # of what a plan says below a change


@reading()
def preview_again(
    environment: OpenEnvironment,
    actor: str,
    game: GameVersions,
    version: Version,
    policies: Policies,
    continues: str | None = None,
) -> Preview:
    """Plan to register a version again with other policies, or as the new name of an event type.

    Raises:
        Refused: as `preview_registration`.
    """
    read = read_definitions(environment.engine, {version.schema_id})
    definition = read[version.schema_id].definition
    given = Registration(game.game, version.message, definition, policies, format=version.format, continues=continues)
    return preview_registration(environment, actor, given)


@reading()
def preview_registration(environment: OpenEnvironment, actor: str, registration: Registration) -> Preview:
    """Plan a registration.

    Raises:
        Refused: a name or a definition is not valid, a change is refused by its policy, or nothing would change.
    """
    settings, bronze = environment.settings, environment.paths.bronze
    proposal = proposals.propose(settings, environment.engine, bronze, registration)
    plan = proposal.plan
    if not plan.new:
        raise Refused(f"Nothing to register: it is version {plan.version} of this game already.")
    if not proposal.possible:
        why = f"{len(plan.refused)} changes are refused. Choose a policy for their kinds, or change the definition."
        raise Refused("\n".join([why, *_steps(proposal.lines)]))
    waits = (
        {"effects": ["A second person must approve it."]} if proposal.needs_approval else {}
    )  # then a reason is needed
    verb = "Request" if proposal.needs_approval else "Register"
    return Preview(
        Intent(DirectAct.REGISTER_SCHEMA, _target(registration.game), actor, parameters=waits),
        _steps(proposal.lines),
        1,
        time.time(),
        submit=partial(_register, proposal),
        label=f"{verb} version {plan.version}",
        follows=None if proposal.needs_approval else _replay(registration.game),
    )


@reading()
def preview_approval(environment: OpenEnvironment, actor: str, request_id: str) -> Preview:
    """Show the plan of another person's request, which is what approving it registers.

    Raises:
        Refused: it is one's own or was decided, or its plan has changed since.
    """
    wanted = requests.request(environment.engine, request_id)
    if is_self(environment.settings.access, wanted.requester, actor):
        raise Refused("You cannot approve your own request; ask another person.")
    review = proposals.review(environment.engine, environment.paths.bronze, wanted)
    if review.stale is not None:
        raise Refused("\n".join([review.stale, *_steps(review.lines)]))
    intent = Intent(DirectAct.APPROVE_SCHEMA, _target(wanted.game), actor)
    submit = partial(_approve, wanted)
    follows = _replay(wanted.game)
    return Preview(
        intent, _steps(review.lines), 1, time.time(), submit=submit, label="Approve and register", follows=follows
    )


@reading()
def preview_rejection(environment: OpenEnvironment, actor: str, request_id: str) -> Preview:
    """Show the request that would end without a registration.

    Raises:
        Refused: it was decided.
    """
    wanted = requests.request(environment.engine, request_id)
    if wanted.state != "asked":
        raise requests.already_decided(wanted)
    verb = "Withdraw" if is_self(environment.settings.access, wanted.requester, actor) else "Reject"
    intent = Intent(DirectAct.REJECT_SCHEMA, _target(wanted.game), actor)
    lines = (f"The request of {wanted.requester} ends, and nothing is registered.",)
    submit = partial(_reject, wanted)
    return Preview(intent, lines, 1, time.time(), submit=submit, label=f"{verb} the request")


@reading()
def preview_trust(environment: OpenEnvironment, actor: str, registry: str) -> Preview:
    """Show what turnout saw of a mistrusted registry, and what follows if it is trusted again.

    Raises:
        Refused: turnout does not mistrust it.
    """
    proposal = trust.propose(environment.engine, registry)
    intent = Intent(DirectAct.TRUST_REGISTRY, (f"registry:{registry}",), actor)
    submit = partial(_trust, proposal)
    return Preview(intent, proposal.lines, 0, time.time(), submit=submit, label="Trust the registry")


# ------------------------------------------------------------------------------------------------------------- the acts


@contextmanager
def _acting() -> Iterator[None]:
    """Turn a failed write into a reason for people, also where something is only away."""
    try:
        with writing():
            yield
    except Transient as away:
        raise Refused(f"{away}. Try again.") from away


@_acting()
def _register(proposal: SchemaProposal, environment: OpenEnvironment, intent: Intent) -> str:
    settings, store = environment.settings, environment.engine
    done = proposals.register(
        settings, store, environment.paths.bronze, proposal.registration, intent.actor, intent.reason
    )
    if isinstance(done, SchemaRequest):
        return " ".join(proposals.describe(settings, store, done))
    already = "" if done.new else " It was registered already."
    return f"Schema id {done.schema_id} is version {done.version} of the game.{already}"


@_acting()
def _approve(wanted: SchemaRequest, environment: OpenEnvironment, intent: Intent) -> str:
    settings, store = environment.settings, environment.engine
    done = proposals.approve(settings, store, environment.paths.bronze, wanted, intent.actor, intent.reason)
    return f"Approved: schema id {done.schema_id} is version {done.version} of the game."


@_acting()
def _reject(wanted: SchemaRequest, environment: OpenEnvironment, intent: Intent) -> str:
    done = proposals.reject(environment.settings, environment.engine, wanted, intent.actor, intent.reason)
    return f"Request {done.request_id[:8]} is {done.state}. Nothing was registered."


@_acting()
def _trust(proposal: TrustProposal, environment: OpenEnvironment, intent: Intent) -> str:
    return trust.trust(environment.settings, environment.engine, proposal, intent.actor, intent.reason)


def _steps(lines: Iterable[str]) -> tuple[str, ...]:
    """Return a plan with a line for each change, as a page draws no indentation; of very many the breaking ones first.

    The last lines have the counts and the plan's hash.
    """
    drawn: list[str] = []
    for line in lines:
        if drawn and line.startswith(_INDENT):
            drawn[-1] += f" · {line.strip()}"
        else:
            drawn.append(line.strip())
    if len(drawn) <= _MOST_LINES + _LAST_LINES:
        return tuple(drawn)
    changes = sorted(drawn[1:-_LAST_LINES], key=lambda line: not line.startswith("!"))
    left = f"and {len(changes) - _MOST_LINES:,} more; `turnout schemas plan` prints all"
    return (drawn[0], *changes[:_MOST_LINES], left, *drawn[-_LAST_LINES:])


def _replay(game: str) -> Follows:
    """Return what lands the rows that a version lets in, of those that were refused before."""
    return Follows(OperationKind.REPLAY, (game_key(game),))


def _target(game: str) -> tuple[str, ...]:
    return (f"game:{game_key(game)}",)
