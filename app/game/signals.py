"""What the page of one game knows at one moment, each part read by itself, and the words of time its parts share.

Pure. None in place of a reading says that nobody knows it, which is never shown as well or as zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app import formatting
from app.look.sentences import elsewhere_text
from app.look.tokens import Tone
from app.state.alerts import ReportedAlert
from app.state.situations import situation
from listeners.series import Series
from listeners.status import Status
from pipeline.api.operations import Operation
from pipeline.api.runs import Run
from pipeline.api.trends import Trend
from pipeline.api.versions import Version
from pipeline.base.texts import short_moment
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.pages import of_game
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident


@dataclass(frozen=True, slots=True)
class GameSignals:
    """All that is drawn of a game but its rows; `whys` says by name why a part could not be read."""

    fleet: Fleet
    row: GameRow
    objective_seconds: float  # the latency that the stream should keep
    series: Series | None = None  # of this game alone, over the range on screen
    recent: Series | None = None  # of this game alone, the last quarter of an hour by the minute
    trend: Trend | None = None  # reasons of refusals, failed passes
    incidents: Sequence[Incident] | None = None  # of all games, open ones and those that ended lately
    alerts: Sequence[ReportedAlert] | None = None  # about this game
    operations: Sequence[Operation] | None = None  # about this game, or its group of then, newest first
    runs: Sequence[Run] | None = None  # of drivers, over the range on screen
    versions: Sequence[Version] | None = None  # of its schemas, oldest first
    whys: Mapping[str, str] = field(default_factory=dict)
    series_about: str = ""  # how old the numbers over time are, and why, for the heads of their panels
    until: Mapping[str, float] = field(default_factory=dict)
    """When a part was last read (Unix seconds), by its name, if its last value is shown because it cannot be read."""

    @property
    def now(self) -> float:
        """The moment of the reading, Unix seconds by the store's clock."""
        return self.fleet.read_at

    @property
    def situation(self) -> Situation:
        """What stands at this moment."""
        return situation(self.fleet, None if self.incidents is None else tuple(self.incidents))

    @property
    def incident(self) -> Incident | None:
        """The open incident that the game belongs to, None without one or where nobody knows."""
        return self.situation.incident_of.get(self.row.game_key)

    @property
    def neighbours(self) -> tuple[GameRow, ...]:
        """The other games of its group, worst first."""
        row = self.row
        if row.group is None:
            return ()
        return tuple(each for each in self.fleet.rows if each.group == row.group and each.game_key != row.game_key)


def until_text(signals: GameSignals, name: str) -> str:
    """Return since when a part on screen is out of date, and why; nothing where it is new, or was never read."""
    at = signals.until.get(name)
    return (
        "" if at is None else f" · until {short_moment(at, signals.now)}: {formatting.shown(signals.whys[name], 120)}"
    )


def lasting(since: float | None, now: float) -> str:
    """Return `for 12 min, since 15:38`; nothing where the beginning is unknown."""
    return "" if since is None else f"for {formatting.age(now - since)}, since {short_moment(since, now)}"


def pill(signals: GameSignals) -> tuple[str, Tone]:
    """Return a game's status as glyph and word, and its tone, which is that of its cell in the grid."""
    status = signals.row.verdict.status
    style, said = formatting.STATUS_STYLES[status], of_game(signals.situation, signals.row)
    if status == Status.RUNNING and said.tone != "well":
        return f"! {style.word}", said.tone
    return f"{style.glyph} {style.word}", style.tone


def state_text(signals: GameSignals) -> str:
    """Say beside a game's name how it is and since when; the pill there has the word of its status."""
    row, now = signals.row, signals.now
    committed = row.reported.last_commit_at if row.reported is not None else None
    if row.verdict.status.is_bad and committed is not None:
        return f"nothing landed {lasting(committed, now)}"
    said = [lasting(row.verdict.since, now)]
    if row.verdict.reason is not None:
        said.append(row.verdict.reason)
    elif row.verdict.waits_for is not None:
        said.append(row.verdict.waits_for)
    elif row.live is not None:
        last = "nothing committed since its driver started"
        said.append(last if committed is None else f"last commit {formatting.age(now - committed)} ago")
        said.append("lag unknown" if row.lag_seconds is None else f"lag {formatting.duration(row.lag_seconds)}")
    said.append(elsewhere_text(of_game(signals.situation, row), now))
    return formatting.shown(" · ".join(filter(None, said)), 300)
