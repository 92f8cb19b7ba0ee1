"""The one cause that no store keeps: the control store takes no writes. Each reader computes it, the judge afterwards.

Pure; called by pages, commands and exporters with their judgement, and by the judge when writes work again.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pipeline.health.incidents.causes import Finding
from pipeline.health.incidents.incidents import Incident, order
from pipeline.health.incidents.texts import cut
from pipeline.health.verdicts.judgement import Judgement
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause

INCIDENT_ID: Final = "control-store"
"""Id of the incident that readers compute; the incident that is kept afterwards has an id of its own."""

_RUNBOOK: Final = "turnoutfleetunhealthy"
_SCOPE: Final = "store"


def computed(judgement: Judgement, now: float) -> Incident | None:
    """Return the incident of a control store that takes no writes, over all games that it makes unknown; else None."""
    silence = judgement.silence
    if silence is None or silence.refusal is None:
        return None
    games = sorted(key for key, each in judgement.games.items() if each.is_unheard)
    evidence = (
        f"a write is refused: {cut(silence.refusal)}",
        f"{silence.nobody} was heard for {duration(now - silence.since)}",
        "find who holds its lock, or why its disk or server takes no writes",
    )
    finding = _finding("The control store takes no writes", evidence, ("no process is known to have ended",))
    return Incident(INCIDENT_ID, finding, tuple(games), None, silence.since, None, None, "bad", silence.since)


def with_computed(kept: Iterable[Incident], judgement: Judgement, now: float) -> tuple[Incident, ...]:
    """Return the incidents that the store keeps, and before them the one that it cannot keep."""
    own = computed(judgement, now)
    return tuple(kept) if own is None else order([own, *kept])


def ended(incident_id: str, games: Collection[str], since: float, now: float) -> Incident:
    """Return what the judge keeps of a time in which the store refused a write and no look could be kept."""
    evidence = (f"a write was refused, and no look at causes was kept for {duration(now - since)}",)
    finding = _finding("The control store took no writes", evidence, ())
    return Incident(incident_id, finding, tuple(sorted(games)), None, since, now, None, "bad", since)


def _finding(title: str, evidence: Sequence[str], excludes: Sequence[str]) -> Finding:
    return Finding(
        Cause.STORE, title, tuple(evidence), tuple(excludes), None, _RUNBOOK, title, scope=_SCOPE, is_fact=True
    )
