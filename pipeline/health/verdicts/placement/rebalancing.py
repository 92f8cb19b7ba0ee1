"""Finds the move that balances the load best: pure, without trying each game in each group.

A move out of the fullest group is judged by the highest remaining share, then by the sum of squares. For one target
both depend on the game's cores alone, and get worse to both sides of an optimum. So of games in the order of their
cores only the neighbours of a few points can be the best.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pipeline.health.verdicts.placement.capacity import COMPARED_CORES, GameLoad, GroupLoad

_WORTH: Final = 0.01  # of a share: a smaller reduction is not worth a catch-up


class Leavers:
    """The games that may leave their groups, by group and priority in the order of their cores."""

    def __init__(self, games: Iterable[GameLoad]) -> None:
        """Take games; their order decides between games with the same cores."""
        self._sorted: dict[str, dict[str, list[tuple[float, int]]]] = {}
        self._games: list[GameLoad] = []
        self._numbers: dict[str, int] = {}
        for number, game in enumerate(games):
            self._games.append(game)
            self._numbers[game.game_key] = number
            by_priority = self._sorted.setdefault(str(game.group), {})
            by_priority.setdefault(game.load.priority, []).append((game.cores, number))
        for by_priority in self._sorted.values():
            for row in by_priority.values():
                row.sort()

    def remove(self, game: GameLoad) -> None:
        """Remove a game."""
        row = self._sorted[str(game.group)][game.load.priority]
        del row[bisect_left(row, (game.cores, self._numbers[game.game_key]))]

    def near(self, group: str, priorities: Iterable[str], points: Iterable[float]) -> Iterator[tuple[int, GameLoad]]:
        """Return a group's games with cores next to one of the points, with their place in the order."""
        points = list(points)
        for priority in priorities:
            row = self._sorted.get(group, {}).get(priority, [])
            for number in {number for point in points for number in _next_to(row, point)}:
                yield number, self._games[number]


def best(part: Mapping[str, GroupLoad], leavers: Leavers, max_games: int) -> tuple[GameLoad, GroupLoad] | None:
    """Return the move out of the fullest group that reduces the highest share most, then the sum of squares."""
    if not part:
        return None
    source = min(part.values(), key=lambda each: (-each.share, each.name))
    shares = {name: each.share for name, each in part.items()}
    squares = sum(share**2 for share in shares.values())
    highest = sorted((share, name) for name, share in shares.items() if name != source.name)[-2:]
    least, best_move = (round(source.share, 9), round(squares, 9), "", 0), None
    for target in sorted(part.values(), key=lambda each: each.name):
        if target.name == source.name or target.games + 1 > max_games:
            continue
        others = max((share for share, name in highest if name != target.name), default=0.0)
        rest = squares - source.share**2 - target.share**2
        # A game of the source's priority goes only where groups exist for such games.
        priorities = [each for each in ("high", "normal", "low") if each != source.priority or each == target.priority]
        for number, game in leavers.near(source.name, priorities, _points(source, target, others)):
            left, taken = source.share_with(-game.cores), target.share_with(game.cores)
            if taken > source.share - _WORTH or not target.has_room(game.cores, max_games):
                continue
            after = round(max(others, left, taken), 9), round(rest + left**2 + taken**2, 9), target.name, number
            if after[:2] < least[:2] or (after < least and best_move is not None):
                least, best_move = after, (game, target)
    return best_move


def _points(source: GroupLoad, target: GroupLoad, others: float) -> list[float]:
    """Return the cores at which a move changes from better to worse, or becomes impossible."""
    gives, takes = _capacity(source), _capacity(target)
    high, low = source.share, target.share
    highest = (high - _WORTH - low) * takes
    return [
        (high - low) / (1 / gives + 1 / takes),  # both are then equally full
        (high / gives - low / takes) / (1 / gives**2 + 1 / takes**2),  # the sum of squares is least
        (high - others) * gives,  # the source is as full as the fullest of the others
        (others - low) * takes,  # the target is
        highest,
        highest if target.headroom is None else min(highest, target.headroom),
    ]


def _capacity(group: GroupLoad) -> float:
    return COMPARED_CORES if group.capacity_cores is None else max(group.capacity_cores, 1e-9)


def _next_to(row: list[tuple[float, int]], point: float) -> set[int]:
    """Return the numbers of the entries below and above a point; of entries with the same cores, the first."""
    at = bisect_right(row, (point, -1))
    neighbours = set()
    for index in (at - 1, at):
        if 0 <= index < len(row):
            neighbours.add(row[bisect_left(row, (row[index][0], -1))][1])
    return neighbours
