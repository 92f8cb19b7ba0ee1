"""Acts about access: previews planned as by `turnout grants`, and their submission.

Each preview reads the catalog again; a request follows the same rules as one from the command line, checked when it is
previewed, when it is submitted, and by the controller when it begins. All raise `CatalogUnavailable` where the catalog
is away, and `Refused` where the control store does not answer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final, Literal, TypeAlias

from grants.api.access import game_label
from grants.applying import approvals, drift_store, proposals, requests
from grants.applying.proposals import AccessProposal
from grants.applying.requests import Request
from grants.catalog import Catalog
from grants.derived_tables import inventory
from grants.planning.drift import Act as Deed
from grants.planning.drift import DriftFinding
from grants.planning.drift import intent as intent_about
from grants.planning.effects import Effect
from grants.planning.entitlements import AccessIntent
from pipeline.api.acts import Preview, Submit, writing
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.base.texts import count, first_lines, moment, principal_text
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.roles import same_person
from pipeline.store import operations
from pipeline.store.database.engine import reading
from pipeline.store.operations import Intent, Operation

CatalogOpener: TypeAlias = Callable[[], Catalog]
"""Returns the client of the catalog, which the caller may keep between calls."""

MAX_CELLS: Final = 2_000  # of one change from a page
_REQUEST: Final = "request access"


@reading()
def preview_change(
    environment: OpenEnvironment,
    actor: str,
    catalog: CatalogOpener,
    intents: Sequence[AccessIntent],
    reason: str,
    *,
    as_request: bool = False,
) -> Preview:
    """Plan to grant or revoke, as an operation or as a request to an access admin.

    Raises:
        Refused: something is missing, it cannot be, the rules speak against it, or nothing would change.
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
    client, store, settings = catalog(), environment.engine, environment.settings
    prepared = proposals.prepare(store, client, settings.access, environment.paths, intents)
    intent = prepared.to_intent(actor, reason.strip())
    if as_request:
        return _preview(environment, prepared, intent, partial(_request, prepared, reason), _REQUEST)
    proposals.require_permitted(store, settings, client, prepared, intent)
    return _preview(environment, prepared, intent, partial(_submit, catalog, prepared))


@reading()
def preview_undo(environment: OpenEnvironment, actor: str, catalog: CatalogOpener, operation_id: str) -> Preview:
    """Plan the way back of a change of access.

    Raises:
        Refused: as `preview_change`; or it cannot be taken back any more.
    """
    store, settings, client = environment.engine, environment.settings, catalog()
    done = operations.operation(store, operation_id)
    prepared = proposals.prepare_undo(store, client, settings.access, environment.paths, done)
    intent = prepared.to_intent(actor, "")
    proposals.require_permitted(store, settings, client, prepared, intent)
    return _preview(environment, prepared, intent, partial(_submit, catalog, prepared))


@reading()
def preview_approval(environment: OpenEnvironment, actor: str, catalog: CatalogOpener, request_id: str) -> Preview:
    """Plan what a request changes from how things are now.

    Raises:
        Refused: as `preview_change`; or it was decided already, or the actor may not decide about it.
    """
    store, settings, client = environment.engine, environment.settings, catalog()
    wanted = requests.request(store, request_id)
    if same_person(wanted.requester, actor):
        raise Refused("You cannot decide on your own request; ask another access admin.")
    prepared, intent = approvals.approval(store, client, settings, environment.paths, wanted, actor, "")
    return _preview(environment, prepared, intent, partial(_approve, wanted), DirectAct.DECIDE_REQUEST)


def preview_findings(
    environment: OpenEnvironment,
    actor: str,
    catalog: CatalogOpener,
    findings: Sequence[DriftFinding],
    act: Deed,
    reason: str,
    days: int,
) -> Preview:
    """Plan to adopt or revert findings, to ignore them for some days, or to have them open again.

    Raises:
        Refused: as `preview_change`; or it is not possible for one of them.
    """
    if not findings:
        raise Refused("Choose findings first.")
    if act in {"adopt", "revert"}:
        intents = [intent_about(each, act, reason) for each in findings]
        return preview_change(environment, actor, catalog, intents, reason)
    if not is_said(reason):
        raise Refused("Enter a reason. It is shown with the finding and kept in the audit log.")
    sentences = (each.sentence for each in findings)
    submit: Submit
    if act == "unignore":
        intent = Intent(DirectAct.UNIGNORE_DRIFT, (), actor, reason.strip())
        lines = ("The finding counts again.", *sentences)
        submit, label = partial(_unignore, tuple(findings)), "Stop ignoring"
    else:
        intent = Intent(DirectAct.IGNORE_DRIFT, (), actor, reason.strip())
        lines = (f"The finding stays listed as ignored, for {days} days or until it is gone.", *sentences)
        submit, label = partial(_ignore, tuple(findings), days), "Ignore"
    return Preview(intent, lines, len(findings), time.time(), submit=submit, label=label)


@writing()
def decide(
    environment: OpenEnvironment, actor: str, wanted: Request, state: Literal["rejected", "withdrawn"], reason: str
) -> Request:
    """Reject another person's request, or withdraw one's own.

    Raises:
        Refused: the actor may not, no reason is given for a rejection, or another person was faster.
    """
    return requests.decide(environment.engine, wanted, state, actor, reason)


# ----------------------------------------------------------------------------------------------------------- the asking


@writing()
def _submit(
    catalog: CatalogOpener, prepared: AccessProposal, environment: OpenEnvironment, intent: Intent
) -> Operation:
    """Write the operation, if its actor may; asked again with the same intent it is the same one."""
    store, settings = environment.engine, environment.settings
    proposals.require_permitted(store, settings, catalog(), prepared, intent)
    return gate.submit(settings, store, intent)


@writing()
def _request(prepared: AccessProposal, reason: str, environment: OpenEnvironment, intent: Intent) -> str:
    intents = [asdict(each) for each in prepared.intents]
    return requests.describe(requests.submit(environment.engine, intent.actor, intents, reason))


@writing()
def _approve(wanted: Request, environment: OpenEnvironment, intent: Intent) -> Operation:
    """Submit what a request changes as it was shown, and record that it was approved."""
    return approvals.approved(environment.engine, environment.settings, wanted, intent)


@writing()
def _ignore(findings: Sequence[DriftFinding], days: int, environment: OpenEnvironment, intent: Intent) -> str:
    until = time.time() + days * 86_400
    drift_store.ignore(environment.engine, environment.settings, findings, intent.actor, intent.reason, until)
    return f"{len(findings)} finding{'' if len(findings) == 1 else 's'} ignored."


@writing()
def _unignore(findings: Sequence[DriftFinding], environment: OpenEnvironment, intent: Intent) -> str:
    drift_store.unignore(environment.engine, environment.settings, findings, intent.actor, intent.reason)
    return f"{len(findings)} finding{' counts' if len(findings) == 1 else 's count'} again."


# ------------------------------------------------------------------------------------------------------------- previews


def _preview(
    environment: OpenEnvironment,
    prepared: AccessProposal,
    intent: Intent,
    submit: Submit,
    needs: str = proposals.KIND,
) -> Preview:
    planned = prepared.plan
    names = inventory(environment.engine)
    unmoved = [each.sentence for each in planned.unmoved]
    if planned.is_empty:
        raise Refused("\n".join(["Nothing to change.", *first_lines(unmoved)]))
    gains = [each for each in planned.effects if each.then is True]
    loses = [each for each in planned.effects if each.was is True]
    other = [each for each in planned.effects if each.then is not True and each.was is not True]
    created, ended = planned.change_set.made, planned.change_set.ended
    gain = "1 cell gains" if len(gains) == 1 else f"{count(len(gains))} cells gain"
    lose = "1 loses" if len(loses) == 1 else f"{count(len(loses))} lose"
    lines = [f"{gain} read access, {lose} it."]
    if created or ended:
        lines.append(f"{len(created)} entitlements begin, {len(ended)} end.")
    if intent.parameters["intents"]:
        lines.append(_terms(prepared))
    lines += [f"Note: {each}" for each in first_lines(list(planned.warnings))]
    sections = {
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
        diff=(*(("+", each) for each in _cells(gains, names)), *(("-", each) for each in _cells(loses, names))),
    )  # fmt: skip


_LABELS: Final[Mapping[str, str]] = {_REQUEST: "Request", DirectAct.DECIDE_REQUEST: "Approve it"}


def _cells(effects: Sequence[Effect], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{principal_text(each.principal)}: {game_label(each.key, names)}" for each in effects)


def _terms(prepared: AccessProposal) -> str:
    first = prepared.intents[0]
    until = "" if not first.read else f"; until {moment(first.until)}" if first.until else "; no end"
    ticket = f"; ticket {first.ticket}" if first.ticket else ""
    return f"Why: {first.reason}{ticket}{until}"
