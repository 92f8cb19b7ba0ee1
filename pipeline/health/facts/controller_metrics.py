"""Metrics that ingest exports from the control store: source, registries, derived streams, the controller's work."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, Engine, select

from listeners.process_kinds import CONTROLLER, ONLY
from listeners.totals import ControllerMetrics, DerivedMetrics
from pipeline.health.facts.fleet import Fleet
from pipeline.health.facts.overdue_access import count_overdue
from pipeline.health.incidents import away
from pipeline.health.verdicts.derived import DerivedStanding, judge
from pipeline.health.verdicts.freshness import FreshnessVerdict
from pipeline.store.books import due_in
from pipeline.store.database.states import OPEN, Cause
from pipeline.store.database.tables import catalog_snapshots
from pipeline.store.derived import left_out_in, streams_in
from pipeline.store.incidents import count_open
from pipeline.store.operations import read_open
from pipeline.store.output_contracts import contracts_in
from pipeline.store.reports import waiting_in
from pipeline.store.rows import DerivedStream
from pipeline.store.schema_needs import read_states

_MOST_CONTRACTS: Final = 200  # whose readers are exported
_MOST_READERS: Final = 5  # of each


def read_controller_metrics(
    engine: Engine,
    fleet: Fleet,
    freshness: Sequence[FreshnessVerdict] = (),
    unique_by: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ControllerMetrics:
    """Read what alerts on the controller need, beside the judged fleet, which says whether one runs.

    `freshness` has the verdicts on each promise of freshness in output contracts, `unique_by` the contracts of which a
    derived stream checks that a column is unique, by its name.

    Where the control store cannot be read this raises, and nothing is known: the caller exports nothing then.
    """
    judgement, upkeep = fleet.judgement, fleet.upkeep
    is_running = None if judgement.is_unheard(CONTROLLER, ONLY) else judgement.controller_runs
    with engine.connect() as connection:
        read_at, drift = _access(connection)
        opened = read_open(connection)
        registries = read_states(connection).values()
        incidents = count_open(connection)
        overdue_access = count_overdue(connection)
        evacuations = waiting_in(connection) if is_running else {}  # of what a dead one saw nobody knows any more
        derived, left_out = streams_in(connection), left_out_in(connection)
        books_due = due_in(connection)
        contracts = json.loads(contracts_in(connection).contracts)
    own = away.computed(judgement, fleet.read_at)
    if own is not None:  # no judge can keep it
        incidents = {**(incidents or {}), str(Cause.STORE): (1, len(own.games))}
    states = Counter(each.state for each in opened)
    stuck = [each.stuck_since for each in opened if each.is_stuck and each.stuck_since is not None]
    return ControllerMetrics(
        is_controller_running=is_running,
        supervised_groups=judgement.supervised_groups,
        open_operations={state: states[state] for state in OPEN},
        oldest_stuck_since=min(stuck, default=None),
        access_read_at=read_at,
        drift=drift,
        overdue_access=overdue_access,
        evacuations=evacuations,
        source_age_seconds=judgement.source.age_seconds,
        source_rows=judgement.source.rows,
        source_silent_after=judgement.source.silent_after,
        sources={each.name: (each.age_seconds, each.rows) for each in judgement.source.sources},
        incidents=incidents,
        mistrusted={each.registry: each.since for each in registries if each.state == "mistrusted"},
        maintenance_overdue_seconds=upkeep.overdue_seconds(fleet.read_at),
        last_round=None if upkeep.last is None else (upkeep.last.ended_at, bool(upkeep.last.ok)),
        last_good_round_at=None if upkeep.good is None else upkeep.good.ended_at,
        derived=[_derived(each, fleet.read_at, unique_by.get(each.name, ())) for each in derived],
        left_out_types=left_out,
        books_due=books_due,
        stale_contracts={(each.promise.contract, each.game_key): each.is_stale for each in freshness},
        contract_readers={each["name"]: each["readers"][:_MOST_READERS] for each in contracts[:_MOST_CONTRACTS]},
    )


def _derived(stream: DerivedStream, now: float, unique_by: Sequence[str]) -> DerivedMetrics:
    state, verdict = stream.state, judge(stream, now)
    stopped = None
    if state is not None and state.error is not None and verdict.standing is DerivedStanding.STOPPED:
        stopped = (state.error.partition(":")[0], state.failed_at or state.reported_at)
    return DerivedMetrics(
        stream.name, stream.game_key, stream.group or "", verdict.rows, verdict.generation, verdict.behind,
        verdict.lag_seconds, stopped, None if state is None else state.reported_at, stream.control.is_paused,
        None if state is None else state.duplicates, unique_by,
    )  # fmt: skip


def _access(connection: Connection) -> tuple[float | None, Mapping[str, int] | None]:
    """Return when the catalog was last read, and the findings of then by class; None is not known."""
    row = connection.execute(select(catalog_snapshots.c.read_at, catalog_snapshots.c.drift)).first()
    return (None, None) if row is None else (row.read_at, json.loads(row.drift or "null"))
