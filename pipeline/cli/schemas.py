"""The commands that read schemas: `turnout schemas list`, `show` and `diff`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext

if TYPE_CHECKING:
    from pipeline.data.contracts.catalogue.versions import GameVersions, Version
    from pipeline.data.contracts.plans import Step


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_schemas(env_dir: Path, as_json: bool) -> None:
    """List every game's schema versions: schema id, format, message, version, date, who registered it, game.

    A person registered it, or a registry gave it. A dash: neither, as for a simulation. An exclamation mark
    before the game: rows of this version go to quarantine.
    """
    from pipeline.data.contracts.catalogue.versions import read_versions

    games = read_versions(CommandContext(env_dir).engine).values()
    if as_json:
        say_json([_as_dict(game, version) for game in games for version in game.versions])
        return
    for game in games:
        refusing = {each.version for each in game.quarantined}
        for each in game.versions:
            mark = "! " if each.version in refusing else ""
            start = f"{each.schema_id:>6}  {each.format:<8}  {each.message}  v{each.version}"
            say(f"{start}  {_day(each)}  {each.registered_by or '-'}  {mark}{game.game!r}")


@click.command("show")
@click.argument("game")
@click.option("--version", "number", type=click.IntRange(1, 1_000_000), help="The version. Default: the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_schema(env_dir: Path, game: str, number: int | None, as_json: bool) -> None:
    """Show the fields of one schema version of GAME (name or key), with their columns in the game's table.

    Below them: what the table got from this version, and the ids of registries that mean its schema.
    """
    from pipeline.data.contracts.catalogue.condition import read_writers
    from pipeline.data.contracts.catalogue.definitions import read_definitions
    from pipeline.data.contracts.catalogue.differences import table_steps
    from pipeline.data.contracts.catalogue.fields import fields_of, remarks_on

    context = CommandContext(env_dir)
    found = _found(context, game)
    version = found.newest if number is None else found.version(number)
    if version is None:
        raise Refused(f"The game {shown(found.game)} has no schema yet. See `turnout schemas register`.")
    used = {version.schema_id, *(each.schema_id for each in found.landing_before(version))}
    schemas = read_definitions(context.engine, used)
    fields = fields_of(schemas[version.schema_id], version.placement)
    notes = remarks_on(schemas[version.schema_id])
    steps = table_steps(found, version, schemas)
    writers = [each for each in read_writers(context.engine, found).known if each[2] == version.schema_id]
    if as_json:
        ids = [{"registry": registry, "id": named} for registry, named, _ in writers]
        more = {"fields": [asdict(each) for each in fields], "steps": _steps(steps), "writers": ids, "notes": notes}
        say_json({**_as_dict(found, version), **more})
        return
    say(
        f"{found.game!r} version {version.version}: schema id {version.schema_id}, {version.message} ({version.format})"
    )
    say(f"registered {_day(version)}{f' by {version.registered_by}' if version.registered_by else ''}")
    if version.quarantined is not None:
        say(f"rows go to quarantine: {version.quarantined}")
    for each in fields:
        number_of = f" = {each.id}" if isinstance(each.id, int) else ""
        place = "" if each.column is None else f" -> {each.column} {each.column_type}"
        say(f"  {each.path}: {each.type}{number_of}{', optional' if each.optional else ''}{place}")
    for note in notes:
        say(f"  note: {note}")
    for step in steps:
        say(f"  change: {step} ({step.kind}: {step.policy})")
    for registry, named, _ in writers:
        say(f"  writer: {registry} {named}")


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
    from pipeline.data.contracts.catalogue.definitions import read_definitions
    from pipeline.data.contracts.catalogue.differences import changes, text_diff

    context = CommandContext(env_dir)
    found = _found(context, game)
    one, other = found.version(first), found.version(second)
    schemas = read_definitions(context.engine, {one.schema_id, other.schema_id})
    before, after = schemas[one.schema_id], schemas[other.schema_id]
    steps, lines = changes(before, after), text_diff(before, after)
    if as_json:
        texts = [{"mark": each.mark.strip(), "text": each.text} for each in lines]
        from_to = {"from": _as_dict(found, one), "to": _as_dict(found, other)}
        say_json({**from_to, "changes": _steps(steps, policies=False), "text": texts})
        return
    for step in steps:
        say(f"{step.kind}: {step}")
    if not steps:
        say("no change of any field")
    for line in lines:
        say(f"{line.mark} {line.text}")


def _found(context: CommandContext, game: str) -> "GameVersions":
    from pipeline.data.contracts.catalogue.versions import GameVersions, read_versions
    from pipeline.store.games import find, known_names

    known = find(game, known_names(context.engine))
    return read_versions(context.engine, known.key).get(known.key) or GameVersions(known.key, known.name, ())


def _as_dict(game: "GameVersions", version: "Version") -> dict[str, Any]:
    return {
        "game": game.game,
        "game_key": game.key,
        "version": version.version,
        "schema_id": version.schema_id,
        "format": version.format,
        "message": version.message,
        "registered_at": version.created_at,
        "registered_by": version.registered_by,
        "policies": dict(version.policies.chosen),
        "quarantined": version.quarantined,
    }


def _steps(steps: "tuple[Step, ...]", *, policies: bool = True) -> list[dict[str, Any]]:
    kept = ("path", "kind", "what") if not policies else tuple(asdict(steps[0])) if steps else ()
    return [{name: value for name, value in asdict(step).items() if name in kept} for step in steps]


def _day(version: "Version") -> str:
    return in_utc(version.created_at, "%Y-%m-%d %H:%M")
