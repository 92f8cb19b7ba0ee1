"""Plans the group of each game, with reasons: pure, no store, no clock. It only proposes moves.

`place` moves games that must leave, with `capacity.choose`; `rebalance` balances the load.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pipeline.base.texts import cores
from pipeline.health.verdicts.placement import rebalancing
from pipeline.health.verdicts.placement.capacity import GameLoad, GroupLoad, Loads, choose, placed_sooner

CATCHUP_ROWS_PER_SECOND: Final = 46_000.0
"""The slower of two large chunks in `bench/results/outage-300x8000.json`: 2.97 million rows in 64.1 s on two cores."""

HANDOVER_TRIGGERS: Final = 3.0
"""A game is released at the end of a pass, taken at the start of another, and rejoins at the start of a third."""

MAX_REBALANCING_MOVES: Final = 10
"""Default of the most balancing moves in one proposal."""

_WhyNot: TypeAlias = Callable[[GameLoad], str | None]
_LEAVES_FIRST: Final = ("low", "normal", "high")


@dataclass(frozen=True, slots=True)
class GamePlacement:
    """A move of one game, and its reason in one sentence."""

    game: GameLoad
    target: str
    why: str

    @property
    def game_key(self) -> str:
        """The game."""
        return self.game.game_key

    @property
    def source(self) -> str | None:
        """The group it leaves; None: it had none."""
        return self.game.group


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A game that must leave but fits nowhere, so it stays; its reason in one sentence."""

    game: GameLoad
    why: str


@dataclass(frozen=True, slots=True)
class Placed:
    """The moves, the games without room, and the load of the groups before and after."""

    placements: tuple[GamePlacement, ...]
    unplaced: tuple[Unplaced, ...]
    before: Mapping[str, GroupLoad]
    after: Mapping[str, GroupLoad]

    @property
    def restarts(self) -> int:
        """The number of streams that restart: a move restarts none."""
        return 0

    @property
    def new_groups(self) -> dict[str, str]:
        """Game key → new group."""
        return {each.game_key: each.target for each in self.placements}


def place(loads: Loads) -> Placed:
    """Place each game that has no group or must leave it; all others stay.

    A game must leave a group that does not exist, is drained or stopped, or is dead. A full group loses as many games
    as needed: low priority first, then those that catch up faster. A game that fits nowhere stays.
    """
    board = _Board(loads)
    for _ in range(2 * len(loads.games)):  # no game moves more than twice: from no group to a dead one, and from there
        if not _round(board):
            break
    return board.placed([*_homeless(board, board.why_not), *_crowded(board)])


def leaving(loads: Loads, leavers: Mapping[str, Container[str]]) -> Placed:
    """Move games of some groups elsewhere, as `place` would if those groups were drained; no other game moves.

    `leavers` has the keys of the games that leave, by group. They get the available room by priority, not by group.
    """
    drained = {name: replace(loads.groups[name], desired="drained") for name in leavers}
    board = _Board(replace(loads, groups={**loads.groups, **drained}))

    def why_not(game: GameLoad) -> str | None:
        is_leaving = game.game_key in leavers.get(board.at[game.game_key] or "", ())
        return board.why_not(game) if is_leaving else None

    _homed(board, why_not)
    return board.placed(_homeless(board, why_not))


def rebalance(loads: Loads, max_moves: int = MAX_REBALANCING_MOVES, fixed: Container[str] = ()) -> Placed:
    """Return at most `max_moves` moves that each reduce the highest load share, or balance it.

    Only running groups with living drivers take part, and no games in `fixed`. No game leaves a group of its priority
    for one of another.
    """
    board = _Board(loads)
    part = {name: each for name, each in board.rooms.items() if each.desired == "running" and each.alive}
    leavers = rebalancing.Leavers(
        sorted((each for each in loads.games if each.game_key not in fixed), key=_leaves_sooner)
    )
    for _ in range(max_moves):
        best_move = rebalancing.best(part, leavers, loads.max_games)
        if best_move is None:
            break
        game, target = best_move
        leavers.remove(game)
        source = part[str(game.group)]
        part[source.name] = source.plus(-game.cores, -1)
        part[target.name] = target.plus(game.cores)
        why = f"{source.name} is the fullest group, {full(source)}; with it {target.name} has {full(part[target.name])}"
        board.move(game, target.name, why)
    return board.placed()


def proposed(loads: Loads, max_moves: int = MAX_REBALANCING_MOVES) -> tuple[Placed, Placed]:
    """Return the moves of games that must leave, and then those that balance the load; no game is in both."""
    placed = place(loads)
    new_groups = placed.new_groups
    placed_games = tuple(replace(each, group=new_groups.get(each.game_key, each.group)) for each in loads.games)
    return placed, rebalance(replace(loads, games=placed_games, groups=placed.after), max_moves, set(new_groups))


def lines_of(placed: Placed, rebalanced: Placed, trigger_seconds: float) -> list[str]:
    """Return the result of `proposed` as lines of text: moves with reasons, games without room, loads of groups."""
    lines = []
    for title, placements in (("cannot stay", placed.placements), ("evens out the load", rebalanced.placements)):
        for each in placements:
            seconds = catch_up_seconds(each.game, trigger_seconds)
            catchup = "catch-up time unknown" if seconds is None else f"caught up after about {seconds:.0f} s"
            way = f"{each.source or 'no group'} → {each.target}"
            lines.append(f"{each.game_key}: {way}, {title}: {each.why[:-1]}; 0 restarts, {catchup}.")
    lines += [f"{each.game.game_key}: nowhere: {each.why}" for each in placed.unplaced]
    for name, before in placed.before.items():
        lines.append(
            f"{name}: {full(before)} ({before.share:.1%}) → "
            f"{full(rebalanced.after[name])} ({rebalanced.after[name].share:.1%})"
        )
    count = len(placed.placements) + len(rebalanced.placements)
    return [
        *lines,
        f"{count} to move, {len(placed.unplaced)} fit nowhere. Highest load: {_highest(placed, rebalanced)}.",
    ]


def catch_up_seconds(game: GameLoad, trigger_seconds: float) -> float | None:
    """Return the catch-up time after a move, or None where the game's lag or rate is unknown.

    It covers the rows that wait now and those that arrive during the handover.
    """
    load = game.load
    if load.rows_per_second is None or load.lag_seconds is None or (load.lag_seconds and not load.rows_per_second):
        return None
    handover = HANDOVER_TRIGGERS * trigger_seconds
    return handover + (load.lag_seconds + handover) * load.rows_per_second / CATCHUP_ROWS_PER_SECOND


def full(group: GroupLoad) -> str:
    """Return a group's estimated load, for a sentence."""
    used, limit = cores(group.cores, ""), group.capacity_cores
    load = f"{used} cores, not limited" if limit is None else f"{used} of {limit:g} cores"
    return f"{'' if used == '0' else 'about '}{load}, {group.games} games"


def room_left(groups: Mapping[str, GroupLoad], besides: str) -> str:
    """Name the other group with most room, for a sentence."""
    others = [each for each in groups.values() if each.name != besides and each.desired == "running" and each.alive]
    if not others:
        return "no other group takes games"
    best = max(
        others,
        key=lambda each: (each.headroom is None, -each.cores if each.headroom is None else each.headroom, each.name),
    )
    if best.headroom is None:
        return f"most room: {best.name}, not limited"
    return f"most room: {best.name}, {cores(max(best.headroom, 0.0))}"


class _Board:
    """The games and groups during placement."""

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        self.rooms = dict(loads.groups)
        self.at = {each.game_key: each.group for each in loads.games}
        self.why: dict[str, str] = {}
        self.reasons: dict[str, str] = {}  # the first reason of each game to leave its group

    def move(self, game: GameLoad, target: str | None, why: str) -> None:
        """Move a game to a group, or back."""
        for name, sign in ((self.at[game.game_key], -1), (target, 1)):
            if name in self.rooms:
                self.rooms[name] = self.rooms[name].plus(sign * game.cores, sign)
        self.at[game.game_key] = target
        self.why[game.game_key] = why

    def of(self, group: str) -> list[GameLoad]:
        """Return the games of a group in the order in which they leave it."""
        return sorted((each for each in self.loads.games if self.at[each.game_key] == group), key=_leaves_sooner)

    def why_not(self, game: GameLoad) -> str | None:
        """Return why a game must leave its group, whatever the load."""
        name = self.at[game.game_key]
        if name is None:
            return "it has no group"
        group = self.rooms.get(name)
        if group is None:
            return f"group {name} does not exist"
        if group.desired != "running":
            return f"group {name} is {group.desired}"
        return f"group {name} is dead: {group.silence}" if group.is_dead else None

    def placed(self, unplaced: Iterable[Unplaced] = ()) -> Placed:
        """Return the result."""
        moved = (each for each in self.loads.games if self.at[each.game_key] != each.group)
        placements = (GamePlacement(each, str(self.at[each.game_key]), f"{self.why[each.game_key]}.") for each in moved)
        return Placed(tuple(placements), tuple(unplaced), self.loads.groups, self.rooms)


def _highest(placed: Placed, rebalanced: Placed) -> str:
    was, then = (
        max((each.share for each in loads.values()), default=None) for loads in (placed.before, rebalanced.after)
    )
    return "no group" if was is None or then is None else f"{was:.1%} → {then:.1%}"


def _round(board: _Board) -> int:
    """Place the games that must leave once; return how many found a group. Their room is then free for others."""
    moved = _homed(board, board.why_not)
    for name in sorted(board.rooms):
        moved += _unload(board, name)
    return moved


def _homed(board: _Board, why_not: _WhyNot) -> int:
    moved = 0
    waiting = [(each, why) for each in board.loads.games if (why := why_not(each)) is not None]
    for game, why in sorted(waiting, key=lambda each: placed_sooner(each[0])):
        moved += _moved(board, game, why, moves=board.at[game.game_key] is not None)
    return moved


def _unload(board: _Board, name: str) -> int:
    """Move as many games out of a full group as needed and possible; return how many."""
    if not board.rooms[name].is_over(board.loads.max_games):
        return 0
    why, gone = f"group {name} is full, {full(board.rooms[name])}", []
    for game in board.of(name):
        enough = not board.rooms[name].plus(-game.cores, -1).is_over(board.loads.max_games)
        if enough and _moved(board, game, why, moves=True):
            return 1
    for game in board.of(name):
        if not board.rooms[name].is_over(board.loads.max_games):
            break
        if _moved(board, game, why, moves=True):
            gone.append(game)
    for game in list(gone):
        if board.rooms[name].has_room(game.cores, board.loads.max_games):  # larger games that left later were enough
            board.move(game, name, "")
            gone.remove(game)
    return len(gone)


def _moved(board: _Board, game: GameLoad, why: str, *, moves: bool) -> bool:
    max_games, priority = board.loads.max_games, game.load.priority
    others = [each for each in board.rooms.values() if each.name != board.at[game.game_key]]
    target = choose(game.cores, priority, others, max_games, moves=moves)
    if target is None:
        return False
    with_it = target.plus(game.cores)
    kind = (
        f"the groups for {priority} games"
        if target.priority == priority
        else "all groups, none of its priority has room"
    )
    counted = "" if game.is_known else "; its load is unknown, so it counts as the median of the others"
    why = board.reasons.setdefault(game.game_key, why)
    board.move(game, target.name, f"{why}; {target.name} is then least full of {kind}: {full(with_it)}{counted}")
    return True


def _homeless(board: _Board, why_not: _WhyNot) -> list[Unplaced]:
    """Return the games that must leave and fit nowhere."""
    reasons = ((each, why_not(each)) for each in board.loads.games if board.at[each.game_key] == each.group)
    return [Unplaced(game, _nowhere(board, game, why)) for game, why in reasons if why is not None]


def _crowded(board: _Board) -> list[Unplaced]:
    """Return the games that should leave groups that are still full, as many of each as needed."""
    crowded = []
    for name in sorted(board.rooms):
        group = board.rooms[name]
        if group.desired != "running" or group.is_dead:
            continue  # all of its games are in the report already
        why = f"group {name} is full, {full(group)}"
        for game in board.of(name):
            if not group.is_over(board.loads.max_games):
                break
            group = group.plus(-game.cores, -1)
            crowded.append(Unplaced(game, _nowhere(board, game, why)))
    return crowded


def _nowhere(board: _Board, game: GameLoad, why: str) -> str:
    stays = "waits" if game.group is None else "stays"
    roomiest = room_left(board.rooms, str(board.at[game.game_key]))
    return f"{why}; it {stays}, because its about {cores(game.cores)} fit nowhere: {roomiest}."


def _leaves_sooner(game: GameLoad) -> tuple[int, float, float, str]:
    """Order by priority, low first, then by the cost of a move: the catch-up, unknown last."""
    seconds = catch_up_seconds(game, 1.0)
    unknown = float("inf")
    return _LEAVES_FIRST.index(game.load.priority), unknown if seconds is None else seconds, game.cores, game.game_key
