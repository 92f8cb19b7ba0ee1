"""The commands `turnout games …`: which names are games, and which wait to become one."""

from pathlib import Path
from typing import Any

import click

from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED, SubmitOptions, submit_and_wait, submitting
from pipeline.control.acts import DirectAct
from pipeline.store.database.states import PRIORITIES


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_games(env_dir: Path, as_json: bool) -> None:
    """List every game: since when, by what right, its group, and the names people may mistake it for.

    The right is `schema`, `name`, `prefix` or `approval`. Names are quoted, with escapes for invisible characters.
    """
    from pipeline.data.ingest import pending

    known = pending.games(CommandContext(env_dir).engine)
    if as_json:
        say_json(pending.games_for_json(known))
    else:
        say_lines(pending.render_games(known))


@click.command("pending")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most names to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pending_games(env_dir: Path, limit: int, as_json: bool) -> None:
    """List unknown names with the most rows first, each with the reason it is not a game.

    Also prints the rejected names and an estimate of all unknown names. A range of rows means that the name was
    crowded out of the list for a while. Ingest updates the list about every ten seconds. JSON: `names`, `distinct`,
    `rows` and `refused`.
    """
    from pipeline.data.ingest import pending

    context = CommandContext(env_dir)
    seen = pending.pending(context.engine, context.settings.onboarding)
    if as_json:
        say_json(pending.pending_for_json(seen, limit))
    else:
        say_lines(pending.render_pending(seen, limit))


@click.command("approve")
@click.argument("name")
@click.option("--group", help="Cluster group of the game. Default: its proposal's or rule's, or placement chooses.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Default: its proposal's or rule's.")
@click.option("--reader", "readers", multiple=True, help="Principal who is to read it, besides its rule's; repeatable.")
@submitting
def approve_game(
    env_dir: Path, name: str, group: str | None, priority: Any, readers: tuple[str, ...], how: SubmitOptions
) -> None:
    """Make NAME (exact) a game: onboard it, register its proposed schema, place it, replay what came before.

    NAME need not have arrived yet. One operation, which ends when the game's stream is live; needs a running
    controller. Its undo retires the game; nothing is deleted. Reverts a rejection of NAME. Readers get access by an
    operation of their own once the table is in the catalog; --reader needs the role access_admin. Refused where the
    catalog of a workspace has another table of the game's key.
    """
    from pipeline.base.names import game_key
    from pipeline.control.operations.onboarding import Wishes, approve
    from pipeline.platforms.local.catalog_checks import require_writable

    context = CommandContext(env_dir)
    for note in require_writable(context.settings, context.paths, [game_key(name)]):
        say(f"Note: {note}", err=True)
    wishes = Wishes(group, priority, readers)
    submit_and_wait(context, approve(context.settings, context.engine, name, wishes, context.actor, how.reason), how)


@click.command("reject")
@click.option("--reason", help="Reason, kept in the audit log.")
@click.argument("name")
def reject_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Keep NAME (exact) from becoming a game until its approval, and remove it from the list.

    A rejection wins over schemas, names and prefixes, but does not touch an existing game.
    """
    from pipeline.data.ingest import pending

    context = CommandContext(env_dir)
    with context.acting(DirectAct.REJECT_GAME, [pending.target(name)], "refuse", game=name, reason=reason) as actor:
        pending.reject(context.engine, name, actor, reason)
    say(f"{name!r} is rejected")
