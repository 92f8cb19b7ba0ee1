"""Previews of the Schemas page's acts, planned as by `turnout schemas`, and the acts themselves.

Nothing here draws. They take effect at once, without an operation: role, reason and audit entry are the gate's.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from app.schemas import queries
from app.state import previews, services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.base.errors import Refused, Transient
from pipeline.base.names import game_key
from pipeline.control.acts import DirectAct
from pipeline.control.registering import proposals, requests, trust
from pipeline.control.registering.proposals import SchemaProposal
from pipeline.control.registering.requests import SchemaRequest
from pipeline.control.registering.trust import TrustProposal
from pipeline.control.roles import is_self
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.catalogue.versions import GameVersions, Version
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registrations import Registration
from pipeline.store.operations import Intent

_MOST_LINES: Final = 200  # of a plan; an enum may have a hundred thousand values
_LAST_LINES: Final = 4
_INDENT: Final = " " * 4  # of what a plan says below a change


def preview_again(
    environment: Environment, game: GameVersions, version: Version, policies: Policies, continues: str | None = None
) -> Preview:
    """Plan to register a version again with other policies, or as the new name of an event type.

    Raises:
        Refused: as `preview_registration`.
    """
    with services.reading():
        read = read_definitions(services.engine(environment), {version.schema_id})
    definition = read[version.schema_id].definition
    given = Registration(game.game, version.message, definition, policies, format=version.format, continues=continues)
    return preview_registration(environment, given)


def preview_registration(environment: Environment, registration: Registration) -> Preview:
    """Plan a registration.

    Raises:
        Refused: a name or a definition is not valid, a change is refused by its policy, nothing would change, or the
            control store cannot be read.
    """
    with services.reading():
        proposal = proposals.propose(
            environment.settings, services.engine(environment), environment.paths.bronze, registration
        )
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
        Intent(DirectAct.REGISTER_SCHEMA, _target(registration.game), services.actor(), parameters=waits),
        _steps(proposal.lines),
        1,
        time.time(),
        submit=partial(_register, environment, proposal),
        label=f"{verb} version {plan.version}",
    )


def preview_approval(environment: Environment, request_id: str) -> Preview:
    """Show the plan of another person's request, which is what approving it registers.

    Raises:
        Refused: it is one's own or was decided, its plan has changed since, or the control store cannot be read.
    """
    with services.reading():
        store = services.engine(environment)
        wanted = requests.request(store, request_id)
        if is_self(environment.settings.access, wanted.requester, services.actor()):
            raise Refused("You cannot approve your own request; ask another person.")
        review = proposals.review(store, environment.paths.bronze, wanted)
    if review.stale is not None:
        raise Refused("\n".join([review.stale, *_steps(review.lines)]))
    intent = Intent(DirectAct.APPROVE_SCHEMA, _target(wanted.game), services.actor())
    submit = partial(_approve, environment, wanted)
    return Preview(intent, _steps(review.lines), 1, time.time(), submit=submit, label="Approve and register")


def preview_rejection(environment: Environment, request_id: str) -> Preview:
    """Show the request that would end without a registration.

    Raises:
        Refused: it was decided, or the control store cannot be read.
    """
    with services.reading():
        wanted = requests.request(services.engine(environment), request_id)
    if wanted.state != "asked":
        raise requests.already_decided(wanted)
    verb = "Withdraw" if is_self(environment.settings.access, wanted.requester, services.actor()) else "Reject"
    intent = Intent(DirectAct.REJECT_SCHEMA, _target(wanted.game), services.actor())
    lines = (f"The request of {wanted.requester} ends, and nothing is registered.",)
    submit = partial(_reject, environment, wanted)
    return Preview(intent, lines, 1, time.time(), submit=submit, label=f"{verb} the request")


def preview_trust(environment: Environment, registry: str) -> Preview:
    """Show what turnout saw of a mistrusted registry, and what follows if it is trusted again.

    Raises:
        Refused: turnout does not mistrust it, or the control store cannot be read.
    """
    with services.reading():
        proposal = trust.propose(services.engine(environment), registry)
    intent = Intent(DirectAct.TRUST_REGISTRY, (f"registry:{registry}",), services.actor())
    submit = partial(_trust, environment, proposal)
    return Preview(intent, proposal.lines, 0, time.time(), submit=submit, label="Trust the registry")


# ------------------------------------------------------------------------------------------------------------- the acts


def _register(environment: Environment, proposal: SchemaProposal, intent: Intent) -> str:
    with _acting(environment, DirectAct.REGISTER_SCHEMA) as actor:
        settings, store = services.renewed(environment).settings, services.engine(environment)
        done = proposals.register(
            settings, store, environment.paths.bronze, proposal.registration, actor, intent.reason
        )
        if isinstance(done, SchemaRequest):
            return " ".join(proposals.describe(settings, store, done))
    already = "" if done.new else " It was registered already."
    return f"Schema id {done.schema_id} is version {done.version} of the game.{already}"


def _approve(environment: Environment, wanted: SchemaRequest, intent: Intent) -> str:
    with _acting(environment, DirectAct.APPROVE_SCHEMA) as actor:
        settings, store = services.renewed(environment).settings, services.engine(environment)
        done = proposals.approve(settings, store, environment.paths.bronze, wanted, actor, intent.reason)
    return f"Approved: schema id {done.schema_id} is version {done.version} of the game."


def _reject(environment: Environment, wanted: SchemaRequest, intent: Intent) -> str:
    with _acting(environment, DirectAct.REJECT_SCHEMA) as actor:
        settings, store = services.renewed(environment).settings, services.engine(environment)
        done = proposals.reject(settings, store, wanted, actor, intent.reason)
    return f"Request {done.request_id[:8]} is {done.state}. Nothing was registered."


def _trust(environment: Environment, proposal: TrustProposal, intent: Intent) -> str:
    with _acting(environment, DirectAct.TRUST_REGISTRY) as actor:
        settings, store = services.renewed(environment).settings, services.engine(environment)
        return trust.trust(settings, store, proposal, actor, intent.reason)


@contextmanager
def _acting(environment: Environment, act: DirectAct) -> Iterator[str]:
    """Let in a person who has the role now; everything is read again afterwards, also if another person was faster.

    Raises:
        Refused: they may not, or the control store does not answer.
    """
    actor = services.permitted(environment, act)
    try:
        with previews.writing():
            yield actor
    except Transient as away:
        raise Refused(f"{away}. Try again.") from away
    finally:
        queries.forget()


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


def _target(game: str) -> tuple[str, ...]:
    return (f"game:{game_key(game)}",)
