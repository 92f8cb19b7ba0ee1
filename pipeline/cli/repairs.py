"""The commands that repair: `turnout repair …`. Each asks for an operation, which the controller does."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from pipeline.cli.context import CommandContext
from pipeline.cli.operation_options import SubmitOptions, asking, keys_of, submit_and_wait
from pipeline.cli.quarantine import moment
from pipeline.cli.steering import deciding
from pipeline.control.capabilities import Capability
from pipeline.errors import Refused
from pipeline.settings import Paths
from pipeline.terminal import say, say_json, say_lines


@click.command("actions")
@click.argument("game")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def actions(env_dir: Path, game: str, as_json: bool) -> None:
    """Tell what can be done for GAME (its exact name or its key) now, and why not, the gentlest first."""
    from pipeline.control.capabilities import capabilities, read_facts
    from pipeline.store.game_lookup import known_names
    from pipeline.store.leases import store_time

    context = CommandContext(env_dir)
    (key,) = keys_of((game,), known_names(context.engine))
    now, heartbeat_seconds = store_time(context.engine), context.settings.metrics.heartbeat_seconds
    offered = capabilities(read_facts(context.engine, context.paths, key, now, heartbeat_seconds=heartbeat_seconds))
    if as_json:
        say_json([asdict(each) for each in offered])
        return
    for each in offered:
        for line in _told(each):
            say(line)


retry = deciding("retry", "Let streams of GAMES that were parked, or wait after a failure, run again at once.")


@click.command("replay")
@click.argument("games", nargs=-1)
@click.option(
    "--refused-for",
    "--quarantine-reason",
    "refused_for",
    metavar="REASON",
    help="Only rows refused for it, see `turnout quarantine list`.",
)
@click.option("--since", type=moment, metavar="TIME", help="Only first seen at or after this time (ISO 8601).")
@click.option("--until", type=moment, metavar="TIME", help="Only first seen before this time.")
@asking
def replay(env_dir: Path, games: tuple[str, ...], how: SubmitOptions, **rows: Any) -> None:
    """Decode refused rows with today's schemas and put what decodes into its game's table, exactly once.

    GAMES are names or keys; without any, all that have such rows and a schema.
    """
    from pipeline.control.operations import repairs
    from pipeline.control.proposals import repair
    from pipeline.store.game_lookup import known_names

    context = CommandContext(env_dir)
    settings, paths, engine = context.settings, context.paths, context.engine
    known = known_names(engine)
    choice = repairs.choice(**rows)
    keys = keys_of(games, known) if games else repairs.plan_all(paths, settings.environment, engine, choice)
    proposal = repair(settings, paths, engine, "replay", list(keys), choice, context.actor, how.reason)
    if how.dry_run:
        chosen = {key: known[key] for key in keys}
        sys.exit(_tried(engine, paths, settings.environment, chosen, choice, as_json=how.as_json))
    submit_and_wait(context, proposal, how)


@click.command("dedupe")
@click.argument("games", nargs=-1, required=True)
@asking
def dedupe(env_dir: Path, games: tuple[str, ...], how: SubmitOptions) -> None:
    """Remove second copies of rows from the tables of GAMES (names or keys), in one commit each."""
    from pipeline.contracts.registry import LocalRegistry
    from pipeline.control.operations import dedupes, repairs
    from pipeline.control.proposals import OperationProposal
    from pipeline.store.game_lookup import find, known_names

    context = CommandContext(env_dir)
    settings, paths, engine = context.settings, context.paths, context.engine
    known, environment = known_names(engine), settings.environment
    keys = keys_of(games, known)
    facts = dedupes.plan(paths, environment, keys, repairs.observe(paths, environment, engine, keys))
    schemas = LocalRegistry(engine).snapshot()
    wanted = [find(key, known) for key in facts]
    deduped, undecided = dedupes.dedupe_each(paths, environment, schemas, wanted, dry_run=True)
    doubled = {each.game_key: facts[each.game_key] for each in deduped if each.removed}
    if undecided and not doubled:
        raise Refused(" ".join(undecided))
    intent = dedupes.intent(doubled, context.actor, how.reason, deduped)
    submit_and_wait(context, OperationProposal(intent, dedupes.render_preview(deduped), undecided), how)


@click.command("rebuild")
@click.argument("games", nargs=-1, required=True)
@asking
def rebuild(env_dir: Path, games: tuple[str, ...], how: SubmitOptions) -> None:
    """Rebuild the tables of GAMES (names or keys) from bronze, each in one atomic switch."""
    from pipeline.control.proposals import repair, require_source
    from pipeline.store.game_lookup import known_names

    context = CommandContext(env_dir)
    require_source("rebuild", context.paths)
    keys = keys_of(games, known_names(context.engine))
    proposal = repair(context.settings, context.paths, context.engine, "rebuild", keys, {}, context.actor, how.reason)
    submit_and_wait(context, proposal, how)


retire = deciding(
    "retire", "Take GAMES (names or keys) from their groups until they are restored; their rows stay in bronze."
)
restore = deciding("restore", "Give retired GAMES a group again; they catch up from their tables' cursors.")


def _tried(
    engine: Engine, paths: Paths, environment: str, known: Mapping[str, str], choice: Mapping[str, str | None],
    *, as_json: bool,
) -> int:  # fmt: skip
    """Work out in this process what a replay would do, print it, and return the exit code."""
    from pipeline.contracts.registry import LocalRegistry
    from pipeline.control.operations import repairs
    from pipeline.repair import report
    from pipeline.repair.replay import replay_all

    chosen = repairs.selection(choice, known)
    done = replay_all(paths, environment, LocalRegistry(engine).snapshot(), known, chosen, dry_run=True)
    say_lines(report.replays_as_json(done) if as_json else report.render_replays(done, dry_run=True))
    return 1 if any(each.error for each in done) else 0


def _told(capability: Capability) -> list[str]:
    """Return what can be done as lines for people."""
    took = "time unknown" if capability.seconds is None else f"about {capability.seconds:.0f} s"
    can = f"possible, {took}" if capability.possible else f"not possible: {capability.why_not}"
    lines = [f"{capability.name:<8} {can}", f"{'':<8} {capability.touches} {capability.estimate}"]
    if capability.alternative is not None:
        lines.append(f"{'':<8} Instead: {capability.alternative.name}. {capability.alternative.sentence}")
    return lines
