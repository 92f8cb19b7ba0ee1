"""Previews of the Access page's acts, planned as by `turnout grants`, and their submission.

Nothing here draws. Each preview reads the catalog again; a request follows the same rules as one from the command
line, checked when it is previewed, when it is submitted, and by the controller when it begins.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Final, Literal

from app import formatting
from app.access import queries
from app.state import services
from app.state.previews import Preview, writing
from app.state.services import Environment
from grants.applying import approvals, drift_store, proposals, requests
from grants.applying.proposals import AccessProposal
from grants.applying.requests import Request
from grants.planning.drift import Act as Deed
from grants.planning.drift import DriftFinding
from grants.planning.drift import intent as intent_about
from grants.planning.effects import Effect
from grants.planning.entitlements import AccessIntent
from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.base.texts import first_lines
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.roles import same_person
from pipeline.store import operations
from pipeline.store.operations import Operation

MAX_CELLS: Final = 2_000  # of one change from the page
_REQUEST: Final = "request access"


def preview_change(
    environment: Environment, intents: Sequence[AccessIntent], reason: str, *, as_request: bool = False
) -> Preview:
    """Plan to grant or revoke, as an operation or as a request to an access admin.

    Raises:
        Refused: something is missing, it cannot be, the rules speak against it, nothing would change, or the catalog or
            the control store do not answer.
    """
    if not intents:
        raise Refused("Choose games and principals first.")
    if not is_said(reason):
        raise Refused("Enter a reason. It is kept in the audit log.")
    if len(intents) > MAX_CELLS:
        raise Refused(
            f"The change has {len(intents)} cells; this page allows {MAX_CELLS}. Choose fewer, "
            "grant to a group, or use a policy file with `turnout grants apply --policy`."
        )
    with services.reading(), services.catalog_answers(environment):
        catalog = services.catalog(environment)
        store, access = services.engine(environment), environment.settings.access
        prepared = proposals.prepare(store, catalog, access, environment.paths, intents)
        intent = _intent(prepared, reason)
        if not as_request:
            proposals.require_permitted(store, environment.settings, catalog, prepared, intent)
    if as_request:
        return _preview(environment, prepared, intent, partial(_request, environment, prepared, reason), _REQUEST)
    return _preview(environment, prepared, intent, partial(_submit, environment, prepared))


def preview_undo(environment: Environment, operation_id: str) -> Preview:
    """Plan the way back of a change of access.

    Raises:
        Refused: as `preview_change`; or it cannot be taken back any more.
    """
    with services.reading(), services.catalog_answers(environment):
        store, catalog = services.engine(environment), services.catalog(environment)
        done = operations.operation(store, operation_id)
        prepared = proposals.prepare_undo(store, catalog, environment.settings.access, environment.paths, done)
        intent = _intent(prepared, "")
        proposals.require_permitted(store, environment.settings, catalog, prepared, intent)
    return _preview(environment, prepared, intent, partial(_submit, environment, prepared))


def preview_approval(environment: Environment, request_id: str) -> Preview:
    """Plan what a request changes from how things are now.

    Raises:
        Refused: as `preview_change`; or it was decided already, or the acting person may not decide about it.
    """
    with services.reading(), services.catalog_answers(environment):
        store, catalog = services.engine(environment), services.catalog(environment)
        wanted = requests.request(store, request_id)
        if same_person(wanted.requester, services.actor()):
            raise Refused("You cannot decide on your own request; ask another access admin.")
        prepared, intent = approvals.approval(
            store, catalog, environment.settings, environment.paths, wanted, services.actor(), ""
        )
    return _preview(environment, prepared, intent, partial(_approve, environment, wanted), DirectAct.DECIDE_REQUEST)


def preview_findings(
    environment: Environment, findings: Sequence[DriftFinding], act: Deed, reason: str, days: int
) -> Preview:
    """Plan to adopt or revert findings, to ignore them for some days, or to have them open again.

    Raises:
        Refused: as `preview_change`; or it is not possible for one of them.
    """
    if not findings:
        raise Refused("Choose findings first.")
    if act in {"adopt", "revert"}:
        return preview_change(environment, [intent_about(each, act, reason) for each in findings], reason)
    if not is_said(reason):
        raise Refused("Enter a reason. It is shown with the finding and kept in the audit log.")
    sentences = (each.sentence for each in findings)
    if act == "unignore":
        intent = operations.Intent(DirectAct.UNIGNORE_DRIFT, (), services.actor(), reason.strip())
        lines = ("The finding counts again.", *sentences)
        submit = partial(_unignore, environment, tuple(findings))
        return Preview(intent, lines, len(findings), time.time(), submit=submit, label="Stop ignoring")
    intent = operations.Intent(DirectAct.IGNORE_DRIFT, (), services.actor(), reason.strip())
    lines = (f"The finding stays listed as ignored, for {days} days or until it is gone.", *sentences)
    submit = partial(_ignore, environment, tuple(findings), days)
    return Preview(intent, lines, len(findings), time.time(), submit=submit, label="Ignore")


def decide(environment: Environment, wanted: Request, state: Literal["rejected", "withdrawn"], reason: str) -> Request:
    """Reject another person's request, or withdraw one's own.

    Raises:
        Refused: the acting person may not, no reason is given for a rejection, or another person was faster.
    """
    actor = services.permitted(environment, DirectAct.DECIDE_REQUEST if state == "rejected" else None)
    with writing():
        return requests.decide(services.engine(environment), wanted, state, actor, reason)


# ----------------------------------------------------------------------------------------------------------- the asking


def _submit(environment: Environment, prepared: AccessProposal, intent: operations.Intent) -> Operation:
    """Submit the operation as the acting person. Idempotent per intent."""
    attributed = replace(intent, actor=services.permitted(environment, intent.kind))
    settings = services.renewed(environment).settings
    with writing(), services.catalog_answers(environment):
        store, catalog = services.engine(environment), services.catalog(environment)
        proposals.require_permitted(store, settings, catalog, prepared, attributed)
        operation = gate.submit(settings, store, attributed)
    queries.forget()
    return operation


def _request(environment: Environment, prepared: AccessProposal, reason: str, _: operations.Intent) -> str:
    actor = services.permitted(environment, None)
    with writing():
        intents = [asdict(each) for each in prepared.intents]
        request = requests.submit(services.engine(environment), actor, intents, reason)
    queries.forget()
    return requests.describe(request)


def _approve(environment: Environment, wanted: Request, intent: operations.Intent) -> Operation:
    """Submit what a request changes as it was shown, and record that it was approved."""
    attributed = replace(intent, actor=services.permitted(environment, DirectAct.DECIDE_REQUEST))
    settings = services.renewed(environment).settings
    with writing():
        operation = approvals.approved(services.engine(environment), settings, wanted, attributed)
    queries.forget()
    return operation


def _ignore(environment: Environment, findings: Sequence[DriftFinding], days: int, intent: operations.Intent) -> str:
    actor, settings = services.permitted(environment, DirectAct.IGNORE_DRIFT), services.renewed(environment).settings
    with writing():
        until = time.time() + days * 86_400
        drift_store.ignore(services.engine(environment), settings, findings, actor, intent.reason, until)
    queries.forget()
    return f"{len(findings)} finding{'' if len(findings) == 1 else 's'} ignored."


def _unignore(environment: Environment, findings: Sequence[DriftFinding], intent: operations.Intent) -> str:
    actor, settings = services.permitted(environment, DirectAct.UNIGNORE_DRIFT), services.renewed(environment).settings
    with writing():
        drift_store.unignore(services.engine(environment), settings, findings, actor, intent.reason)
    queries.forget()
    return f"{len(findings)} finding{' counts' if len(findings) == 1 else 's count'} again."


# ------------------------------------------------------------------------------------------------------------- previews


def _intent(prepared: AccessProposal, reason: str) -> operations.Intent:
    return prepared.to_intent(services.actor(), reason.strip())


def _preview(
    environment: Environment, prepared: AccessProposal, intent: operations.Intent,
    submit: partial[Operation] | partial[str],
    needs: str = proposals.KIND,
) -> Preview:  # fmt: skip
    planned = prepared.plan
    seen = queries.read_access(environment)
    unmoved = [each.sentence for each in planned.unmoved]
    if planned.is_empty:
        raise Refused("\n".join(["Nothing to change.", *first_lines(unmoved)]))
    gains = [each for each in planned.effects if each.then is True]
    loses = [each for each in planned.effects if each.was is True]
    other = [each for each in planned.effects if each.then is not True and each.was is not True]

    def cells(effects: Sequence[Effect]) -> tuple[str, ...]:
        return tuple(f"{formatting.principal_text(each.principal)}: {seen.game(each.key)}" for each in effects)

    created, ended = planned.change_set.made, planned.change_set.ended
    lines = [f"{formatting.count(len(gains))} cells gain read access, {formatting.count(len(loses))} lose it."]
    if created or ended:
        lines.append(f"{len(created)} entitlements begin, {len(ended)} end.")
    if intent.parameters["intents"]:
        lines.append(_terms(prepared))
    lines += [f"Note: {each}" for each in first_lines(list(planned.warnings))]
    sections = {
        f"Gain read access ({len(gains)})": cells(gains),
        f"Lose read access ({len(loses)})": cells(loses),
        f"Unknown ({len(other)})": tuple(each.sentence for each in other),
        f"Not as requested, and how to fix it ({len(unmoved)})": tuple(unmoved),
        f"Statements ({len(planned.changes)} catalog changes)": tuple(
            each for change in planned.changes for each in proposals.statements(change)
        ),
    }
    touched = max(len(gains) + len(loses), len(prepared.intents), 1)
    return Preview(
        intent, tuple(lines), touched, time.time(), submit=submit, needs="" if needs == _REQUEST else needs,
        sections={title: texts for title, texts in sections.items() if texts}, label=_LABELS.get(needs),
    )  # fmt: skip


_LABELS: Final = {_REQUEST: "Request", DirectAct.DECIDE_REQUEST: "Approve it"}


def _terms(prepared: AccessProposal) -> str:
    first = prepared.intents[0]
    until = "" if not first.read else f"; until {formatting.moment(first.until)}" if first.until else "; no end"
    ticket = f"; ticket {first.ticket}" if first.ticket else ""
    return f"Why: {first.reason}{ticket}{until}"
