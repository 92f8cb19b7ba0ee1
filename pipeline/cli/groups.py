"""The commands `turnout groups …`, and `turnout games priority`."""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy import Engine

from listeners.process_kinds import GROUP
from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import meant
from pipeline.cli.context import CommandContext
from pipeline.cli.options import (
    Finite,
    SubmitOptions,
    combine_options,
    keys_of,
    required_reason,
    run_id_option,
    submit_and_wait,
    submitting,
)
from pipeline.control.acts import DirectAct
from pipeline.health.verdicts.placement.capacity import GroupLoad
from pipeline.health.verdicts.placement.planner import (
    MAX_REBALANCING_MOVES,
    GamePlacement,
    Placed,
    catch_up_seconds,
    lines_of,
)
from pipeline.settings.tree import Metrics, load
from pipeline.store.backends import BACKENDS, backend_kind
from pipeline.store.database.states import PRIORITIES, OperationKind
from pipeline.store.groups import Group

if TYPE_CHECKING:
    from pipeline.control.group_proposals import GroupProposal  # what lists groups needs no planner

_wanted = combine_options(
    click.option(
        "--backend",
        type=click.Choice(list(BACKENDS)),
        help="Starter of its driver: not turnout, the controller beside itself, or the controller as a job.",
    ),
    click.option("--cores", type=Finite(0, 10_000, min_open=True), help="Its capacity in processor cores."),
    click.option("--unlimited", is_flag=True, help="Remove the limit on cores."),
    click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Priority of the games it is for."),
    click.option(
        "--spark-master", help="Its Spark master from the next start on; empty means the setting spark.master."
    ),
    click.option("--reason", help="Reason, kept in the audit log."),
)
"""What can be wanted of a group."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_groups(env_dir: Path, as_json: bool) -> None:
    """List every group with its desired state, its driver, its number of games and its deaths in the last hour.

    States of drivers are those of `turnout status`.
    """
    from pipeline.control.group_changes import render_capacity

    context = CommandContext(env_dir)
    rows = _rows(context.engine, context.settings.metrics)
    if as_json:
        say_json(rows)
        return
    for row in rows:
        cores = render_capacity(row["capacity_cores"])
        starts = backend_kind(row["backend"]).starts
        backend = f"backend {row['backend']}" if starts else "not started by turnout"
        deaths = f", died {row['deaths']} times in the last hour: {row['last_death']}" if row["deaths"] else ""
        say(
            f"{row['name']!s:<20} {row['desired']!s:<8} {row['driver'] or 'no driver'!s:<10} {row['games']:>5} games  "
            f"{cores}, {row['priority']} priority, {backend}{deaths}"
        )


@click.command("create")
@click.argument("name")
@_wanted
def create_group(env_dir: Path, name: str, reason: str | None, **options: Any) -> None:
    """Register group NAME and print its desired state.

    No game moves, but games without a group may go there.
    """
    from pipeline.control.group_changes import apply_options
    from pipeline.control.group_proposals import make

    context = CommandContext(env_dir)
    _write(context, make(context.settings, context.engine, apply_options(Group(name), options)), reason)


@click.command("set")
@click.argument("name")
@_wanted
def set_group(env_dir: Path, name: str, reason: str | None, **options: Any) -> None:
    """Change the desired state of group NAME, and print the effects on its driver and its games.

    A change that disturbs the driver or the games needs `--reason`. turnout refuses the second of two concurrent
    changes.
    """
    from pipeline.control.group_changes import apply_options
    from pipeline.control.group_proposals import change

    context = CommandContext(env_dir)
    seen = _find(context.engine, name)
    _write(context, change(context.settings, context.engine, seen, apply_options(seen, options)), reason)


def _write(context: CommandContext, proposal: "GroupProposal", reason: str | None) -> None:
    """Write a group that is made or changed, and print what that changes."""
    from pipeline.control.group_proposals import write

    done = write(context.settings, context.engine, proposal, context.actor, reason or "")
    for line in (*proposal.lines, done):
        say(line)


@click.command("remove")
@click.argument("name")
@required_reason("Reason, kept in the audit log.")
def remove_group(env_dir: Path, name: str, reason: str) -> None:
    """Remove group NAME, which must be drained or stopped, without games, process and open operations.

    `turnout groups drain` and `turnout groups stop` prepare it. The history of its runs goes too; the audit log keeps
    who removed it. A later group of this name reads on from the old checkpoint.
    """
    from pipeline.health.facts.liveness import how_alive
    from pipeline.store.groups import remove

    context = CommandContext(env_dir)
    actor = context.permitted(DirectAct.REMOVE_GROUP, reason)
    judged = partial(how_alive, metrics=context.settings.metrics)
    remove(context.engine, _find(context.engine, name), actor, reason, judged)
    say(f"group {name} is removed")
    target = context.paths.target(GROUP, name)
    try:
        target.unlink(missing_ok=True)  # a driver that was killed leaves it
    except OSError as error:
        say(
            f"{target} cannot be removed: {error.strerror}. Prometheus goes on asking for that driver; remove the file."
        )


def _find(engine: Engine, name: str) -> Group:
    from pipeline.store.groups import read_groups

    found = read_groups(engine).get(name)
    if found is None:
        near = meant(name, read_groups(engine))
        raise Refused(f"There is no cluster group {name!r}.{near} `turnout groups list` shows those there are.")
    return found


def _on_groups(kind: OperationKind, help_text: str) -> click.Command:
    """Make the command of an operation on groups."""

    @click.command(kind, help=help_text)
    @click.argument("groups", nargs=-1, required=True)
    @submitting
    def command(env_dir: Path, groups: tuple[str, ...], how: SubmitOptions) -> None:
        from pipeline.control.operations.registry import unchanged_by
        from pipeline.control.proposals import propose

        context = CommandContext(env_dir)
        proposal = propose(context.engine, kind, groups, context.actor, how.reason)
        submit_and_wait(context, proposal, how, groups, unchanged_by(kind))

    return command


start = _on_groups(
    OperationKind.START,
    "Start the drivers of stopped GROUPS; done when they report that they run.",
)
stop = _on_groups(
    OperationKind.STOP,
    "Stop the drivers of GROUPS; their games pause.\n\n"
    "The controller kills a driver that has not ended after a minute.",
)
restart = _on_groups(
    OperationKind.RESTART,
    "Restart the drivers of GROUPS, and clear the deaths that block a start.",
)


@click.command("run")
@click.argument("name")
@click.option("--once", is_flag=True, help="Split what is in bronze now, catch up, then end.")
@run_id_option
def run_group(env_dir: Path, name: str, once: bool, run_id: int | None) -> None:
    """Run the driver of cluster group NAME in this process: bronze to game tables.

    The first start registers the group. Restarts and exit codes are those of `turnout ingest run`; one process at a
    time may run a group.
    """
    from pipeline import wiring

    settings, paths = load(env_dir)
    sys.exit(wiring.run_group(settings, paths, name, once=once, run_id=run_id))


def _rows(engine: Engine, metrics: Metrics) -> list[dict[str, Any]]:
    from pipeline.health.facts.liveness import read_drivers
    from pipeline.health.verdicts.condition import judge_group
    from pipeline.store.games import known_groups
    from pipeline.store.groups import read_groups

    groups, facts = read_groups(engine), read_drivers(engine, metrics)
    counts = Counter(known_groups(engine).values())
    rows = []
    for name, group in groups.items():
        condition = judge_group(facts, name)
        state, deaths = condition.liveness.state, condition.deaths
        reported = {
            "games": counts[name],
            "driver": None if state == "not_started" else state,
            "deaths": len(deaths),
            "last_death": deaths[0].message if deaths else None,
        }
        rows.append({**asdict(group), **reported})
    return rows


@click.command("propose")
@submitting
@click.option(
    "--apply",
    "do_it",
    is_flag=True,
    help="Submit the moves as one operation, without games that wait for their first group.",
)
@click.option(
    "--most", "max_moves", type=click.IntRange(0), default=MAX_REBALANCING_MOVES, show_default=True,
    help="Most moves that only even out the load; 0 shows only the games that must leave.",
)  # fmt: skip
def propose(env_dir: Path, do_it: bool, max_moves: int, how: SubmitOptions) -> None:
    """Propose moves: games that must leave their group first, then moves that reduce the highest load most.

    Changes nothing without `--apply`. A game must leave a group that does not exist, is drained, stopped or full, or
    has a dead driver. Each line has the reason, the number of stream restarts (none), and the time until the game has
    about caught up; the groups follow, before and after. JSON without `--apply`: `moves`, `unplaced`, `before`,
    `after` and `restarts`. See docs/steering.md.
    """
    from pipeline.control.proposals import PlacementView

    context = CommandContext(env_dir)
    view = PlacementView(context.settings, context.engine)
    placed, rebalanced = view.best(max_moves)
    is_shown = not do_it or how.dry_run
    if is_shown and how.as_json:
        say_json(_as_dict(placed, rebalanced, view.trigger_seconds))
        return
    for line in lines_of(placed, rebalanced, view.trigger_seconds):
        say(line, err=not is_shown)
    if not is_shown:
        proposal = view.rebalance(placed, rebalanced, context.actor, how.reason)
        submit_and_wait(context, proposal, how)


@click.command("drain")
@click.argument("group")
@submitting
def drain(env_dir: Path, group: str, how: SubmitOptions) -> None:
    """Move all games of GROUP to groups with room, and keep new games away from it.

    One operation, which sets GROUP to `drained`. Its undo moves the games back and starts GROUP again. turnout refuses
    it if not all games fit elsewhere.
    """
    from pipeline.control.proposals import PlacementView

    context = CommandContext(env_dir)
    proposal = PlacementView(context.settings, context.engine).drain(group, context.actor, how.reason)
    submit_and_wait(context, proposal, how)


@click.command("priority")
@click.argument("games", nargs=-1, required=True)
@click.argument("priority", type=click.Choice(PRIORITIES))
@required_reason("Reason, kept in the audit log.")
def priority(env_dir: Path, games: tuple[str, ...], priority: str, reason: str) -> None:
    """Give GAMES (names or keys) a priority for scarce capacity; no game moves because of it.

    A game of the priority of a group with room gets that group, finds room sooner, and leaves a full group later.
    `turnout groups propose` shows the moves.
    """
    from pipeline.store.games import set_priority

    context = CommandContext(env_dir)
    actor = context.permitted(DirectAct.SET_PRIORITY, reason)
    before = set_priority(context.engine, keys_of(games, context.names()), priority, actor, reason)
    for key, was in sorted(before.items()):
        say(f"{key}: {was} → {priority}")
    say(f"{len(before)} changed. `turnout groups propose` shows what should move.")


def _as_dict(placed: Placed, rebalanced: Placed, trigger_seconds: float) -> dict[str, Any]:
    return {
        "moves": [
            *(_move(each, trigger_seconds, needed=True) for each in placed.placements),
            *(_move(each, trigger_seconds, needed=False) for each in rebalanced.placements),
        ],
        "unplaced": [{"game_key": each.game.game_key, "why": each.why} for each in placed.unplaced],
        "before": _groups(placed.before),
        "after": _groups(rebalanced.after),
        "restarts": placed.restarts + rebalanced.restarts,
    }


def _move(each: GamePlacement, trigger_seconds: float, *, needed: bool) -> dict[str, Any]:
    return {
        "game_key": each.game_key, "from": each.source, "to": each.target, "needed": needed, "why": each.why,
        "cores": each.game.cores, "cores_known": each.game.is_known,
        "catch_up_seconds": catch_up_seconds(each.game, trigger_seconds),
    }  # fmt: skip


def _groups(loads: Mapping[str, GroupLoad]) -> dict[str, Any]:
    return {
        name: {"cores": each.cores, "capacity_cores": each.capacity_cores, "games": each.games, "share": each.share}
        for name, each in loads.items()
    }
