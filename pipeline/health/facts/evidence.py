"""Reads from the control store the evidence of causes, beside the judged fleet: one look, cheap for 1,000 games."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from listeners.process_kinds import GROUP, INGEST
from listeners.sample import Lane, StreamState
from pipeline.base.texts import join_limited
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.evidence import (
    DoneOperation,
    GameSeen,
    GroupSeen,
    Look,
    NewestSchema,
    OpenOperation,
    RegistryWait,
    SourceSeen,
    StreamFailure,
)
from pipeline.health.incidents.offers import DONE_SECONDS
from pipeline.health.verdicts.condition import MOST_DEATHS
from pipeline.health.verdicts.placement.capacity import Load
from pipeline.store.database.states import OPEN, OperationState
from pipeline.store.database.tables import (
    bronze_commits,
    games,
    groups,
    operation_targets,
    operations,
    placements,
    registrations,
    schemas,
    stream_control,
)
from pipeline.store.rows import Driver
from pipeline.store.schema_needs import count_needs, read_states

_ARRIVAL_SECONDS: Final = 60.0
_MOST_TYPES: Final = 5  # named in one sentence
_MOST_DONE: Final = 500  # operations that succeeded lately
_KEYS_PER_QUERY: Final = 500  # databases limit the parameters of a statement


def read_evidence(engine: Engine, fleet: Fleet, objective_seconds: float) -> Look:
    """Return one look at the fleet that was judged just now; never writes."""
    with engine.connect() as connection:
        decided = _decisions(connection)
        needs = _needs(connection)
        targets, done = _operations(connection), _done(connection, fleet.read_at)
        asked = [row.game_key for row in fleet.rows if _may_be_schema(row, decided)]
        newest = _newest_schemas(connection, asked)
        retired = set(connection.scalars(select(games.c.game_key).where(games.c.retired_at.is_not(None))))
        limits = {row.name: row for row in connection.execute(select(groups.c.name, groups.c.capacity_cores))}
        source = _source(connection, fleet)
    seen = {}
    for row in fleet.rows:
        key = row.game_key
        seen[key] = _game(
            row, decided.get(key), needs.get(key), newest.get(key), targets.get(f"game:{key}"),
            done.get(f"game:{key}", ()), retired=key in retired,
        )  # fmt: skip
    conditions = fleet.judgement.conditions
    return Look(
        fleet.read_at,
        seen,
        {
            name: _group(fleet, name, limits.get(name), targets.get(f"group:{name}"), done.get(f"group:{name}", ()))
            for name in (state.name for state in fleet.judgement.of(GROUP))
        },
        source,
        objective_seconds,
        conditions.mass_failure,
    )


def _may_be_schema(row: GameRow, decided: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a schema may be the cause: its stream fails, or rows are refused."""
    is_refused = row.reported is not None and row.reported.refused
    return bool(row.in_trouble or is_refused or decided.get(row.game_key, {}).get("failure_class"))


def _game(
    row: GameRow, decision: Mapping[str, Any] | None, need: RegistryWait | None,
    schema: NewestSchema | None, operation: OpenOperation | None, done: tuple[DoneOperation, ...], *, retired: bool,
) -> GameSeen:  # fmt: skip
    live, verdict = row.live, row.verdict
    failure = None
    if decision is not None and decision["failure_class"] not in {None, "expected"}:  # shared ones are not counted
        failure = StreamFailure(
            decision["failure_class"], decision["evidence"] or "no reason was reported", decision["failures"],
            decision["failed_at"], decision["parked_at"], decision["stopped_by"] is not None,
        )  # fmt: skip
    is_paused = decision is not None and decision["desired"] == "paused"
    return GameSeen(
        row.game_key, row.game, row.group, verdict.status, verdict.since, verdict.reason,
        waits_for_ingest=verdict.waits_for_ingest, retired=retired,
        backlog_seconds=row.lag_seconds if verdict.waits_for_ingest or live is None else live.backlog_age_seconds,
        rows_per_second=None if live is None else live.rows_per_second,
        cores=None if live is None else _cores(live),
        commit_seconds=None if live is None else live.commit_mean_seconds,
        refused={} if live is None else live.refused,
        refused_at={} if live is None else live.refused_at,
        committed_at=None if live is None else live.last_commit_at,
        landed=None if live is None else live.landed,
        totals=None if live is None else (live.rejects_total, live.rows_total),
        segments=_segments(live),
        last_error=None if live is None else live.last_error, waits_for=verdict.waits_for, need=need, failure=failure,
        paused_by=(decision["requested_by"] or "somebody") if is_paused and decision is not None else None,
        paused_at=decision["requested_at"] if is_paused and decision is not None else None,
        schema=schema, operation=operation, done=done,
    )  # fmt: skip


def _cores(live: StreamState) -> float | None:
    """Return what a stream costs while it is in its group's pass."""
    load = Load(live.rows_per_second, live.bytes_per_second, live.commits_per_second)
    return load.cores if live.lane == Lane.RUN else None


def _segments(live: StreamState | None) -> dict[str, float]:
    """Return the segments of a stream's latency that are known."""
    if live is None:
        return {}
    of = {"queue": live.queue_seconds, "process": live.process_seconds, "commit": live.commit_seconds}
    return {name: seconds for name, seconds in of.items() if seconds is not None}


def _group(
    fleet: Fleet, name: str, row: Any, operation: OpenOperation | None, done: tuple[DoneOperation, ...]
) -> GroupSeen:
    state, driver = fleet.state(GROUP, name), fleet.driver(GROUP, name)
    assert state is not None, "it was made of these"
    condition = fleet.judgement.conditions.groups.get(name)
    deaths = () if condition is None else condition.deaths
    return GroupSeen(
        name, state.liveness, "running" if condition is None else condition.desired,
        condition is not None and condition.is_supervised, fleet.judgement.controller_absence,
        len(deaths) >= MOST_DEATHS, driver is not None and driver.state == "skewed", len(deaths),
        deaths[0].message if deaths else None, deaths[0].ended_at if deaths else None, _frontier(driver),
        None if row is None else row.capacity_cores, operation, None if driver is None else driver.host, done,
        state.is_awaited, None if driver is None else driver.heartbeat_at,
    )  # fmt: skip


def _frontier(driver: Driver | None) -> int | None:
    return None if driver is None else driver.frontier_seq


def _decisions(connection: Connection) -> dict[str, Mapping[str, Any]]:
    names = (
        "game_key", "desired", "parked_at", "failures", "failure_class", "evidence", "failed_at", "stopped_by",
        "requested_by", "requested_at",
    )  # fmt: skip
    rows = connection.execute(select(*(stream_control.c[name] for name in names))).mappings()
    return {row["game_key"]: dict(row) for row in rows}


def _needs(connection: Connection) -> dict[str, RegistryWait]:
    """Return the oldest need of each game."""
    states, found = read_states(connection), dict[str, RegistryWait]()
    for each in count_needs(connection):
        health = states.get(each.registry)
        state, detail = (None, None) if health is None else (str(health.state), health.detail)
        found.setdefault(str(each.game_key), RegistryWait(each.registry, each.writers, each.since, state, detail))
    return found


def _operations(connection: Connection) -> dict[str, OpenOperation]:
    """Return the open operations by target."""
    columns = (operations.c[name] for name in ("operation_id", "kind", "actor", "requested_at", "state"))
    query = (
        select(operation_targets.c.target, *columns)
        .join(operations, operations.c.operation_id == operation_targets.c.operation_id)
        .where(operations.c.state.in_(OPEN))
    )
    return {
        target: OpenOperation(
            operation_id, kind, actor, at, state == OperationState.NEEDS_HUMAN, state == OperationState.PLANNED
        )
        for target, operation_id, kind, actor, at, state in connection.execute(query)
    }


def _done(connection: Connection, now: float) -> dict[str, tuple[DoneOperation, ...]]:
    """Return the operations that succeeded a short while ago by target, the newest first."""
    columns = (operations.c[name] for name in ("targets", "kind", "actor", "requested_at", "ended_at"))
    query = (
        select(*columns)
        .where(operations.c.state == OperationState.SUCCEEDED, operations.c.ended_at > now - DONE_SECONDS)
        .order_by(operations.c.ended_at.desc())
        .limit(_MOST_DONE)
    )
    found: dict[str, tuple[DoneOperation, ...]] = {}
    for targets, *said in connection.execute(query):
        for target in json.loads(targets):
            found[target] = (*found.get(target, ()), DoneOperation(*said))
    return found


def _newest_schemas(connection: Connection, keys: Collection[str]) -> dict[str, NewestSchema]:
    found, listed = {}, sorted(keys)
    for start in range(0, len(listed), _KEYS_PER_QUERY):
        part = listed[start : start + _KEYS_PER_QUERY]
        newest = (
            select(
                registrations.c.game_key,
                func.max(registrations.c.version).label("version"),
                func.min(registrations.c.created_at).label("first_at"),
            )
            .where(registrations.c.game_key.in_(part))
            .group_by(registrations.c.game_key)
            .subquery()
        )
        query = (
            select(registrations, placements.c.quarantined, newest.c.first_at)
            .join(
                newest,
                (newest.c.game_key == registrations.c.game_key) & (newest.c.version == registrations.c.version),
            )
            .outerjoin(placements, placements.c.registration_id == registrations.c.registration_id)
        )
        others = _other_types(connection, part)
        for row in connection.execute(query):
            by, other = row.actor or row.registry, others.get(row.game_key)
            found[row.game_key] = NewestSchema(row.version, row.created_at, by, row.quarantined, row.first_at, other)
    return found


def _other_types(connection: Connection, keys: Collection[str]) -> dict[str, str]:
    """Return why rows of other event types wait, by game, with the names of all types that wait now."""
    query = (
        select(
            registrations.c.game_key, registrations.c.schema_id, schemas.c.message, placements.c.other_type,
            placements.c.quarantined,
        )
        .join(schemas, schemas.c.schema_id == registrations.c.schema_id)
        .outerjoin(placements, placements.c.registration_id == registrations.c.registration_id)
        .where(registrations.c.game_key.in_(keys))
        .order_by(registrations.c.registration_id)
    )  # fmt: skip
    last = {(row.game_key, row.schema_id): row for row in connection.execute(query)}
    waiting: dict[str, dict[str, str]] = {}
    for row in last.values():
        if row.other_type:
            waiting.setdefault(row.game_key, {})[row.message] = row.quarantined
    found = {}
    for key, texts in waiting.items():
        several = f"{join_limited(sorted(texts), _MOST_TYPES)} wait. " if len(texts) > 1 else ""
        found[key] = several + list(texts.values())[-1]
    return found


def _source(connection: Connection, fleet: Fleet) -> SourceSeen:
    since = fleet.read_at - _ARRIVAL_SECONDS
    rows = connection.scalar(select(func.sum(bronze_commits.c.rows)).where(bronze_commits.c.committed_at > since))
    source, state = fleet.judgement.source, fleet.judgement.of(INGEST)[0]
    return SourceSeen(
        source.condition, source.sentence, state.liveness, source.age_seconds, source.rows, fleet.newest_bronze_seq,
        fleet.newest_bronze_at, source.quiet,
        None if fleet.newest_bronze_seq is None else float(rows or 0) / _ARRIVAL_SECONDS, state.is_awaited,
    )  # fmt: skip
