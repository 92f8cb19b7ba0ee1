"""Judges why games are late, stand still or have rows refused: one of eleven causes, or undetermined. Pure.

Others are judged apart: `access.py`, `controller.py`, and `away.py` of a control store that takes no writes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from listeners.status import Status
from pipeline.health.incidents import drivers, own, shared
from pipeline.health.incidents.causes import Finding
from pipeline.health.incidents.evidence import Evidence, GameWindow, GroupWindow
from pipeline.health.incidents.offers import offered
from pipeline.health.incidents.texts import cut, of_all, times_usual
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause

_Rule = Callable[[GameWindow, GroupWindow | None, Evidence], Finding | None]
_RULES: Final[tuple[_Rule, ...]] = (
    shared.stopped_on_purpose, shared.operation, drivers.driver, own.registry, own.failing, own.refused,
)  # fmt: skip

_RETRIED_SECONDS: Final = 60.0
"""Seconds after a stream's own failure in which its driver's word that it fails may be older than its end."""


def judge_all(evidence: Evidence) -> tuple[Finding | None, dict[str, Finding | None]]:
    """Return what is wrong with the source, and the cause of each game by key; None: there is none."""
    source = judge_source(evidence)
    return source, {key: judge_cause(window, evidence, source) for key, window in evidence.games.items()}


def judge_cause(window: GameWindow, evidence: Evidence, source: Finding | None = None) -> Finding | None:
    """Return why a game is not well; None where it is well, recovers, or is retired. The first rule that matches wins.

    A pause or a stopped group on purpose is a finding, although no trouble. `source` is the finding about it.
    """
    seen, group = window.seen, evidence.groups.get(window.seen.group or "")
    if seen.retired:
        return None
    if seen.waits_for_ingest:
        return source
    if _has_just_retried(window, evidence.now):
        return None
    for rule in _RULES:
        if (found := rule(window, group, evidence)) is not None:
            return offered(found, window, group, evidence.now)
    if not seen.in_trouble or shared.is_recovering(window, group, evidence):
        return None
    return offered(shared.late_stream(window, group, evidence), window, group, evidence.now)


def _has_just_retried(window: GameWindow, now: float) -> bool:
    """Return whether its own failure is over, and its driver has not reported it since: nothing else is known to fail.

    Else a group whose games retry one by one would be accused of a query that stopped.
    """
    seen, failed_at = window.seen, window.failed_at
    if failed_at is None or now - failed_at > _RETRIED_SECONDS or seen.status == Status.UNKNOWN:
        return False
    return seen.is_failing and seen.failure is None and seen.last_error is None


def judge_source(evidence: Evidence) -> Finding | None:
    """Return what is wrong with the source or ingest, for all games; None where nothing is."""
    window, now = evidence.source, evidence.now
    seen = window.seen
    ingest = seen.ingest
    if seen.is_awaited:
        return None
    if ingest.state not in {"running", "starting"}:
        title = "Ingest fell silent" if ingest.state == "unknown" else "Ingest went down"
        found = of_all(
            Cause.INGEST_BEHIND, title, (f"ingest {cut(ingest.reason or ingest.state)}",),
            ("streams go on with what is in bronze",), None, "turnoutingeststalled", scope="source",
            is_fact=ingest.state in {"dead", "failed", "stopped"} or ingest.has_lost_lease,
        )  # fmt: skip
        return replace(found, is_expected=drivers.restarts(ingest, now))
    if ingest.state == "starting":
        return None
    is_young = ingest.since is not None and now - ingest.since < shared.GRACE_SECONDS
    if seen.condition == "late" and not is_young and not shared.is_falling(window.trend):
        evidences = [cut(seen.sentence)]
        surge = times_usual(seen.rows_per_second, window.usual_rows_per_second)
        if surge is not None:
            evidences.append(f"{seen.rows_per_second:,.0f} rows/s reach bronze, {surge}")
        return of_all(
            Cause.INGEST_BEHIND, "Ingest fell behind its source", evidences,
            ("ingest runs, and no stream is the cause",), None, "turnoutsourcebacklog", scope="source",
        )  # fmt: skip
    if seen.condition == "unknown" and not is_young:  # it measures soon after its start
        return of_all(
            Cause.UNDETERMINED, "What waits in the source is unknown", (cut(seen.sentence),), ("ingest runs",), None,
            "turnoutsourceunknown", scope="source", past="What waits in the source was unknown",
        )  # fmt: skip
    quiet = seen.quiet
    if quiet is None or quiet.usual is None or not quiet.is_silent:
        return None
    found = of_all(
        Cause.SOURCE_SILENT, "The source fell silent",
        (
            f"no row for at least {duration(quiet.seconds)}",
            f"{quiet.usual.text}: silent from {duration(quiet.usual.limit)} on",
        ),
        ("ingest runs, and nothing waits in the source",), None, "turnoutingeststalled", scope="source", is_fact=True,
    )  # fmt: skip
    return replace(found, advice="turnout is well: start the producers, or ask why they send nothing")
