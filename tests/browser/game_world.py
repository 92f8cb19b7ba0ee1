"""One game in trouble among the forty: its rows in bronze, table and quarantine, an hour of minutes, an incident.

Used by the tests of the Game page and for a look by hand: `python -m tests.browser.game_world DIR`.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
from sqlalchemy import insert, update

from listeners.join import Pass
from listeners.metrics_table import MetricsTables
from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, Lane, PassResult, StreamMinute
from pipeline.data.derived.definitions import Aggregate, GoldDefinition, SilverDefinition, loads
from pipeline.data.derived.definitions import dumps as dumps_derived
from pipeline.data.output_contracts.rules import ContractRule, Freshness, OutputContract, dumps
from pipeline.health.facts.incidents import keep_look
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident
from pipeline.settings.tree import Paths, Settings
from pipeline.store import derived, output_contracts
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import incident_looks
from pipeline.store.database.states import Cause
from pipeline.store.output_contracts import read_contracts
from pipeline.store.rows import DerivedState
from tests.browser.seed import Seeded, fleet_of_forty, seed
from tests.tables.gold_world import write_gold
from tests.tables.repair_world import BROKEN, CHESS, Event, Message, World

FIRST: Final = Message({"match_id": (1, "int64"), "move": (2, "string"), "clock_ms": (3, "int64")})
SECOND: Final = Message(
    {"match_id": (1, "int64"), "move": (2, "string"), "clock_ms": (3, "int64"), "elo_after": (4, "int32")}
)
MINUTES_BAD: Final = 12
_SCORES: Final = (0, 0, 0.6, 0.3, 0.1)


def failing_game(
    folder: Path,
    now: float,
    fleet: Sequence[Seeded] = fleet_of_forty(),
    heartbeat_ages: Mapping[str, float] = {"ingest": 2.0, "a": 3.0, "b": 4.0},
) -> World:
    """Fill an environment: Chess landed rows until 12 minutes ago, since then its rows are refused."""
    seed(folder, fleet, now=now, heartbeat_ages=heartbeat_ages)
    settings = Settings()
    world = World(Paths(folder), settings, open_store(settings, Paths(folder)))
    first = world.register(message=FIRST)
    world.ingest(*(_event(first, FIRST, number) for number in range(24)))
    world.split()
    second = world.register(message=SECOND)
    for number in range(24, 50, 2):
        world.ingest(_event(second, SECOND, number, elo_after=1500 + number), Event(CHESS, second, BROKEN))
    refused = [
        {
            "game_key": CHESS.key, "game": CHESS.name, "seq": 2 + number // 2, "pos": number % 2,
            "reason": "quarantined_schema" if number % 2 == 0 else "malformed_payload", "schema_id": second,
            "detail": "field 4 is not wanted", "source_time": _time(now - 700 + 20 * number),
            "quarantined_at": _time(now - 700 + 20 * number),
            "raw": (
                _event(second, SECOND, number, elo_after=1500).raw
                if number % 2 == 0
                else Event(CHESS, second, SECOND.payload(match_id=number, move="e4") + BROKEN).raw
            ),
        }
        for number in range(26)
    ]  # fmt: skip
    world.quarantine(refused)
    _report(world, now)
    _minutes(world, now)
    keep_look(world.engine, "controller", now, lambda _: (_incident(now),))
    with world.engine.begin() as connection:  # nobody judges causes while a test takes its time
        connection.execute(update(incident_looks).values(looked_at=now + 3600))
    return world


def with_contract(world: World, now: float) -> None:
    """Give Chess an output contract, of which rows broke two rules within the last hour."""
    rules = (
        ContractRule("clock_ms", "clock_ms", type="integer", min=0),
        ContractRule("move", "move", "quarantine", required=True, pattern="[a-h][1-8]"),
        ContractRule("rated", "elo_after", "stop", min=100, max=4000),
    )
    readers, fresh = ("BI <b>", "daily revenue"), Freshness(600, 3600)
    contract = OutputContract("play", (CHESS.name,), rules=rules, readers=readers, freshness=fresh, unique="move")
    seen = read_contracts(world.engine).number
    output_contracts.apply(world.engine, dumps([contract]), seen, "ann", "agreed with BI")
    writer = MetricsTables(world.paths.metrics, "group-b")
    counts = (10, *[0] * len(LATENCY_EDGES_SECONDS))
    for batch, at in enumerate((now - 2_000, now - 1_000)):
        game = GameResult(
            str(CHESS.key), Lane.RUN, batch, batch, 10, {"contract": 1}, 1, 900, at, 0.1, counts,
            broken={"play/move": 1, "play/clock_ms": 3},
        )  # fmt: skip
        writer.add(Pass(PassResult("b", "run", batch, at - 1, at, batch, (game,)), None))
    assert writer.flush()


def with_derived(world: World, now: float) -> None:
    """Give Chess derived streams: one is level, one behind, one stands still, one silent, one was never carried."""
    names = ("moves", "moves_late", "moves_broken", "moves_silent", "moves_new")
    definitions = [SilverDefinition(each, CHESS.name, "M") for each in names]
    applied = derived.read_definitions(world.engine).number
    derived.apply(world.engine, dumps_derived(definitions), applied, "ann", "asked for by BI")
    level = DerivedState("moves", "b", 1, 812, 812, 160_000, now - 3, None, None, now - 2, "a table")
    gone = "Refused: the table of Chess has no column 'elo', which silver moves_broken names <b>"
    derived.write_states(
        world.engine,
        [
            level,
            replace(level, name="moves_late", generation=3, version=806, level_at=now - 95),
            replace(level, name="moves_broken", error=gone, failed_at=now - 700, level_at=now - 710),
            replace(level, name="moves_silent", reported_at=now - 1_000),
        ],
    )


def with_gold(world: World, now: float) -> None:
    """Give Chess two gold tables: one with windows up to three minutes ago, of which one has no rows; one with none."""
    silver = SilverDefinition("moves", CHESS.name, "M")
    aggregates = (
        Aggregate("played", "count"),
        Aggregate("clock", "sum", "clock_ms"),
        Aggregate("matches", "distinct", "match_id"),
    )
    minute = GoldDefinition("moves_by_minute", silver, 60, aggregates)
    hour = GoldDefinition("moves_by_hour", silver, 3600, aggregates[:1], by=("move",))
    applied = derived.read_definitions(world.engine)
    known = [each for each in loads(applied.definitions) if each.name != silver.name]
    derived.apply(world.engine, dumps_derived([*known, silver, minute, hour]), applied.number, "ann", "asked for by BI")
    until = int(now) // 60 * 60 - 180
    rows = [
        {
            "end": until - 60 * back,
            "played": 40 + back % 7,
            "clock": Decimal(9_000 + 100 * back),
            "matches": 3,
            "_rows": 40,
        }
        for back in range(45, -1, -1)
        if back != 20
    ]
    kinds = {"played": pa.int64(), "clock": pa.decimal128(38, 0), "matches": pa.int64()}
    write_gold(world.paths, world.settings.environment, minute, kinds, rows, until)


def _incident(now: float) -> Incident:
    finding = Finding(
        Cause.SCHEMA,
        "Rows of Chess refused since schema version 2",
        (
            "492 rows refused in 5 min as quarantined_schema, all of schema version 2",
            "rows of version 1 before it landed",
        ),
        ("the group: 15 of its 20 other games are well", "the source: level"),
        Action("Compare versions…", "schemas", {"game": str(CHESS.key)}),
        "turnoutrejectratiohigh",
    )
    return Incident("incident1", finding, (str(CHESS.key),), "b", now - 60 * MINUTES_BAD, None, None, "bad", now)


def _event(schema_id: int, message: Message, number: int, **more: int) -> Event:
    values = {"match_id": 45_487_470 + number, "move": f"e{number % 8}", "clock_ms": 51_668 - number, **more}
    return Event(CHESS, schema_id, message.payload(**values))


def _time(at: float) -> object:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC)


def _report(world: World, now: float) -> None:
    bad = now - 60 * MINUTES_BAD
    with world.engine.begin() as connection:
        own = tables.games.c.game_key == CHESS.key
        connection.execute(update(tables.games).where(own).values(group_name="b", last_seq=838))
        connection.execute(
            insert(tables.streams).values(
                game_key=CHESS.key, group_name="b", lane="RUN", status="FAILED", status_since=bad, cursor_seq=601,
                last_commit_at=bad - 4, backlog_age_seconds=now - bad, rows_per_second=0.0, bytes_per_second=0.0,
                commits_per_second=0.0, latency_p95_seconds=None, rows_total=160_000, rejects_total=492,
                last_error="SchemaMismatch: field 4 of schema version 2 is not wanted", updated_at=now,
            )
        )  # fmt: skip
        known = tables.registrations.c.game_key == CHESS.key
        at = {1: now - 86_400 * 12, 2: bad}
        for version, created in at.items():
            chosen = known & (tables.registrations.c.version == version)
            connection.execute(update(tables.registrations).where(chosen).values(created_at=created))


def _minutes(world: World, now: float) -> None:
    writer = MetricsTables(world.paths.metrics, "group-b")
    begin = now - now % 60
    for number in range(60, 1, -1):
        bad = number <= MINUTES_BAD
        rows = 0 if bad else 2_520 + 40 * (number % 7)
        counts = [int(rows * share) for share in _SCORES] + [0] * (len(LATENCY_EDGES_SECONDS) + 1 - len(_SCORES))
        writer.add(
            StreamMinute(
                begin - 60 * number, str(CHESS.key), "b", rows, 0, 41 * 60 if bad else 0, 0 if bad else 12,
                tuple(counts) if rows else (), 60.0 * (MINUTES_BAD - number + 1) if bad else 1.5 + number % 3 / 5,
                "FAILED" if bad else "RUNNING",
            )
        )  # fmt: skip
    assert writer.flush()


if __name__ == "__main__":
    made = failing_game(Path(sys.argv[1]), time.time())
    with_contract(made, time.time())
    with_derived(made, time.time())
    with_gold(made, time.time())
    made.engine.dispose()
