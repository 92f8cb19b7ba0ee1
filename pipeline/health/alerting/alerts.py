"""The Prometheus alerts for people on call. Every one has a heading in docs/alerts.md and a page in docs/runbooks."""

from collections.abc import Sequence
from typing import Final

from listeners.status import Status
from pipeline.health.alerting.alert import Alert, source_alerts
from pipeline.health.alerting.burn import burn_alerts
from pipeline.health.alerting.expressions import GROUP_SILENT, INGEST_SILENT, late, owned
from pipeline.health.alerting.objectives import Objective, default
from pipeline.settings.tree import Settings

_DEFAULTS: Final = Settings()

_GAME_PAGE: Final = "/game?game={{ $labels.game }}"
_FLEET_PAGE: Final = "/"
_GROUP_ON_FLEET: Final = "/?group={{ $labels.cluster_group }}"
_ACCESS_PAGE: Final = "/access"
_GROUPS_PAGE: Final = "/groups"
_OPERATIONS_PAGE: Final = "/operations"
_SCHEMAS_PAGE: Final = "/schemas"


def alerts(
    objective_seconds: float = _DEFAULTS.metrics.latency_objective_seconds,
    objectives: Sequence[Objective] | None = None,
) -> tuple[Alert, ...]:
    """Return all alerts, those about one game first, for a latency in seconds and the objectives of classes."""
    return (
        *_broken_streams(),
        *burn_alerts(default() if objectives is None else objectives, objective_seconds),
        *_late_streams(f"{objective_seconds:g}"),
        *_processes(),
        *source_alerts(f"{objective_seconds:g}"),
        _unhealthy(),
        *_control(),
        *_access(),
        *_telemetry_alerts(),
    )


def _broken_streams() -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutStreamDown",
            "page",
            # Aggregated over the statuses, so that a change from one to another does not start the wait again.
            owned('max by (game) (turnout_stream_status{status=~"FAILED|CRASH_LOOP|MISSING"}) == 1'),
            "2m",
            "The stream of {{ $labels.game }} is down",
            "The status is "
            '{{ range query (printf "turnout_stream_status{game=%q} == 1" $labels.game) }}'
            "{{ .Labels.status }} {{ end }}"
            "for more than 2 minutes: nothing of this game reaches its table.",
            _GAME_PAGE,
        ),
        Alert(
            "TurnoutStreamStalled",
            "page",
            owned(f'max by (game) (turnout_stream_status{{status="{Status.STALLED}"}}) == 1'),
            "3m",
            "The stream of {{ $labels.game }} stands still while rows wait",
            "{{ with query (printf "
            '"max(turnout_stream_backlog_age_seconds{game=%q})" $labels.game) }}'
            "The oldest waiting row is {{ . | first | value | humanizeDuration }} old."
            "{{ else }}How old the oldest waiting row is is unknown.{{ end }}",
            _GAME_PAGE,
            keep_firing="5m",
        ),
    )


def _late_streams(objective: str) -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutLatencyOverObjective",
            "ticket",
            owned(late(objective)),
            "5m",
            "{{ $labels.game }} is later than its objective",
            "{{ if eq $value 0.0 }}The age of its backlog is unknown{{ else }}"
            "Its backlog age or p95 latency is {{ $value | humanizeDuration }}{{ end }}; "
            f"the objective is {objective} s.",
            _GAME_PAGE,
        ),
        Alert(
            "TurnoutRejectRatioHigh",
            "ticket",
            owned(_REJECTS),
            "15m",
            "Rows of {{ $labels.game }} are being refused",
            "{{ $value | humanizePercentage }} of its rows went to quarantine; more than 1% for 15 minutes.",
            _GAME_PAGE,
        ),
    )


def _processes() -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutGroupDown",
            "page",
            GROUP_SILENT,
            "1m",
            "Cluster group {{ $labels.cluster_group }} is down",
            "{{ if lt $value 0.0 }}Its driver gave up, died, or dies at each start: `turnout status` says more"
            "{{ else if eq $value 0.0 }}Its /metrics could not be read for 2 minutes, or has no heartbeat"
            "{{ else }}Its last heartbeat is {{ $value | humanizeDuration }} old{{ end }}: "
            "all its games stand still.",
            _GROUP_ON_FLEET,
            keep_firing="3m",
        ),
        Alert(
            "TurnoutIngestStalled",
            "page",
            INGEST_SILENT,
            "5m",
            "Nothing arrives in bronze",
            "{{ if eq $value 0.0 }}No ingest process reports a commit{{ else }}"
            "The last bronze commit is {{ $value | humanizeDuration }} old{{ end }}: no game gets new rows.",
            _FLEET_PAGE,
        ),
    )


def _unhealthy() -> Alert:
    """Return the alert that fires wherever `turnout status` and the dashboard say that a person should look."""
    return Alert(
        "TurnoutFleetUnhealthy",
        "ticket",
        _UNHEALTHY,
        "2m",
        "The fleet needs a person",
        "{{ if eq $value 0.0 }}Nothing has judged the fleet for a minute{{ else }}`turnout status` finds problems:"
        '{{ range query "max by (problem) (turnout_fleet_problems) > 0" }} {{ .Value }} of kind {{ .Labels.problem }};'
        "{{ end }} {{ $value }} in all{{ end }}.",
        _FLEET_PAGE,
    )


def _control() -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutControllerDown",
            "ticket",
            _NO_CONTROLLER,
            "2m",
            "No controller runs, and it is needed",
            "Nothing restarts the drivers of "
            '{{ with query "max(turnout_controller_supervised_groups)" }}{{ . | first | value }}{{ end }} groups, and '
            "{{ with query \"sum(max by (state) (turnout_operations_open{state!='needs_human'}))\" }}"
            "{{ . | first | value }}{{ end }} operations wait. Streams go on.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutOperationNeedsPerson",
            "ticket",
            'max(turnout_operations_open{state="needs_human"}) > 0',
            "5m",
            "An operation needs a person",
            "{{ $value }} in all"
            '{{ with query "time() - min(turnout_operations_needs_human_since_timestamp_seconds)" }}, '
            "one of them for {{ . | first | value | humanizeDuration }}{{ end }}. "
            "`turnout ops list` shows the reason of each.",
            _OPERATIONS_PAGE,
        ),
        Alert(
            "TurnoutRegistryMistrusted",
            "ticket",
            "time() - min by (registry) (turnout_registry_mistrusted_since_timestamp_seconds) > 0",
            "1m",
            "Schema registry {{ $labels.registry }} contradicts itself",
            "It gave a known id another content {{ $value | humanizeDuration }} ago. turnout keeps the first one and "
            "takes no new schema from it; games that need one wait.",
            _SCHEMAS_PAGE,
        ),
        Alert(
            "TurnoutMaintenanceOverdue",
            "ticket",
            "max(turnout_maintenance_overdue_seconds) > 0\nor\n"
            '0 * (absent(turnout_maintenance_overdue_seconds) and on () (count(up{job="turnout"}) > 0))',
            "15m",
            "Tables are not maintained",
            "{{ if eq $value 0.0 }}Whether rounds end well is not known{{ else }}A round that ends well has been due "
            "for {{ $value | humanizeDuration }}{{ end }}. `turnout status` says more.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutEvacuationWaits",
            "page",
            "max by (cluster_group) (turnout_evacuation_waiting_games) > 0",
            "5m",
            "Games of dead group {{ $labels.cluster_group }} cannot go to another one",
            "{{ $value }} games stand still in it"
            '{{ with query (printf "time() - min(turnout_evacuation_waiting_since_timestamp_seconds'
            '{cluster_group=%q})" $labels.cluster_group) }}, '
            "for {{ . | first | value | humanizeDuration }}{{ end }}. `turnout status` says what they wait for.",
            _GROUPS_PAGE,
        ),
    )


def _access() -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutAccessDrift",
            "ticket",
            "sum(max by (class) (turnout_access_drift_findings)) > 0",
            "15m",
            "Access in the catalog is not as it was declared",
            '{{ range query "max by (class) (turnout_access_drift_findings) > 0" }}{{ .Value }} of class '
            "{{ .Labels.class }}; {{ end }}{{ $value }} in all. `turnout grants drift` names them.",
            _ACCESS_PAGE,
        ),
        Alert(
            "TurnoutAccessOverdue",
            "ticket",
            "max(turnout_access_overdue_grants) > 0",
            "2m",
            "Access that is over is not revoked",
            "{{ $value }} grants have been over for 5 minutes, and no read of the catalog shows them as revoked. "
            "`turnout incidents` names who and what.",
            _ACCESS_PAGE,
        ),
        Alert(
            "TurnoutAccessUnknown",
            "ticket",
            _ACCESS_UNKNOWN,
            "15m",
            "Whether access has drifted is not known",
            "{{ if eq $value 0.0 }}The catalog was read, but not all of it can be seen{{ else }}"
            "The catalog was last read {{ $value | humanizeDuration }} ago{{ end }}. The page Access says why.",
            _ACCESS_PAGE,
        ),
    )


def _telemetry_alerts() -> tuple[Alert, ...]:
    return (
        Alert(
            "TurnoutListenerLagging",
            "ticket",
            "sum by (cluster_group, instance) (rate(turnout_listener_events_dropped_total[5m])) > 0",
            "10m",
            "A driver loses monitoring events",
            "{{ $labels.instance }} drops {{ $value | humanize }} events per second: "
            "metrics are incomplete, rows are not.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutMetricsStale",
            "ticket",
            _STALE,
            "2m",
            "What is known of the fleet is incomplete",
            "`turnout metrics serve` {{ if $labels.place }}cannot read {{ $labels.place }}"
            "{{ else if $labels.kind }}gets no rows of {{ $labels.kind }} {{ $labels.cluster_group }}, which beats"
            "{{ else }}does not answer{{ end }}: what other alerts need is missing. Rows of games are not affected.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutWatchdog",
            "none",
            "vector(1)",
            "0m",
            "Alerting works",
            "Always fires. When it stops arriving, Prometheus or the way from it to you is broken.",
            _FLEET_PAGE,
        ),
    )


_REJECTS: Final = """\
sum by (game) (rate(turnout_stream_rows_total{result="rejected"}[10m]))
/
sum by (game) (rate(turnout_stream_rows_total[10m]))
> 0.01"""

# Ingest exports the judgement: without it the fleet is unhealthy anyway, so an absent or old judgement counts as that.
_UNHEALTHY: Final = """\
sum(max by (problem) (turnout_fleet_problems)) > 0
or
0 * (time() - max(turnout_fleet_judged_timestamp_seconds) > 60)
or
0 * (absent(turnout_fleet_judged_timestamp_seconds) and on () (count(up{job="turnout"}) > 0))"""

# Where ingest cannot read the control store these series are absent, and the judgement above grows old.
_NO_CONTROLLER: Final = """\
max(turnout_controller_running) == 0
and on () (
  max(turnout_controller_supervised_groups) > 0
  or
  sum(max by (state) (turnout_operations_open{state!="needs_human"})) > 0
)"""

# A place that cannot be read for 2 minutes, a driver whose rows do not come, or a bridge that does not answer.
_STALE: Final = """\
max by (place) (max_over_time(turnout_metrics_serve_up[2m])) == 0
or
0 * (max by (kind, cluster_group) (turnout_metrics_serve_driver_late) == 1)
or
max by (instance) (max_over_time(up{job="turnout",kind="bridge"}[2m])) == 0"""

# The longest time between two looks, access.refresh_seconds, is an hour. Without a controller its own alert is enough.
_ACCESS_UNKNOWN: Final = f"""\
(
  time() - max(turnout_access_read_timestamp_seconds) > 7200
  or
  0 * (max(turnout_access_read_timestamp_seconds) unless on () turnout_access_drift_findings)
)
unless on () (
{_NO_CONTROLLER}
)"""
