"""What the bar counts: all that waits for a person's decision, read once for all viewers."""

import time
from dataclasses import dataclass

from app.state import services
from app.state.services import Environment, kept
from grants.api import access
from grants.api.access import Request
from pipeline.api import inbox
from pipeline.api.inbox import InboxItem


@dataclass(frozen=True, slots=True)
class Inbox:
    """What waits for a person, stuck operations first, then requests of access; read at one moment (Unix seconds)."""

    items: tuple[InboxItem, ...]
    read_at: float


@kept(seconds=5, by_acts=True)
def read_inbox(environment: Environment) -> Inbox:
    """Read what waits for a person.

    Raises:
        Refused: the control store cannot be read.
    """
    opened = services.opened(environment)
    of_access = map(_of_access, access.waiting(opened, inbox.MOST))
    return Inbox((*inbox.stuck(opened), *of_access, *inbox.requested(opened)), time.time())


def _of_access(request: Request) -> InboxItem:
    verbs = {"grant" if intent["read"] else "revoke" for intent in request.intents}
    who = tuple(dict.fromkeys(str(intent["principal"]) for intent in request.intents))
    return InboxItem(
        "access", request.request_id, " and ".join(sorted(verbs)), who, request.requester, request.requested_at
    )
