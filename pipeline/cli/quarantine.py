"""The commands for refused and lost rows: `turnout quarantine …` and `turnout stream accept-gap`."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED, combine_options, required_reason
from pipeline.control.acts import DirectAct


def moment(text: str) -> datetime:
    """Read a moment in ISO 8601; UTC where no zone is given."""
    from pipeline.data.repair import quarantined

    try:
        return quarantined.moment(text)
    except Refused as refused:
        raise click.BadParameter(str(refused)) from None


_selection = combine_options(
    click.option("--game", help="Only this game (name or key)."),
    click.option("--reason", help="Only this reason of refusal: see docs/data.md."),
    click.option(
        "--since", type=moment, metavar="TIME", help="Only first seen at or after this time (ISO 8601, by default UTC)."
    ),
    click.option("--until", type=moment, metavar="TIME", help="Only first seen before this time."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)
"""Chooses rows of quarantine."""


@click.command("list")
@_selection
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most lines to print.")
def list_quarantine(env_dir: Path, as_json: bool, limit: int, **rows: Any) -> None:
    """Count refused rows by game and reason, most rows first.

    Each line has the first and last time of the rows and their schema ids. See docs/repair.md.
    """
    from pipeline.data.repair import report

    with _quarantined(env_dir, **rows) as quarantined:
        counts, (total, lines) = quarantined.counts(limit), quarantined.totals()
    say_lines(report.counts_as_json(counts, total) if as_json else report.render_counts(counts, total, lines))


@click.command("show")
@_selection
@click.option(
    "--rows", "limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most rows to print."
)
@click.option(
    "--bytes", "max_bytes", type=click.IntRange(0, 16 * 1024 * 1024), default=64, show_default=True,
    help="Most bytes of each wrapper to print: as hex, in JSON as base64.",
)  # fmt: skip
def show_quarantine(env_dir: Path, as_json: bool, limit: int, max_bytes: int, **rows: Any) -> None:
    """Show refused rows, newest first: position, reason, detail, first seen and the wrapper's bytes."""
    from pipeline.data.repair import report

    with _quarantined(env_dir, **rows) as quarantined:
        shown, (total, _) = quarantined.rows(limit, max_bytes), quarantined.totals()
    say_lines(report.rows_as_json(shown, total) if as_json else report.render_rows(shown, total))


@click.command("accept-gap")
@click.argument("game")
@required_reason("Reason why these rows may be lost; kept in the history of the game's table.")
def accept_gap(env_dir: Path, game: str, reason: str) -> None:
    """Let GAME continue over rows that bronze lost before its stream read them.

    For a stream that stopped because a person deleted rows from bronze. The cursor moves only over seqs without a row
    of the game in bronze; turnout refuses it without such a gap. The table's history keeps your user name, the reason
    and the seqs, and the audit log name and reason. Verify and rebuild leave the gap out, but `turnout verify` still
    reports the broken chain. Restore bronze instead if you can: see docs/repair.md.
    """
    from pipeline.data.repair import report
    from pipeline.data.repair.gap import accept_gap as accept
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    known, reason = find(game, known_names(context.engine)), reason.strip()
    with context.acting(DirectAct.ACCEPT_GAP, [f"game:{known.key}"], "accept-gap", reason=reason) as actor:
        schemas = context.registry.snapshot()
        done = accept(context.paths, context.settings.environment, context.engine, schemas, known, actor, reason)
    say(report.render_accepted(done))


@contextmanager
def _quarantined(
    env_dir: Path, game: str | None, reason: str | None, since: datetime | None, until: datetime | None
) -> Iterator[Any]:
    """Read the rows that the options choose."""
    from pipeline.data.repair.quarantined import Selection, opened
    from pipeline.lake.delta.quarantine import REASONS
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    if reason is not None and reason not in REASONS:
        raise Refused(f"{reason!r} is no reason for a refusal; there are {', '.join(REASONS)}.")
    known = known_names(context.engine)
    chosen = Selection(find(game, known) if game is not None else None, reason, since, until)
    with opened(context.paths, known, chosen) as quarantined:
        yield quarantined
