"""The Prometheus alerts for people on call. Every one has a heading in docs/alerts.md and a page in docs/runbooks."""

from collections.abc import Sequence
from typing import Final

from listeners.status import Status
from pipeline.health.alerting.burn import burn_alerts
from pipeline.health.alerting.expressions import late_games, owned
from pipeline.health.alerting.objectives import Objective, default
from pipeline.health.kinds.controller import NO_CONTROLLER
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.processes import ProcessKind
from pipeline.settings.tree import Settings

_DEFAULTS: Final = Settings()

_GAME_PAGE: Final = "/game?game={{ $labels.game }}"
_DERIVED_TAB: Final = f"{_GAME_PAGE}&rows=derived"
_CONTRACT_TAB: Final = f"{_GAME_PAGE}&rows=contract"
_FLEET_PAGE: Final = "/"
_ACCESS_PAGE: Final = "/access"
_GROUPS_PAGE: Final = "/groups"
_OPERATIONS_PAGE: Final = "/operations"
_SCHEMAS_PAGE: Final = "/schemas"


def alerts(
    objective_seconds: float = _DEFAULTS.metrics.latency_objective_seconds,
    objectives: Sequence[Objective] | None = None,
    kinds: Sequence[ProcessKind] | None = None,
) -> tuple[Alert, ...]:
    """Return all alerts, those about one game first, for a latency in seconds and the objectives of classes.

    `kinds` are the kinds of processes, by default those that are registered.
    """
    return (
        *_broken_streams(),
        *burn_alerts(default() if objectives is None else objectives, objective_seconds),
        *_late_streams(f"{objective_seconds:g}"),
        _contract_stale(),
        _contract_not_unique(),
        _derived_stopped(),
        _types_without_table(),
        _day_not_closed(),
        *(each.alert for each in (registered() if kinds is None else kinds) if each.alert is not None),
        _certificate_expires(),
        *_source_alerts(f"{objective_seconds:g}"),
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
            owned(late_games(objective)),
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
            "Rows of {{ $labels.game }} were refused within the last 10 minutes",
            "{{ with query (printf "
            f'"{_REJECTED}" $labels.game) }}}}About {{{{ . | first | value | printf "%.0f" }}}} rows, {{{{ end }}}}'
            "{{ $value | humanizePercentage }} of its rows of these 10 minutes, went to quarantine.",
            _GAME_PAGE,
        ),
        Alert(
            "TurnoutContractViolated",
            "ticket",
            owned(_VIOLATIONS),
            "15m",
            "Rows of {{ $labels.game }} break its output contract",
            "For 15 minutes; rows within the last 10 minutes, by rule:"
            "{{ range query (printf "
            '"sum by (rule) (increase(turnout_stream_contract_violations_total{game=%q}[10m])) > 0" $labels.game) }}'
            " {{ .Labels.rule }} {{ .Value | humanize }};"
            "{{ end }} readers:{{ range query (printf "
            f'"{_READERS}" $labels.game) }}}} {{{{ .Labels.reader }}}};{{{{ else }}}} none named;'
            "{{ end }} `turnout contracts show` has the rules.",
            _GAME_PAGE,
        ),
    )


def _contract_stale() -> Alert:
    return Alert(
        "TurnoutContractStale",
        "ticket",
        "max by (contract, game) (turnout_contract_stale) == 1",
        "2m",
        "{{ $labels.game }} is not as fresh as its contract promises",
        "The contract is {{ $labels.contract }}; readers:{{ range query (printf "
        '"max by (reader) (turnout_contract_reader_info{contract=%q})" $labels.contract) }}'
        " {{ .Labels.reader }};{{ else }} none named;{{ end }} `turnout contracts show` with the game has the times.",
        _CONTRACT_TAB,
    )


def _contract_not_unique() -> Alert:
    return Alert(
        "TurnoutContractNotUnique",
        "ticket",
        "max by (derived, game) (increase(turnout_derived_duplicate_rows_total[10m])) > 0 "
        "and on (derived) max by (derived) (turnout_contract_unique_info)",
        "15m",
        "Rows of {{ $labels.game }} come twice that its contract promises once",
        "For 15 minutes; silver {{ $labels.derived }} left out {{ $value | humanize }} second rows within the last 10. "
        "Contracts:{{ range query (printf "
        '"max by (contract) (turnout_contract_unique_info{derived=%q})" $labels.derived) }}'
        " {{ .Labels.contract }};{{ end }} `turnout contracts show` with the game has the column.",
        _CONTRACT_TAB,
    )


def _derived_stopped() -> Alert:
    return Alert(
        "TurnoutDerivedStopped",
        "ticket",
        _DERIVED,
        "10m",
        "Derived stream {{ $labels.derived }} stands still",
        "{{ if eq $value 0.0 }}No driver says how it is{{ else }}It fails with "
        '{{ with query (printf "turnout_derived_stopped_since_timestamp_seconds{derived=%q}" $labels.derived) }}'
        '{{ . | first | label "error" }}{{ end }}, for {{ $value | humanizeDuration }}{{ end }}. '
        "Its game goes on; `turnout derived list` has the reason.",
        _DERIVED_TAB,
    )


def _types_without_table() -> Alert:
    return Alert(
        "TurnoutTypesWithoutTable",
        "ticket",
        "max by (game) (turnout_derived_left_out_types) > 0",
        "10m",
        "{{ $labels.game }} has event types without a silver table",
        "A rule chooses {{ $value }} more than a cap allows. `turnout derived list` names them and the setting.",
        _DERIVED_TAB,
    )


def _day_not_closed() -> Alert:
    return Alert(
        "TurnoutDayNotClosed",
        "ticket",
        "time() - min by (game) (turnout_books_due_timestamp_seconds) > 3600",
        "10m",
        "A day of {{ $labels.game }} has not closed",
        "It was due {{ $value | humanizeDuration }} ago. `turnout books show` with the game has the reason.",
        _GAME_PAGE,
    )


def _certificate_expires() -> Alert:
    return Alert(
        "TurnoutEdgeCertificateExpires",
        "ticket",
        _CERTIFICATE,
        "5m",
        "The certificate of the edge {{ $labels.edge }} was not renewed",
        "It {{ if lt $value 0.0 }}has expired: clients connect no more{{ else }}expires in "
        "{{ $value | humanizeDuration }}{{ end }}. The edge reads its files again when they change.",
        "/",
    )


def _source_alerts(objective: str) -> tuple[Alert, ...]:
    """Return those about the backlog of the source, for a latency objective in seconds."""
    return (
        Alert(
            "TurnoutSourceBacklog",
            "page",
            _SOURCE_LATE.replace("OBJECTIVE", objective),
            "3m",
            "Ingest cannot keep up with its source",
            "The oldest row that is not in bronze is {{ $value | humanizeDuration }} old"
            '{{ with query "max(turnout_source_backlog_rows)" }}, and {{ . | first | value | humanize }} rows wait'
            f"{{{{ end }}}}; the objective is {objective} s. Every game is at least that late.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutSourceUnknown",
            "ticket",
            _SOURCE_UNKNOWN,
            "5m",
            "What waits in the source is not known",
            "Ingest runs and cannot measure it; `turnout status` says why. Every game may be late without a sign.",
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


# A seventh of its lifetime is left: two weeks of 90 days, and nine minutes of an hour. Tools renew after two thirds.
_CERTIFICATE: Final = """\
min by (edge) (turnout_edge_certificate_expires_timestamp_seconds) - time()
< min by (edge) (turnout_edge_certificate_lifetime_seconds) / 7"""

# A batch that ends takes most of a backlog at once, so that its age falls and rises with each: the highest counts.
_SOURCE_LATE: Final = "max(max_over_time(turnout_source_backlog_seconds[2m])) > OBJECTIVE"

# Ingest exports both: where it is dead, other alerts say so. The first is there as long as it runs and reads the store.
_SOURCE_UNKNOWN: Final = """\
0 * (max(turnout_fleet_judged_timestamp_seconds) unless on () turnout_source_backlog_seconds)"""

_REJECTED: Final = r"sum(increase(turnout_stream_rows_total{game=%q,result=\"rejected\"}[10m]))"
"""Rows of a game that were refused lately, within a format of Go."""

_REJECTS: Final = """\
sum by (game) (rate(turnout_stream_rows_total{result="rejected"}[10m]))
/
sum by (game) (rate(turnout_stream_rows_total[10m]))
> 0.01"""

# A row now and then raises nothing: the wait is longer than the window.
_READERS: Final = (
    "max by (reader) (turnout_contract_reader_info and on (contract) label_replace("
    "increase(turnout_stream_contract_violations_total{game=%q}[10m]) > 0, "
    r"\"contract\", \"$1\", \"rule\", \"([^/]*)/.*\"))"
)
"""Readers of the contracts that rows of a game broke lately, within a format of Go."""

_VIOLATIONS: Final = "sum by (game) (increase(turnout_stream_contract_violations_total[10m])) > 0"

# A stream that nobody reports stands still, too (value 0), unless its group does not run: that has an alert of its own.
# One that a person has paused raises nothing, also if no driver runs.
_DERIVED: Final = """\
time() - max by (derived, game, cluster_group) (turnout_derived_stopped_since_timestamp_seconds)
or on (derived)
0 * (
  max by (derived, game, cluster_group) (turnout_derived_info)
  unless on (derived) (time() - max by (derived) (turnout_derived_reported_timestamp_seconds) < 300)
  unless on (derived) max by (derived) (turnout_derived_paused) == 1
  unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_stopped)
  unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_down) == 1
)"""

# Ingest exports the judgement: without it the fleet is unhealthy anyway, so an absent or old judgement counts as that.
_UNHEALTHY: Final = """\
sum(max by (problem) (turnout_fleet_problems)) > 0
or
0 * (time() - max(turnout_fleet_judged_timestamp_seconds) > 60)
or
0 * (absent(turnout_fleet_judged_timestamp_seconds) and on () (count(up{job="turnout"}) > 0))"""

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
{NO_CONTROLLER}
)"""
