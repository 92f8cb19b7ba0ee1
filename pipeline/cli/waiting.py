"""The command `turnout wait`."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pipeline.base.terminal import say, say_json
from pipeline.cli.context import CommandContext
from pipeline.cli.options import Finite


class Moment(click.ParamType[float]):
    """A moment by ISO 8601, in UTC unless it names a zone; converted to Unix seconds."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return Unix seconds, or fail as click's own types do."""
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a moment such as 2026-11-29T18:00:00Z.", param, ctx)


@click.command("wait")
@click.argument("game")
@click.option("--through", required=True, type=Moment(), help="Moment, such as 2026-11-29T18:00:00Z; UTC by default.")
@click.option("--timeout", type=Finite(0), metavar="SECONDS", help="Give up after it; 0 looks once. Default: never.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def wait(env_dir: Path, game: str, through: float, timeout: float | None, as_json: bool) -> None:
    """Wait until GAME is complete through a time: each record that the source had by then is landed or refused.

    GAME is a key or an exact name. The time is of the control store's clock, by which ingest notes when the source
    ended where; producers' timestamps do not count. Exit code 0: complete; 1: not within the timeout, with the reason;
    2: no such game. See docs/through.md. JSON: `ok`, `game_key`, `through`, `through_time`, `bronze_through_time`
    (Unix seconds), `cursor_seq`, `next_seq` and `sentence`; unknown values are null.
    """
    from pipeline.api import through as api
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    found = api.wait(context.environment, find(game, known_names(context.engine)), through, timeout)
    if as_json:
        say_json({**{name: getattr(found, name) for name in api.WaitReport.__slots__}, "sentence": found.sentence})
    else:
        say(found.sentence)
    sys.exit(0 if found.ok else 1)
