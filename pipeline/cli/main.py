"""The command line. Exit codes: 0 fine, 1 the check or the work failed, 2 wrong use."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from pipeline.cli.environments import before, environment, list_without_verb
from pipeline.cli.groups import groups
from pipeline.cli.options import combine_options
from pipeline.cli.quarantine import accept_gap, quarantine
from pipeline.cli.repairs import repair
from pipeline.cli.schemas import schemas
from pipeline.cli.status import status
from pipeline.cli.steering import audit, controller, move, ops, pause, resume
from pipeline.errors import Refused, Transient
from pipeline.extensions import COMMANDS, registered
from pipeline.settings import Paths, Settings, load


def main() -> None:
    """Run a command; what it refuses is one sentence on stderr and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("py4j", "sqlalchemy.engine", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        cli(prog_name="turnout")
    except Refused as error:
        click.echo(f"turnout: {error}", err=True)
        sys.exit(2)
    except Transient as error:
        click.echo(f"turnout: {error}", err=True)
        sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnout", prog_name="turnout", message="%(prog)s %(version)s")
@before
def cli() -> None:
    """Split one topic's events into one Delta table per game, exactly once."""


_simulation = combine_options(
    click.option("--games", type=click.IntRange(1, 2000), default=40, show_default=True, help="Number of games."),
    click.option(
        "--versions", type=click.IntRange(1, 6), default=5, show_default=True, help="Schema versions per game."
    ),
    click.option(
        "--bad-share", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Share of bad records."
    ),
    click.option(
        "--skew", type=click.FloatRange(0, 5), default=1.1, show_default=True, help="Zipf exponent over games."
    ),
    click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same bytes."),
    click.option("--source", type=click.Choice(["delta", "kafka"]), help="Overrides the setting source.kind."),
)
"""Says what to simulate."""


@cli.command()
@environment
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(env_dir: Path, as_json: bool) -> None:
    """Print what is there, what is missing and what to do."""
    from pipeline.setup import doctor as checks

    sys.exit(checks.run(env_dir, as_json))


@cli.command()
@environment
@_simulation
@click.option("--events", type=click.IntRange(1), help="Stop after so many events; endless without.")
@click.option("--rate", type=click.FloatRange(0.1, 10_000_000), help="Events per second; as fast as possible without.")
@click.option("--start-time", type=float, help="Event time of the first event in Unix seconds.")
def simulate(
    env_dir: Path, games: int, versions: int, bad_share: float, skew: float, seed: int,
    source: str | None, events: int | None, rate: float | None, start_time: float | None,
) -> None:  # fmt: skip
    """Write simulated events to the landing table or the Kafka topic."""
    from pipeline.control.processes.signals import stop_on_signals
    from pipeline.demo.simulate import simulate as run
    from pipeline.demo.simulator import Plan
    from pipeline.store.engine import open_store

    settings, paths = _load(env_dir, source)
    plan = Plan(games=games, versions=versions, events=events, seed=seed, bad_share=bad_share, skew=skew)
    if start_time is not None:
        plan = replace(plan, start_time=start_time)
    sent = run(settings, paths, open_store(settings, paths), plan, rate, stop_on_signals())
    click.echo(json.dumps({"events": sent.events, **sent.by_kind}))


for _command in schemas.commands.values():
    environment(_command)
cli.add_command(schemas)


@cli.group()
def games() -> None:
    """The games, and the names that wait to become one."""


@games.command("list")
@environment
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_games(env_dir: Path, as_json: bool) -> None:
    """List every game: since when, by what right, in which group, and what it may be taken for."""
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    known = pending.games(open_store(settings, paths))
    click.echo(pending.games_as_json(known) if as_json else pending.render_games(known))


@games.command("pending")
@environment
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most names to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pending_games(env_dir: Path, limit: int, as_json: bool) -> None:
    """List the names that came and are no games, the busiest first, each with the reason."""
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    seen = pending.pending(open_store(settings, paths), settings.onboarding)
    click.echo(pending.pending_as_json(seen, limit) if as_json else pending.render_pending(seen, limit))


@games.command("approve")
@environment
@click.option("--reason", help="Why, for those who ask later.")
@click.argument("name")
def approve_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Make a game of NAME (exact); its rows are routed from ingest's next micro-batch on."""
    from pipeline.control.roles import permitted
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    actor = permitted(settings, engine, "approve a game")
    game = pending.approve(engine, settings.onboarding, name, actor, reason)
    click.echo(pending.render_games([game]))


@games.command("refuse")
@environment
@click.option("--reason", help="Why, for those who ask later.")
@click.argument("name")
def refuse_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Keep NAME (exact) from becoming a game until it is approved."""
    from pipeline.control.roles import permitted
    from pipeline.ingest import pending
    from pipeline.store.engine import open_store

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    pending.refuse(engine, name, permitted(settings, engine, "refuse a game"), reason)
    click.echo(f"{name!r} is refused")


@cli.group()
def ingest() -> None:
    """The way from the source into bronze."""


@ingest.command("run")
@environment
@click.option("--once", is_flag=True, help="Land what is there now, then end.")
@click.option("--source", type=click.Choice(["delta", "kafka"]), help="Overrides the setting source.kind.")
def run_ingest(env_dir: Path, once: bool, source: str | None) -> None:
    """Run the ingest driver."""
    from pipeline import wiring

    settings, paths = _load(env_dir, source)
    sys.exit(wiring.run_ingest(settings, paths, once=once))


@ingest.command("adopt")
@environment
@click.option("--accept-loss", is_flag=True, help="Go on without what the source no longer has, and record the gap.")
@click.option("--source", type=click.Choice(["delta", "kafka"]), help="Overrides the setting source.kind.")
def adopt_source(env_dir: Path, accept_loss: bool, source: str | None) -> None:
    """Let ingest go on from what bronze has: its checkpoint is gone or damaged, or the source lost something."""
    from pipeline.control.roles import permitted
    from pipeline.ingest import adopt
    from pipeline.store import audit
    from pipeline.store.engine import open_store

    settings, paths = _load(env_dir, source)
    engine = open_store(settings, paths)
    actor = permitted(settings, engine, "adopt a source")
    with audit.acting(engine, audit.Act(actor, "adopt a source", (), detail={"accept_loss": accept_loss})):
        adopted = adopt.adopt(settings, paths, engine, accept_loss=accept_loss)
    click.echo(adopt.describe(adopted))


@ingest.command("gaps")
@environment
def accepted_gaps(env_dir: Path) -> None:
    """List the gaps that were accepted: what a source had lost before it was read."""
    from pipeline.ingest.adopt import describe_gap
    from pipeline.store.engine import open_store
    from pipeline.store.sources import accepted_gaps as gaps

    settings, paths = load(env_dir)
    for gap in gaps(open_store(settings, paths)):
        click.echo(describe_gap(gap))


@groups.command("run")
@click.argument("name")
@click.option("--once", is_flag=True, help="Split what is in bronze now, then end.")
def run_group(env_dir: Path, name: str, once: bool) -> None:
    """Run the driver of cluster group NAME in this very process."""
    from pipeline import wiring

    settings, paths = load(env_dir)
    sys.exit(wiring.run_group(settings, paths, name, once=once))


@cli.group()
def stream() -> None:
    """What is decided about single games' streams; a driver acts at its next pass."""


@stream.command("own-query")
@environment
@click.argument("game")
@click.argument("wanted", type=click.Choice(["on", "off"]))
def own_query(env_dir: Path, game: str, wanted: str) -> None:
    """Give GAME a streaming query of its own, or take it back into its group's pass."""
    from pipeline.control.roles import permitted
    from pipeline.repair.game import find
    from pipeline.store import audit
    from pipeline.store.engine import open_store
    from pipeline.store.games import known_games
    from pipeline.store.stream_control import ask

    settings, paths = load(env_dir)
    engine = open_store(settings, paths)
    actor = permitted(settings, engine, "set an own query")
    key = find(game, known_games(engine)).key
    with audit.acting(engine, audit.Act(actor, "set an own query", (f"game:{key}",), detail={"own_query": wanted})):
        ask(engine, key, actor, own_query=wanted == "on")


@cli.command()
@environment
@click.option("--port", type=click.IntRange(1, 65_535), help="Overrides the setting dashboard.port.")
def dashboard(env_dir: Path, port: int | None) -> None:
    """Run the dashboard on this machine."""
    from pipeline.demo.dashboard import serve

    settings, paths = load(env_dir)
    sys.exit(serve(paths, port or settings.dashboard.port))


@cli.command()
@environment
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.option("--complete", is_flag=True, help="Rows that are still to be split count as a failure.")
@click.option("--values", is_flag=True, help="Decode bronze again and compare every value with the game tables.")
@click.option("--sample", type=click.IntRange(1), help="With --values: compare at most so many rows of each game.")
def verify(env_dir: Path, as_json: bool, complete: bool, values: bool, sample: int | None) -> None:
    """Prove that every bronze row is in its game's table or in quarantine, once; with --values, also unchanged."""
    from pipeline.contracts.registry import LocalRegistry
    from pipeline.ingest.probe import prober
    from pipeline.store.engine import open_store
    from pipeline.store.games import generations, registered_keys, retired_games
    from pipeline.verify import balance
    from pipeline.verify.report import run
    from pipeline.verify.sources import observe
    from pipeline.verify.values import Wanted

    if sample is not None and not values:
        raise Refused("--sample says of how many rows the values are compared. Add --values.")
    settings, paths = load(env_dir)
    if not paths.bronze.exists():
        sys.exit(run(balance.verify(paths, settings.environment), as_json=as_json, complete=complete))
    engine = open_store(settings, paths)
    retired = retired_games(engine)
    wanted = Wanted(LocalRegistry(engine).snapshot, sample) if values else None
    known = observe(settings, paths, engine, prober(settings.source))
    found = balance.verify(paths, settings.environment, generations(engine), retired, wanted, known)
    repairable = registered_keys(engine).keys() - retired
    sys.exit(run(found, as_json=as_json, complete=complete, repairable=repairable))


@cli.command()
@environment
@click.option("--once", is_flag=True, help="Look at every table once, then end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per round, on one line.")
def maintain(env_dir: Path, once: bool, as_json: bool) -> None:
    """Merge small files, cut logs and delete old files of all tables, again and again."""
    from pipeline.control.processes.signals import stop_on_signals
    from pipeline.maintenance.run import maintain as run

    settings, paths = load(env_dir)
    sys.exit(run(settings, paths, stop_on_signals(), once=once, as_json_lines=as_json))


@cli.command()
@environment
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def paths(env_dir: Path, as_json: bool) -> None:
    """Print where the tables of an environment are."""
    _, known = load(env_dir)
    tables = {table.name: str(table) for table in sorted(known.tables.glob("*")) if (table / "_delta_log").exists()}
    places = {name: str(getattr(known, name)) for name in ("bronze", "quarantine", "metrics", "landing", "logs")}
    if as_json:
        click.echo(json.dumps({**places, "games": tables}))
        return
    for name, place in {**places, **tables}.items():
        click.echo(f"{name:<54} {place}")


@cli.command()
@environment
@_simulation
@click.option("--events", type=click.IntRange(1), help="Events of a bounded run  [default: 50000]")
@click.option(
    "--rate", type=click.FloatRange(0.1, 10_000_000), default=1000.0, show_default=True, help="Events per second, live."
)
@click.option("--once", is_flag=True, help="One bounded run: simulate, ingest, split, verify, stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def demo(
    env_dir: Path, games: int, versions: int, bad_share: float, skew: float, seed: int,
    source: str | None, events: int | None, rate: float, once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run everything on this machine: simulator, ingest, two groups, dashboard and, if installed, Prometheus."""
    from pipeline.demo import demo as runs

    settings, known = _load(env_dir, source)
    plan = runs.Wanted(games, versions, bad_share, skew, seed)
    if once:
        sys.exit(runs.once(settings, known, plan, events or 50_000, as_json=as_json))
    sys.exit(runs.live(settings, known, plan, rate))


def _leaves(added: Iterable[click.Command]) -> Iterator[click.Command]:
    """Yield commands that run something, of groups those within."""
    for command in added:
        if isinstance(command, click.Group):
            yield from _leaves(command.commands.values())
        else:
            yield command


_steering = (
    status,
    *controller.commands.values(),
    *groups.commands.values(),
    move,
    pause,
    resume,
    *repair.commands.values(),
    *ops.commands.values(),
    *audit.commands.values(),
)
_added: list[click.Command] = [command for made in registered(COMMANDS) for command in made()]
for _command in (*quarantine.commands.values(), accept_gap, *_steering, *_leaves(_added)):
    environment(_command)
for _group in (status, quarantine, controller, groups, move, pause, resume, repair, ops, audit, *_added):
    cli.add_command(_group)
stream.add_command(accept_gap)
for _group in (games, groups, ops):
    list_without_verb(_group)


def _load(env_dir: Path, source: str | None) -> tuple[Settings, Paths]:
    """Read the settings, with the source kind of the command line laid over them."""
    import os

    environ = dict(os.environ)
    if source is not None:
        environ["TURNOUT_SOURCE__KIND"] = source
    return load(env_dir, environ)
