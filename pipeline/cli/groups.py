"""The commands `turnout groups …`; `cli.main` takes them in and adds `--env-dir`."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from pipeline.actor import current_user
from pipeline.cli.operation_options import SubmitOptions, asking, submit_and_wait
from pipeline.cli.options import combine_options
from pipeline.cli.placement import drain, propose
from pipeline.control.roles import current, require
from pipeline.errors import Refused
from pipeline.settings import load

_wanted = combine_options(
    click.option("--backend", type=click.Choice(["none", "local"]), help="Who starts its driver."),
    click.option(
        "--cores", type=click.FloatRange(0, 10_000, min_open=True), help="What it may use, in processor cores."
    ),
    click.option("--unlimited", is_flag=True, help="Take the limit on cores away."),
    click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Which games it is for."),
    click.option("--spark-master", help="Its own Spark master; an empty text means the setting spark.master."),
    click.option("--reason", help="Why, for those who ask later."),
)
"""What can be wanted of a group."""


@click.group()
def groups() -> None:
    """Cluster groups: what is wanted of them, and their drivers."""


@groups.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_groups(env_dir: Path, as_json: bool) -> None:
    """List every group: what is wanted, who drives it, how many games it has, how often it died in the last hour."""
    from pipeline.store.engine import open_store

    rows = _rows(open_store(*load(env_dir)))
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        cores = "no limit" if row["capacity_cores"] is None else f"{row['capacity_cores']:g} cores"
        backend = "not started by turnout" if row["backend"] == "none" else f"backend {row['backend']}"
        deaths = f", died {row['deaths']} times in the last hour: {row['last_death']}" if row["deaths"] else ""
        click.echo(
            f"{row['name']:<20} {row['desired']:<8} {row['driver'] or 'no driver':<10} {row['games']:>5} games  "
            f"{cores}, {row['priority']} priority, {backend}{deaths}"
        )
        if row["defect"]:
            click.echo(f"  {row['defect']}")


@groups.command("create")
@click.argument("name")
@_wanted
def create_group(env_dir: Path, name: str, reason: str | None, **options: Any) -> None:
    """Make group NAME known; games that wait for a group may go there."""
    from pipeline.control.group_changes import apply_options
    from pipeline.store.engine import open_store
    from pipeline.store.groups import Group, create

    settings, paths = load(env_dir)
    engine, most_games = open_store(settings, paths), settings.placement.most_games
    require(current(settings, engine), current_user(), "create a group")
    made = create(engine, apply_options(Group(name), options), current_user(), reason or "", most_games)
    click.echo(f"group {made.name} is known" + ("" if made.backend == "none" else "; the controller starts its driver"))


@groups.command("set")
@click.argument("name")
@_wanted
def set_group(env_dir: Path, name: str, reason: str | None, **options: Any) -> None:
    """Change what is wanted of group NAME; a new Spark master counts from its driver's next start."""
    from pipeline.control.group_changes import apply_options, rendered
    from pipeline.store.engine import open_store
    from pipeline.store.groups import change, read_groups

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    require(current(settings, engine), current_user(), "change a group")
    seen = read_groups(engine).get(name)
    if seen is None:
        raise Refused(f"There is no cluster group {name!r}. `turnout groups list` shows those there are.")
    changed = apply_options(seen, options)
    if changed == seen:
        raise Refused("Nothing to change is named. See `turnout groups set --help`.")
    change(engine, seen, changed, current_user(), reason or "")
    click.echo(f"group {name} is changed")
    for line in rendered(seen, changed, settings.spark.master):
        click.echo(f"  {line}")


def _steering(kind: str, help_text: str) -> click.Command:
    """Make the command of an operation on groups."""

    @click.command(kind, help=help_text)
    @click.argument("groups", nargs=-1, required=True)
    @asking
    def command(env_dir: Path, groups: tuple[str, ...], how: SubmitOptions) -> None:
        from pipeline.control.operations import groups as steering
        from pipeline.store.engine import open_store
        from pipeline.store.games import known_groups
        from pipeline.store.groups import read_groups

        settings, paths = load(env_dir)
        engine = open_store(settings, paths)
        facts = steering.plan(kind, groups, read_groups(engine))
        counts = Counter(group for group in known_groups(engine).values() if group is not None)
        intent = steering.intent(kind, facts, current_user(), how.reason)
        submit_and_wait(settings, engine, intent, steering.rendered(kind, facts, counts), how)

    return command


groups.add_command(_steering("start", "Let the controller run the drivers of GROUPS again."))
groups.add_command(_steering("stop", "End the drivers of GROUPS and leave their games standing still."))
groups.add_command(_steering("restart", "Restart the drivers of GROUPS."))
groups.add_command(propose)
groups.add_command(drain)


def _rows(engine: Engine) -> list[dict[str, Any]]:
    from pipeline.control.supervision.restart_policy import WINDOW_SECONDS
    from pipeline.store.games import known_groups
    from pipeline.store.groups import active_drivers, ended_runs, read_groups
    from pipeline.store.leases import store_time

    drivers, ended = active_drivers(engine), ended_runs(engine, store_time(engine) - WINDOW_SECONDS)
    counts = Counter(known_groups(engine).values())
    rows = []
    for name, group in read_groups(engine).items():
        driver = drivers.get(name)
        died = [run for run in ended.get(name, []) if run.died]
        told = {
            "defect": group.defect,
            "games": counts[name],
            "driver": None if driver is None else driver.state or "starting",
            "deaths": len(died),
            "last_death": died[0].said if died else None,
        }
        rows.append({**asdict(group), **told})
    return rows
