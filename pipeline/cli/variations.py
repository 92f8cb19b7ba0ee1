"""The commands about JSON that no schema declares: `turnout schemas variations`, and choices about what is new."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.base.terminal import say, say_json, say_lines
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.cli.options import SubmitOptions, submit_and_wait, submitting
from pipeline.store.database.states import OperationKind

if TYPE_CHECKING:
    from pipeline.api.variations import UndeclaredType, VariationReport
    from pipeline.data.contracts.registry import LocalRegistry

_MOST_FACTS: Final = 5  # of a variation that are named


@click.command("variations")
@click.argument("game")
@click.option("--type", "event_type", help="Only this event type.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_variations(env_dir: Path, game: str, event_type: str | None, as_json: bool) -> None:
    """List the variations of GAME (name or key): what its JSON without a schema had that was new, the newest first.

    Each variation names paths with the kinds of their values, never a value; `*` stands for the keys of a map. A plus
    sign before it: first seen within the last 24 hours. A cross: a person refuses it. Rows are those of the version
    that opened its columns, with all variations of that version.
    """
    from pipeline.api import variations

    found = variations.read(CommandContext(env_dir).environment, game, event_type)
    if as_json:
        say_json(found)
        return
    if not found.types:
        say(f"{found.game!r} has no event type whose columns follow from documents")
    for each in found.types:
        say(_type_line(each))
        for one in found.variations:
            if one.type == each.type:
                say(_line(one))


def _type_line(each: "UndeclaredType") -> str:
    said = ("declared", each.declared), ("pinned", each.pinned), ("closed by a limit", each.closed)
    states = [name for name, holds in said if holds]
    columns = f"{each.columns:,} of {each.most_columns:,} columns"
    listed = f"{each.variations:,} of {each.most_variations:,} variations"
    parts = [columns, listed, f"{each.new_today:,} new today", *states]
    return f"{each.type!r} v{each.version} (schema id {each.schema_id}): {', '.join(parts)}"


def _line(each: "VariationReport") -> str:
    mark = "✗" if each.refused else "+" if each.new_today else " "
    facts = ", ".join(each.facts[:_MOST_FACTS])
    more = f", {len(each.facts) - _MOST_FACTS:,} more" if len(each.facts) > _MOST_FACTS else ""
    seen = f"{in_utc(each.first_seen, '%Y-%m-%d %H:%M')} to {in_utc(each.last_seen, '%Y-%m-%d %H:%M')}"
    version = "v-" if each.version is None else f"v{each.version}"
    rows = f"{each.count:,} rows by {version}"
    return f"  {mark} {each.fingerprint}  {rows}  {seen}  {each.producer or '-'}  {facts}{more}"


def _choosing(kind: OperationKind, help_text: str, *, variation: bool = False) -> click.Command:
    """Make a command that chooses about an event type, or about one of its variations."""

    @click.command(kind, help=help_text)
    @click.argument("game")
    @click.option("--type", "event_type", required=True, help="The event type.")
    @submitting
    def command(env_dir: Path, game: str, event_type: str, how: SubmitOptions, variation: str | None = None) -> None:
        from pipeline.control.operations.variations import propose_choice

        context = CommandContext(env_dir)
        proposal = propose_choice(kind, context.engine, game, event_type, context.actor, how.reason, variation)
        submit_and_wait(context, proposal, how)

    if variation:
        click.argument("variation")(command)
    return command


pin_variations = _choosing(
    OperationKind.PIN_VARIATIONS,
    "Pin an event type of GAME (name or key): its columns stay as they are.\n\n"
    "Rows with something new go to quarantine as `pinned_type`, until `unpin-variations`. See docs/schemas.md.",
)
unpin_variations = _choosing(
    OperationKind.UNPIN_VARIATIONS,
    "Unpin an event type of GAME (name or key), then replay its rows that wait as `pinned_type`.\n\n"
    "Drivers register what they have that is new.",
)
refuse_variation = _choosing(
    OperationKind.REFUSE_VARIATION,
    "Refuse VARIATION, a fingerprint of `schemas variations`, of an event type of GAME (name or key).\n\n"
    "Later rows with one of its facts go to quarantine as `refused_variation`. Rows that landed stay until a rebuild.",
    variation=True,
)
allow_variation = _choosing(
    OperationKind.ALLOW_VARIATION,
    "Take VARIATION of an event type of GAME (name or key) again, then replay its rows in quarantine.",
    variation=True,
)


@click.command("merge")
@click.argument("game")
@click.argument("column")
@click.option("--type", "event_type", help="The event type, where several have such a column.")
@submitting
def merge(env_dir: Path, game: str, column: str, event_type: str | None, how: SubmitOptions) -> None:
    """Join COLUMN of GAME (name or key) and its side columns, where documents had values of other types, by a rebuild.

    The wider type is double for whole numbers and doubles, if doubles hold each number that landed, and text otherwise.
    Later values land in the joined column, too. New rows wait until the rebuild has ended. See docs/schemas.md.
    """
    from pipeline.control.operations.merged_columns import propose_merge

    context = CommandContext(env_dir)
    given = game, column, event_type, context.actor, how.reason
    submit_and_wait(context, propose_merge(context.engine, context.paths, *given), how)


@click.command("declare")
@click.argument("game")
@click.option("--type", "event_type", required=True, help="The event type.")
@click.option("--print", "prints", is_flag=True, help="Only print the JSON Schema, and declare nothing.")
@submitting
def declare(env_dir: Path, game: str, event_type: str, prints: bool, how: SubmitOptions) -> None:
    """Declare an event type of GAME (name or key) by the JSON Schema of its columns, as they followed from documents.

    The columns stay, and no value moves. The type gets no further columns by itself. To keep the schema as a file, or
    to edit it before `schemas register`, use --print. See docs/schemas.md.
    """
    from pipeline.control.operations.declarations import declaration_of, propose_declaration
    from pipeline.store.games import find, known_names

    context = CommandContext(env_dir)
    registry = _registry(context)
    if prints:
        text = declaration_of(registry.snapshot(), find(game, known_names(context.engine)), event_type).definition
        is_shown = text.decode().replace("\n", "").isprintable()
        say_lines(text.decode().rstrip() if is_shown else json.dumps(json.loads(text), indent=2))
        return
    given = registry, context.engine, game, event_type, context.actor, how.reason
    submit_and_wait(context, propose_declaration(OperationKind.DECLARE_TYPE, *given), how)


@click.command("undeclare")
@click.argument("game")
@click.option("--type", "event_type", required=True, help="The event type.")
@submitting
def undeclare(env_dir: Path, game: str, event_type: str, how: SubmitOptions) -> None:
    """Withdraw the schema by which `declare` declared an event type of GAME (name or key).

    Its columns stay, and what is new in documents opens columns again. Rows that waited for these are replayed.
    """
    from pipeline.control.operations.declarations import propose_declaration

    context = CommandContext(env_dir)
    given = _registry(context), context.engine, game, event_type, context.actor, how.reason
    submit_and_wait(context, propose_declaration(OperationKind.UNDECLARE_TYPE, *given), how)


def _registry(context: CommandContext) -> "LocalRegistry":
    from pipeline.data.contracts.registry import LocalRegistry

    return LocalRegistry(context.engine, context.paths.bronze)
