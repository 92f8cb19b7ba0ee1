"""What a registered game's first event waits for: pages say it wherever a game or a fleet has none yet. Pure."""

from listeners.process_kinds import INGEST
from pipeline.health.facts.fleet import Fleet


def awaited(fleet: Fleet) -> str | None:
    """Return what first events wait for, as a sentence; None where ingest runs and nothing waits in its source.

    Nobody need start a process that runs or starts, nor a producer whose events may wait.
    """
    state, source = fleet.judgement.of(INGEST)[0], fleet.judgement.source
    commit = "first commit" if fleet.newest_bronze_seq is None else "next commit"
    if state.is_awaited or state.liveness.state == "starting":
        return f"Ingest is starting: events appear after its {commit}."
    if not state.liveness.is_live:
        return "Ingest does not run: start it with turnout ingest run."
    if source.rows != 0:
        return f"Ingest runs, and events appear after its {commit}; {source.sentence}."
    return None
