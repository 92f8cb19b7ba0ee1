"""The situation of which every page's sentence, strip and cell is made; viewers of one moment share it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.state.shared import once
from pipeline.base.texts import count
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident


def situation(fleet: Fleet, found: Sequence[Incident] | None) -> Situation:
    """Return the situation of a fleet with these incidents; None: nobody knows them."""
    return once(_made, fleet, found)


@dataclass(frozen=True, slots=True)
class Counted:
    """How many of some games are as they should be, how many come there by themselves, and how many are in trouble."""

    well: int  # running, or paused on purpose, and in no open incident
    busy: int  # starting, catching up, or of an incident that recovers
    troubled: int

    @property
    def words(self) -> str:
        """Say how many are well, of how many, and how many come there: `7 of 10 well, 3 on the way`."""
        games = self.well + self.busy + self.troubled
        said = f"{count(self.well)} well" if self.well == games else f"{count(self.well)} of {count(games)} well"
        return f"{said}, {count(self.busy)} on the way" if self.busy else said


def counted(games: Sequence[GameRow], known: Situation) -> Counted:
    """Count games by the one judgement that colours their cells: a game that is not well is nowhere called well."""
    severities = [known.severity_of(each) for each in games]
    well, busy = severities.count(None), severities.count("busy")
    return Counted(well, busy, len(severities) - well - busy)


def _made(fleet: Fleet, found: Sequence[Incident] | None) -> Situation:
    return Situation(fleet.judgement, fleet.rows, found)
