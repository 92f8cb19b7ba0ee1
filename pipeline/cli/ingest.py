"""The commands `turnout ingest …`: the way from the source into bronze."""

import sys
from pathlib import Path

import click

from pipeline.cli.context import CommandContext
from pipeline.cli.options import load_with_source
from pipeline.control.acts import DirectAct
from pipeline.terminal import say, say_lines


@click.command("run")
@click.option("--once", is_flag=True, help="Land what is there now, then end.")
@click.option("--source", type=click.Choice(["delta", "kafka"]), help="Overrides the setting source.kind.")
def run_ingest(env_dir: Path, once: bool, source: str | None) -> None:
    """Run the ingest driver."""
    from pipeline import wiring

    settings, paths = load_with_source(env_dir, source)
    sys.exit(wiring.run_ingest(settings, paths, once=once))


@click.command("adopt")
@click.option("--accept-loss", is_flag=True, help="Go on without what the source no longer has, and record the gap.")
@click.option("--source", type=click.Choice(["delta", "kafka"]), help="Overrides the setting source.kind.")
def adopt_source(env_dir: Path, accept_loss: bool, source: str | None) -> None:
    """Let ingest go on from what bronze has: its checkpoint is gone or damaged, or the source lost something."""
    from pipeline.ingest import adopt

    context = CommandContext(env_dir, source)
    with context.acting(DirectAct.ADOPT_SOURCE, (), accept_loss=accept_loss):
        adopted = adopt.adopt(context.settings, context.paths, context.engine, accept_loss=accept_loss)
    say_lines(adopt.describe(adopted))


@click.command("gaps")
def accepted_gaps(env_dir: Path) -> None:
    """List the gaps that were accepted: what a source had lost before it was read."""
    from pipeline.ingest.identity import describe_accepted
    from pipeline.store.sources import accepted_gaps as gaps

    for gap in gaps(CommandContext(env_dir).engine):
        say(describe_accepted(gap))
