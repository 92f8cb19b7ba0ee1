"""Reads the facts that tell whether drivers live: heartbeats, leases and runs. Never writes.

What is shown, exported or steered goes by `judge_groups` and `DriverFacts.judge` of what this reads.
"""

from collections import defaultdict

from sqlalchemy import Connection, Engine, case, func, select

from pipeline.health.kinds import controller as kinds
from pipeline.health.verdicts.condition import WINDOW_SECONDS, GroupCondition, judge_group, judge_groups
from pipeline.health.verdicts.liveness import DriverFacts, HeldLease, Liveness, ProcessRun
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.settings.tree import Metrics
from pipeline.store.database.tables import drivers, group_runs, groups, leases
from pipeline.store.processes.leases import store_now
from pipeline.store.processes.runs import runs_in
from pipeline.store.rows import Driver

_Key = tuple[str, str]  # kind and name


def read_drivers(engine: Engine, metrics: Metrics = Metrics(), now: float | None = None) -> DriverFacts:
    """Read what is known of every driver; `now` is Unix seconds, by default the store's time.

    Missed heartbeats are counted by the settings `metrics`.
    """
    with engine.connect() as connection:
        return drivers_in(connection, metrics, now)


def drivers_in(connection: Connection, metrics: Metrics = Metrics(), now: float | None = None) -> DriverFacts:
    """Return the same within a transaction."""
    moment = float(connection.execute(select(store_now())).scalar_one()) if now is None else now
    found = [Driver(*row) for row in connection.execute(select(*(drivers.c[each] for each in Driver.__slots__)))]
    columns = (leases.c[name] for name in ("kind", "name", "host", "pid", "since", "expires_at", "run_id"))
    held = {
        (kind, name): HeldLease((host, pid), *rest)
        for kind, name, host, pid, *rest in connection.execute(select(*columns))
    }
    newest_ids, lived = _newest_runs(connection)
    newest, ended = _runs(connection, newest_ids, moment - WINDOW_SECONDS)
    wanted = connection.execute(select(groups.c.name, groups.c.desired, groups.c.backend, groups.c.created_at))
    return DriverFacts(
        moment,
        {(each.kind, each.name): each for each in found},
        held,
        newest,
        ended=ended,
        lived=lived,
        groups={name: GroupIntent(*intent) for name, *intent in wanted},
        heartbeat_seconds=metrics.heartbeat_seconds,
    )


def judge_controller(engine: Engine, metrics: Metrics = Metrics()) -> Liveness:
    """Judge the controller, as `turnout status` does."""
    return kinds.judge_controller(read_drivers(engine, metrics))


def read_group_liveness(
    engine: Engine, metrics: Metrics = Metrics(), now: float | None = None
) -> dict[str, GroupCondition]:
    """Return every group by its name, judged as `turnout status` does; `now` is by default the store's time."""
    return dict(judge_groups(read_drivers(engine, metrics, now)).groups)


def how_alive(connection: Connection, name: str, metrics: Metrics = Metrics()) -> str | None:
    """Return how a group's driver lives or may live, as a predicate; None where none can."""
    condition = judge_group(drivers_in(connection, metrics), name)
    if not condition.may_live:
        return None
    liveness = condition.liveness
    return "lives" if liveness.is_live else f"may live: it {(liveness.reason or '').rstrip('.')}"


def _newest_runs(connection: Connection) -> tuple[list[int], dict[_Key, float]]:
    """Return the ids of the newest runs, and when the last run of each ended that lived, see `DriverFacts.lived`."""
    has_lived = group_runs.c.ended_at - group_runs.c.started_at >= group_runs.c.start_seconds
    lived = func.max(case((has_lived | (group_runs.c.died == 0), group_runs.c.ended_at)))
    columns = (
        group_runs.c.kind,
        group_runs.c.group_name,
        func.max(group_runs.c.run_id),
        func.coalesce(lived, func.min(group_runs.c.started_at)),
    )
    query = select(*columns).group_by(group_runs.c.kind, group_runs.c.group_name)
    rows = connection.execute(query).all()
    return [row[2] for row in rows], {(kind, name): float(at) for kind, name, _, at in rows}


def _runs(
    connection: Connection, newest_ids: list[int], since: float
) -> tuple[dict[_Key, ProcessRun], dict[_Key, list[ProcessRun]]]:
    """Return the newest runs, and those of each that ended after `since`, the newest first."""
    newest: dict[_Key, ProcessRun] = {}
    ended: defaultdict[_Key, list[ProcessRun]] = defaultdict(list)
    wanted = group_runs.c.run_id.in_(newest_ids) | (group_runs.c.ended_at > since)
    for run in sorted(runs_in(connection, wanted), key=lambda each: each.run_id, reverse=True):
        key = (run.kind, run.group_name)
        each = ProcessRun(
            run.run_id, run.started_at, run.ended_at, run.died, run.exit_message,
            is_known=run.reference is not None, start_seconds=run.start_seconds,
        )  # fmt: skip
        newest.setdefault(key, each)
        if run.ended_at is not None and run.ended_at > since:
            ended[key].append(each)
    return newest, dict(ended)
