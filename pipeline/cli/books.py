"""The commands `turnout books …`: days of games that close."""

import sys
from pathlib import Path

import click

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.waiting import Moment

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("show")
@click.argument("game", required=False)
@_JSON
def show_books(env_dir: Path, game: str | None, as_json: bool) -> None:
    """Show the days of GAME: state, rows by class, and why a day cannot close yet.

    GAME is a key or an exact name. Without it all closed days of all games, which the ledger has; with it also the open
    days, for which all rows of the game are classified.
    """
    from pipeline.api import books as api
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    if game is not None:
        found = api.days(context.environment, find(game, known_names(context.engine)))
        if as_json:
            say_json(api.as_dict(found))
        else:
            say_lines("\n".join(map(plain, api.lines(found))))
        return
    closed = api.closed(context.environment)
    if as_json:
        say_json({"closed": [api.closing_dict(each) for each in closed]})
    elif not closed:
        say("No day is closed.")
    else:
        say_lines("\n".join(plain(f"{each.game_key} {api.closing_line(each)}") for each in closed))


@click.command("close")
@click.argument("game")
@click.argument("day", type=Moment())
@click.option("--reason", default="", help="Reason, kept in the ledger and the audit log; some days need one.")
@_JSON
def close_day(env_dir: Path, game: str, day: float, reason: str, as_json: bool) -> None:
    """Close the DAY of GAME: copy its accepted rows, and add it to the ledger. A closed revision never changes.

    GAME is a key or an exact name; DAY is a date such as 2026-11-29, or a moment in the day, UTC by default. A day that
    is closed stays as it is. A day closes when the source is known to be complete through its end and the lateness,
    its game and silver tables have read so far, and no operation of the game is open. Where bronze lost rows that may
    have been of the day, many rows are late or clock errors, or the day was reopened, it closes only with a reason.
    """
    from pipeline.api import books as api
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    made = api.close(context.environment, context.actor, find(game, known_names(context.engine)), day, reason)
    if as_json:
        say_json(api.closing_dict(made))
    else:
        say_lines(plain(api.closing_line(made)))


@click.command("verify")
@click.argument("game")
@_JSON
def verify_books(env_dir: Path, game: str, as_json: bool) -> None:
    """Compute the hashes of the closed days of GAME again, with all revisions, from the rows in `closed/GAME`.

    GAME is a key or an exact name. Exit code 0: each is that of the ledger; 1: the rows of a day are others now. Days
    whose rows were not kept are not compared, and are named.
    """
    from pipeline.api import books as api
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    found = api.verify(context.environment, find(game, known_names(context.engine)))
    results = {
        api.revision_label(each): "not kept" if now is None else "same" if now == each.hash else "CHANGED"
        for each, now in found
    }
    if as_json:
        say_json({"ok": "CHANGED" not in results.values(), "days": results})
    else:
        say_lines("\n".join(f"{day} {result}" for day, result in results.items()) or "No day is closed.")
    sys.exit(1 if "CHANGED" in results.values() else 0)
