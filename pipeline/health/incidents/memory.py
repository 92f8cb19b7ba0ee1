"""The memory of looks: trends of backlogs, and the usual values of healthy times.

One process keeps it, beside the incidents; a new one begins without, and knows what is usual after two minutes. Pure.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from pipeline.health.incidents.evidence import (
    Evidence,
    GameSeen,
    GameWindow,
    GroupSeen,
    GroupWindow,
    Look,
    Point,
    SourceWindow,
)

_USUAL_SECONDS: Final = 600.0  # the time constant of what is usual
_CLIPPED_TIMES: Final = 1.5
_KNOWN_AFTER_SECONDS: Final = 120.0
_TREND_POINTS: Final = 128  # of 1,000 games in trouble they take 13 MB
_POINT_SECONDS: Final = 5.0  # half of it is the least between two points of a trend, but for the newest
_AGAIN_SECONDS: Final = 600.0  # the age to which a failure that is over tells of its group's storage
_COMMIT_SECONDS: Final = 300.0  # the age to which a group's last commits say how fast its storage is


@dataclass(slots=True)
class _Usual:
    """A slow mean, which is fed only while all is well."""

    began_at: float
    at: float
    mean: float

    def feed(self, value: float, now: float) -> None:
        age = now - self.began_at
        gain = (now - self.at) / min(age, _USUAL_SECONDS) if age > 0 else 0.0  # the first minutes count alike
        if self.mean > 0:  # what begins to go wrong is seen as trouble a minute later, and must not become usual
            value = min(max(value, self.mean / _CLIPPED_TIMES), self.mean * _CLIPPED_TIMES)
        self.mean += min(gain, 1.0) * (value - self.mean)
        self.at = now


@dataclass(slots=True)
class _Frontier:
    """How far a driver is, and since when it has not moved although there was more."""

    seq: int | None
    still_since: float | None = None


@dataclass(slots=True)
class Memory:
    """What earlier looks have shown; calls come from one thread, and `now` does not go backwards."""

    _usual: dict[Hashable, _Usual] = field(default_factory=dict)
    _trends: dict[str, deque[Point]] = field(default_factory=dict)
    _source: deque[Point] = field(default_factory=lambda: deque(maxlen=_TREND_POINTS))
    _frontiers: dict[str, _Frontier] = field(default_factory=dict)
    _commits: dict[str, tuple[float, float]] = field(default_factory=dict)  # by group: at, seconds
    _totals: dict[str, tuple[int, int]] = field(default_factory=dict)  # by game: rows refused and landed
    _failed: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """The last look at which the own work of a game failed, and when it had failed then, by the game's key."""

    def remember(self, look: Look) -> Evidence:
        """Add a look; return its windows."""
        self._forget(look)
        members: dict[str, list[GameSeen]] = defaultdict(list)
        for game in look.games.values():
            if game.group is not None and not game.retired:
                members[game.group].append(game)
        seen = look.source
        is_level = seen.condition == "level" and seen.ingest.state == "running"
        if is_level:
            self._source.clear()
        else:
            _add(self._source, Point(look.now, seen.age_seconds))
        return Evidence(
            look.now,
            {key: self._game(game, look.now) for key, game in look.games.items()},
            {name: self._group(group, members[name], look) for name, group in look.groups.items()},
            SourceWindow(
                seen,
                tuple(self._source),
                self._usually("source", seen.rows_per_second, look.now, is_well=is_level),
            ),
            look.objective_seconds,
            look.mass_failure,
        )

    def _forget(self, look: Look) -> None:
        for key in self._trends.keys() - look.games.keys():
            del self._trends[key]
        for key in self._totals.keys() - look.games.keys():
            del self._totals[key]
        for key in self._failed.keys() - look.games.keys():
            del self._failed[key]
        for name in self._frontiers.keys() - look.groups.keys():
            del self._frontiers[name]
        for name in self._commits.keys() - look.groups.keys():
            del self._commits[name]
        known = {("game", each) for each in look.games} | {("rows", each) for each in look.groups}
        known |= {("commit", each) for each in look.groups}
        for each in self._usual.keys() - known - {"source"}:
            del self._usual[each]

    def _game(self, game: GameSeen, now: float) -> GameWindow:
        is_well = not game.in_trouble and not game.status.is_recovering
        if is_well:
            self._trends.pop(game.game_key, None)
            trend: Sequence[Point] = ()
        else:
            points = self._trends.setdefault(game.game_key, deque(maxlen=_TREND_POINTS))
            _add(points, Point(now, game.backlog_seconds))
            trend = points
        usual = self._usually(("game", game.game_key), game.rows_per_second, now, is_well=is_well)
        if game.failure is not None:
            self._failed[game.game_key] = now, game.failure.at
        return GameWindow(
            game, tuple(trend), usual, self._last(game), *self._failed.get(game.game_key, (None, None))
        )  # fmt: skip

    def _last(self, game: GameSeen) -> tuple[int, int]:
        """Return the rows refused and landed since the look before; a driver that was restarted counts from zero."""
        before, now = self._totals.get(game.game_key), game.totals
        if now is None:
            return (0, 0)
        self._totals[game.game_key] = now
        if before is None or now[0] < before[0] or now[1] < before[1]:
            return (0, 0)
        return now[0] - before[0], now[1] - before[1]

    def _group(self, group: GroupSeen, games: Sequence[GameSeen], look: Look) -> GroupWindow:
        troubled = sum(each.in_trouble and not each.waits_for_ingest for each in games)
        is_well = troubled == 0 and group.liveness.state == "running"
        rates = [each.rows_per_second for each in games if each.rows_per_second is not None]
        commits = [each.commit_seconds for each in games if each.commit_seconds is not None]
        costs = [each.cores for each in games if each.cores is not None]
        rows = sum(rates) if rates else None
        commit = self._commit(group.name, median(commits) if commits else None, look.now)
        is_limited = group.capacity_cores is not None and bool(costs)
        return GroupWindow(
            group,
            games=len(games),
            troubled=troubled,
            rows_per_second=rows,
            usual_rows_per_second=self._usually(("rows", group.name), rows, look.now, is_well=is_well),
            commit_seconds=commit,
            usual_commit_seconds=self._usually(("commit", group.name), commit, look.now, is_well=is_well),
            load_share=sum(costs) / group.capacity_cores if is_limited and group.capacity_cores else None,
            still_seconds=self._still(group, look),
            landed_again=tuple(at for each in games if (at := self._landed_again(each, look.now)) is not None),
        )

    def _landed_again(self, game: GameSeen, now: float) -> float | None:
        """Return when a game landed last whose own work failed a short while ago, and does not any more."""
        failed_at, _ = self._failed.get(game.game_key, (None, None))
        if failed_at is None or game.failure is not None or now - failed_at > _AGAIN_SECONDS:
            return None
        return game.committed_at

    def _commit(self, group: str, seconds: float | None, now: float) -> float | None:
        """Return how long a group's commits take; very slow ones are rarer than the minute that a driver reports."""
        if seconds is not None:
            self._commits[group] = (now, seconds)
            return seconds
        last = self._commits.get(group)
        return last[1] if last is not None and now - last[0] <= _COMMIT_SECONDS else None

    def _still(self, group: GroupSeen, look: Look) -> float:
        head, known = look.source.head_seq, self._frontiers.get(group.name)
        has_more = head is not None and group.frontier_seq is not None and group.frontier_seq < head
        if known is None or known.seq != group.frontier_seq or not has_more or known.still_since is None:
            self._frontiers[group.name] = _Frontier(group.frontier_seq, look.now if has_more else None)
            return 0.0
        return look.now - known.still_since

    def _usually(self, of: Hashable, value: float | None, now: float, *, is_well: bool) -> float | None:
        known = self._usual.get(of)
        if is_well and value is not None:
            if known is None:
                known = self._usual[of] = _Usual(now, now, value)
            else:
                known.feed(value, now)
        if known is None or known.at - known.began_at < _KNOWN_AFTER_SECONDS:
            return None
        return known.mean


def _add(points: deque[Point], point: Point) -> None:
    """Add the newest point; the one before it is kept where it is far enough from its own, whatever time looks take."""
    if len(points) > 1 and points[-1].at - points[-2].at < _POINT_SECONDS / 2:
        points.pop()
    points.append(point)
