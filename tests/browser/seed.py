"""Fills an environment with a fleet as people would meet it: 40 games in 2 cluster groups, some in trouble.

Used by the tests and for a look by hand: `python -m tests.browser.seed DIR`.
"""

import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake
from sqlalchemy import Engine, insert, update

from listeners.metrics_schema import STATUS_EVENT, STREAM_BATCH, MetricsTable
from listeners.sample import LATENCY_EDGES_SECONDS
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import source_backlog

HOSTILE: Final = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "**bold** [click](javascript:alert(1)) :red[danger] $x^2$",
    "\u202egnihton\u202c \u2066spoof\u2069\nsecond line",
)
_BEAT_SECONDS: Final = 2.0
_WORDS: Final = ("aurora", "basalt", "cinder", "dune", "ember", "fjord", "gale", "harbor", "iris", "juniper")
_KINDS: Final = ("arena", "quest", "racer", "tactics")


@dataclass(frozen=True, slots=True)
class Seeded:
    """One game to write; `reported` overrides fields of its stream's row, None leaves the row out."""

    name: str
    group: str | None
    reported: Mapping[str, Any] | None


def fleet_of_forty() -> tuple[Seeded, ...]:
    """Return 40 games in groups a and b: most are well, each kind of trouble occurs, three names are hostile."""
    names = [f"{word.capitalize()} {kind}" for kind in _KINDS for word in _WORDS][:37] + list(HOSTILE)
    special: dict[int, Mapping[str, Any] | None] = {
        2: {"status": "CATCHING_UP", "lane": "CATCHUP", "backlog_age_seconds": 94.0, "rows_per_second": 2210.0},
        5: {
            "status": "FAILED",
            "cursor_seq": 588,
            "lane": "QUARANTINED",
            "status_since_age": 1_260.0,
            "last_commit_age": 1_275.0,
            "backlog_age_seconds": 1_268.0,
            "rows_per_second": None,
            "latency_p95_seconds": None,
            "last_error": "SchemaMismatch: field 'score' is int64 in the table and string in schema 12",
        },
        11: {
            "status": "LAGGING",
            "backlog_age_seconds": 190.0,
            "latency_p95_seconds": 171.0,
            "status_since_age": 130.0,
        },
        17: {
            "status": "STALLED",
            "cursor_seq": 761,
            "status_since_age": 380.0,
            "last_commit_age": 402.0,
            "backlog_age_seconds": 395.0,
            "rows_per_second": None,
            "last_error": "CommitFailedError: another writer moved the cursor from 812 to 815",
        },
        23: {"status": "PAUSED", "lane": "PAUSED", "rows_per_second": None, "latency_p95_seconds": None},
        29: {"status": "AT_RISK", "backlog_age_seconds": 41.0, "latency_p95_seconds": 48.0},
        31: {
            "status": "FAILED",
            "lane": "QUARANTINED",
            "status_since_age": 75.0,
            "last_commit_age": 90.0,
            "backlog_age_seconds": 88.0,
            "last_error": "OSError: no space left on device",
        },
        38: None,
    }
    return tuple(
        Seeded(name, "a" if position % 2 == 0 else "b", special.get(position, {}))
        for position, name in enumerate(names)
    )


def seed(
    folder: Path,
    fleet: Sequence[Seeded],
    *,
    now: float,
    heartbeat_ages: Mapping[str, float] = {"ingest": 2.0, "a": 3.0, "b": 4.0},
    history: bool = True,
) -> None:
    """Write the control store and, when asked, an hour of metrics for every game; `now` is Unix seconds.

    `heartbeat_ages` holds, per driver, the seconds since it was last heard.
    """
    paths = Paths(folder)
    engine = open_store(Settings(), paths)
    _write_store(engine, fleet, now, heartbeat_ages)
    engine.dispose()
    if history and fleet:
        _append(paths, STREAM_BATCH, [row for at, game in enumerate(fleet) for row in _passes(game, at, now)])
        _append(paths, STATUS_EVENT, [row for game in fleet for row in _changes(game, now)])


@contextmanager
def heartbeats(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Let the seeded drivers of these names beat, and report their streams as seeded, while the block runs."""
    engine, stop = open_store(Settings(), Paths(folder)), threading.Event()
    drivers, streams = tables.drivers, tables.streams

    def keep() -> None:
        while True:
            with engine.begin() as connection:
                now = time.time()
                connection.execute(update(drivers).where(drivers.c.name.in_(names)).values(heartbeat_at=now))
                connection.execute(update(streams).where(streams.c.group_name.in_(names)).values(updated_at=now))
                if "ingest" in names:
                    connection.execute(update(source_backlog).values(measured_at=now))
            if stop.wait(_BEAT_SECONDS):
                return

    thread = threading.Thread(target=keep, name="seeded drivers")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        engine.dispose()


def _write_store(engine: Engine, fleet: Sequence[Seeded], now: float, heartbeat_ages: Mapping[str, float]) -> None:
    groups = sorted({game.group for game in fleet if game.group is not None})
    with engine.begin() as connection:
        for group in groups:
            connection.execute(insert(tables.groups).values(name=group, created_at=now - 7200))
        for name, silent in heartbeat_ages.items():
            connection.execute(insert(tables.drivers).values(_driver(name, now, silent)))
        if "ingest" in heartbeat_ages:
            connection.execute(insert(source_backlog).values(_measured(now - heartbeat_ages["ingest"])))
        if not fleet:
            return
        connection.execute(
            insert(tables.bronze_commits).values(
                seq=840, rows=5120, refused=3, oldest_source_at=now - 4, committed_at=now - 2
            )
        )
        connection.execute(insert(tables.games), [_game(game, now) for game in fleet])
        numbered = list(enumerate(fleet))
        connection.execute(insert(tables.schemas), [_schema(number + 1, now) for number, _ in numbered])
        connection.execute(insert(tables.registrations), [_registration(game, at + 1, now) for at, game in numbered])
        reported: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # one statement for rows with the same columns
        for number, game in numbered:
            if game.reported is not None:
                # A driver reports its streams with each heartbeat.
                row = _stream(game, number, now, now - heartbeat_ages.get(game.group or "", 3.0))
                reported.setdefault(tuple(row), []).append(row)
        for rows in reported.values():
            connection.execute(insert(tables.streams), rows)


def _driver(name: str, now: float, silent: float) -> dict[str, Any]:
    return {
        "kind": "ingest" if name == "ingest" else "group",
        "name": name,
        "pid": 4242,
        "host": "localhost",
        "started_at": now - 7200,
        "heartbeat_at": now - silent,
        "state": "running",
        "frontier_seq": 840 if name == "ingest" else 839,
    }


def _measured(at: float) -> dict[str, Any]:
    """Return the row of a source in which nothing waits."""
    numbers = {"age_seconds": 0.0, "peak_seconds": 0.0, "rows": 0, "limit_seconds": 60.0, "quiet_seconds": 0.0}
    return {"backlog_id": 1, "measured_at": at, "reason": None, **numbers}


def _game(game: Seeded, now: float) -> dict[str, Any]:
    return {
        "game_key": game_key(game.name),
        "game": game.name,
        "group_name": game.group,
        "last_seq": 838,
        "discovered_at": now - 7000,
    }


def _schema(number: int, now: float) -> dict[str, Any]:
    return {
        "schema_id": number,
        "fingerprint": f"{number:064x}",
        "format": "protobuf",
        "message": f"samples.v1.Event{number}",
        "parts": b"",
        "created_at": now - 7200,
    }


def _registration(game: Seeded, number: int, now: float) -> dict[str, Any]:
    key = game_key(game.name)
    return {"game_key": key, "game": game.name, "version": 1, "schema_id": number, "created_at": now - 7200}


def _stream(game: Seeded, number: int, now: float, reported_at: float) -> dict[str, Any]:
    reported = dict(game.reported or {})
    row = {
        "game_key": game_key(game.name),
        "group_name": game.group,
        "lane": "RUN",
        "status": "RUNNING",
        "status_since": now - reported.pop("status_since_age", 5400.0 - 40 * number),
        "cursor_seq": 838,
        "last_commit_at": now - reported.pop("last_commit_age", 2.0 + number % 5),
        "backlog_age_seconds": 0.6 + (number % 7) / 4,
        "rows_per_second": 3.5 + 41.0 * ((number * 7) % 13),
        "bytes_per_second": 90 * (3.5 + 41.0 * ((number * 7) % 13)),
        "commits_per_second": 0.2,
        "latency_p95_seconds": 2.4 + (number % 9) / 3,
        "rows_total": 120_000 + 7_919 * number,
        "rejects_total": (number * number) % 4,
        "last_error": None,
        "updated_at": reported_at,
    }
    return {**row, **reported}


def _passes(game: Seeded, number: int, now: float) -> list[dict[str, Any]]:
    """Make an hour of passes, one per 20 s; a game in trouble stops committing when its trouble began."""
    reported = game.reported or {}
    until = now - float(reported.get("last_commit_age", 0.0))
    start = now - 3600
    return [_one_pass(game, number, step, start + 20 * step, until) for step in range(1, 180)]


def _one_pass(game: Seeded, number: int, step: int, at: float, until: float) -> dict[str, Any]:
    failed = at > until
    rows = 0 if failed else int(800 * (1.2 + math.sin(step / 17 + number)) + 97 * (step % 3))
    counts = [0] * (len(LATENCY_EDGES_SECONDS) + 1)
    counts[2], counts[3], counts[4] = rows // 2, rows - rows // 2 - rows // 9, rows // 9
    rejects = {} if failed or step % 23 else {"malformed_payload": 2, "unknown_schema": 1}
    return {
        "event_date": datetime.fromtimestamp(at, UTC).date(),
        "run_id": "5e1c",
        "batch_id": step,
        "cluster_group": game.group or "a",
        "game_key": game_key(game.name),
        "lane": "RUN",
        "seq_from": step,
        "seq_to": step,
        "rows": rows,
        "rejects": sum(rejects.values()),
        "reject_reasons": list(rejects.items()),
        "files": 0 if failed else 1,
        "bytes": rows * 90,
        "finished_at": datetime.fromtimestamp(at, UTC),
        "committed_at": None if failed else datetime.fromtimestamp(at, UTC),
        "commit_seconds": 0.08 + (step % 11) / 40,
        "latency_counts": counts,
        "pass_seconds": 1.9,
        "input_rows": 21_000,
        "durations": None,
        "error": "the commit failed" if failed else None,
    }


def _changes(game: Seeded, now: float) -> list[dict[str, Any]]:
    reported = game.reported or {}
    changes = [
        (now - 5400.0, None, "STARTING", "its driver started"),
        (now - 5390.0, "STARTING", "RUNNING", "first commit"),
    ]
    if "status" in reported:
        at = now - float(reported.get("status_since_age", 3000.0))
        changes.append((at, "RUNNING", reported["status"], reported.get("last_error") or "backlog grew"))
    return [
        {
            "event_date": datetime.fromtimestamp(at, UTC).date(),
            "game_key": game_key(game.name),
            "cluster_group": game.group,
            "at": datetime.fromtimestamp(at, UTC),
            "from_status": before,
            "to_status": after,
            "detail": detail,
        }
        for at, before, after, detail in changes
    ]


def _append(paths: Paths, table: MetricsTable, rows: list[dict[str, Any]]) -> None:
    batch = pa.Table.from_pylist(rows, schema=table.schema)
    write_deltalake(str(paths.metrics / table.name), batch, mode="append", partition_by=["event_date"])


if __name__ == "__main__":
    seed(Path(sys.argv[1]), fleet_of_forty(), now=time.time())
