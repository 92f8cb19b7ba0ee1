"""The commands `turnout games rules …`: which names become games by rules, and what such games get."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import required_reason

if TYPE_CHECKING:
    from pipeline.control.onboarding.rule_proposals import RulesProposal

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("plan")
@_FILE
@_JSON
def plan_rules(env_dir: Path, file: Path, as_json: bool) -> None:
    """Show what the rules in FILE would change, and which waiting names would become games; changes nothing.

    The last line is the plan's hash for `turnout games rules apply --plan`.
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
def apply_rules(env_dir: Path, file: Path, expected: str | None, reason: str, as_json: bool) -> None:
    """Replace the rules by those in FILE. Games that exist stay as they are; applied again, it changes nothing.

    Running ingest uses the rules from its next micro-batch on. A rule with readers needs the role access_admin, too.
    """
    from pipeline.control.onboarding.rule_proposals import apply

    context = CommandContext(env_dir)
    proposal = _planned(context, file)
    if expected is not None and expected != proposal.hash:
        raise Refused(f"The plan has changed and is {proposal.hash} now. Review it again.")
    say_lines("\n".join(map(plain, proposal.lines)), err=as_json)
    number = proposal.seen.number
    if proposal.changes:
        number = apply(context.settings, context.engine, proposal, context.actor, reason).number
        say(f"{len(proposal.rules)} rules are in force", err=as_json)
    if as_json:
        say_json({**_as_dict(proposal), "number": number})


@click.command("list")
@_JSON
def list_rules(env_dir: Path, as_json: bool) -> None:
    """Print the rules in force as a file that `turnout games rules apply` takes."""
    from pipeline.control.onboarding.rules_file import render
    from pipeline.store.onboarding_rules import read_rules

    known = read_rules(CommandContext(env_dir).engine)
    if as_json:
        say_json({
            "number": known.number, "actor": known.actor, "applied_at": known.applied_at or None,
            "rules": [asdict(each) for each in known.rules],
        })  # fmt: skip
    else:
        say_lines(render(known.rules))


def _planned(context: CommandContext, file: Path) -> "RulesProposal":
    from pipeline.control.onboarding.rule_proposals import plan

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The rules {file} cannot be read: {error}.") from error
    return plan(context.settings, context.engine, text, context.actor)


def _as_dict(proposal: "RulesProposal") -> dict[str, Any]:
    return {
        "plan": proposal.hash, "changes": proposal.changes, "lines": proposal.lines,
        "become_games": [asdict(each) for each in proposal.coming], "rules": [asdict(each) for each in proposal.rules],
    }  # fmt: skip
