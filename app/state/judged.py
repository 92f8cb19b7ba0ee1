"""Reads the open incidents, and what stands at this moment; viewers share both."""

from app.state import services
from app.state.services import Environment, kept
from app.state.situations import situation
from pipeline.api import incidents as incident_queries
from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import Fleet
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident


@kept(seconds=2)
def incidents(environment: Environment) -> tuple[Incident, ...]:
    """Read the open incidents and those that ended within a day.

    Raises:
        Refused: nobody has judged causes lately: what was judged then is no news.
    """
    return incident_queries.read_current(services.opened(environment), services.fleet(environment))


def of_fleet(environment: Environment, fleet: Fleet) -> Situation:
    """Return what stands in a fleet that was read just now."""
    found: tuple[Incident, ...] | None
    try:
        found = incidents(environment)
    except Refused:
        found = None
    return situation(fleet, found)


def now(environment: Environment) -> Situation | None:
    """Return what stands at this moment; None where the control store cannot be read."""
    try:
        return of_fleet(environment, services.fleet(environment))
    except Refused:
        return None
