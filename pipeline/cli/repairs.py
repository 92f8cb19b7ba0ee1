"""The commands that repair: `turnout repair …`. Each asks for an operation, which the controller does."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import SubmitOptions, keys_of, submit_and_wait, submitting
from pipeline.cli.quarantine import moment
from pipeline.cli.steering import on_games
from pipeline.control.capabilities import Capability
from pipeline.settings.tree import Paths
from pipeline.store.database.states import OperationKind


@click.command("actions")
@click.argument("game")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def actions(env_dir: Path, game: str, as_json: bool) -> None:
    """List repairs for GAME (name or key), least disruptive first, and why others are unavailable.

    The repairs are `retry`, `replay`, `dedupe`, `rebuild` and `restart` of its group, each with its alternative, what
    it touches and the duration of the last one. JSON: `name`, `possible`, `why_not`, `alternative`, `touches`,
    `seconds` and `estimate`.
    """
    from pipeline.control.capabilities import read_facts, repairs
    from pipeline.store.games import known_names
    from pipeline.store.processes.leases import store_time

    context = CommandContext(env_dir)
    (key,) = keys_of((game,), known_names(context.engine))
    now, metrics = store_time(context.engine), context.settings.metrics
    offered = repairs(read_facts(context.engine, context.paths, key, now, metrics=metrics))
    if as_json:
        say_json([asdict(each) for each in offered])
        return
    for each in offered:
        for line in _lines_of(each):
            say(line)


def _repairing(kind: OperationKind, help_text: str) -> click.Command:
    """Make the command of a repair of games that are named."""

    @click.command(kind, help=help_text)
    @click.argument("games", nargs=-1, required=True)
    @submitting
    def command(env_dir: Path, games: tuple[str, ...], how: SubmitOptions) -> None:
        from pipeline.control.repair_proposals import RepairPlanner
        from pipeline.store.games import known_names

        context = CommandContext(env_dir)
        keys = keys_of(games, known_names(context.engine))
        planner = RepairPlanner(context.settings, context.paths, context.engine)
        submit_and_wait(context, planner.plan(kind, keys, context.actor, how.reason), how)

    return command


retry = _repairing(
    OperationKind.RETRY,
    "Retry now the parked streams of GAMES (names or keys), and those that wait after a failure.\n\n"
    "Each gets all of its attempts again. Leaves out games for which `turnout repair actions` shows it as "
    "unavailable: the preview says why, and the exit code is 1. If it is unavailable for all, turnout submits "
    "nothing and the exit code is 2.",
)
dedupe = _repairing(
    OperationKind.DEDUPE,
    "Remove second copies of rows from the tables of GAMES (names or keys), in one commit each.\n\n"
    "First counts them and shows the number. Leaves out games as `turnout repair retry` does. See "
    "docs/repair.md.",
)
rebuild = _repairing(
    OperationKind.REBUILD,
    "Rebuild the tables of GAMES (names or keys) from bronze, each in one atomic switch.\n\n"
    "Retries their parked streams. Leaves out games as `turnout repair retry` does. See docs/repair.md.",
)


@click.command("replay")
@click.argument("games", nargs=-1)
@click.option(
    "--quarantine-reason",
    "refused_for",
    metavar="REASON",
    help="Only this reason of refusal: see docs/data.md. Replays rows with `kills_worker` only if named here.",
)
@click.option(
    "--since", type=moment, metavar="TIME", help="Only first seen at or after this time (ISO 8601, by default UTC)."
)
@click.option("--until", type=moment, metavar="TIME", help="Only first seen before this time.")
@submitting
def replay(env_dir: Path, games: tuple[str, ...], how: SubmitOptions, **rows: Any) -> None:
    """Decode refused rows with today's schemas and put those that decode into their game's table, exactly once.

    GAMES are names or keys; without any, all games with such rows and a schema. The operation fails if it cannot
    replay a game's rows; other games' rows land. `--dry-run` works out in this process which rows would land. Leaves
    out games as `turnout repair retry` does, but without GAMES that is not a failure. See docs/repair.md.
    """
    from pipeline.control.operations.repairs import choice as chosen_rows
    from pipeline.control.repair_proposals import RepairPlanner
    from pipeline.store.games import known_names

    context = CommandContext(env_dir)
    settings, paths, engine = context.settings, context.paths, context.engine
    known, choice = known_names(engine), chosen_rows(**rows)
    keys = keys_of(games, known) if games else None
    planner = RepairPlanner(settings, paths, engine)
    proposal = planner.plan(OperationKind.REPLAY, keys, context.actor, how.reason, choice)
    if not how.dry_run:
        submit_and_wait(context, proposal, how)
    for each in proposal.left_out:
        say(f"left out: {each}", err=how.as_json)
    chosen = {key: known[key] for key in proposal.intent.preview}
    failed = _tried(engine, paths, settings.environment, chosen, choice, as_json=how.as_json)
    sys.exit(1 if proposal.left_out and not proposal.best_effort else failed)


retire = on_games(
    OperationKind.RETIRE,
    "Take GAMES (names or keys) from their groups until a restore; bronze keeps and counts their rows.\n\n"
    "See docs/steering.md.",
)
restore = on_games(
    OperationKind.RESTORE,
    "Give retired GAMES (names or keys) a group again; they catch up from their tables' cursors.",
)


def _tried(
    engine: Engine, paths: Paths, environment: str, known: Mapping[str, str], choice: Mapping[str, str | None],
    *, as_json: bool,
) -> int:  # fmt: skip
    """Work out in this process what a replay would do, print it, and return the exit code."""
    from pipeline.control.operations import repairs
    from pipeline.data.contracts.registry import LocalRegistry
    from pipeline.data.repair import report
    from pipeline.data.repair.replay import replay_all
    from pipeline.store.assignments import reported_cursors

    chosen, schemas = repairs.selection(choice, known), LocalRegistry(engine, paths.bronze).snapshot
    reported = reported_cursors(engine)
    done = replay_all(paths, environment, schemas, known, chosen, dry_run=True, reported=reported)
    say_lines(report.replays_as_json(done) if as_json else report.render_replays(done, dry_run=True))
    return 1 if any(each.error for each in done) else 0


def _lines_of(capability: Capability) -> list[str]:
    """Return what can be done as lines for people."""
    took = "time unknown" if capability.seconds is None else f"about {capability.seconds:.0f} s"
    can = f"possible, {took}" if capability.possible else f"not possible: {capability.why_not}"
    lines = [f"{capability.name:<8} {can}", f"{'':<8} {capability.touches} {capability.estimate}"]
    if capability.alternative is not None:
        lines.append(f"{'':<8} Instead: {capability.alternative.name}. {capability.alternative.sentence}")
    return lines
