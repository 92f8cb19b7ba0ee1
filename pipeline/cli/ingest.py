"""The commands `turnout ingest …`: the way from the source into bronze."""

import sys
from pathlib import Path

import click

from pipeline.base.terminal import say, say_lines
from pipeline.cli.context import CommandContext, load_with_source
from pipeline.cli.options import source_option
from pipeline.control.acts import DirectAct


@click.command("run")
@click.option("--once", is_flag=True, help="Land what is there now, then end.")
@source_option()
def run_ingest(env_dir: Path, once: bool, source: str | None) -> None:
    """Run the ingest driver: source to bronze.

    One process per environment: turnout refuses a second one with exit code 2 and names the first. After a kill the
    next start need not wait; on another machine it waits for `store.lease_seconds`. A driver that paused until another
    took over ends with exit code 2. SIGTERM or Ctrl-C ends it cleanly, and after 50 s in any case:
    then its log has what each thread waited for. It restarts a failed query, and ends with exit code 1 after the fourth
    failure in a row.
    """
    from pipeline import wiring

    settings, paths = load_with_source(env_dir, source)
    sys.exit(wiring.run_ingest(settings, paths, once=once))


@click.command("adopt")
@click.option("--accept-loss", is_flag=True, help="Continue without what the source lost, and record the gap.")
@source_option()
def adopt_source(env_dir: Path, accept_loss: bool, source: str | None) -> None:
    """Continue ingest from bronze after a lost or damaged checkpoint, a restored bronze or losses of the source.

    Begins a new ingest generation, without loss or duplicates. Names what the source lost unread, and then changes
    nothing without `--accept-loss`. Prints where ingest continues, and after a restored bronze the games to rebuild.
    See docs/kafka.md and docs/repair.md.
    """
    from pipeline.data.ingest import adopt

    context = CommandContext(env_dir, source)
    with context.acting(DirectAct.ADOPT_SOURCE, (), accept_loss=accept_loss):
        adopted = adopt.adopt(context.settings, context.paths, context.engine, accept_loss=accept_loss)
    say_lines(adopt.describe(adopted))


@click.command("gaps")
def accepted_gaps(env_dir: Path) -> None:
    """List the accepted gaps of sources: when, source, range, reason, who."""
    from pipeline.data.ingest.identity import describe_accepted
    from pipeline.store.sources import accepted_gaps as gaps

    for gap in gaps(CommandContext(env_dir).engine):
        say(describe_accepted(gap))
