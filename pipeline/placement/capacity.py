"""What a game costs its group, and which group a game gets: pure values and the one rule that chooses.

New games get their group here from `pipeline/store/games.py`, moves from `pipeline/placement/planner.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, Literal, get_args

Priority = Literal["high", "normal", "low"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
Desired = Literal["running", "drained", "stopped"]

# Solved from the windows in bench/results with a pass every 5 s, on which docs/performance.md reports: 60 commits/s
# with 8,000 rows/s took 0.642 cores (sustain), with 2,000 rows/s 0.572 (neighbours, quiet), and 2 commits/s with 500
# rows/s 0.176 (idle). What is left, 0.16 cores, is the driver itself: capacity is what there is for games beside it.
ROW_CORE_SECONDS: Final = 12e-6
COMMIT_CORE_SECONDS: Final = 6.5e-3  # of the 10.7 ms that a commit takes with its rows and its share of the driver
IDLE_CORES: Final = 46e-6  # a game without rows
BYTES_LIKE_A_ROW: Final = 1024
"""A byte's cost was never measured apart: the messages of those windows have 190 bytes. A game with larger rows than
this is taken to cost so much more, which is an assumption."""

TYPICAL_CORES: Final = 8_000 / 300 * ROW_CORE_SECONDS + 0.2 * COMMIT_CORE_SECONDS + IDLE_CORES
"""What a game is counted as when nothing is known of any: one of the 300 of the sustained run."""

WORK_OFF_SECONDS: Final = 600.0
"""A stream that is behind is taken to work off what waits within so long, at most doubling its rows."""

COMPARED_CORES: Final = 2.0
"""A group without a capacity is never full; beside others it is compared as one of so many cores, as `local[2]` has."""

MAX_GAMES: Final = 1_000
"""What the setting `placement.max_games_per_group` is by default."""

_EXACT: Final = 1e-9  # sums of the same games in another order differ by less


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of one game in its last minute; None is unknown."""

    rows_per_second: float | None = None
    bytes_per_second: float | None = None  # of files in its table
    commits_per_second: float | None = None
    lag_seconds: float | None = None
    priority: Priority = "normal"

    @property
    def cores(self) -> float | None:
        """About how many cores it takes of its group's driver; None where its rows or its commits are unknown."""
        if self.rows_per_second is None or self.commits_per_second is None:
            return None
        rows = max(self.rows_per_second, (self.bytes_per_second or 0.0) / BYTES_LIKE_A_ROW)
        behind = 1.0 + min((self.lag_seconds or 0.0) / WORK_OFF_SECONDS, 1.0)
        return rows * behind * ROW_CORE_SECONDS + self.commits_per_second * COMMIT_CORE_SECONDS + IDLE_CORES


@dataclass(frozen=True, slots=True)
class GameLoad:
    """One game, where it is and what it counts for."""

    game_key: str
    group: str | None  # None: it waits for one
    load: Load
    cores: float  # where its own are unknown, the median of the known ones

    @property
    def is_known(self) -> bool:
        """Whether its cores follow from what was measured of itself."""
        return self.load.cores is not None


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """One group: what is wanted of it, whether its driver lives, and how full it is."""

    name: str
    desired: Desired = "running"
    alive: bool | None = None  # None: its driver was never started
    silence: str | None = None  # why nothing can be expected of its driver, as a clause; None: it lives
    capacity_cores: float | None = None  # None: not limited
    priority: Priority = "normal"  # the games it is for
    games: int = 0
    cores: float = 0.0  # that its games take
    may_return: bool = False  # its driver is gone for so short a time that a restart may bring it back

    @property
    def is_dead(self) -> bool:
        """Whether its games cannot stay: no driver lives, and that is not for a moment only."""
        return self.alive is False and not self.may_return

    @property
    def share(self) -> float:
        """How full it is; 1.0 is full, unless it is not limited: see `COMPARED_CORES`."""
        return self.share_with(0.0)

    def share_with(self, cores: float) -> float:
        """Return how full it would be with so many cores more, or fewer; full without any where it has none."""
        capacity = COMPARED_CORES if self.capacity_cores is None else self.capacity_cores
        return max(self.cores + cores, 0.0) / capacity if capacity > 0 else 1.0

    @property
    def headroom(self) -> float | None:
        """The cores that are left; negative where it is over its capacity, None where it is not limited."""
        return None if self.capacity_cores is None else self.capacity_cores - self.cores

    def is_over(self, max_games: int) -> bool:
        """Tell whether it carries more than it may."""
        return self.games > max_games or (self.headroom is not None and self.headroom < -_EXACT)

    def has_room(self, cores: float, max_games: int, games: int = 1) -> bool:
        """Tell whether it may carry so much more."""
        return not self.plus(cores, games).is_over(max_games)

    def plus(self, cores: float, games: int = 1) -> "GroupLoad":
        """Return it with so much more; games may be negative, with their cores."""
        return replace(self, cores=self.cores + cores, games=self.games + games)


@dataclass(frozen=True, slots=True)
class Loads:
    """Every game that is carried or waits, and every group, at one moment."""

    games: tuple[GameLoad, ...] = ()
    groups: Mapping[str, GroupLoad] = field(default_factory=dict)
    max_games: int = MAX_GAMES

    def by_key(self) -> dict[str, GameLoad]:
        """Return the games by their keys."""
        return {each.game_key: each for each in self.games}


def tallied(
    games: Iterable[tuple[str, str | None, Load]], groups: Iterable[GroupLoad], max_games: int = MAX_GAMES
) -> Loads:
    """Return games (key, group, load) and groups with their sums; the groups' own sums are computed again."""
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
    """Order by priority, high first, then large games, which find room only while there is much."""
    return PRIORITIES.index(game.load.priority), -game.cores, game.game_key


def choose(
    cores: float, priority: Priority, groups: Iterable[GroupLoad], max_games: int, *, moves: bool = False
) -> GroupLoad | None:
    """Return the group that a game gets, or None where it fits nowhere.

    Groups of its priority come first, then the one least full with it. A game that moves (`moves`) goes only where a
    driver lives, for a move is done when it was seen there. A game that waits also goes to a group whose driver was
    never started, and where there is no other to one whose driver is gone: it begins there when the driver does.
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
