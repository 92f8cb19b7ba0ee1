"""The commands about all tables of an environment: `turnout verify`, `maintain` and `paths`."""

import os
import sys
from pathlib import Path

import click

from listeners.process_kinds import MAINTENANCE
from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json
from pipeline.cli.options import run_id_option
from pipeline.lake.delta.log import exists
from pipeline.settings.tree import load

_NICE = 10  # maintenance yields to drivers: it runs beside them always


@click.command("verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.option("--complete", is_flag=True, help="Count rows that wait to be split as a failure.")
@click.option(
    "--values", is_flag=True, help="Decode bronze again, independently, and compare every value with the game tables."
)
@click.option(
    "--source", "brokers", is_flag=True, help="Compare bronze with every record that the brokers of Kafka still hold."
)
@click.option("--sample", type=click.IntRange(1), help="With --values: most rows of each game to compare.")
def verify(env_dir: Path, as_json: bool, complete: bool, values: bool, brokers: bool, sample: int | None) -> None:
    """Prove that every bronze row is once in its game's table or in quarantine; with --values, also unchanged.

    See docs/verify.md.
    """
    from pipeline.data.contracts.registry import LocalRegistry
    from pipeline.data.ingest.sources.supported import configured_source
    from pipeline.data.verify import balance
    from pipeline.data.verify.replayable import LandingToday
    from pipeline.data.verify.replayable import landing as landing_today
    from pipeline.data.verify.report import run
    from pipeline.data.verify.sources import observe
    from pipeline.data.verify.values import Wanted
    from pipeline.store.database.engine import open_store
    from pipeline.store.games import generations, known_names, registered_keys, retired_games

    if sample is not None and not values:
        raise Refused("--sample says of how many rows the values are compared. Add --values.")
    settings, paths = load(env_dir)
    if not paths.bronze.is_folder():
        sys.exit(run(balance.verify(paths, settings.environment), as_json=as_json, complete=complete))
    engine = open_store(settings, paths)
    retired, registry = retired_games(engine), LocalRegistry(engine, paths.bronze)
    wanted = Wanted(registry.snapshot, sample) if values else None

    def landing() -> LandingToday:
        return landing_today(registry.snapshot(), known_names(engine), retired)

    known = observe(settings, paths, engine, configured_source(settings, paths).prober)
    held = settings if brokers else None
    result = balance.verify(paths, settings.environment, generations(engine), retired, wanted, known, landing, held)
    repairable = registered_keys(engine).keys() - retired
    sys.exit(run(result, as_json=as_json, complete=complete, repairable=repairable))


@click.command("maintain")
@click.option("--once", is_flag=True, help="Run one round, which also searches all of quarantine for copies, then end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per round, on one line.")
@run_id_option
def maintain(env_dir: Path, once: bool, as_json: bool, run_id: int | None) -> None:
    """Merge small files, shorten logs and delete old files of all tables, in rounds until Ctrl-C or SIGTERM.

    The controller runs it too, unless `maintenance.backend` is `none`. One process per environment, with low priority
    (nice 10); no controller stops one that you started. Exit code 1 if a table failed in the only round. See
    docs/maintenance.md. JSON: `ok`, `seconds`, and `tables` with their changes, `notes` and `error`.
    """
    from pipeline.control.present import noted_without_leases
    from pipeline.data.maintenance.process import maintain as run
    from pipeline.platforms.local.signals import stop_on_signals

    settings, paths = load(env_dir)
    os.nice(_NICE)
    with noted_without_leases(settings.store, paths, MAINTENANCE):
        sys.exit(run(settings, paths, stop_on_signals(), once=once, as_json_lines=as_json, run_id=run_id))


@click.command("paths")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def paths(env_dir: Path, as_json: bool) -> None:
    """Print where an environment's tables are, and this machine's folder of it.

    JSON: `storage`, `machine`, `bronze`, `quarantine`, `metrics`, `landing`, `logs`, and `games` with one place per
    game key; a place is a folder or a URL.
    """
    _, known = load(env_dir)
    tables = {table.name: str(table) for table in known.tables.folders() if exists(table)}
    places = {"storage": str(known.data), "machine": str(known.root)}
    places |= {name: str(getattr(known, name)) for name in ("bronze", "quarantine", "metrics", "landing", "logs")}
    if as_json:
        say_json({**places, "games": tables})
        return
    for name, place in {**places, **tables}.items():
        say(f"{name:<54} {place}")


@click.command("try-managed")
@click.argument("schema")
def try_managed(env_dir: Path, schema: str) -> None:
    """Try in a workspace whether the `spark` writer could use managed tables in SCHEMA, as CATALOG.SCHEMA.

    Makes one table with a name of its own there, appends to it twice, opens its files as the `direct` writer does, and
    drops it. Exit code 1 if Spark cannot make it, or if a repeated append lands twice. Nobody has run turnout on such
    tables: see docs/storage.md.
    """
    from pipeline.lake.delta.opening import open_table
    from pipeline.platforms.local.managed_trial import try_managed as trials
    from pipeline.platforms.session.spark import spark_session

    settings, paths = load(env_dir)
    spark = spark_session(settings, paths, "turnout-try-managed", light=True)
    failed = False
    for each in trials(spark, schema, open_table):
        say(f"{each.question}: {each.answer}")
        failed = failed or each.is_good is False
    sys.exit(1 if failed else 0)
