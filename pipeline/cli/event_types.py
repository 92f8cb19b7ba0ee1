"""The commands about event types of a game: `turnout schemas types`, `views`, `keep-views`, `accept-type` and so on."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.cli.options import SubmitOptions, submit_and_wait, submitting
from pipeline.store.database.states import OperationKind

if TYPE_CHECKING:
    from pipeline.data.contracts.further_types import GameType
    from pipeline.store.games import Game


@click.command("types")
@click.argument("game")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_types(env_dir: Path, game: str, as_json: bool) -> None:
    """List the event types of GAME (name or key): state, column, rows and their rate, first and last, refused rows.

    The first type's fields are columns of the game's table, those of an accepted one lie in a struct column. Rows of a
    type that waits, or that was withdrawn, go to quarantine. Of a large table with several types in a file the rows are
    an estimate.
    """
    from pipeline.api.event_types import report

    listed = report(CommandContext(env_dir).environment, game)
    if as_json:
        say_json([asdict(each) for each in listed])
        return
    for each in listed:
        rate = "" if each.rows_per_second is None else f" ({each.rows_per_second:,.1f}/s in 5 min)"
        rows = f"{'about ' if each.estimated else ''}{each.rows:,} rows{rate}, {each.refused:,} refused"
        seen = f"first {'by ' if each.estimated else ''}{_day(each.first_at)}, last {_day(each.last_at)}"
        say(f"{each.state:<9}  {each.type}  {each.column or '-'}  {rows}, {seen}")


@click.command("views")
@click.argument("game")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def show_views(env_dir: Path, game: str, as_json: bool) -> None:
    """Print a flat view for each event type of GAME (name or key) as SQL, for Unity Catalog and for DuckDB.

    Run the statements where you want them, or let turnout keep them in a catalog that has views: `schemas keep-views`.
    """
    from pipeline.data.contracts.type_views import views

    context = CommandContext(env_dir)
    found, types = _types(context, game)
    access = context.settings.access
    table = (access.catalog_name, access.schema_name, str(found.key))
    made = views(str(found.key), types, table, str(context.paths.table(found.key)))
    if as_json:
        say_json([
            {"type": each.type, "view": each.name, "unity_catalog": each.unity_catalog, "duckdb": each.duckdb}
            for each in made
        ])  # fmt: skip
        return
    for each in made:
        name = plain(each.type)  # on one line, or its second one would be a statement
        say_lines(f"-- {name}, Unity Catalog\n{each.unity_catalog}\n-- {name}, DuckDB\n{each.duckdb}")


def _accepting(command: Any) -> Any:
    """Give the command that accepts types its own options."""
    policies = click.option(
        "--policy", "policies", multiple=True,
        help="Policy of a change, such as name=side-column; repeatable. Default: those by which it came.",
    )  # fmt: skip
    nest = click.option(
        "--nest", is_flag=True, help="Without TYPES: give the first type a struct column, too, and rebuild the table."
    )
    return nest(policies(command))


def _changing(kind: OperationKind, help_text: str, *, more: Callable[[Any], Any] | None = None) -> click.Command:
    """Make the command that accepts or withdraws types."""

    @click.command(kind, help=help_text)
    @click.argument("game")
    @click.argument("types", nargs=-1)
    @submitting
    def command(
        env_dir: Path, game: str, types: tuple[str, ...], how: SubmitOptions, policies: tuple[str, ...] = (),
        nest: bool = False,
    ) -> None:  # fmt: skip
        from pipeline.control.operations.event_types import propose_types
        from pipeline.control.operations.nested_types import propose_nesting

        context = CommandContext(env_dir)
        if nest == bool(types):
            raise Refused("Name event types, or use `schemas accept-type GAME --nest` alone.")
        if nest:
            submit_and_wait(context, propose_nesting(context.engine, game, context.actor, how.reason), how)
        bronze = context.paths.bronze
        proposal = propose_types(
            kind, context.engine, bronze, game, types, context.actor, how.reason, policies=policies
        )
        submit_and_wait(context, proposal, how)

    if more is not None:
        more(command)
    return command


accept_type = _changing(
    OperationKind.ACCEPT_TYPE,
    "Accept event types of GAME (name or key), whose rows wait in quarantine as `other_type`.\n\n"
    "TYPES are full names or last segments. Each gets a struct column in the game's table, then the rows that wait "
    "are replayed. Several types at once cost one change of the table. See docs/schemas.md.",
    more=_accepting,
)
withdraw_type = _changing(
    OperationKind.WITHDRAW_TYPE,
    "Withdraw accepted event types of GAME (name or key): their next rows wait in quarantine.\n\n"
    "Rows that landed stay until a rebuild, and their column stays for good.",
)


def _keeping(kind: OperationKind, help_text: str) -> click.Command:
    """Make the command that keeps or drops views."""

    @click.command(kind, help=help_text)
    @click.argument("game")
    @submitting
    def command(env_dir: Path, game: str, how: SubmitOptions) -> None:
        from pipeline.control.operations.registry import find as definition

        context = CommandContext(env_dir)
        if kind == OperationKind.KEEP_VIEWS:
            context.settings.access.require_views()
        found = definition(kind)
        assert found is not None, "a kind of ours has a definition"
        assert found.propose is not None, "and these plan by name"
        proposal = found.propose(context.engine, [game], context.actor, how.reason, None)
        same = [] if proposal.intent.targets else [game]
        submit_and_wait(context, proposal, how, same, found.unchanged)

    return command


keep_views = _keeping(
    OperationKind.KEEP_VIEWS,
    "Keep a flat view of each event type of GAME (name or key) in the catalog.\n\n"
    "Needs a Databricks workspace with a SQL warehouse (`access.warehouse`). The controller changes the views as types "
    "evolve, lets those select from them who may select from the game's table, and drops them with the game.",
)
drop_views = _keeping(
    OperationKind.DROP_VIEWS, "Drop the views of GAME (name or key) that `schemas keep-views` keeps in the catalog."
)


def _types(context: CommandContext, game: str) -> "tuple[Game, list[GameType]]":
    from pipeline.data.contracts.further_types import game_types
    from pipeline.store.games import find, known_names

    found = find(game, known_names(context.engine))
    return found, game_types(context.registry.snapshot(), found.key)


def _day(at: Any) -> str:
    return "-" if at is None else in_utc(at, "%Y-%m-%d %H:%M")
