"""The commands that steer: `turnout controller`, `stream own-query`, `move`, `pause`, `resume`, `ops` and `audit`."""

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.cli.options import (
    LISTED,
    SubmitOptions,
    as_dict,
    keys_of,
    line,
    required_reason,
    step_line,
    submit_and_wait,
    submitting,
    unchanged,
)
from pipeline.control.acts import DirectAct
from pipeline.settings.tree import load
from pipeline.store.database.states import OperationKind
from pipeline.store.operations import Operation

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command("run")
@click.option(
    "--stop-groups",
    is_flag=True,
    help="At its end stop the groups and the maintenance it runs; exit code 1 if it cannot.",
)
def run_controller(env_dir: Path, stop_groups: bool) -> None:
    """Run the controller: it carries out operations and runs maintenance and the groups with a backend.

    One per environment: turnout refuses a second one. Drivers and maintenance run as processes that outlive it; a
    later controller finds them again. See docs/steering.md.
    """
    from pipeline.control.controller import run

    code = run(*load(env_dir), stop_groups=stop_groups)
    os._exit(code)  # a repair may go on in a thread for hours; another controller begins it anew


@click.command("stop")
@click.option("--reason", help="Reason, kept in the audit log.")
def stop(env_dir: Path, reason: str | None) -> None:
    """Stop everything of this environment that runs on this machine, and print each process.

    That is a demo, the controller, ingest, drivers of groups, maintenance, dashboards, and what `simulate`,
    `metrics serve` and `catalog serve` run. turnout kills a process that has not ended after a minute. Groups keep
    their desired state: the next `turnout controller run` starts them again. Exit code 1 if a process goes on, such as
    that of another user, or one that it cannot find without `store.leases`. A service manager may start again what it
    runs: stop it there.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from pipeline.control.operations.definition import ControlContext
    from pipeline.control.stopping import stop_environment

    context = CommandContext(env_dir)
    target = f"environment:{context.settings.environment}"
    with ExitStack() as held:
        try:
            held.enter_context(context.acting(DirectAct.STOP_ENVIRONMENT, (target,), reason=reason or ""))
        except SQLAlchemyError:
            say("Nothing was stopped: the audit log takes no entry.", err=True)
            raise
        is_done = stop_environment(ControlContext(context.settings, context.engine, context.paths), say)
    if is_done:
        say(f"Nothing of {context.paths.root} runs on this machine any more.")
    sys.exit(0 if is_done else 1)


@click.command("move")
@click.argument("games", nargs=-1, required=True)
@submitting
@click.option("--to", "group", required=True, help="The cluster group to move them to.")
def move(env_dir: Path, games: tuple[str, ...], group: str, how: SubmitOptions) -> None:
    """Move GAMES (names or keys) to another cluster group while everything runs.

    One operation, which ends after the controller has observed its effect. Leaves out games that are there already.
    Exit code 1 if it failed or needs a person. Needs a running controller.
    """
    from pipeline.control.proposals import PlacementView

    context = CommandContext(env_dir)
    view = PlacementView(context.settings, context.engine)
    keys = keys_of(games, context.names())
    proposal = view.move(keys, group, context.actor, how.reason)
    submit_and_wait(context, proposal, how, keys, f"is in group {group} already")


def on_games(kind: OperationKind, help_text: str) -> click.Command:
    """Make the command of an operation on games that are named: pause, resume, retire, restore."""

    @click.command(kind, help=help_text)
    @click.argument("games", nargs=-1, required=True)
    @submitting
    def command(env_dir: Path, games: tuple[str, ...], how: SubmitOptions) -> None:
        from pipeline.control.operations.registry import unchanged_by
        from pipeline.control.proposals import propose

        context = CommandContext(env_dir)
        keys = keys_of(games, context.names())
        proposal = propose(context.engine, kind, keys, context.actor, how.reason)
        submit_and_wait(context, proposal, how, keys, unchanged_by(kind))

    return command


pause = on_games(
    OperationKind.PAUSE,
    "Pause the streams of GAMES (names or keys): no more rows enter their tables.\n\n"
    "Drivers act at their next pass, or after the running chunk of catch-up. Needs a running controller.",
)
resume = on_games(
    OperationKind.RESUME,
    "Resume paused streams of GAMES (names or keys); they catch up from their tables' cursors.",
)


@click.command("own-query")
@click.argument("game")
@click.argument("wanted", type=click.Choice(["on", "off"]))
def own_query(env_dir: Path, game: str, wanted: str) -> None:
    """Give GAME a streaming query of its own, or return it to its group's pass.

    For a very hot game, or to watch one game alone. The cursor is in the game's table, so no row is read twice or left
    out.
    """
    from pipeline.store.games import find
    from pipeline.store.stream_control import submit_control

    context = CommandContext(env_dir)
    key = find(game, context.names()).key
    with context.acting(DirectAct.SET_OWN_QUERY, (f"game:{key}",), own_query=wanted) as actor:
        submit_control(context.engine, key, actor, own_query=wanted == "on")


@click.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only open operations.")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most operations to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_operations(env_dir: Path, only_open: bool, limit: int, as_json: bool) -> None:
    """List operations: those that need a person first, then running ones, then the newest."""
    from pipeline.store.operations import list_operations

    listed = list_operations(CommandContext(env_dir).engine, only_open=only_open, limit=limit)
    if as_json:
        say_json([asdict(each) for each in listed])
        return
    for each in listed:
        say(line(each))


@click.command("show")
@click.argument("operation")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_operation(env_dir: Path, operation: str, as_json: bool) -> None:
    """Show OPERATION (its id or the start of it) with state, targets, reason and the journal of its steps."""
    from pipeline.store.operations import operation as find
    from pipeline.store.operations import steps

    engine = CommandContext(env_dir).engine
    stored = find(engine, operation)
    journal = steps(engine, stored.operation_id)
    if as_json:
        say_json(as_dict(stored, journal))
        return
    say(line(stored))
    for each in (f"targets: {', '.join(stored.targets)}", f"reason: {stored.reason or 'none given'}"):
        say(plain(each))
    for step in journal:
        say(step_line(step))


def _permitted_on(context: CommandContext, operation: str) -> tuple[Operation, str]:
    """Return an operation and the acting person, if they have the role for its kind."""
    from pipeline.store.operations import operation as find

    stored = find(context.engine, operation)
    return stored, context.permitted_on(stored.kind)


@click.command("resume")
@click.argument("operation")
@click.option("--reason", help="Reason, kept in the audit log.")
def resume_operation(env_dir: Path, operation: str, reason: str | None) -> None:
    """Resume OPERATION, which needs a person, at its waiting step.

    Not needed if the drivers do it after all: then the controller resumes it.
    """
    from pipeline.control.operations.executor import resume

    context = CommandContext(env_dir)
    stored, actor = _permitted_on(context, operation)
    with unchanged():
        say(line(resume(context.engine, stored, actor, reason or "")))


@click.command("close")
@click.argument("operation")
@required_reason("Finding and remedy, kept in the audit log.")
def close_operation(env_dir: Path, operation: str, reason: str) -> None:
    """End OPERATION, which needs a person, as failed, after you have dealt with it.

    Releases its targets. Finished steps stay done.
    """
    from pipeline.control.operations.executor import close

    context = CommandContext(env_dir)
    stored, actor = _permitted_on(context, operation)
    with unchanged():
        say(line(close(context.engine, stored, actor, reason)))


@click.command("cancel")
@click.argument("operation")
@required_reason("Reason, kept in the audit log.")
def cancel_operation(env_dir: Path, operation: str, reason: str) -> None:
    """Cancel OPERATION if it has not begun or only waits for an effect.

    Releases its targets. Finished steps stay done: `turnout ops undo` reverts them, and the same operation submitted
    again finishes them. You cannot interrupt a step that works, such as a rebuild.
    """
    from pipeline.control.operations.executor import cancel

    context = CommandContext(env_dir)
    stored, actor = _permitted_on(context, operation)
    with unchanged():
        say(line(cancel(context.engine, stored, actor, reason)))


@click.command("undo")
@click.argument("operation", required=False)
@submitting
def undo_operation(env_dir: Path, operation: str | None, how: SubmitOptions) -> None:
    """Submit the inverse of OPERATION, within 24 hours of its end; without OPERATION of the newest that you submitted.

    For a move, pause, resume, start, stop, drain, retirement or restore, also one that was cancelled, closed or failed
    after it did something. turnout does not undo a move after a person moved one of its games again.
    """
    from pipeline.control.operations.registry import inverse_of
    from pipeline.control.proposals import newest_to_undo, undo
    from pipeline.store.operations import operation as find

    context = CommandContext(env_dir)
    if operation is None:
        stored = newest_to_undo(context.engine, context.actor)
        say(f"of {line(stored)}", err=how.as_json)
    else:
        stored = find(context.engine, operation)
    actor = context.actor if how.dry_run else context.permitted_on(inverse_of(stored.kind))
    submit_and_wait(context, undo(context.settings, context.engine, stored, actor, how.reason), how)


@click.command("list")
@click.option("--since", type=_DAY, metavar="DAY", help="From this day on, like 2026-01-31 (UTC).")
@click.option("--until", type=_DAY, metavar="DAY", help="Up to and including this day (UTC).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_audit(env_dir: Path, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    """Print the audit log, oldest first: time, place, who, what, outcome, subject.

    For a change of access or a request the subject is the game, its table and the principal.
    """
    from pipeline.store.audit import changes_of, entries
    from pipeline.store.games import known_games

    days = (since.date().isoformat() if since else None, until.date().isoformat() if until else None)
    engine = CommandContext(env_dir).engine
    names = known_games(engine)
    for each in entries(engine, *days):
        if as_json:
            say_json(asdict(each))
            continue
        ended = f" {each.outcome}" if each.outcome else ""
        about = ", ".join([change.sentence(names) for change in changes_of(each.detail)] or each.targets)
        did = f"{each.actor:<12} {each.action} {each.phase}{ended}"
        at = in_utc(each.at)
        say(plain(f"{at:<19}  {each.place:<16} {did}  {about}"))


@click.command("verify")
@click.option(
    "--expect",
    metavar="HASH",
    help="Hash from an earlier run, which must still be in the log: detects a rewritten log.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_audit(env_dir: Path, expect: str | None, as_json: bool) -> None:
    """Prove that nobody changed, removed or inserted an entry of the audit log.

    Prints the newest hash, and acts without a recorded end. Exit code 1 if the log is not intact. JSON: `entries`,
    `head`, `defects`, `unended`, `intact`.
    """
    from pipeline.store.audit import verify

    verdict = verify(CommandContext(env_dir).engine, expect)
    if as_json:
        say_json({**asdict(verdict), "intact": verdict.intact})
    else:
        for defect in verdict.defects:
            say(plain(defect))
        for each in verdict.unended:
            begun = f"{each.place}: {each.actor} began to {each.action} {', '.join(each.targets)}"
            say(plain(f"{begun}; no end recorded"))
        say(f"{verdict.entries} entries, {'intact' if verdict.intact else 'NOT intact'}; newest hash {verdict.head}")
    sys.exit(0 if verdict.intact else 1)
