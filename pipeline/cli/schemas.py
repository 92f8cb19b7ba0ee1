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
    click.argument("descriptor_set", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
)
"""Says which schema a game is to have, and what may change for it."""


@click.command("plan")
@_schema
def plan_schema(env_dir: Path, game: str, message: str, policies: tuple[str, ...], descriptor_set: Path) -> None:
    """Show what `turnout schemas register` would do with a schema, and change nothing.

    Prints for each changed field the policy, the column and its type, and the effect on old and new rows; on the last
    line the plan's hash. Exit code 1 if turnout would refuse a change. See docs/schemas.md.
    """
    from pipeline.contracts.plans import render_plan
    from pipeline.contracts.policies import parse_policies
    from pipeline.contracts.registry import LocalRegistry, Registration

    registry = LocalRegistry(CommandContext(env_dir).engine)
    plan = registry.plan(Registration(game, message, descriptor_set.read_bytes(), parse_policies(policies)))
    for line in render_plan(plan):
        say(line)
    sys.exit(1 if plan.refused else 0)


@click.command("register")
@_schema
@click.option("--plan-hash", help="Register only if the plan is still the one with this hash.")
def register_schema(
    env_dir: Path, game: str, message: str, policies: tuple[str, ...], descriptor_set: Path, plan_hash: str | None
) -> None:
    """Register the next schema version of a game from a FileDescriptorSet (protoc --include_imports -o FILE).

    Does exactly what `turnout schemas plan` shows, and prints the schema id for the wrappers. Registers nothing if a
    policy refuses a change, and names the field. Running queries use a new version without a restart. Its first schema
    makes a name a game.
    """
    from pipeline.contracts.policies import parse_policies
    from pipeline.contracts.registry import LocalRegistry, Registration
    from pipeline.names import game_key

    context = CommandContext(env_dir)
    checked = Registration(game, message, descriptor_set.read_bytes(), parse_policies(policies), plan_hash)
    target = f"game:{game_key(game)}"
    with context.acting(DirectAct.REGISTER_SCHEMA, [target], game=game, message=message, policies=list(policies)):
        (done,) = LocalRegistry(context.engine).register_many([checked])
    result = "registered" if done.new else "was registered already"
    say(f"schema id {done.schema_id}: version {done.version} of {game!r} {result}")


@click.command("list")
def list_schemas(env_dir: Path) -> None:
    """List every game's schema versions: schema id, message, version, game."""
    from pipeline.store.games import registered

    for game, version, schema_id, message in registered(CommandContext(env_dir).engine):
        say(f"{schema_id:>6}  {message}  v{version}  {game!r}")
