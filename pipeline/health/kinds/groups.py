"""Cluster groups: the driver of each carries the streams of its games."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from listeners.process_kinds import GROUP
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind
from pipeline.store.database.states import Cause

_OF_DRIVERS: Final = frozenset({Cause.DRIVER_GONE, Cause.DRIVER_SLOW})

JUDGED: Final = "time() - max(turnout_fleet_judged_timestamp_seconds) < 60"
"""Ingest exports the judgement with its time; what is older than a minute says nothing of now."""

# What the judgement says now, over a scrape that failed.
_NOW: Final = "max by (cluster_group) (last_over_time(turnout_fleet_group_down[1m]))"

# A scrape of a group's driver, answered or not, or its heartbeat.
_HEARD: Final = """\
    max by (cluster_group) (up{job="turnout",kind!~"ingest|bridge|edge"})
    or on (cluster_group) max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m]))"""

# The target file of a driver that was killed stays, also when its group is stopped or removed. An ingest that tells of
# no group at all knows of none.
_UNWANTED: Final = f"""\
  (
{_HEARD}
  )
  unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_down)
  and on () (max(turnout_fleet_group_down) or max(turnout_fleet_group_stopped))
  and on () ({JUDGED})"""

# A driver that gives up takes its target with it, and one that dies at each start answers now and then: the judgement
# has been asked for 2 minutes, and found the group down for 2 of the last 5. It is down now; or it went down twice at
# least within 10 minutes, and within the last one. One that came back is neither.
_JUDGED_DOWN: Final = f"""\
{_NOW} - 2
and on (cluster_group) max by (cluster_group) (avg_over_time(turnout_fleet_group_down[5m])) > 0.39
and on (cluster_group) (
  {_NOW} == 1
  or on (cluster_group)
  max by (cluster_group) (changes(turnout_fleet_group_down[10m])) >= 3
  and on (cluster_group) max by (cluster_group) (max_over_time(turnout_fleet_group_down[1m])) == 1
)
and on (cluster_group) max by (cluster_group) (turnout_fleet_group_down offset 2m)
and on () ({JUDGED})"""

# A hung driver may answer now and then: its last known heartbeat counts for as long as failed scrapes need to count.
# A driver that has come back by the judgement is not silent, and its target gets 2 minutes to be read.
GROUP_SILENT: Final = f"""\
(
  time() - max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m])) > 120
  unless on (cluster_group) ({_NOW} == 0 and on () ({JUDGED}))
  or on (cluster_group)
  (
    max by (cluster_group) (max_over_time(up{{job="turnout",kind!~"ingest|bridge|edge"}}[2m])) == 0
    or on (cluster_group)
    0 * (
      max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge|edge"}} offset 2m) == 1
      unless on (cluster_group) max by (cluster_group) (max_over_time(turnout_group_heartbeat_timestamp_seconds[2m]))
    )
  )
  unless on (cluster_group) (
    {_NOW} == 0
    and on (cluster_group) max by (cluster_group) (max_over_time(turnout_fleet_group_down[2m])) == 1
    and on () ({JUDGED})
  )
)
unless on (cluster_group) max by (cluster_group) (turnout_fleet_group_stopped)
unless on (cluster_group) (
{_UNWANTED}
)
or on (cluster_group)
{_JUDGED_DOWN}"""
"""The groups that are down: the age of a heartbeat in seconds, 0 where none is read; by the judgement -1, or -2 where
a driver runs that goes down again and again."""

UNANSWERED: Final = f"""\
max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge|edge"}}) == 0
unless on (cluster_group) (
  max by (cluster_group) (up{{job="turnout",kind!~"ingest|bridge|edge"}})
  unless on (cluster_group) (max by (cluster_group) (turnout_fleet_group_down) == 0)
  and on () (max(turnout_fleet_group_down) or max(turnout_fleet_group_stopped))
  and on () ({JUDGED})
)"""
"""The groups whose target does not answer, but for those of which the judgement says more than that."""


def _judge(facts: FleetFacts) -> Sequence[DriverState]:
    members = Counter(each.group for each in facts.games if each.retired_at is None)
    return [_judge_one(each, members[name], facts) for name, each in sorted(facts.conditions.items())]


def _judge_one(condition: GroupCondition, members: int, facts: FleetFacts) -> DriverState:
    name, liveness = condition.name, condition.liveness
    if condition.desired == "stopped":
        return DriverState(GROUP, name, liveness, is_problem=False)
    if liveness.state in {"not_started", "stopped"}:  # nobody misses it where it is empty and started by hand
        is_missed = members > 0 or condition.is_supervised
        is_awaited = condition.is_supervised and facts.awaits(liveness)
        return DriverState(GROUP, name, liveness, is_missed and not is_awaited, is_awaited)
    is_slow = facts.starting_since is not None and liveness.waits_for_storage  # all begins at once
    bad = not liveness.is_live or (liveness.state == "running" and liveness.reason is not None)
    return DriverState(GROUP, name, liveness, bad and not is_slow, is_slow_start=is_slow)


def _problem(state: DriverState, _facts: FleetFacts) -> str:
    return f"group {state.name}: {state.liveness.reason or state.liveness.state}"


GROUPS: Final = ProcessKind(
    GROUP,
    _judge,
    _problem,
    lambda _state, _facts: (),  # the headline counts groups by what is wrong with them
    alert=Alert(
        "TurnoutGroupDown",
        "page",
        GROUP_SILENT,
        "1m",
        "{{ if eq $value 0.0 }}Cluster group {{ $labels.cluster_group }} cannot be read"
        "{{ else if lt $value -1.0 }}Cluster group {{ $labels.cluster_group }} goes down again and again"
        "{{ else }}Cluster group {{ $labels.cluster_group }} is down{{ end }}",
        "{{ if lt $value -1.0 }}Its driver went down twice or more within 10 minutes, the last time within a minute, "
        "and runs now: its games stand still in between; `turnout status` says more"
        "{{ else if lt $value 0.0 }}Its driver gave up, died, or dies at each start: all its games stand still; "
        "`turnout status` says more"
        "{{ else if eq $value 0.0 }}Its /metrics could not be read for 2 minutes, or has no heartbeat: "
        "`turnout status` says whether its games stand still"
        "{{ else }}Its last heartbeat is {{ $value | humanizeDuration }} old: all its games stand still{{ end }}.",
        "/?group={{ $labels.cluster_group }}",
    ),
    is_one=False,
    moves_rows=True,
    carries_games=True,
    covers=lambda cause, scope, name: cause in _OF_DRIVERS and scope == f"group {name}",
)
