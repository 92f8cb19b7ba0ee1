"""Incidents, and who judged causes last.

Every query raises `Refused` where the control store cannot be read.
"""

from dataclasses import dataclass

from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.texts import age
from pipeline.health.facts.fleet import Fleet
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents import away
from pipeline.health.incidents.causes import Acting, Action
from pipeline.health.incidents.incidents import Incident, Phase, order
from pipeline.store.database.states import Cause, IncidentTone
from pipeline.store.incidents import LastLook, read_last_look

__all__ = [
    "Acting",
    "Action",
    "Cause",
    "CausesJudged",
    "Incident",
    "IncidentReport",
    "IncidentsReport",
    "read",
    "read_current",
    "report",
    "situation",
]


@dataclass(frozen=True, slots=True)
class CausesJudged:
    """Who judged causes last, and when (Unix seconds by the store's clock)."""

    by: str  # controller | ingest
    at: float
    age_seconds: float
    is_stale: bool  # what was judged then says nothing of now


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """An incident as commands print it; its JSON is what `turnout incidents` documents."""

    incident_id: str
    cause: str
    title: str
    evidence: tuple[str, ...]
    excludes: tuple[str, ...]
    action: Action | None
    advice: str | None
    runbook: str | None
    games: tuple[str, ...]  # keys, worst first
    group: str | None
    since: float
    ended_at: float | None
    outlook: str | None
    tone: IncidentTone
    phase: Phase
    acting: Acting | None  # who is at its mend; None: nobody
    progress: str | None  # that, or when it is level, as people read it; None: a person has to act, or it has ended


@dataclass(frozen=True, slots=True)
class IncidentsReport:
    """The open incidents, then those that ended within the last day."""

    judged: CausesJudged | None  # None: nobody ever judged causes
    incidents: tuple[IncidentReport, ...]


def read(environment: OpenEnvironment, fleet: Fleet) -> IncidentsReport:
    """Read incidents as they were judged last, however long ago that was.

    That the control store takes no writes is computed of the fleet, as nobody can keep it.
    """
    engine = environment.engine
    look = read_last_look(engine)
    found = away.with_computed(read_incidents(engine), fleet.judgement, fleet.read_at)
    reports = tuple(report(each, fleet.read_at) for each in found)
    return IncidentsReport(None if look is None else _judged(look), reports)


def read_current(environment: OpenEnvironment, fleet: Fleet) -> tuple[Incident, ...]:
    """Read the incidents that are known now: what was judged long ago is no news.

    While the control store takes no writes nobody can keep that cause: it is computed here, of what is read.

    Raises:
        Refused: nobody has judged causes lately.
    """
    store = environment.engine
    own = away.computed(fleet.judgement, fleet.read_at)
    look = read_last_look(store)
    if own is not None:
        is_old = look is None or look.is_stale
        kept = [each for each in read_incidents(store) if not is_old or each.ended_at is not None]
        return order([own, *kept])
    if look is None:
        raise Refused("Causes were never judged: neither a controller nor ingest has run.")
    if look.is_stale:
        ago = age(look.age_seconds)
        raise Refused(f"Causes were judged {ago} ago: neither a controller nor ingest judges them now.")
    return read_incidents(store)


def situation(environment: OpenEnvironment, fleet: Fleet) -> Situation:
    """Return what stands in a fleet that was read just now; incidents that were judged long ago are not known."""
    found: tuple[Incident, ...] | None
    try:
        found = read_current(environment, fleet)
    except Refused:
        found = None
    return Situation(fleet.judgement, fleet.rows, found)


def report(incident: Incident, now: float) -> IncidentReport:
    """Return an incident as commands print it at a moment (Unix seconds)."""
    finding = incident.finding
    return IncidentReport(
        incident_id=incident.incident_id, cause=str(finding.cause), title=finding.title, evidence=finding.evidence,
        excludes=finding.excludes, action=finding.action, advice=finding.advice, runbook=finding.runbook,
        games=incident.games, group=incident.group, since=incident.since, ended_at=incident.ended_at,
        outlook=incident.outlook, tone=incident.tone,
        phase=incident.phase, acting=finding.acting, progress=incident.progress(now),
    )  # fmt: skip


def _judged(look: LastLook) -> CausesJudged:
    return CausesJudged(look.kept_by, look.looked_at, look.age_seconds, look.is_stale)
