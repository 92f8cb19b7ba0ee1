"""Fleets and series as the Fleet page reads them, made without a store: for the tests of what the page says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from app.fleet.signals import Signals
from listeners.sample import LATENCY_EDGES_SECONDS, StreamState
from listeners.series import Series
from listeners.status import Status
from pipeline.base.names import game_key
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import judge_fleet
from pipeline.health.verdicts.processes import FleetFacts
from pipeline.health.verdicts.reported import AssignedGame
from pipeline.store.database.states import Cause
from pipeline.store.rows import Driver, SourceReading

NOW: Final = 1_800_000_000.0  # 08:00 UTC
MINUTE: Final = 60


@dataclass(frozen=True)
class Game:
    """One game of a fleet; `reported` overrides fields of what its driver said, None leaves that out."""

    name: str
    status: str = "RUNNING"
    group: str | None = "a"
    reported: Mapping[str, Any] | None = field(default_factory=dict)


def fleet(
    games: Sequence[Game],
    silent: Mapping[str, float] = {},  # by driver: seconds since it was last heard
    source: SourceReading | None = SourceReading(NOW - 2, 0.0, 0.0, 0, 60.0),  # noqa: B008 - it is frozen
    more: Sequence[Driver] = (),
    ingest: bool = True,
    **facts: Any,
) -> Fleet:
    """Return the fleet as the store would have it at NOW; `more` are drivers besides ingest and those of the games."""
    groups = sorted({each.group for each in games if each.group is not None})
    drivers = [*([("ingest", "main")] if ingest else []), *(("group", name) for name in groups)]
    known = {
        (kind, name): Driver(kind, name, "host", 7, NOW - 7200, NOW - silent.get(name, 2.0), "running", None, 9)
        for kind, name in drivers
    } | {(each.kind, each.name): each for each in more}
    assigned = [_assigned(each) for each in games]
    judgement = judge_fleet(
        FleetFacts(now=NOW, drivers=known, leases={}, runs={}, games=assigned, source=source, **facts), registered()
    )
    rows = [
        GameRow(each.game_key, game.name, each.group, 1, 9, NOW - 7000, each.reported, judgement.games[each.game_key])
        for each, game in zip(assigned, games, strict=True)
    ]
    lagging = [
        row if (live := row.live) is None else replace(row, lag_seconds=judgement.source.lag(live.backlog_age_seconds))
        for row in rows
    ]
    return Fleet(
        judgement=judgement,
        rows=tuple(lagging),
        drivers=tuple(known.values()),
        groups=tuple(groups),
        registered_games=len(games),
        newest_bronze_seq=9 if games else None,
        newest_bronze_at=NOW - 3 if games else None,
        read_at=NOW,
    )


def series(keys: Sequence[str], slots: int = 60, groups: Sequence[str] | None = None, **changed: Any) -> Series:
    """Return an hour in which every game landed 600 rows a minute within 2 to 5 s, until now."""
    shape = (len(keys), slots)
    counts = np.zeros((*shape, len(LATENCY_EDGES_SECONDS) + 1), dtype=np.int64)
    counts[:, :, 3] = 600
    made = Series(
        since=NOW - slots * MINUTE,
        slot_seconds=MINUTE,
        games=tuple(keys),
        groups=tuple(groups or ["a"] * len(keys)),
        rows=np.full(shape, 600, dtype=np.int64),
        caught_up=np.zeros(shape, dtype=np.int64),
        refused=np.zeros(shape, dtype=np.int64),
        commits=np.full(shape, 12, dtype=np.int64),
        counts=counts,
        backlog=np.full(shape, 3.0),
        status=np.full(shape, Status.RUNNING.severity, dtype=np.int64),
        events=np.full(slots, 600.0 * len(keys)),
        refused_early=np.zeros(slots),
    )
    return replace(made, **changed)


def signals(games: Sequence[Game], **known: Any) -> Signals:
    """Return what the page knows, by default the fleet alone."""
    made = known.pop("fleet", None) or fleet(games)
    return Signals(made, 60.0, **known)


def incident(keys: Sequence[str], **changed: Any) -> Incident:
    """Return an open incident of these games."""
    finding = Finding(
        Cause.SCHEMA,
        f"Rows of {len(keys)} games refused since schema version 7",
        ("41 rows/s to quarantine", "version 7 drops field 3"),
        ("its 78 neighbours are well",),
        Action("Review schema 7", "schemas", {"game": keys[0] if keys else ""}),
        "turnoutrejectratiohigh",
    )
    made = Incident("i1", finding, tuple(keys), "a", NOW - 720, None, None, "bad")
    return replace(made, **changed)


def _assigned(game: Game) -> AssignedGame:
    key = game_key(game.name)
    if game.reported is None or game.group is None:
        return AssignedGame(key, game.group, None)
    said: dict[str, Any] = {
        "game_key": key,
        "group": game.group,
        "lane": "RUN",
        "status": game.status,
        "status_since": NOW - 5400,
        "cursor_seq": 9,
        "last_commit_at": NOW - 3,
        "backlog_age_seconds": 1.5,
        "rows_per_second": 10.0,
        "latency_p95_seconds": 3.0,
        "latency_p99_seconds": 4.0,
        "rows_total": 100,
        "rejects_total": 0,
        "last_error": None,
        "updated_at": NOW - 2,
    }
    return AssignedGame(key, game.group, StreamState(**{**said, **game.reported}))
