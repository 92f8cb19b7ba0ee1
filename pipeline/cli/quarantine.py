"""The commands of what was refused or lost: `turnout quarantine …` and `turnout stream accept-gap`."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import LISTED, combine_options, required_reason
from pipeline.errors import Refused
from pipeline.terminal import say, say_lines


def moment(text: str) -> datetime:
    """Read a moment in ISO 8601; UTC where no zone is given."""
    from pipeline.repair import quarantined

    try:
        return quarantined.moment(text)
    except Refused as refused:
        raise click.BadParameter(str(refused)) from None


_selection = combine_options(
    click.option("--game", help="Only of this game: its exact name or its key."),
    click.option("--reason", help="Only refused for this reason, see `turnout quarantine list`."),
    click.option("--since", type=moment, metavar="TIME", help="Only first seen at or after this time (ISO 8601)."),
    click.option("--until", type=moment, metavar="TIME", help="Only first seen before this time."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)
"""Chooses rows of quarantine."""


@click.command("list")
@_selection
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most lines to print.")
def list_quarantine(
    env_dir: Path, game: str | None, reason: str | None, since: datetime | None, until: datetime | None,
    as_json: bool, limit: int,
) -> None:  # fmt: skip
    """Count refused rows by game and reason, the most first."""
    from pipeline.repair import report
    from pipeline.repair.quarantined import opened

    desk = CommandContext(env_dir)
    with opened(desk.paths, desk.known, desk.selection(game, reason, since, until)) as quarantined:
        counts, (rows, lines) = quarantined.counts(limit), quarantined.totals()
    say_lines(report.counts_as_json(counts, rows) if as_json else report.render_counts(counts, rows, lines))


@click.command("show")
@_selection
@click.option(
    "--rows", "limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most rows to print."
)
@click.option(
    "--bytes", "most_bytes", type=click.IntRange(0, 16 * 1024 * 1024), default=64, show_default=True,
    help="Most bytes of each wrapper to print: as hex, in JSON as base64.",
)  # fmt: skip
def show_quarantine(
    env_dir: Path, game: str | None, reason: str | None, since: datetime | None, until: datetime | None,
    as_json: bool, limit: int, most_bytes: int,
) -> None:  # fmt: skip
    """Show refused rows with their bytes, the newest first."""
    from pipeline.repair import report
    from pipeline.repair.quarantined import opened

    desk = CommandContext(env_dir)
    with opened(desk.paths, desk.known, desk.selection(game, reason, since, until)) as quarantined:
        rows, (total, _) = quarantined.rows(limit, most_bytes), quarantined.totals()
    say_lines(report.rows_as_json(rows, total) if as_json else report.render_rows(rows, total))


@click.command("accept-gap")
@click.argument("game")
@required_reason("Why these rows may be lost; kept in the history of the game's table.")
def accept_gap(env_dir: Path, game: str, reason: str) -> None:
    """Let GAME go on over rows that bronze has lost before its stream had read them."""
    from pipeline.control.roles import permitted
    from pipeline.repair import report
    from pipeline.repair.game import find
    from pipeline.repair.gap import accept_gap as accept

    desk = CommandContext(env_dir)
    actor = permitted(desk.settings, desk.engine, "accept a gap")
    known, schemas = find(game, desk.known), desk.registry.snapshot()
    done = accept(desk.paths, desk.environment, desk.engine, schemas, known, actor, reason)
    say(report.render_accepted(done))


class CommandContext:
    """What every repair needs of an environment."""

    def __init__(self, env_dir: Path) -> None:
        from pipeline.contracts.registry import LocalRegistry
        from pipeline.repair.game import known_names
        from pipeline.settings import load
        from pipeline.store.engine import open_store

        self.settings, self.paths = load(env_dir)
        self.environment = self.settings.environment
        self.engine = open_store(self.settings, self.paths)
        self.registry = LocalRegistry(self.engine)
        self.known = known_names(self.engine)

    def selection(self, game: str | None, reason: str | None, since: datetime | None, until: datetime | None) -> Any:
        """Return which rows the options choose."""
        from pipeline.delta.quarantine import REASONS
        from pipeline.repair.game import find
        from pipeline.repair.quarantined import Selection

        if reason is not None and reason not in REASONS:
            raise Refused(f"{reason!r} is no reason for a refusal; there are {', '.join(REASONS)}.")
        return Selection(find(game, self.known) if game is not None else None, reason, since, until)
