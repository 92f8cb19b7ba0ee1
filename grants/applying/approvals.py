"""Approves requests: the operation that comes of one begins only when the request names it."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from grants.applying import proposals, requests
from grants.applying.requests import Request
from grants.catalog import Catalog
from pipeline.base.errors import Refused, Transient
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.roles import same_person
from pipeline.settings.tree import Paths, Settings
from pipeline.store import operations

_REQUEST: Final = "request_id"


class Undecided(Transient):
    """Whether the request was approved is not written yet."""


def approval(
    engine: Engine, catalog: Catalog, settings: Settings, paths: Paths, wanted: Request, actor: str, reason: str
) -> tuple[proposals.AccessProposal, operations.Intent]:
    """Plan what a request changes from how things are now, and return it with the operation to submit.

    Raises:
        Refused: it was decided already, or the rules speak against it or against who approves.
        CatalogUnavailable: the catalog cannot be read.
    """
    gate.permit(settings, engine, actor, DirectAct.DECIDE_REQUEST)
    if wanted.state != "asked":
        raise Refused(f"This request was {wanted.state} by {wanted.decided_by!r}.")
    prepared = proposals.prepare(engine, catalog, settings.access, paths, proposals.intents_of(wanted.intents))
    why = reason or wanted.reason
    intent = prepared.to_intent(actor, why, requested_by=wanted.requester, **{_REQUEST: wanted.request_id})
    intent = replace(intent, idempotency_key=f"request {wanted.request_id}")
    proposals.require_permitted(engine, settings, catalog, prepared, intent)
    return prepared, intent


def approved(engine: Engine, settings: Settings, wanted: Request, intent: operations.Intent) -> operations.Operation:
    """Submit the operation of an approved request, then write the decision; of two who decide the first one counts.

    Raises:
        Refused: who asked decides or has not the role for it, another person has decided meanwhile, or an access change
            of the same is open.
    """
    if same_person(intent.actor, wanted.requester):
        raise Refused("You cannot decide on your own request; ask another access admin.")
    operation = gate.submit(settings, engine, intent)
    requests.decide(engine, wanted, "approved", intent.actor, intent.reason, operation.operation_id)
    return operation


def require_approved(engine: Engine, operation: operations.Operation) -> None:
    """Let an operation begin that came of no request, or of an approved request.

    Raises:
        Undecided: nobody has written a decision yet.
        Refused: it was not approved, or another operation came of it.
    """
    request_id = operation.parameters.get(_REQUEST)
    if request_id is None:
        return
    wanted = requests.request(engine, request_id)
    if wanted.state == "asked":
        raise Undecided(f"Request {request_id[:8]} is still open.")
    if (wanted.state, wanted.operation_id) != ("approved", operation.operation_id):
        raise Refused(f"Nothing was done: request {request_id[:8]} was {wanted.state} by {wanted.decided_by!r}.")
    if wanted.requester != operation.parameters.get("requested_by") or wanted.decided_by != operation.actor:
        raise Refused(f"Nothing was done: request {request_id[:8]} does not match this operation.")
