"""The commands that read schemas: `turnout schemas list`, `show` and `diff`."""

from pathlib import Path

import click

from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_schemas(env_dir: Path, as_json: bool) -> None:
    """List every game's schema versions: schema id, format, message, version, date, who registered it, game.

    A person registered it, or a registry gave it. A dash: neither, as for a simulation. An exclamation mark
    before the game: rows of this version go to quarantine.
    """
    from pipeline.api import versions

    games = versions.read(CommandContext(env_dir).environment)
    if as_json:
        say_json([versions.report(game, version) for game in games for version in game.versions])
        return
    for game in games:
        refusing = {each.version for each in game.quarantined}
        for each in game.versions:
            mark = "! " if each.version in refusing else ""
            start = f"{each.schema_id:>6}  {each.format:<8}  {each.message}  v{each.version}"
            say(f"{start}  {_day(each.created_at)}  {each.registered_by or '-'}  {mark}{game.game!r}")


@click.command("show")
@click.argument("game")
@click.option("--version", "number", type=click.IntRange(1, 1_000_000), help="The version. Default: the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_schema(env_dir: Path, game: str, number: int | None, as_json: bool) -> None:
    """Show the fields of one schema version of GAME (name or key), with their columns in the game's table.

    Below them: what the table got from this version, and the ids of registries that mean its schema.
    """
    from pipeline.api import schemas

    found = schemas.show(CommandContext(env_dir).environment, game, number)
    if as_json:
        say_json(found)
        return
    say(f"{found.game!r} version {found.version}: schema id {found.schema_id}, {found.message} ({found.format})")
    say(f"registered {_day(found.registered_at)}{f' by {found.registered_by}' if found.registered_by else ''}")
    if found.quarantined is not None:
        say(f"rows go to quarantine: {found.quarantined}")
    for each in found.fields:
        number_of = f" = {each.id}" if isinstance(each.id, int) else ""
        place = "" if each.column is None else f" -> {each.column} {each.column_type}"
        say(f"  {each.path}: {each.type}{number_of}{', optional' if each.optional else ''}{place}")
    for note in found.notes:
        say(f"  note: {note}")
    for step in found.steps:
        say(f"  change: {step} ({step.kind}: {step.policy})")
    for writer in found.writers:
        say(f"  writer: {writer.registry} {writer.id}")


@click.command("diff")
@click.argument("game")
@click.argument("first", type=click.IntRange(1, 1_000_000))
@click.argument("second", type=click.IntRange(1, 1_000_000))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff_schemas(env_dir: Path, game: str, first: int, second: int, as_json: bool) -> None:
    """Show what changes from version FIRST to version SECOND of GAME (name or key): in words, then as text.

    The words name each change by its kind, see docs/schemas.md. Lines of the text begin with `-` where only FIRST has
    them and with `+` where only SECOND does.
    """
    from pipeline.api import schemas

    found = schemas.diff(CommandContext(env_dir).environment, game, first, second)
    if as_json:
        say_json(found)
        return
    for step in found.changes:
        say(f"{step.kind}: {step.path}: {step.what}")
    if not found.changes:
        say("no change of any field")
    for line in found.text:
        say(f"{line.mark:<1} {line.text}")


def _day(at: float) -> str:
    return in_utc(at, "%Y-%m-%d %H:%M")
