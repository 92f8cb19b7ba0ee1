"""The commands `turnout games …`: which names are games, and which wait to become one."""

from pathlib import Path

import click

from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED
from pipeline.control.acts import DirectAct


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
@click.option("--reason", help="Reason, kept in the audit log.")
@click.argument("name")
def approve_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Make NAME (exact) a game from ingest's next micro-batch on.

    NAME need not have arrived yet. Earlier rows stay in quarantine: replay them. Also reverts a rejection of NAME.
    Refused where the catalog of a workspace has another table of the game's key.
    """
    from pipeline.base.names import game_key
    from pipeline.data.ingest import pending
    from pipeline.platforms.local.catalog_checks import require_writable

    context = CommandContext(env_dir)
    for note in require_writable(context.settings, context.paths, [game_key(name)]):
        say(f"Note: {note}", err=True)
    with context.acting(DirectAct.APPROVE_GAME, [pending.target(name)], "approve", game=name, reason=reason) as actor:
        game = pending.approve(context.engine, context.settings.onboarding, name, actor, reason)
    say_lines(pending.render_games([game]))


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
