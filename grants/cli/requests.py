"""`turnout grants requests|approve|reject|withdraw`: four eyes on the command line."""

from dataclasses import asdict
from pathlib import Path

import click

from grants.applying import proposals as desk
from grants.applying.approvals import approval, approved
from grants.applying.requests import Request, decide, list_requests
from grants.applying.requests import request as find
from grants.cli.options import AccessContext
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc, join_limited
from pipeline.cli.options import SubmitOptions, submit_and_wait, submitting
from pipeline.control.acts import DirectAct
from pipeline.control.operations.definition import OperationProposal
from pipeline.store.database.states import RequestState


@click.command("requests")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def requests(env_dir: Path, as_json: bool) -> None:
    """List requests for access: those that wait for a decision first, oldest on top."""
    listed = list_requests(AccessContext(env_dir).engine)
    if as_json:
        say_json([asdict(each) for each in listed])
        return
    for each in listed:
        say(_line(each))


@click.command("approve")
@click.argument("request")
@submitting
def approve(env_dir: Path, request: str, how: SubmitOptions) -> None:
    """Approve another person's REQUEST: plan it again and apply it."""
    context = AccessContext(env_dir)
    wanted = find(context.engine, request)
    prepared, intent = approval(
        context.engine, context.catalog(), context.settings, context.paths, wanted, context.actor, how.reason
    )
    if not how.dry_run:
        approved(context.engine, context.settings, wanted, intent)
    submit_and_wait(context, OperationProposal(intent, desk.lines(prepared)), how)


@click.command("reject")
@click.argument("request")
@click.option("--reason", help="Reason, shown to the requester.")
def reject(env_dir: Path, request: str, reason: str | None) -> None:
    """Reject another person's REQUEST."""
    context = AccessContext(env_dir)
    context.permitted(DirectAct.DECIDE_REQUEST)
    _decided(context, request, "rejected", reason or "")


@click.command("withdraw")
@click.argument("request")
def withdraw(env_dir: Path, request: str) -> None:
    """Withdraw REQUEST of your own."""
    _decided(AccessContext(env_dir), request, "withdrawn", "")


def _decided(context: AccessContext, request: str, state: RequestState, reason: str) -> None:
    say(_line(decide(context.engine, find(context.engine, request), state, context.actor, reason)))


def _line(request: Request) -> str:
    some = join_limited(
        request.intents, 3,
        lambda each: f"{each['principal']} {'reads' if each['read'] else 'no longer reads'} {each['key']}",
    )  # fmt: skip
    decided = f" by {request.decided_by}: {request.decision_reason}" if request.decided_by else ""
    return (
        f"{request.request_id[:8]}  {in_utc(request.requested_at)}  {request.state}{decided}  "
        f"{request.requester}: {some} ({request.reason})"
    )
