"""The command `turnout status`."""

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from listeners.sample import StreamState
from pipeline.base.terminal import say, say_json
from pipeline.cli import incidents
from pipeline.cli.context import CommandContext
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.health.kinds.registry import find
from pipeline.health.verdicts.judgement import Judgement
from pipeline.health.verdicts.processes import DriverState
from pipeline.settings.tree import Settings


@click.command("status")
@click.option("--all", "show_all", is_flag=True, help="Print every game.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every game.")
def status(env_dir: Path, show_all: bool, as_json: bool) -> None:
    """Print the condition in one line, then drivers, games in trouble and operations that need a person.

    Exit code 0: healthy; 1: a person should look, also if something is unknown; 2: no such environment, or its control
    store is not readable. The Fleet page and the alert TurnoutFleetUnhealthy show the same judgement: see
    docs/commands.md#what-is-a-problem. JSON: `healthy`; `headline`; `problems` without those of single games; `drivers`
    with `kind`, `name`, `state` (`not_started`, `starting`, `running`, `stopped`, `failed`, `dead` or `unknown`) and
    `reason`; `games`, every one with `game_key`, `status`, `cause`, `lag_seconds`, `latency_seconds` (`p50`, `p95` and
    `p99` of the last five minutes, `p99_last_minute`) and `segments_seconds` (`upstream`, `queue`, `process`,
    `commit`); and `source` with `condition` (`level`, `behind`, `late` or `unknown`), `text`, `backlog_seconds`,
    `backlog_rows`, and `sources` with `name`, `reason` and backlog of each of several; `incidents` and `causes_judged`
    as by `turnout incidents`. Unknown values are null.
    """
    context = CommandContext(env_dir)
    found = _read(context.engine, context.settings)
    if as_json:
        say_json(found)
    else:
        for line in _lines(found, show_all=show_all):
            say(line)
    sys.exit(0 if found["healthy"] else 1)


def _read(engine: Engine, settings: Settings) -> dict[str, Any]:
    from pipeline.store.operations import read_open

    heartbeat_seconds, maintenance = settings.metrics.heartbeat_seconds, settings.maintenance
    fleet = read_fleet(engine, heartbeat_seconds=heartbeat_seconds, maintenance=maintenance)
    with engine.connect() as connection:
        operations = read_open(connection)
    found = incidents.read(engine, fleet)
    stuck = [asdict(each) for each in operations if each.is_stuck]
    judgement = fleet.judgement
    drivers = [_driver(fleet, each) for each in judgement.drivers]
    games = [
        {
            "game_key": row.game_key, "game": row.game, "group": row.group, "status": row.verdict.status,
            "cause": _cause(row), "why": _cause(row),
            "lag_seconds": row.lag_seconds, **_latency(row.live),
            "in_trouble": row.in_trouble, "waits_for_ingest": row.verdict.waits_for_ingest,
            "is_unheard": row.verdict.is_unheard,
        }
        for row in fleet.rows
    ]  # fmt: skip
    return {
        **describe(judgement), "well": judgement.healthy, "at": fleet.read_at, "drivers": drivers,
        "maintenance": {
            "last_round": None if fleet.upkeep.last is None else asdict(fleet.upkeep.last),
            "last_good_round_at": None if fleet.upkeep.good is None else fleet.upkeep.good.ended_at,
            "overdue_seconds": fleet.upkeep.overdue_seconds(fleet.read_at),
        },
        "games": games, "needs_human": stuck, "open_operations": len(operations),
        "newest_bronze_seq": fleet.newest_bronze_seq,
        "source": {
            "condition": judgement.source.condition, "text": judgement.source.sentence,
            "backlog_seconds": judgement.source.age_seconds, "backlog_rows": judgement.source.rows,
            "sources": [
                {
                    "name": each.name, "backlog_seconds": each.age_seconds, "backlog_rows": each.rows,
                    "reason": each.reason,
                }
                for each in judgement.source.sources
            ],
        },
        "incidents": found["incidents"], "causes_judged": found["judged"],
        "source_clock": fleet.source_clock, "latency_measured_from": fleet.latency_start,
    }  # fmt: skip


def describe(judgement: Judgement) -> dict[str, Any]:
    """Return the verdict on the whole fleet as JSON; problems of streams in the list of games stand there."""
    return {
        "healthy": judgement.healthy,
        "headline": judgement.headline,
        "problems": [
            asdict(each) for each in judgement.problems if each.kind != "stream" or each.name not in judgement.games
        ],
    }


def _latency(live: StreamState | None) -> dict[str, Any]:
    """Return a game's latencies and where they come from; they are those of a stream whose report counts."""
    shares = ("p50", "p95", "p99", "p99_last_minute")
    segments = ("upstream", "queue", "process", "commit")
    return {
        "latency_seconds": {name: getattr(live, f"latency_{name}_seconds", None) for name in shares},
        "segments_seconds": {name: getattr(live, f"{name}_seconds", None) for name in segments},
    }


def _cause(row: GameRow) -> str | None:
    verdict = row.verdict
    return verdict.reason or verdict.waits_for or (row.reported.last_error if row.reported is not None else None)


def _driver(fleet: Fleet, state: DriverState) -> dict[str, str | None]:
    """Return a driver's judged state and why; `trouble` and `error` are what scripts have read so far."""
    reported = fleet.driver(state.kind, state.name)
    live = state.liveness
    return {
        "kind": state.kind, "name": state.name, "state": live.state, "reason": live.reason,
        "trouble": live.reason or live.state if state.is_problem else None,
        "error": reported.error if reported is not None else None,
    }  # fmt: skip


def _driver_lines(driver: dict[str, Any], problem: str | None) -> list[str]:
    """Return a driver's state and reason on one line, with details below.

    A kind of process with alarms, such as the controller, has a line of each; an error of several lines is one error.
    """
    reason: str = driver["reason"] or ""
    state = f"{driver['kind']} {driver['name']}: {driver['state'].replace('_', ' ')}"
    is_long = "\n" in reason
    if find(driver["kind"]).has_alarms:
        alarms = f"{reason.count(chr(10)) + 1} alarms" if is_long else reason
        return [f"{state} ({alarms})" if alarms else state, *_indented(problem)]
    if is_long:
        return [state, *_indented(problem or reason)]
    is_said = problem is None or problem.endswith(reason or driver["state"])
    return [f"{state} ({reason})" if reason else state, *_indented(None if is_said else problem)]


def _source_line(source: dict[str, Any]) -> str:
    rows = "an unknown number of" if source["backlog_rows"] is None else f"{source['backlog_rows']:,}"
    age = "unknown" if source["backlog_seconds"] is None else f"{source['backlog_seconds']:.0f} s"
    why = f" ({source['reason']})" if source["reason"] else ""
    return f"  source {source['name']}: {rows} rows wait, age of the oldest {age}{why}"


def _indented(text: str | None) -> list[str]:
    return [f"  {line}" for line in (text or "").split("\n") if line]


def _lines(found: dict[str, Any], *, show_all: bool) -> list[str]:
    lines = [found["headline"]]
    lines += [line for each in found["problems"] if each["kind"] == "store" for line in each["text"].split("\n")]
    problems = {(each["kind"], each["name"]): each["text"] for each in found["problems"]}
    for each in found["drivers"]:
        lines += _driver_lines(each, problems.get((each["kind"], each["name"])))
    if found["source"]["text"] not in problems.values():
        lines.append(found["source"]["text"])
    lines += [_source_line(each) for each in found["source"]["sources"]]
    counts = Counter(each["status"] for each in found["games"])
    lines.append(f"{len(found['games'])} games: " + (", ".join(f"{counts[name]} {name}" for name in counts) or "none"))
    lines += [f"  left out: {each['text']}" for each in found["problems"] if each["kind"] == "stream"]
    lines += [
        f"  {each['status']:<12} {each['game_key']:<54} in group {each['group']}: {each['cause'] or 'none reported'}"
        for each in found["games"]
        if show_all or (each["in_trouble"] and not each["waits_for_ingest"] and not each["is_unheard"])
    ]
    lines += incidents.lines({"judged": found["causes_judged"], "incidents": found["incidents"]}, brief=True)
    lines.append(f"latency is measured from {found['latency_measured_from']}")
    lines.append(f"{found['open_operations']} open operations, {len(found['needs_human'])} need a person")
    lines += [f"  {each['operation_id'][:8]} {each['kind']}: {each['outcome']}" for each in found["needs_human"]]
    return lines
