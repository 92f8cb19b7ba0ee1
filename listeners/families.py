"""Renders a snapshot as Prometheus metric families, with the names, labels and units of all metrics of this process.

Pure. An unknown value has no sample: never NaN, never 0 instead.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from listeners.sample import LATENCY_EDGES_SECONDS, Lane
from listeners.status import Status
from listeners.totals import ControllerMetrics, DerivedMetrics, GameTotals, MetricsSnapshot

PREFIX: Final = "turnout_"

_MIDDLES_SECONDS: Final = (
    *((low + high) / 2 for low, high in zip((0.0, *LATENCY_EDGES_SECONDS), LATENCY_EDGES_SECONDS, strict=False)),
    LATENCY_EDGES_SECONDS[-1],
)
_Samples = Iterable[tuple[Sequence[str], float | None]]
_Games = Sequence[tuple[str, str, GameTotals]]


def families(known: MetricsSnapshot) -> Iterator[Metric]:
    """Yield every metric family with at least one known sample."""
    for family in (
        *_streams(known),
        *_states(known),
        *_groups(known),
        *_queries(known),
        *_process(known),
        *_control(known),
    ):
        if family.samples:
            yield family


def _streams(known: MetricsSnapshot) -> Iterator[Metric]:
    """Yield this process's work for each game, zeros included, so that a first increase is visible."""
    games = _shown_games(known)
    labels = ("game", "cluster_group")
    yield _counter(
        "stream_rows",
        "Rows handled: landed in the game's table (ok) or refused into quarantine (rejected).",
        (*labels, "result"),
        (
            ((game, group, result), amount)
            for game, group, totals in games
            for result, amount in (("ok", totals.rows), ("rejected", sum(totals.rejects.values())))
        ),
    )
    yield _counter(
        "stream_rejects",
        "Refused rows by reason.",
        (*labels, "reason"),
        (((game, group, reason), amount) for game, group, totals in games for reason, amount in totals.rejects.items()),
    )
    yield _counter(
        "stream_type_rows",
        "Rows handled by event type: landed (ok) or refused (rejected); types beyond the first 20 as `other`.",
        (*labels, "event_type", "result"),
        (
            ((game, group, name, result), amount)
            for game, group, totals in games
            for name, rows in totals.types.items()
            for result, amount in (("ok", rows.landed), ("rejected", rows.refused))
        ),
    )
    yield _counter(
        "stream_contract_violations",
        "Rows that break a rule of an output contract, landed or refused for it; rules beyond the first 20 as `other`.",
        (*labels, "rule"),
        (((game, group, rule), amount) for game, group, totals in games for rule, amount in totals.broken.items()),
    )
    yield _counter("stream_commits", "Commits to the game's table.", labels, (((g, c), t.commits) for g, c, t in games))
    yield _counter(
        "stream_errors",
        "Results without a commit because of an error.",
        labels,
        (((g, c), t.errors) for g, c, t in games),
    )
    yield _gauge(
        "stream_cursor_seq",
        "Last bronze seq wholly applied to the game's table.",
        labels,
        (((game, group), _cursor(known, game, totals)) for game, group, totals in games),
    )
    yield _gauge(
        "stream_last_commit_timestamp_seconds",
        "When the game's table was last committed to.",
        labels,
        (((game, group), _last_commit(known, game, totals)) for game, group, totals in games),
    )
    yield _counter(
        "stream_caught_up_rows",
        "Landed rows that had waited for a start or an outage to end; the latencies exclude them.",
        labels,
        (((g, c), t.caught_up_rows) for g, c, t in games),
    )
    yield _latency(games)


def _latency(games: _Games) -> Metric:
    family = HistogramMetricFamily(
        f"{PREFIX}stream_latency_seconds",
        "Source time to table commit, per landed row, without those caught up; the sum is estimated from the buckets.",
        labels=("game", "cluster_group"),
    )
    for game, group, totals in games:
        cumulated, total = [], 0
        for edge, count in zip((*LATENCY_EDGES_SECONDS, float("inf")), totals.latency_counts, strict=True):
            total += count
            cumulated.append(("+Inf" if math.isinf(edge) else str(edge), float(total)))
        estimate = sum(count * middle for count, middle in zip(totals.latency_counts, _MIDDLES_SECONDS, strict=True))
        family.add_metric((game, group), cumulated, estimate)
    return family


def _states(known: MetricsSnapshot) -> Iterator[Metric]:
    """Yield the watchdog's observations of each stream."""
    states = tuple((known.states or {}).values())
    yield _gauge(
        "stream_status",
        "1 for the stream's present status, 0 for every other.",
        ("game", "cluster_group", "status"),
        (((s.game_key, s.group, status), float(s.status == status)) for s in states for status in Status),
    )
    yield _gauge(
        "stream_info",
        "The stream's cluster group and lane; always 1.",
        ("game", "cluster_group", "lane"),
        (((s.game_key, s.group, s.lane), 1.0) for s in states),
    )
    yield _gauge(
        "stream_backlog_age_seconds",
        "Age of the oldest bronze commit that is not in the game's table; absent when unknown.",
        ("game", "cluster_group"),
        (((s.game_key, s.group), s.backlog_age_seconds) for s in states),
    )


def _groups(known: MetricsSnapshot) -> Iterator[Metric]:
    groups = known.groups.items()
    yield _gauge(
        "group_heartbeat_timestamp_seconds",
        "Time of the last heartbeat of the group's driver.",
        ("cluster_group",),
        (((name,), totals.heartbeat_at) for name, totals in groups),
    )
    yield _gauge(
        "group_pass_duration_seconds",
        "How long the last pass took.",
        ("cluster_group",),
        (((name,), totals.pass_seconds) for name, totals in groups),
    )
    yield _counter(
        "group_passes",
        "Passes since the driver started.",
        ("cluster_group",),
        (((name,), t.passes) for name, t in groups),
    )
    yield _counter(
        "group_pass_phase_seconds",
        "Time spent in each phase of the passes.",
        ("cluster_group", "phase"),
        (((name, phase), seconds) for name, t in groups for phase, seconds in t.phases_seconds.items()),
    )
    yield _gauge(
        "group_frontier_seq",
        "Last bronze seq the group has passed.",
        ("cluster_group",),
        (((name,), totals.frontier_seq) for name, totals in groups),
    )
    lanes = Counter((state.group, str(state.lane)) for state in (known.states or {}).values())
    yield _gauge(
        "group_streams",
        "Streams of the group by lane.",
        ("cluster_group", "lane"),
        (((name, lane), lanes[name, lane]) for name in known.groups if known.states is not None for lane in Lane),
    )


def _queries(known: MetricsSnapshot) -> Iterator[Metric]:
    yield _gauge(
        "query_batch_duration_seconds",
        "How long each phase of the query's last micro-batch took, as Spark reports.",
        ("query", "phase"),
        (
            ((name, phase), milliseconds / 1000)
            for name, totals in known.queries.items()
            for phase, milliseconds in totals.durations_ms.items()
        ),
    )
    yield _counter(
        "query_input_rows",
        "Rows read by the query; a batch that reads its input twice may count twice.",
        ("query",),
        (((name,), totals.input_rows) for name, totals in known.queries.items()),
    )


def _process(known: MetricsSnapshot) -> Iterator[Metric]:
    """Yield the metrics of the whole process: ingest, its judgement of the fleet, and the telemetry itself."""
    ingest, own = known.ingest, known.own
    rows: Mapping[str, int | None] = {} if ingest is None else {"ok": ingest.accepted, "rejected": ingest.refused}
    yield _counter(
        "ingest_rows",
        "Rows landed in bronze: for a game (ok) or refused (rejected).",
        ("result",),
        (((result,), amount) for result, amount in rows.items()),
    )
    yield _counter(
        "ingest_clock_rows",
        "Rows landed in bronze by whose clock their source time is, from which latency is measured.",
        ("clock",),
        (((clock,), amount) for clock, amount in (ingest.clocks if ingest else {}).items()),
    )
    yield _gauge("ingest_seq", "Last bronze seq committed.", (), [((), ingest.seq if ingest else None)])
    yield _gauge(
        "ingest_last_commit_timestamp_seconds",
        "When bronze was last committed to.",
        (),
        [((), ingest.last_commit_at if ingest else None)],
    )
    fleet = known.fleet
    yield _gauge(
        "fleet_problems",
        "Problems that need an operator, as `turnout status` judges; all 0: the fleet is healthy.",
        ("problem",),
        (((problem,), amount) for problem, amount in (fleet.counts if fleet else {}).items()),
    )
    yield _gauge(
        "fleet_group_stopped",
        "1 for a group that is down as configured, such as a stopped group.",
        ("cluster_group",),
        (((name,), 1.0) for name in (fleet.stopped_groups if fleet else ())),
    )
    yield _gauge(
        "fleet_group_down",
        "1 for a group that should run and has no driver that runs, 0 for the others that should run.",
        ("cluster_group",),
        (((name,), float(is_down)) for name, is_down in (fleet.wanted_groups if fleet else {}).items()),
    )
    yield _gauge(
        "fleet_game_stranded",
        "1 for a game whose group is down.",
        ("game", "cluster_group"),
        ((each, 1.0) for each in (fleet.stranded_games if fleet else ())),
    )
    yield _gauge(
        "game_through_timestamp_seconds",
        "The game's table has every record that the source had by then; absent when unknown.",
        ("game",),
        (((game,), at) for game, at in (fleet.through if fleet else {}).items()),
    )
    yield _gauge(
        "bronze_through_timestamp_seconds",
        "Bronze has every record that the source had by then; absent when unknown.",
        (),
        [((), fleet.bronze_through if fleet else None)],
    )
    yield _gauge(
        "fleet_judged_timestamp_seconds",
        "When the fleet was last judged.",
        (),
        [((), fleet.judged_at if fleet else None)],
    )
    taken, failed = known.through_posts or (None, None)
    yield _counter(
        "through_posts",
        "Posts that a game is complete through an interval: taken by the receiver (ok) or not (failed).",
        ("result",),
        ((("ok",), taken), (("failed",), failed)),
    )
    yield _counter("listener_events_dropped", "Events lost because too many waited.", (), [((), own.events_dropped)])
    yield _counter("listener_errors", "Events lost because they could not be read.", (), [((), own.listener_errors)])
    yield _gauge("outbox_items", "Events waiting to be published.", (), [((), own.outbox_items)])
    yield _counter("metrics_flush_failures", "Failed writes of the metrics tables.", (), [((), own.flush_failures)])
    yield _counter(
        "metrics_push_failures", "Failed pushes to the Pushgateway or by OTLP.", (), [((), own.push_failures)]
    )
    yield _counter(
        "driver_cpu_seconds",
        "CPU time that the driver used with the processes below it: JVM and workers; absent where it is not measured.",
        (),
        [((), own.cpu_seconds)],
    )


def _control(known: MetricsSnapshot) -> Iterator[Metric]:
    """Yield the controller's work as ingest has read it; nothing where the control store cannot be read."""
    if known.controller_metrics is not None:
        yield from _controller(known.controller_metrics)
        yield from _derived(known.controller_metrics.derived)
        yield _gauge(
            "derived_left_out_types",
            "Event types that a rule chooses and that have no silver table, as a cap is reached; absent where none is.",
            ("game",),
            (((game,), count) for game, count in known.controller_metrics.left_out_types.items()),
        )
        yield _gauge(
            "books_due_timestamp_seconds",
            "When the oldest open day of the game is due to close; absent if no closer has looked at its days.",
            ("game",),
            (((game,), due) for game, due in known.controller_metrics.books_due.items()),
        )


def _controller(seen: ControllerMetrics) -> Iterator[Metric]:
    yield _gauge(
        "controller_running",
        "1 while a controller is known to run, 0 otherwise; absent while the control store keeps it from reporting.",
        (),
        [((), seen.is_controller_running)],
    )
    yield _gauge(
        "controller_supervised_groups",
        "Groups whose drivers the controller should keep running.",
        (),
        [((), seen.supervised_groups)],
    )
    yield _gauge(
        "operations_open",
        "Open operations by state; needs_human needs an operator.",
        ("state",),
        (((state,), amount) for state, amount in seen.open_operations.items()),
    )
    yield _gauge(
        "operations_needs_human_since_timestamp_seconds",
        "Since when an operation has needed an operator, the oldest of them.",
        (),
        [((), seen.oldest_stuck_since)],
    )
    yield _gauge(
        "source_backlog_seconds",
        "Age of the oldest row in the source that is not in bronze; absent when unknown.",
        (),
        [((), seen.source_age_seconds)],
    )
    yield _gauge(
        "source_backlog_rows",
        "Rows in the source that are not in bronze; absent when unknown.",
        (),
        [((), seen.source_rows)],
    )
    yield _gauge(
        "source_silent_after_seconds",
        "Seconds without a row after which the source is silent; absent while rows wait, and when unknown.",
        (),
        [((), seen.source_silent_after)],
    )
    yield _gauge(
        "sources_backlog_seconds",
        "Age of the oldest row in one of several sources that is not in bronze; absent when unknown.",
        ("source",),
        (((name,), age) for name, (age, _) in seen.sources.items()),
    )
    yield _gauge(
        "sources_backlog_rows",
        "Rows in one of several sources that are not in bronze; absent when unknown.",
        ("source",),
        (((name,), rows) for name, (_, rows) in seen.sources.items()),
    )
    yield _gauge(
        "registry_mistrusted_since_timestamp_seconds",
        "Since when turnout takes no new schema from a registry, because it gave a known id another content.",
        ("registry",),
        (((name,), since) for name, since in seen.mistrusted.items()),
    )
    causes = (seen.incidents or {}).items()
    yield _gauge(
        "contract_reader_info",
        "A reader who relies on an output contract in force, as its file names them; always 1.",
        ("contract", "reader"),
        (((name, each), 1.0) for name, readers in seen.contract_readers.items() for each in readers),
    )
    yield _gauge(
        "contract_stale",
        "1 while a game is not as fresh as the contract promises, or nobody knows it; 0 while it is.",
        ("contract", "game"),
        ((about, float(is_stale)) for about, is_stale in seen.stale_contracts.items()),
    )
    yield _gauge(
        "incidents_open",
        "Open incidents by cause; absent when nobody judges causes.",
        ("cause",),
        (((cause,), amount) for cause, (amount, _) in causes),
    )
    yield _gauge(
        "incident_games",
        "Games of open incidents by cause; absent when nobody judges causes.",
        ("cause",),
        (((cause,), games) for cause, (_, games) in causes),
    )
    waiting = seen.evacuations.items()
    yield _gauge(
        "evacuation_waiting_games",
        "Games of a dead group that cannot go to another one.",
        ("cluster_group",),
        (((name,), games) for name, (games, _) in waiting),
    )
    yield _gauge(
        "evacuation_waiting_since_timestamp_seconds",
        "Since when games of a dead group cannot go to another one.",
        ("cluster_group",),
        (((name,), since) for name, (_, since) in waiting),
    )
    yield _gauge(
        "maintenance_overdue_seconds",
        "How long a successful round of maintenance is overdue; 0 when none is due.",
        (),
        [((), seen.maintenance_overdue_seconds)],
    )
    yield _gauge(
        "maintenance_last_round_timestamp_seconds",
        "When the last round of maintenance ended, and the last successful one.",
        ("result",),
        [(("any",), None if seen.last_round is None else seen.last_round[0]), (("ok",), seen.last_good_round_at)],
    )
    yield _gauge(
        "maintenance_last_round_ok",
        "1 if no table failed in the last round of maintenance, 0 otherwise.",
        (),
        [((), None if seen.last_round is None else float(seen.last_round[1]))],
    )
    yield _gauge(
        "access_drift_findings",
        "Differences between the catalog and the declared access, without ignored ones.",
        ("class",),
        (((name,), amount) for name, amount in (seen.drift or {}).items()),
    )
    yield _gauge(
        "access_overdue_grants",
        "Grants that have been over for 5 minutes and that no read of the catalog has shown as revoked.",
        (),
        [((), seen.overdue_access)],
    )
    yield _gauge(
        "access_read_timestamp_seconds",
        "When the controller last read the whole catalog.",
        (),
        [((), seen.access_read_at)],
    )


def _derived(streams: Sequence[DerivedMetrics]) -> Iterator[Metric]:
    labels = ("derived", "game", "cluster_group")
    named = [((each.name, each.game, each.group), each) for each in streams]
    yield _gauge(
        "derived_info",
        "A derived stream in force, with its game and the group that carries it; always 1.",
        labels,
        ((values, 1.0) for values, _ in named),
    )
    yield _gauge(
        "derived_reported_timestamp_seconds",
        "When a driver last said how the derived stream is; absent if none ever did.",
        labels,
        ((values, each.reported_at) for values, each in named),
    )
    yield _gauge(
        "derived_rows",
        "Rows of the derived stream's table at its last report.",
        labels,
        ((values, each.rows) for values, each in named),
    )
    yield _counter(
        "derived_duplicate_rows",
        "Rows left out as second ones of an event since the silver table's generation began; absent when unknown.",
        labels,
        ((values, each.duplicates) for values, each in named),
    )
    yield _gauge(
        "contract_unique_info",
        "An output contract that promises the column by which the silver table compares rows to be unique; always 1.",
        ("contract", "derived"),
        (((contract, each.name), 1.0) for _, each in named for contract in each.unique_by),
    )
    yield _gauge(
        "derived_generation",
        "Generation of the derived stream's table at its last report.",
        labels,
        ((values, each.generation) for values, each in named),
    )
    yield _gauge(
        "derived_behind_commits",
        "Commits of its game's table that the derived stream has not read; absent when unknown.",
        labels,
        ((values, each.behind) for values, each in named),
    )
    yield _gauge(
        "derived_lag_seconds",
        "How long the derived stream has lacked rows of its game's table; absent when unknown.",
        labels,
        ((values, each.lag_seconds) for values, each in named),
    )
    yield _gauge(
        "derived_paused",
        "1 if a person has paused the derived stream, else 0.",
        labels,
        ((values, float(each.is_paused)) for values, each in named),
    )
    yield _gauge(
        "derived_stopped_since_timestamp_seconds",
        "Since when the derived stream stands still, with the kind of its error; absent if it does not.",
        (*labels, "error"),
        (((*values, each.stopped[0]), each.stopped[1]) for values, each in named if each.stopped is not None),
    )


def _shown_games(known: MetricsSnapshot) -> _Games:
    """Return (game, group, totals): the games with a state, or every game with results where none was ever reported."""
    if known.states is None:
        return [(game, totals.group, totals) for game, totals in known.games.items()]
    return [
        (game, state.group, known.games.get(game) or GameTotals(state.group)) for game, state in known.states.items()
    ]


def _cursor(known: MetricsSnapshot, game: str, totals: GameTotals) -> int | None:
    state = (known.states or {}).get(game)
    return totals.cursor_seq if state is None else state.cursor_seq


def _last_commit(known: MetricsSnapshot, game: str, totals: GameTotals) -> float | None:
    state = (known.states or {}).get(game)
    times = (totals.last_commit_at, None if state is None else state.last_commit_at)
    return max((at for at in times if at is not None), default=None)


def _counter(name: str, meaning: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, meaning, labels=labels), samples)


def _gauge(name: str, meaning: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, meaning, labels=labels), samples)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: _Samples) -> Metric:
    for values, amount in samples:
        if amount is not None and not math.isnan(amount):  # one NaN would poison every sum
            family.add_metric(values, amount)
    return family
