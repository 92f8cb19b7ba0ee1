"""The commands `turnout schemas …`."""

import sys
from pathlib import Path

import click

from pipeline.cli.context import CommandContext
from pipeline.cli.options import combine_options
from pipeline.control.acts import DirectAct
from pipeline.terminal import say

_schema = combine_options(
    click.option("--game", required=True, help="The game's exact name."),
    click.option("--message", required=True, help="Full name of the payload's message."),
    click.option(
        "--policy", "policies", multiple=True, help="Policy of a change, such as incompatible=side-column; repeatable."
    ),
    click.option(
        "--format", "format_name", help="Format of the file: protobuf or avro. Default: avro for .avsc files."
    ),
    click.argument("definition", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
)
"""Says which schema a game is to have, and what may change for it."""


@click.command("plan")
@_schema
def plan_schema(
    env_dir: Path, game: str, message: str, policies: tuple[str, ...], format_name: str | None, definition: Path
) -> None:
    """Show what `turnout schemas register` would do with a schema, and change nothing.

    Prints for each changed field the policy, the column and its type, and the effect on old and new rows; on the last
    line the plan's hash. Exit code 1 if turnout would refuse a change. See docs/schemas.md.
    """
    from pipeline.contracts.plans import render_plan
    from pipeline.contracts.policies import parse_policies
    from pipeline.contracts.registry import LocalRegistry, Registration

    registry = LocalRegistry(CommandContext(env_dir).engine)
    given = parse_policies(policies)
    plan = registry.plan(
        Registration(game, message, definition.read_bytes(), given, format=_format(format_name, definition))
    )
    for line in render_plan(plan):
        say(line)
    sys.exit(1 if plan.refused else 0)


@click.command("register")
@_schema
@click.option("--plan-hash", help="Register only if the plan is still the one with this hash.")
def register_schema(
    env_dir: Path,
    game: str,
    message: str,
    policies: tuple[str, ...],
    format_name: str | None,
    definition: Path,
    plan_hash: str | None,
) -> None:
    """Register the next schema version of a game: a FileDescriptorSet (protoc --include_imports -o FILE) or an .avsc.

    Does exactly what `turnout schemas plan` shows, and prints the schema id for the wrappers. Registers nothing if a
    policy refuses a change, and names the field. Running queries use a new version without a restart. Its first schema
    makes a name a game.
    """
    from pipeline.contracts.policies import parse_policies
    from pipeline.contracts.registry import LocalRegistry, Registration
    from pipeline.names import game_key

    context = CommandContext(env_dir)
    kind, given = _format(format_name, definition), parse_policies(policies)
    checked = Registration(game, message, definition.read_bytes(), given, plan_hash, kind)
    target = f"game:{game_key(game)}"
    with context.acting(DirectAct.REGISTER_SCHEMA, [target], game=game, message=message, policies=list(policies)):
        (done,) = LocalRegistry(context.engine).register_many([checked])
    result = "registered" if done.new else "was registered already"
    say(f"schema id {done.schema_id}: version {done.version} of {game!r} {result}")


def _format(named: str | None, definition: Path) -> str:
    """Return the format of a definition's file; its suffix says it where the person does not."""
    return named or ("avro" if definition.suffix == ".avsc" else "protobuf")
