"""The commands `turnout derived …`: silver and gold tables that follow from games' tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import SubmitOptions, required_reason, submit_and_wait, submitting
from pipeline.store.database.states import OperationKind

if TYPE_CHECKING:
    from pipeline.control.derived.proposals import DerivedProposal

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("plan")
@_FILE
@_JSON
def plan_derived(env_dir: Path, file: Path, as_json: bool) -> None:
    """Show what the derived streams in FILE would change, and the columns of their tables; changes nothing.

    The last line is the plan's hash for `turnout derived apply --plan`.
    """
    proposal = _planned(CommandContext(env_dir), file)
    if as_json:
        say_json(_as_dict(proposal))
    else:
        say_lines("\n".join(map(plain, [*proposal.lines, f"plan {proposal.hash}"])))


@click.command("apply")
@_FILE
@click.option("--plan", "expected", help="Apply only if the plan still has this hash.")
@required_reason("Reason, kept in the audit log.")
@_JSON
def apply_derived(env_dir: Path, file: Path, expected: str | None, reason: str, as_json: bool) -> None:
    """Replace the derived streams by those in FILE; applied again, it changes nothing.

    The driver of each game's group carries its streams from then on. A changed stream's table begins a new generation;
    the table of one that is no longer in FILE stays, and gets no more rows.
    """
    from pipeline.control.derived.proposals import apply

    context = CommandContext(env_dir)
    proposal = _planned(context, file)
    if expected is not None and expected != proposal.hash:
        raise Refused(f"The plan has changed and is {proposal.hash} now. Review it again.")
    say_lines("\n".join(map(plain, proposal.lines)), err=as_json)
    number = proposal.seen.number
    if proposal.changes:
        number = apply(context.settings, context.engine, proposal, context.actor, reason).number
        say(f"{len(proposal.entries)} derived streams and rules are in force", err=as_json)
    if as_json:
        say_json({**_as_dict(proposal), "number": number})


@click.command("list")
@_JSON
def list_derived(env_dir: Path, as_json: bool) -> None:
    """List the derived streams in force: where each is, through which time it is complete, and why it stands still.

    Event types of rules whose table no driver carries follow, each with the reason.
    """
    from pipeline.api.derived import listed, uncarried

    environment = CommandContext(env_dir).environment
    found, without = listed(environment), uncarried(environment)
    if as_json:
        say_json({"derived": [each.as_dict() for each in found], "uncarried": [each.as_dict() for each in without]})
    elif not found and not without:
        say("No derived stream is in force.")
    else:
        say_lines("\n".join(map(plain, [*(each.line for each in found), *(each.line for each in without)])))


def _steering(kind: OperationKind, help_text: str) -> click.Command:
    """Make the command of an operation on derived streams that are named."""

    @click.command(kind.removesuffix("-derived"), help=help_text)
    @click.argument("names", nargs=-1, required=True)
    @submitting
    def command(env_dir: Path, names: tuple[str, ...], how: SubmitOptions) -> None:
        from pipeline.control.operations.registry import unchanged_by
        from pipeline.control.proposals import propose

        context = CommandContext(env_dir)
        proposal = propose(context.engine, kind, names, context.actor, how.reason)
        submit_and_wait(context, proposal, how, names, unchanged_by(kind))

    return command


pause_derived = _steering(
    OperationKind.PAUSE_DERIVED,
    "Pause the derived streams NAMES: no more rows enter their tables, until `turnout derived resume`.\n\n"
    "Their drivers end a running commit first. Games and other streams go on; gold tables of a paused silver table "
    "wait. A pause outlives restarts, moves, and the time for which no rule chooses the table. Needs a running "
    "controller.",
)
resume_derived = _steering(
    OperationKind.RESUME_DERIVED,
    "Resume the paused derived streams NAMES: they go on from their tables' positions.\n\n"
    "If the log of what a stream follows from no longer reaches back that far, its table begins a new generation.",
)
repair_derived = _steering(
    OperationKind.REPAIR_DERIVED,
    "Make the tables of the derived streams NAMES again, each in one commit.\n\n"
    "A silver table gets all rows of its game's table again, a gold table all windows, with the same closing seqs. "
    "Readers see the old rows until then. Needs a reason.",
)


def _planned(context: CommandContext, file: Path) -> "DerivedProposal":
    from pipeline.control.derived.proposals import plan
    from pipeline.store.games import known_names

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The derived streams {file} cannot be read: {error}.") from error
    games = known_names(context.engine).values()
    return plan(context.settings, context.engine, context.registry.snapshot(), games, text)


def _as_dict(proposal: "DerivedProposal") -> dict[str, Any]:
    from pipeline.control.derived.definition_file import tree
    from pipeline.data.derived.definitions import FlatRule

    return {
        "plan": proposal.hash, "changes": proposal.changes, "lines": proposal.lines,
        "derived": [tree(each) for each in proposal.entries if not isinstance(each, FlatRule)],
        "rules": [tree(each) for each in proposal.entries if isinstance(each, FlatRule)],
    }  # fmt: skip
