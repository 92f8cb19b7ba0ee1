"""The commands `turnout books reopen | requests | approve | reject`: closed days that open again, by two people."""

from pathlib import Path

import click

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED, required_reason
from pipeline.cli.waiting import Moment

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("reopen")
@click.argument("game")
@click.argument("day", type=Moment())
@required_reason("Reason, shown to the second person, and kept in the ledger and the audit log.")
@_JSON
def reopen_day(env_dir: Path, game: str, day: float, reason: str, as_json: bool) -> None:
    """Request to open the closed DAY of GAME again; a second person must approve it.

    GAME is a key or an exact name; DAY is a date such as 2026-11-29, or a moment in the day, UTC by default. Once it is
    approved `turnout books close` closes the day with the next revision; the revision before stays as it is.
    """
    from pipeline.api import reopening as api
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    found = find(game, known_names(context.engine))
    asked = api.reopen(context.environment, context.actor, found, day, reason)
    if as_json:
        say_json(api.as_dict(asked))
    else:
        say_lines("\n".join(map(plain, api.waiting_lines(asked))))


@click.command("requests")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most requests to print.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_reopenings(env_dir: Path, limit: int, as_json: bool) -> None:
    """List requests to open closed days again: open ones first, oldest first, then decided ones, newest first."""
    from pipeline.api import reopening as api

    listed = api.requests(CommandContext(env_dir).environment, limit)
    if as_json:
        say_json([api.as_dict(each) for each in listed])
    else:
        for each in listed:
            say_lines(plain(api.line(each)))


@click.command("approve")
@click.argument("request")
@click.option("--reason", default="", help="Reason, kept in the audit log.")
def approve_reopening(env_dir: Path, request: str, reason: str) -> None:
    """Approve another person's REQUEST (its id or the start of it): the day is open again.

    Refused where the day has another revision by now.
    """
    from pipeline.api import reopening as api

    context = CommandContext(env_dir)
    wanted = api.find(context.environment, request)
    say(plain(api.line(api.approve(context.environment, context.actor, wanted, reason))))


@click.command("reject")
@click.argument("request")
@required_reason("Reason, kept in the audit log and shown to the requester.")
def reject_reopening(env_dir: Path, request: str, reason: str) -> None:
    """Reject another person's REQUEST, or withdraw your own. The day stays closed."""
    from pipeline.api import reopening as api

    context = CommandContext(env_dir)
    wanted = api.find(context.environment, request)
    say(plain(api.line(api.reject(context.environment, context.actor, wanted, reason))))
