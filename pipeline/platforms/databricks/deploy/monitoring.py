"""Writes resources/alerts.yml and resources/turnout.lvdash.json: SQL over the metrics tables, from the objectives.

`python -m pipeline.platforms.databricks.deploy.monitoring` writes them, in a checkout; a test refuses files that are
not up to date. They say what docs/grafana and `turnout alerts write` say of Prometheus, by the minute: a warehouse is
no second pair of eyes. Format of the dashboard: AI/BI's own file, as Databricks' pages and public examples show it.
"""

import json
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from listeners.metrics_schema import INGEST_MINUTE, STREAM_MINUTE
from listeners.sample import LATENCY_EDGES_SECONDS
from pipeline.health.alerting.objectives import Objective, default
from pipeline.platforms.databricks.deploy.kinds.kind import mark
from pipeline.settings.tree import Settings

ALERTS: Final = Path("resources/alerts.yml")
DASHBOARD: Final = Path("resources/turnout.lvdash.json")

_HEAD: Final = (
    "# Made by `python -m pipeline.platforms.databricks.deploy.monitoring` from the objectives; do not edit.\n"
)
_SCHEMA: Final = "${var.catalog}.${var.schema}."
_BROKEN: Final = "'CRASH_LOOP', 'FAILED', 'MISSING', 'STALLED', 'UNKNOWN'"
_EXCUSED: Final = "'PAUSED', 'BACKFILLING', 'STARTING'"
_QUANTILE: Final = 0.95
_MINUTES: Final = {"5m": 5, "30m": 30, "1h": 60, "2h": 120, "6h": 360, "1d": 1_440, "3d": 4_320}
_BURNS: Final = (  # as in pipeline.health.alerting.burn: name, pairs of windows and the budget's share, minutes between
    ("misses its objective", (("1h", "5m", 0.02),), 5),
    ("has missed its objective for hours", (("6h", "30m", 0.05),), 15),
    ("will miss its objective if this goes on", (("1d", "2h", 0.10), ("3d", "6h", 0.10)), 60),
)
_ONCE_INGEST: Final = "SELECT DISTINCT minute, backlog_age_seconds, rows, refused, writer, row FROM "
_LATE_SECONDS: Final = 600  # after which minutes of a table are missed
_PERMISSIONS: Final = [
    {"level": "CAN_MANAGE", "group_name": "${var.admins}"},
    {"level": "CAN_READ", "group_name": "${var.operators}"},
]


def missed_minutes(objective: Objective, others: Sequence[Objective], latency_seconds: float, schema: str) -> str:
    """Return a query of which minutes each game of a class missed, 0 or 1, of the last 3 days.

    `others` are the classes before it: a game belongs to the first that names it. A row that was written twice counts
    once.
    """
    latest = objective.latency_seconds or latency_seconds
    above = bisect_right(LATENCY_EDGES_SECONDS, latest) + 1  # the first bucket above, counted from 1
    games = [f"NOT game_key RLIKE '^(?:{each.games})$'" for each in others if each.games is not None]
    games += [] if objective.games is None else [f"game_key RLIKE '^(?:{objective.games})$'"]
    where = "".join(f"\n    AND {each}" for each in games)
    total = "aggregate(latency_counts, 0L, (a, n) -> a + n)"
    late = f"aggregate(slice(latency_counts, {above}, {len(LATENCY_EDGES_SECONDS) + 1}), 0L, (a, n) -> a + n)"
    return f"""\
WITH minute_rows AS (
  SELECT DISTINCT minute, game_key, status, backlog_age_seconds, latency_counts, writer, row
  FROM {schema}{STREAM_MINUTE.name}
  WHERE event_date >= current_date() - INTERVAL 4 DAYS{where}
), minutes AS (
  SELECT minute, game_key, max(backlog_age_seconds) AS age,
    max(status IN ({_BROKEN})) AS is_broken, max(status IN ({_EXCUSED})) AS is_excused,
    sum({total}) AS landed,
    sum({late}) AS landed_late
  FROM minute_rows GROUP BY minute, game_key
), missed AS (
  SELECT minute, game_key, CASE
    WHEN is_broken THEN 1
    WHEN is_excused THEN 0
    WHEN age > {latest:g} OR landed_late > {1 - _QUANTILE:g} * landed THEN 1
    ELSE 0 END AS missed
  FROM minutes
)"""  # noqa: S608 - made of constants


def burn_query(
    objective: Objective,
    others: Sequence[Objective],
    pairs: Sequence[tuple[str, str, float]],
    latency_seconds: float,
    schema: str = _SCHEMA,
) -> str:
    """Return a query of `burn` for each game: above 1 it spends its budget too fast, in a long and a short window."""
    either = []
    for long, short, spent in pairs:
        most = objective.factor(spent, _MINUTES[long] / 60) * objective.budget
        shares = ", ".join(
            f"sum(IF(minute > last - INTERVAL {_MINUTES[each]} MINUTES, missed, 0)) / {_MINUTES[each]}"
            for each in (long, short)
        )
        either.append(f"least({shares}) / {most:.6g}")
    burn = either[0] if len(either) == 1 else f"greatest({', '.join(either)})"
    return f"""\
{missed_minutes(objective, others, latency_seconds, schema)}
SELECT game_key, {burn} AS burn
FROM missed CROSS JOIN (SELECT max(minute) AS last FROM missed)
GROUP BY game_key"""  # noqa: S608 - made of constants


def alerts_text(objectives: Sequence[Objective], latency_seconds: float) -> str:
    """Return the content of resources/alerts.yml."""
    alerts: dict[str, Any] = {}
    for place, objective in enumerate(objectives):
        for number, (what, pairs, minutes) in enumerate(_BURNS, 1):
            query = burn_query(objective, objectives[:place], pairs, latency_seconds)
            key = f"burn_{objective.name.replace('-', '_')}_{number}"
            said = f"a game of class {objective.name} {what}"
            alerts[key] = _alert(said, query, "burn", 1.0, minutes)
    since = "timestampdiff(SECOND, max(minute), current_timestamp())"
    where = "WHERE event_date >= current_date() - INTERVAL 2 DAYS"
    for table, said in ((STREAM_MINUTE.name, "no group"), (INGEST_MINUTE.name, "no ingest")):
        silent = f"coalesce({since}, {_LATE_SECONDS * 10}) AS silent_seconds"
        query = f"SELECT {silent} FROM {_SCHEMA}{table}\n{where}"  # noqa: S608 - made of constants
        alerts[f"silent_{table}"] = _alert(f"{said} reports its minutes", query, "silent_seconds", _LATE_SECONDS, 5)
    waits = f"SELECT max(backlog_age_seconds) AS waits_seconds FROM {_SCHEMA}{INGEST_MINUTE.name}\n{where}\n"  # noqa: S608 - made of constants
    waits += "  AND minute >= current_timestamp() - INTERVAL 10 MINUTES"
    said = "ingest cannot keep up with its source"
    alerts["source_backlog"] = _alert(said, waits, "waits_seconds", latency_seconds, 5)
    yaml.add_representer(_Lines, _as_block, _Dumper)
    return _HEAD + yaml.dump({"resources": {"alerts": alerts}}, Dumper=_Dumper, sort_keys=False, width=10_000)


class _Lines(str):
    """A text that stands in YAML as lines."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes `_Lines` as a block, and nothing as an alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _as_block(dumper: yaml.SafeDumper, lines: _Lines) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(lines), style="|")


def _alert(said: str, query: str, column: str, above: float, minutes: int) -> dict[str, Any]:
    """Return an alert of the second version, which fires where the largest value of a column is above a number."""
    every = f"0 0/{minutes} * * * ?" if minutes < 60 else "0 0 * * * ?"
    return {
        "display_name": f"turnout ${{var.environment}}: {said}",
        "custom_description": f"turnout: {said} ({mark('${var.environment}')})",
        "warehouse_id": "${var.warehouse}",
        "query_text": _Lines(query),
        "evaluation": {
            "source": {"name": column, "aggregation": "MAX"},
            "comparison_operator": "GREATER_THAN",
            "threshold": {"value": {"double_value": float(above)}},
            "empty_result_state": "OK",
            "notification": {"notify_on_ok": True, "subscriptions": [{"user_email": "${var.notify}"}]},
        },
        "schedule": {"quartz_cron_schedule": every, "timezone_id": "UTC", "pause_status": "UNPAUSED"},
        "permissions": _PERMISSIONS,
    }


def dashboard_text(objectives: Sequence[Objective], latency_seconds: float) -> str:
    """Return the content of resources/turnout.lvdash.json; its tables are in the dashboard's own schema."""
    first = objectives[-1]
    missed = missed_minutes(first, objectives[:-1], latency_seconds, "")
    stream = f"{STREAM_MINUTE.name}\nWHERE event_date >= current_date() - INTERVAL 2 DAYS"
    ingest = f"{INGEST_MINUTE.name}\nWHERE event_date >= current_date() - INTERVAL 2 DAYS"
    once = "SELECT DISTINCT minute, game_key, status, backlog_age_seconds, rows, refused, commits, writer, row FROM "
    datasets = {
        "missed": f"{missed}\nSELECT date_trunc('HOUR', minute) AS hour, game_key, avg(missed) AS share\nFROM missed\n"
        "GROUP BY 1, 2",
        "games": f"SELECT minute, game_key, max(backlog_age_seconds) AS age, sum(rows) AS landed, "
        f"sum(refused) AS refused, sum(commits) AS commits\nFROM ({once}{stream})\nGROUP BY 1, 2",
        "statuses": f"SELECT minute, status, count(DISTINCT game_key) AS games FROM {stream}\nGROUP BY 1, 2",  # noqa: S608 - made of constants
        "ingest": "SELECT minute, max(backlog_age_seconds) AS waits, sum(rows) AS landed, sum(refused) AS refused\n"
        f"FROM ({_ONCE_INGEST}{ingest})\nGROUP BY 1",
    }
    panels = [
        ("counter", "Games", "games", {"value": "COUNT(DISTINCT `game_key`)"}, (0, 0, 2, 3)),
        ("counter", "Longest wait in the source, seconds", "ingest", {"value": "MAX(`waits`)"}, (2, 0, 2, 3)),
        ("counter", "Refused rows in two days", "games", {"value": "SUM(`refused`)"}, (4, 0, 2, 3)),
        ("line", "Share of each hour that missed the objective", "missed",
         {"x": "`hour`", "y": "MAX(`share`)", "color": "`game_key`"}, (0, 3, 6, 6)),
        ("line", "Age of the oldest row that waits, seconds", "games",
         {"x": "`minute`", "y": "MAX(`age`)", "color": "`game_key`"}, (0, 9, 6, 6)),
        ("line", "Games by status", "statuses",
         {"x": "`minute`", "y": "SUM(`games`)", "color": "`status`"}, (0, 15, 3, 6)),
        ("line", "Landed rows a minute", "games", {"x": "`minute`", "y": "SUM(`landed`)"}, (3, 15, 3, 6)),
        ("line", "Wait in the source, seconds", "ingest", {"x": "`minute`", "y": "MAX(`waits`)"}, (0, 21, 3, 6)),
        ("line", "Refused rows a minute", "games", {"x": "`minute`", "y": "SUM(`refused`)"}, (3, 21, 3, 6)),
    ]  # fmt: skip
    content = {
        "datasets": [
            {
                "name": name,
                "displayName": name,
                "queryLines": [f"{line}\n" for line in text.splitlines()],
            }
            for name, text in datasets.items()
        ],
        "pages": [
            {
                "name": "turnout",
                "displayName": "turnout",
                "pageType": "PAGE_TYPE_CANVAS",
                "layout": [_widget(number, *panel) for number, panel in enumerate(panels)],
            }
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def _widget(
    number: int, kind: str, title: str, dataset: str, fields: Mapping[str, str], place: tuple[int, int, int, int]
) -> dict[str, Any]:
    scales = {"x": "temporal", "y": "quantitative", "color": "categorical"}
    encodings = {
        role: {"fieldName": role, "displayName": title if role in {"y", "value"} else role}
        | ({"scale": {"type": scales[role]}} if role in scales else {})
        for role in fields
    }
    query = {
        "datasetName": dataset,
        "fields": [{"name": role, "expression": expression} for role, expression in fields.items()],
        "disaggregated": False,
    }
    return {
        "widget": {
            "name": f"panel-{number}",
            "queries": [{"name": "main_query", "query": query}],
            "spec": {
                "version": 2 if kind == "counter" else 3,
                "widgetType": kind,
                "encodings": encodings,
                "frame": {"title": title, "showTitle": True},
            },
        },
        "position": dict(zip(("x", "y", "width", "height"), place, strict=True)),
    }


def texts() -> dict[Path, str]:
    """Return the content of each file, by its place in a checkout."""
    objectives, seconds = default(), Settings().metrics.latency_objective_seconds
    return {ALERTS: alerts_text(objectives, seconds), DASHBOARD: dashboard_text(objectives, seconds)}


def main() -> int:
    """Write the files into this checkout."""
    for path, text in texts().items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
