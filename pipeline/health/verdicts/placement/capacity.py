"""The load of a game on its group, and the choice of a group: pure values and one rule.

`pipeline/health/facts/placing.py` places new games by it, `planner.py` moves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from pipeline.store.database.states import PRIORITIES, Desired, Priority

# Solved from the windows in bench/results with a pass every 5 s, on which docs/performance.md reports: 60 commits/s
# with 8,000 rows/s took 0.642 cores (sustain), with 2,000 rows/s 0.572 (neighbours, quiet), and 2 commits/s with 500
# rows/s 0.176 (idle). The rest is the driver itself.
ROW_CORE_SECONDS: Final = 12e-6
COMMIT_CORE_SECONDS: Final = 6.5e-3  # of the 10.7 ms of a commit with its rows and its share of the driver
IDLE_CORES: Final = 46e-6  # a game without rows
BYTES_LIKE_A_ROW: Final = 1024
"""Bytes of those windows' messages. A game with larger rows is assumed to cost proportionally more; never measured.
"""

DRIVER_CORES: Final = 0.16
"""What those windows leave for a driver without rows: estimates and capacity exclude it, a measured load has it."""

TYPICAL_CORES: Final = 8_000 / 300 * ROW_CORE_SECONDS + 0.2 * COMMIT_CORE_SECONDS + IDLE_CORES
"""The load of a game when no load is known: one of the 300 of the sustained run."""

WORK_OFF_SECONDS: Final = 600.0
"""Seconds in which a stream that is behind counts as catching up, with at most twice its rows."""

COMPARED_CORES: Final = 2.0
"""A group without a capacity is never full; it compares as one of two cores, as `local[2]` has."""

MAX_GAMES: Final = 1_000
"""The default of the setting `placement.max_games_per_group`."""

_EXACT: Final = 1e-9  # sums of the same games in another order differ by less


@dataclass(frozen=True, slots=True)
class Load:
    """The measurements of a game in its last minute; None is unknown."""

    rows_per_second: float | None = None
    bytes_per_second: float | None = None  # of files in its table
    commits_per_second: float | None = None
    lag_seconds: float | None = None
    priority: Priority = "normal"

    @property
    def cores(self) -> float | None:
        """The estimated cores of its group's driver that it uses; None where its rows or its commits are unknown."""
        if self.rows_per_second is None or self.commits_per_second is None:
            return None
        rows = max(self.rows_per_second, (self.bytes_per_second or 0.0) / BYTES_LIKE_A_ROW)
        behind = 1.0 + min((self.lag_seconds or 0.0) / WORK_OFF_SECONDS, 1.0)
        return rows * behind * ROW_CORE_SECONDS + self.commits_per_second * COMMIT_CORE_SECONDS + IDLE_CORES


@dataclass(frozen=True, slots=True)
class GameLoad:
    """One game, its group and its load."""

    game_key: str
    group: str | None  # None: it waits for a group
    load: Load
    cores: float  # the median of the known ones where its own are unknown

    @property
    def is_known(self) -> bool:
        """Whether its cores follow from its own measurements."""
        return self.load.cores is not None


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """One group: its desired state, its driver's state, and its load."""

    name: str
    desired: Desired = "running"
    alive: bool | None = None  # None: its driver was never started
    silence: str | None = None  # why its driver is considered dead, as a clause; None: it lives
    capacity_cores: float | None = None  # None: unlimited
    priority: Priority = "normal"  # the priority of games that it is for
    games: int = 0
    cores: float = 0.0  # of its games
    may_return: bool = False  # its driver has been gone so briefly that a restart may bring it back

    @property
    def is_dead(self) -> bool:
        """Whether its games must leave: its driver is dead for more than a moment."""
        return self.alive is False and not self.may_return

    @property
    def share(self) -> float:
        """Its load share; 1.0 is full, unless it is unlimited: see `COMPARED_CORES`."""
        return self.share_with(0.0)

    def share_with(self, cores: float) -> float:
        """Return its load share with `cores` of load added, or removed where negative; 1.0 without capacity."""
        capacity = COMPARED_CORES if self.capacity_cores is None else self.capacity_cores
        return max(self.cores + cores, 0.0) / capacity if capacity > 0 else 1.0

    @property
    def headroom(self) -> float | None:
        """The free cores; negative over capacity, None when unlimited."""
        return None if self.capacity_cores is None else self.capacity_cores - self.cores

    def is_over(self, max_games: int) -> bool:
        """Return whether its load exceeds its limits."""
        return self.games > max_games or (self.headroom is not None and self.headroom < -_EXACT)

    def has_room(self, cores: float, max_games: int, games: int = 1) -> bool:
        """Return whether it has room for `cores` and `games` more."""
        return not self.plus(cores, games).is_over(max_games)

    def plus(self, cores: float, games: int = 1) -> "GroupLoad":
        """Return it with `cores` and `games` added; both may be negative."""
        return replace(self, cores=self.cores + cores, games=self.games + games)


@dataclass(frozen=True, slots=True)
class Loads:
    """Every carried or waiting game, and every group, at one moment."""

    games: tuple[GameLoad, ...] = ()
    groups: Mapping[str, GroupLoad] = field(default_factory=dict)
    max_games: int = MAX_GAMES

    def by_key(self) -> dict[str, GameLoad]:
        """Return the games by their keys."""
        return {each.game_key: each for each in self.games}

    def after(self, assigned: Mapping[str, str]) -> dict[str, GroupLoad]:
        """Return the groups with games (key → group) moved; unknown games and groups change nothing."""
        then, known = dict(self.groups), self.by_key()
        for key, target in assigned.items():
            game = known.get(key)
            if game is None or target == game.group:
                continue
            for name, sign in ((game.group, -1), (target, 1)):
                if name in then:
                    then[name] = then[name].plus(sign * game.cores, sign)
        # A group without games has no load, and not what rounding leaves of it.
        return {name: each if each.games else replace(each, cores=0.0) for name, each in then.items()}


def tallied(
    games: Iterable[tuple[str, str | None, Load]], groups: Iterable[GroupLoad], max_games: int = MAX_GAMES
) -> Loads:
    """Return games (key, group, load) and groups, with the groups' sums computed from the games."""
    ordered = sorted(games, key=lambda each: each[0])
    measured = [each.cores for _, _, each in ordered]
    known = [cores for cores in measured if cores is not None]
    usual = median(known) if known else TYPICAL_CORES
    counted = tuple(
        GameLoad(key, group, load, usual if cores is None else cores)
        for (key, group, load), cores in zip(ordered, measured, strict=True)
    )
    sums: dict[str | None, list[float]] = {}
    for each in counted:
        sums.setdefault(each.group, []).append(each.cores)
    filled = {
        each.name: replace(each, games=len(sums.get(each.name, ())), cores=sum(sums.get(each.name, ())))
        for each in sorted(groups, key=lambda each: each.name)
    }
    return Loads(counted, filled, max_games)


def placed_sooner(game: GameLoad) -> tuple[int, float, str]:
    """Order by priority, high first, then by size, large first, as large games need room while there is much."""
    return PRIORITIES.index(game.load.priority), -game.cores, game.game_key


def choose(
    cores: float, priority: Priority, groups: Iterable[GroupLoad], max_games: int, *, moves: bool = False
) -> GroupLoad | None:
    """Return a game's group, or None where it fits nowhere.

    Groups of its priority come first, then the one with the lowest load including it. A moving game (`moves`) goes only
    to a living driver, as the move ends when that driver has it. A waiting game also goes to a group whose driver was
    never started, and as a last resort to a group with a dead driver: its stream starts with the driver.
    """
    roomy = [each for each in groups if each.desired == "running" and each.has_room(cores, max_games)]
    good = [each for each in roomy if (each.alive is True if moves else each.alive is not False)]
    if not good and not moves:
        good = roomy
    return min(
        good,
        key=lambda each: (each.priority != priority, round(each.share_with(cores), 9), each.games, each.name),
        default=None,
    )
