"""The commands that steer: `turnout controller`, `move`, `pause`, `resume`, `retry`, `ops` and `audit`.

`pipeline.cli` takes them in and adds `--env-dir`.
"""

import getpass
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from sqlalchemy import Engine

from pipeline.errors import Refused
from pipeline.options import together
from pipeline.settings import load
from pipeline.store.operations import Operation, Step, Wish

_LOOK_SECONDS: Final = 0.5


@click.group()
def controller() -> None:
    """The process that does what people ask for."""


@controller.command("run")
def run_controller(env_dir: Path) -> None:
    """Run the controller until it is stopped."""
    from pipeline.control.controller import run

    sys.exit(run(*load(env_dir)))


_asking = together(
    click.argument("games", nargs=-1, required=True),
    click.option("--reason", help="Why, for those who ask later."),
    click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
    click.option("--no-wait", is_flag=True, help="Ask for it and go; `turnout ops show` tells how it goes."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end."),
)
"""What every command has that asks for an operation on games."""


@click.command()
@_asking
@click.option("--to", "group", required=True, help="The cluster group that shall carry them.")
def move(
    env_dir: Path, games: tuple[str, ...], group: str, reason: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> None:
    """Move GAMES (names or keys) to another cluster group while everything runs."""
    from pipeline.control import moves
    from pipeline.store.engine import open_store
    from pipeline.store.loads import read_loads
    from pipeline.store.seats import group_seats, seats

    settings, paths = load(env_dir)
    engine, now = open_store(settings, paths), time.time()
    there, loads = seats(engine), read_loads(engine, now, settings.placement.most_games)
    wanted = dict.fromkeys(_keys(games, {key: seat.game for key, seat in there.items()}), group)
    plan = moves.plan(wanted, there, group_seats(engine), now, loads)
    lines = moves.rendered(plan, there, loads, settings.demux.trigger_seconds)
    wish = plan.wish(getpass.getuser(), reason or "")
    sys.exit(_asked(engine, wish, lines, dry_run=dry_run, wait=not no_wait, as_json=as_json))


def _deciding(kind: str, help_text: str) -> click.Command:
    """Make the command of an operation that decides something about streams."""

    @click.command(kind, help=help_text)
    @_asking
    def command(
        env_dir: Path, games: tuple[str, ...], reason: str | None, dry_run: bool, no_wait: bool, as_json: bool
    ) -> None:
        from pipeline.control import pauses
        from pipeline.store.decisions import decided
        from pipeline.store.engine import open_store
        from pipeline.store.seats import seats

        engine = open_store(*load(env_dir))
        there = seats(engine)
        keys = _keys(games, {key: seat.game for key, seat in there.items()})
        facts = pauses.plan(kind, keys, there, decided(engine))
        wish = pauses.wish(kind, facts, getpass.getuser(), reason or "")
        lines = pauses.rendered(kind, facts, there)
        sys.exit(_asked(engine, wish, lines, dry_run=dry_run, wait=not no_wait, as_json=as_json))

    return command


pause = _deciding("pause", "Let nothing more into the tables of GAMES (names or keys) until they are resumed.")
resume = _deciding("resume", "Let paused streams of GAMES go on; they catch up from their tables' cursors.")
retry = _deciding("retry", "Let streams of GAMES that were parked, or wait after a failure, run again at once.")


@click.group()
def ops() -> None:
    """Operations: what was asked for, and how far it has come."""


@ops.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those that have not ended.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_operations(env_dir: Path, only_open: bool, limit: int, as_json: bool) -> None:
    """List operations: first those that need a person, then those that run, then the newest."""
    from pipeline.store.engine import open_store
    from pipeline.store.operations import listed

    found = listed(open_store(*load(env_dir)), only_open=only_open, limit=limit)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
        return
    for each in found:
        click.echo(_line(each))


@ops.command("show")
@click.argument("operation")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_operation(env_dir: Path, operation: str, as_json: bool) -> None:
    """Show OPERATION (its id, or the beginning of it) with the journal of its steps."""
    from pipeline.store.engine import open_store
    from pipeline.store.operations import operation as find
    from pipeline.store.operations import steps

    engine = open_store(*load(env_dir))
    found = find(engine, operation)
    journal = steps(engine, found.operation_id)
    if as_json:
        click.echo(json.dumps(_as_dict(found, journal)))
        return
    click.echo(_line(found))
    for line in (f"targets: {', '.join(found.targets)}", f"reason: {found.reason or 'none given'}"):
        click.echo(line)
    for step in journal:
        click.echo(_step_line(step))


@ops.command("resume")
@click.argument("operation")
def resume_operation(env_dir: Path, operation: str) -> None:
    """Let OPERATION, which needs a person, go on where it was."""
    from pipeline.control.engine import resume
    from pipeline.store.engine import open_store
    from pipeline.store.operations import operation as find

    engine = open_store(*load(env_dir))
    click.echo(_line(resume(engine, find(engine, operation))))


@ops.command("close")
@click.argument("operation")
@click.option("--reason", required=True, help="What was found, and done about it.")
def close_operation(env_dir: Path, operation: str, reason: str) -> None:
    """End OPERATION, which needs a person: somebody has looked after it."""
    from pipeline.control.engine import close
    from pipeline.store.engine import open_store
    from pipeline.store.operations import operation as find

    engine = open_store(*load(env_dir))
    click.echo(_line(close(engine, find(engine, operation), f"Closed by {getpass.getuser()}: {reason}")))


@ops.command("undo")
@click.argument("operation")
@click.option("--reason", help="Why, for those who ask later.")
@click.option("--no-wait", is_flag=True, help="Ask for it and go; `turnout ops show` tells how it goes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def undo_operation(env_dir: Path, operation: str, reason: str | None, no_wait: bool, as_json: bool) -> None:
    """Ask for the inverse of OPERATION, checked like any other; for 24 hours after it."""
    from pipeline.control.controller import undo
    from pipeline.store.engine import open_store
    from pipeline.store.operations import operation as find

    settings, paths = load(env_dir)
    engine, most = open_store(settings, paths), settings.placement.most_games
    wish, lines = undo(engine, find(engine, operation), getpass.getuser(), reason or "", time.time(), most)
    sys.exit(_asked(engine, wish, lines, dry_run=False, wait=not no_wait, as_json=as_json))


@click.group()
def audit() -> None:
    """The audit log: who did what."""


@audit.command("list")
@click.option("--since", metavar="DAY", help="From this day on, like 2026-01-31 (UTC).")
@click.option("--until", metavar="DAY", help="Up to this day.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_audit(env_dir: Path, since: str | None, until: str | None, as_json: bool) -> None:
    """Print the log, oldest first."""
    from pipeline.store.audit import entries
    from pipeline.store.engine import open_store

    for each in entries(open_store(*load(env_dir)), since or "", until or "9999"):
        if as_json:
            click.echo(json.dumps(asdict(each)))
            continue
        ended = f" {each.outcome}" if each.outcome else ""
        about = ", ".join(each.targets)
        click.echo(f"{_moment(each.at)}  {each.place:<16} {each.actor:<12} {each.action} {each.phase}{ended}  {about}")


@audit.command("verify")
@click.option("--expect", metavar="HASH", help="A hash that an earlier look has printed: it must still be there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_audit(env_dir: Path, expect: str | None, as_json: bool) -> None:
    """Prove that no entry of the log was changed, taken out or slipped in; exit code 1 where one was."""
    from pipeline.store.audit import verify
    from pipeline.store.engine import open_store

    verdict = verify(open_store(*load(env_dir)), expect)
    if as_json:
        click.echo(json.dumps({**asdict(verdict), "intact": verdict.intact}))
    else:
        for defect in verdict.defects:
            click.echo(defect)
        for each in verdict.unended:
            click.echo(f"{each.place}: {each.actor} began to {each.action} {', '.join(each.targets)}; no end is told")
        click.echo(
            f"{verdict.entries} entries, {'intact' if verdict.intact else 'NOT intact'}; newest hash {verdict.head}"
        )
    sys.exit(0 if verdict.intact else 1)


def _keys(wanted: tuple[str, ...], known: Mapping[str, str]) -> list[str]:
    """Find games by key or exact name.

    Raises:
        Refused: one of them does not exist.
    """
    by_name = {name: key for key, name in known.items()}
    missing = [each for each in wanted if each not in known and each not in by_name]
    if missing:
        raise Refused(f"No such game: {', '.join(map(repr, missing))}. `turnout games list` shows those there are.")
    return sorted({each if each in known else by_name[each] for each in wanted})


def _asked(engine: Engine, wish: Wish, lines: Sequence[str], *, dry_run: bool, wait: bool, as_json: bool) -> int:
    """Show what is to be done, ask for it unless it is nothing or a dry run, and follow it; return the exit code."""
    from pipeline.store.operations import ask

    for line in lines:
        click.echo(line, err=as_json)
    if dry_run or not wish.targets:
        if as_json:
            click.echo(json.dumps({"kind": wish.kind, "targets": wish.targets, "preview": wish.preview}))
        return 0
    operation = ask(engine, wish)
    click.echo(f"operation {operation.operation_id[:8]}", err=as_json)
    return _follow(engine, operation, wait=wait, as_json=as_json)


def _follow(engine: Engine, operation: Operation, *, wait: bool, as_json: bool) -> int:
    """Print each change of an operation's steps until it has ended or needs a person; return the exit code."""
    from pipeline.store.leases import is_held
    from pipeline.store.operations import operation as find
    from pipeline.store.operations import steps

    told: set[str] = set()
    warned = False
    while wait:
        operation = find(engine, operation.operation_id)
        for line in map(_step_line, steps(engine, operation.operation_id)):
            if line not in told:
                click.echo(line, err=True)
                told.add(line)
        if not operation.is_open or operation.state == "needs_human":
            break
        if operation.state == "planned" and not warned and not is_held(engine, "controller", "main"):
            click.echo("No controller runs: start `turnout controller run`. The operation waits for it.", err=True)
            warned = True
        time.sleep(_LOOK_SECONDS)
    if as_json:
        click.echo(json.dumps(_as_dict(operation, steps(engine, operation.operation_id))))
    elif wait:
        click.echo(_line(operation))
    return 0 if not wait or operation.state == "succeeded" else 1


def _line(operation: Operation) -> str:
    said = f": {operation.outcome}" if operation.outcome else ""
    return (
        f"{operation.operation_id[:8]}  {_moment(operation.asked_at)}  {operation.kind} of {len(operation.targets)} "
        f"by {operation.actor}  {operation.state}{said}"
    )


def _step_line(step: Step) -> str:
    return f"  {step.number} {step.name:<8} {step.state:<8} {step.detail}"


def _as_dict(operation: Operation, journal: list[Step]) -> dict[str, Any]:
    return {**asdict(operation), "steps": [asdict(each) for each in journal]}


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
