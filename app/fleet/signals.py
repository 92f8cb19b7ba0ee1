"""Holds the readings of the Fleet page at one moment, and the texts of time that its parts share.

Pure. `None` in place of a reading says that nobody knows it, which is never shown as well or as zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app import formatting
from app.state.control_queries import OperationList
from app.state.situations import situation
from listeners.series import Series
from listeners.status import Status
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.judgement import StreamVerdict


@dataclass(frozen=True, slots=True)
class Signals:
    """All that is drawn, each read by itself; `whys` says by name why one could not be read."""

    fleet: Fleet
    objective_seconds: float  # the latency that each stream should keep
    series: Series | None = None  # of the range on screen
    recent: Series | None = None  # of the last quarter of an hour, by the minute
    incidents: tuple[Incident, ...] | None = None  # open ones, then those that ended lately
    firing: tuple[str, ...] | None = None  # the names of the alerts that fire
    operations: OperationList | None = None
    whys: Mapping[str, str] = field(default_factory=dict)

    @property
    def situation(self) -> Situation:
        """What stands at this moment."""
        return situation(self.fleet, self.incidents)


def forgotten(fleet: Fleet) -> Fleet:
    """Return a fleet of which nothing is known any more: its streams are unknown since it was read, with no numbers.

    Streams that were paused stay so: a person decided it.
    """
    return replace(
        fleet, rows=tuple(row if row.verdict.status == Status.PAUSED else _unknown(row, fleet) for row in fleet.rows)
    )


def _unknown(row: GameRow, fleet: Fleet) -> GameRow:
    last = f"last known: {formatting.STATUS_STYLES[row.verdict.status].word}"
    return replace(row, verdict=StreamVerdict(Status.UNKNOWN, fleet.read_at, last), reported=None, lag_seconds=None)
