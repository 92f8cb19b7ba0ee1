"""PromQL that several rules share: which group has a game, which group is silent, which game is late."""

from typing import Final

from pipeline.health.verdicts.source import SILENT_SOURCE_SECONDS

# While a game moves, two drivers may tell its series for a moment. A join that meets two owners fails, and with it the
# alert; and which of equals `topk` names depends on the order of the series in Prometheus's storage. So where there are
# two the alert names none.
OWNER: Final = (
    "(max by (game, cluster_group) (turnout_stream_info) and on (game) "
    "count by (game) (count by (game, cluster_group) (turnout_stream_info)) == 1)"
)

# Ingest exports the judgement with its time; what is older than a minute says nothing of now.
_JUDGED: Final = "time() - max(turnout_fleet_judged_timestamp_seconds) < 60"

# A scrape of a group's driver, answered or not, or its heartbeat.
_HEARD: Final = """\
    max by (cluster_group) (up{job="turnout",kind!~"ingest|bridge"})
    or on (cluster_group) max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m]))"""

# The target file of a driver that was killed stays, also when its group is stopped or removed. An ingest that tells of
# no group at all knows of none.
_UNWANTED: Final = f"""\
  (
{_HEARD}
  )
  unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_down)
  and on () (max(turnout_fleet_group_down) or max(turnout_fleet_group_stopped))
  and on () ({_JUDGED})"""

# A driver that gives up takes its target with it, and one that dies at each start answers now and then: the judgement
# has been asked for 2 minutes, it found the group down for 2 of the last 5 minutes, and in the last one, too.
_JUDGED_DOWN: Final = f"""\
-1 * (
  max by (cluster_group) (avg_over_time(turnout_fleet_group_down[5m])) > 0.39
  and on (cluster_group) max by (cluster_group) (max_over_time(turnout_fleet_group_down[1m])) == 1
  and on (cluster_group) max by (cluster_group) (turnout_fleet_group_down)
  and on (cluster_group) max by (cluster_group) (turnout_fleet_group_down offset 2m)
  and on () ({_JUDGED})
) ^ 0"""

# A hung driver may answer now and then: its last known heartbeat counts for as long as failed scrapes need to count.
GROUP_SILENT: Final = f"""\
(
  time() - max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m])) > 120
  or on (cluster_group)
  max by (cluster_group) (max_over_time(up{{job="turnout",kind!~"ingest|bridge"}}[2m])) == 0
  or on (cluster_group)
  0 * (
    max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge"}} offset 2m) == 1
    unless on (cluster_group) max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m]))
  )
)
unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_stopped)
unless on (cluster_group) (
{_UNWANTED}
)
or on (cluster_group)
{_JUDGED_DOWN}"""
"""The groups that are down: the age of a heartbeat in seconds, 0 where none is read, -1 by the judgement."""

UNANSWERED: Final = f"""\
max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge"}}) == 0
unless on (cluster_group) (
  max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge"}})
  unless on (cluster_group) (max by (cluster_group) (turnout_fleet_group_down) == 0)
  and on () (max(turnout_fleet_group_down) or max(turnout_fleet_group_stopped))
  and on () ({_JUDGED})
)"""
"""The groups whose target does not answer, but for those of which the judgement says more than that."""

INGEST_SILENT: Final = f"""\
time() - max(turnout_ingest_last_commit_timestamp_seconds) > {SILENT_SOURCE_SECONDS:g}
or
0 * (absent(turnout_ingest_last_commit_timestamp_seconds) and on () (count(up{{job="turnout"}}) > 0))"""

EXEMPT: Final = 'turnout_stream_status{status=~"PAUSED|BACKFILLING|STARTING"} == 1'
"""Games that a person has stopped, that read their past, or of which nothing is known yet: they are not late."""


def owned(expr: str, owner: str = OWNER) -> str:
    """Return the expression with the game's cluster group joined on; without a known owner it still fires."""
    return f"(\n{expr}\n) * on (game) group_left (cluster_group) {owner}\nor on (game) (\n{expr}\n)"


def late(objective: str, games: str = "") -> str:
    """Return the games that are later than an objective in seconds; `games` are matchers of the label `game`.

    Rates look back less than the alerts wait, so that a short blip has left the rate before the alert could fire. A
    stream that is behind without reporting an age counts as late (value 0): no number is not a good number.
    """
    age, buckets = of("turnout_stream_backlog_age_seconds", games), of("turnout_stream_latency_seconds_bucket", games)
    behind = of("turnout_stream_status", 'status=~"CATCHING_UP|LAGGING|UNKNOWN"', games)
    return f"""\
(
  max by (game) ({age}) > {objective}
  or on (game)
  histogram_quantile(0.95, sum by (game, le) (rate({buckets}[2m]))) > {objective}
  or on (game)
  0 * max by (game) (
    {behind} == 1
    unless on (game) turnout_stream_backlog_age_seconds
  )
)
unless on (game) ({EXEMPT})"""


def source_late(objective: str) -> str:
    """Return a value while rows of every game are later than an objective in seconds before they reach bronze.

    What ingest measures counts while it is known; otherwise, that nothing has arrived for long.
    """
    return f"""\
max(turnout_source_backlog_seconds) > {objective}
or
(
{INGEST_SILENT}
) unless on () (turnout_source_backlog_seconds and on () ({_JUDGED}))"""


def of(metric: str, *matchers: str) -> str:
    """Return a selector of a metric; empty matchers are left out."""
    kept = ",".join(each for each in matchers if each)
    return f"{metric}{{{kept}}}" if kept else metric
