"""The commands `turnout schemas …` that read."""

from pathlib import Path

import click

from pipeline.cli.context import CommandContext
from pipeline.terminal import say


@click.command("list")
def list_schemas(env_dir: Path) -> None:
    """List every game's schema versions: schema id, message, version, game."""
    from pipeline.store.games import registered

    for game, version, schema_id, message in registered(CommandContext(env_dir).engine):
        say(f"{schema_id:>6}  {message}  v{version}  {game!r}")
