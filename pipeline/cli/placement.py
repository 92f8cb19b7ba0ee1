"""The commands that place games on groups: `turnout groups propose` and `drain`, and `turnout games priority`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pipeline.cli.context import CommandContext
from pipeline.cli.operation_options import SubmitOptions, asking, keys_of, submit_and_wait
from pipeline.cli.options import required_reason
from pipeline.control.acts import DirectAct
from pipeline.placement.capacity import PRIORITIES, GroupLoad
from pipeline.placement.planner import MAX_EVENED, Placed, Placement, catch_up_seconds, lines_of
from pipeline.terminal import say, say_json


@click.command("propose")
@asking
@click.option(
    "--apply",
    "do_it",
    is_flag=True,
    help="Submit the moves as one operation, without games that wait for their first group.",
)
@click.option(
    "--most", "max_moves", type=click.IntRange(0), default=MAX_EVENED, show_default=True,
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
    placed, even = view.best(max_moves)
    is_shown = not do_it or how.dry_run
    if is_shown and how.as_json:
        say_json(_as_dict(placed, even, view.trigger_seconds))
        return
    for line in lines_of(placed, even, view.trigger_seconds):
        say(line, err=not is_shown)
    if not is_shown:
        proposal = view.rebalance(placed, even, context.actor, how.reason)
        submit_and_wait(context, proposal, how)


@click.command("drain")
@click.argument("group")
@asking
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
    from pipeline.store.priorities import set_priority

    context = CommandContext(env_dir)
    actor = context.permitted(DirectAct.SET_PRIORITY, reason)
    before = set_priority(context.engine, keys_of(games, context.names()), priority, actor, reason)
    for key, was in sorted(before.items()):
        say(f"{key}: {was} → {priority}")
    say(f"{len(before)} changed. `turnout groups propose` shows what should move.")


def _as_dict(placed: Placed, even: Placed, trigger_seconds: float) -> dict[str, Any]:
    return {
        "moves": [
            *(_move(each, trigger_seconds, needed=True) for each in placed.placements),
            *(_move(each, trigger_seconds, needed=False) for each in even.placements),
        ],
        "unplaced": [{"game_key": each.game.game_key, "why": each.why} for each in placed.unplaced],
        "before": _groups(placed.before),
        "after": _groups(even.after),
        "restarts": placed.restarts + even.restarts,
    }


def _move(each: Placement, trigger_seconds: float, *, needed: bool) -> dict[str, Any]:
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
