"""The command `turnout status`; `cli.main` takes it in and adds `--env-dir`."""

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from pipeline.settings import load


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Print every game, not only those in trouble.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every game.")
def status(env_dir: Path, show_all: bool, as_json: bool) -> None:
    """Tell how it all is: drivers, games and operations; exit code 1 where a person should look."""
    from pipeline.store.engine import open_store

    told = _told(open_store(*load(env_dir)), time.time())
    if as_json:
        click.echo(json.dumps(told))
    else:
        for line in _lines(told, show_all=show_all):
            click.echo(line)
    sys.exit(0 if told["well"] else 1)


def _told(engine: Engine, now: float) -> dict[str, Any]:
    from pipeline.store.fleet import read_fleet
    from pipeline.store.operations import list_operations

    fleet, operations = read_fleet(engine, now), list_operations(engine, only_open=True, limit=1_000)
    silent = {(each.kind, each.name): each.silence(now) for each in fleet.drivers}
    drivers = [
        _driver(each.kind, each.name, each.state, silent[each.kind, each.name], each.error) for each in fleet.drivers
    ]
    carrying = {row.group for row in fleet.rows if row.group is not None and ("group", row.group) not in silent}
    drivers += [_driver("group", name, None, "its driver was never started", None) for name in sorted(carrying)]
    games = [
        {
            "game_key": row.game_key, "game": row.game, "group": row.group, "status": row.verdict.status,
            "why": row.verdict.reason or (row.told.last_error if row.told is not None else None),
            "lag_seconds": row.live.backlog_age_seconds if row.live is not None else None,
            "in_trouble": row.in_trouble,
        }
        for row in fleet.rows
    ]  # fmt: skip
    waiting = [asdict(each) for each in operations if each.state == "needs_human"]
    ingest = any(each.kind == "ingest" and silent[each.kind, each.name] is None for each in fleet.drivers)
    well = ingest and not waiting and not any(each["trouble"] or each["error"] for each in drivers)
    well = well and not any(row.in_trouble for row in fleet.rows)
    return {
        "well": well, "at": now, "drivers": drivers, "games": games, "needs_human": waiting,
        "open_operations": len(operations), "newest_bronze_seq": fleet.newest_bronze_seq,
        "source_clock": fleet.source_clock, "latency_measured_from": fleet.latency_start,
    }  # fmt: skip


def _driver(kind: str, name: str, state: str | None, trouble: str | None, error: str | None) -> dict[str, str | None]:
    return {"kind": kind, "name": name, "state": state, "trouble": trouble, "error": error}


def _lines(told: dict[str, Any], *, show_all: bool) -> list[str]:
    lines = ["all is well" if told["well"] else "a person should look"]
    if not any(each["kind"] == "ingest" for each in told["drivers"]):
        lines.append("ingest was never started")
    for each in told["drivers"]:
        said = "; ".join(text for text in (each["trouble"], each["error"]) if text)
        lines.append(f"{each['kind']} {each['name']}: {each['state'] or 'unknown'}{f' ({said})' if said else ''}")
    counts = Counter(each["status"] for each in told["games"])
    lines.append(f"{len(told['games'])} games: " + (", ".join(f"{counts[name]} {name}" for name in counts) or "none"))
    lines += [
        f"  {each['status']:<12} {each['game_key']:<54} in group {each['group']}: {each['why'] or 'no reason reported'}"
        for each in told["games"]
        if show_all or each["in_trouble"]
    ]
    lines.append(f"latency is measured from {told['latency_measured_from']}")
    lines.append(f"{told['open_operations']} open operations, {len(told['needs_human'])} need a person")
    lines += [f"  {each['operation_id'][:8]} {each['kind']}: {each['outcome']}" for each in told["needs_human"]]
    return lines
