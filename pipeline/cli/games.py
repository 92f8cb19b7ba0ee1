"""The commands `turnout games …`: which names are games, and which wait to become one."""

from pathlib import Path

import click

from pipeline.cli.options import LISTED
from pipeline.settings import load
from pipeline.terminal import say, say_json, say_lines


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_games(env_dir: Path, as_json: bool) -> None:
    """List every game: since when, by what right, in which group, and what it may be taken for."""
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    known = pending.games(open_store(settings, paths))
    if as_json:
        say_json(pending.games_for_json(known))
    else:
        say_lines(pending.render_games(known))


@click.command("pending")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most names to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pending_games(env_dir: Path, limit: int, as_json: bool) -> None:
    """List the names that came and are no games, the busiest first, each with the reason."""
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    seen = pending.pending(open_store(settings, paths), settings.onboarding)
    if as_json:
        say_json(pending.pending_for_json(seen, limit))
    else:
        say_lines(pending.render_pending(seen, limit))


@click.command("approve")
@click.option("--reason", help="Why, for those who ask later.")
@click.argument("name")
def approve_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Make a game of NAME (exact); its rows are routed from ingest's next micro-batch on."""
    from pipeline.control.roles import permitted
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    actor = permitted(settings, engine, "approve a game")
    game = pending.approve(engine, settings.onboarding, name, actor, reason)
    say_lines(pending.render_games([game]))


@click.command("reject")
@click.option("--reason", help="Why, for those who ask later.")
@click.argument("name")
def reject_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Keep NAME (exact) from becoming a game until it is approved."""
    from pipeline.control.roles import permitted
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    pending.reject(engine, name, permitted(settings, engine, "reject a game"), reason)
    say(f"{name!r} is rejected")
