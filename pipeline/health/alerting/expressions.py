"""PromQL that several rules share: which group has a game, which game is late."""

from typing import Final

from pipeline.health.kinds.groups import JUDGED
from pipeline.health.kinds.ingest import INGEST_SILENT

# While a game moves, two drivers may tell its series for a moment. A join that meets two owners fails, and with it the
# alert; and which of equals `topk` names depends on the order of the series in Prometheus's storage. So where there are
# two the alert names none.
OWNER: Final = (
    "(max by (game, cluster_group) (turnout_stream_info) and on (game) "
    "count by (game) (count by (game, cluster_group) (turnout_stream_info)) == 1)"
)

EXEMPT: Final = 'turnout_stream_status{status=~"PAUSED|BACKFILLING|STARTING"} == 1'
"""Games that a person has stopped, that read their past, or of which nothing is known yet: they are not late."""


def owned(expr: str, owner: str = OWNER) -> str:
    """Return the expression with the game's cluster group joined on; without a known owner it still fires."""
    return f"(\n{expr}\n) * on (game) group_left (cluster_group) {owner}\nor on (game) (\n{expr}\n)"


def late_games(objective: str, games: str = "") -> str:
    """Return the games that are later than an objective in seconds; `games` are matchers of the label `game`.

    Rates look back less than the alerts wait, so that a short blip has left the rate before the alert could fire. A
    stream that is behind without reporting an age counts as late (value 0): no number is not a good number.
    """
    age, buckets = (
        selector("turnout_stream_backlog_age_seconds", games),
        selector("turnout_stream_latency_seconds_bucket", games),
    )
    behind = selector("turnout_stream_status", 'status=~"CATCHING_UP|LAGGING|UNKNOWN"', games)
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
) unless on () (turnout_source_backlog_seconds and on () ({JUDGED}))"""


def selector(metric: str, *matchers: str) -> str:
    """Return a selector of a metric; empty matchers are left out."""
    kept = ",".join(each for each in matchers if each)
    return f"{metric}{{{kept}}}" if kept else metric
