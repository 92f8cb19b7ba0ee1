"""The situation of which every page's sentence, strip and cell is made; viewers of one moment share it. Pure."""

from collections.abc import Sequence

from app.state.shared import once
from pipeline.health.facts.fleet import Fleet
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident


def situation(fleet: Fleet, found: Sequence[Incident] | None) -> Situation:
    """Return the situation of a fleet with these incidents; None: nobody knows them."""
    return once(_made, fleet, found)


def _made(fleet: Fleet, found: Sequence[Incident] | None) -> Situation:
    return Situation(fleet.judgement, fleet.rows, found)
