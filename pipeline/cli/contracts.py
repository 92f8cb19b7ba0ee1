"""The commands `turnout contracts …`: what the rows of games' tables promise their readers, and which rows do not."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import required_reason

if TYPE_CHECKING:
    from pipeline.control.output_contracts.proposals import ContractsProposal

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("plan")
@_FILE
@_JSON
def plan_contracts(env_dir: Path, file: Path, as_json: bool) -> None:
    """Show what the contracts in FILE would change, and which newest rows break them; changes nothing.

    The last line is the plan's hash for `turnout contracts apply --plan`.
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
def apply_contracts(env_dir: Path, file: Path, expected: str | None, reason: str, as_json: bool) -> None:
    """Replace the output contracts by those in FILE; applied again, it changes nothing.

    Groups use them from their next pass on. Rows that landed stay; rows in quarantine land by a replay where a changed
    contract lets them. A rule that would refuse more than half of a game's newest rows needs --plan, and so does one
    with the action stop that any of them breaks.
    """
    from pipeline.control.output_contracts.proposals import apply

    context = CommandContext(env_dir)
    proposal = _planned(context, file)
    if expected is not None and expected != proposal.hash:
        raise Refused(f"The plan has changed and is {proposal.hash} now. Review it again.")
    say_lines("\n".join(map(plain, proposal.lines)), err=as_json)
    if proposal.refuses_most and expected is None:
        raise Refused(
            f"Rules would refuse more than half of the newest rows of {len(proposal.refuses_most)} game(s), so "
            f"nothing was applied. If that is meant, add --plan {proposal.hash}."
        )
    if proposal.stops and expected is None:
        raise Refused(
            f"Newest rows of {len(proposal.stops)} game(s) break a rule with the action stop, and the next such row "
            f"would stop the stream, so nothing was applied. If that is meant, add --plan {proposal.hash}."
        )
    number = proposal.seen.number
    if proposal.changes:
        number = apply(context.settings, context.engine, proposal, context.actor, reason).number
        say(f"{len(proposal.contracts)} contracts are in force", err=as_json)
    if as_json:
        say_json({**_as_dict(proposal), "number": number})


@click.command("show")
@click.argument("game", required=False)
@_JSON
def show_contracts(env_dir: Path, game: str | None, as_json: bool) -> None:
    """Print the contracts in force as a file that `turnout contracts apply` takes.

    With GAME, those for this game, how many of its newest rows break each rule, whether its table is as fresh as they
    promise, and how many second rows silver tables left out.
    """
    from pipeline.control.output_contracts.contract_file import render, tree
    from pipeline.control.output_contracts.newest import count_breaks
    from pipeline.control.output_contracts.proposals import break_lines, given_lines
    from pipeline.data.derived.definitions import loads as definitions_of
    from pipeline.data.derived.uniqueness import unique_checks
    from pipeline.data.output_contracts.freshness import read_freshness
    from pipeline.data.output_contracts.rules import loads
    from pipeline.health.facts.fleet import read_fleet
    from pipeline.health.verdicts.derived import left_out
    from pipeline.store.derived import read_in_force, read_streams
    from pipeline.store.games import find
    from pipeline.store.output_contracts import read_contracts
    from pipeline.store.processes.leases import store_time

    context = CommandContext(env_dir)
    known = read_contracts(context.engine)
    contracts, lines = loads(known.contracts), list[str]()
    shown: dict[str, Any] = {"number": known.number, "actor": known.actor, "applied_at": known.applied_at or None}
    if game is not None:
        of = find(game, context.names())
        contracts = tuple(each for each in contracts if each.is_for(of.name))
        schemas = context.registry.snapshot()
        found = count_breaks(context.paths.table(of.key), of.key, schemas, contracts)
        lines = [*given_lines(schemas, of.key, of.name, contracts), *break_lines({of.name: found})]
        lines.append(f"{found.rows:,} newest rows of its table were tried.")
        fleet = read_fleet(context.engine, settings=context.settings)
        promised = [each for each in read_freshness(context.engine, fleet) if each.game_key == of.key]
        lines += [
            f"{each.promise.contract}: {'' if part.is_kept else 'NOT FRESH: '}{part.text}"
            for each in promised
            for part in each.parts
        ]
        streams, now = read_streams(context.engine), store_time(context.engine)
        unique = [*unique_checks(contracts, of.name, definitions_of(read_in_force(context.engine)))]
        lines += [
            each.line(None if each.silver is None else left_out(streams.get(each.silver.name), now)) for each in unique
        ]
        shown |= {"game": of.name, "rows": found.rows, "broken": dict(found.broken), "lines": lines}
        shown["stale"] = sorted(each.promise.contract for each in promised if each.is_stale)
    if as_json:
        say_json({**shown, "contracts": [tree(each) for each in contracts]})
    else:
        say_lines("\n".join([render(contracts), *(f"# {plain(line)}" for line in lines)]))


def _planned(context: CommandContext, file: Path) -> "ContractsProposal":
    from pipeline.control.output_contracts.proposals import plan

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The contracts {file} cannot be read: {error}.") from error
    return plan(context.engine, context.paths, context.registry.snapshot(), context.names(), text)


def _as_dict(proposal: "ContractsProposal") -> dict[str, Any]:
    from pipeline.control.output_contracts.contract_file import tree

    return {
        "plan": proposal.hash, "changes": proposal.changes, "lines": proposal.lines,
        "broken": {name: {"rows": each.rows, **each.broken} for name, each in proposal.breaks.items()},
        "refuses_most": proposal.refuses_most, "stops": proposal.stops,
        "contracts": [tree(each) for each in proposal.contracts],
    }  # fmt: skip
