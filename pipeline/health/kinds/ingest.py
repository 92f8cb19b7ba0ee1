"""Ingest: the driver that lands records of the source in bronze."""

from collections.abc import Sequence
from typing import Final

from listeners.process_kinds import INGEST as KIND
from listeners.process_kinds import ONLY
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind, how
from pipeline.health.verdicts.source import SILENT_SOURCE_SECONDS, source_notes
from pipeline.store.database.states import Cause

INGEST_SILENT: Final = f"""\
time() - max(turnout_ingest_last_commit_timestamp_seconds)
> (clamp_min(max(turnout_source_silent_after_seconds), {SILENT_SOURCE_SECONDS:g}) or vector({SILENT_SOURCE_SECONDS:g}))
or
0 * (absent(turnout_ingest_last_commit_timestamp_seconds) and on () (count(up{{job="turnout"}}) > 0))"""


def _judge(facts: FleetFacts) -> Sequence[DriverState]:
    judged = [(name, facts.judge(KIND, name)) for name in facts.names(KIND) or [ONLY]]
    return [
        DriverState(KIND, name, each, not each.is_live and not facts.awaits(each), facts.awaits(each))
        for name, each in judged
    ]


def _problem(state: DriverState, _facts: FleetFacts) -> str:
    return f"ingest {state.liveness.reason or state.liveness.state}"


def _notes(state: DriverState, facts: FleetFacts) -> Sequence[str]:
    liveness = state.liveness
    if state.is_problem:
        return [f"ingest {'was never started' if liveness.state == 'not_started' else how(liveness)}"]
    return source_notes(facts.source_state(liveness), facts.newest_bronze_at, liveness, facts.now)


INGEST: Final = ProcessKind(
    KIND,
    _judge,
    _problem,
    _notes,
    alert=Alert(
        "TurnoutIngestStalled",
        "page",
        INGEST_SILENT,
        "5m",
        "Nothing arrives in bronze",
        "{{ if eq $value 0.0 }}No ingest process reports a commit{{ else }}"
        "The last bronze commit is {{ $value | humanizeDuration }} old{{ end }}: no game gets new rows.",
        "/",
    ),
    moves_rows=True,
    covers=lambda cause, scope, _: scope == "source" and cause != Cause.SOURCE_SILENT,
)
