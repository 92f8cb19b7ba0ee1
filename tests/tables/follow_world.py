"""Followers of the tables of a small environment, by an edge's tail, without an edge."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.replay import GameReplay, replay_all
from pipeline.edge.following.follower import Follower, FollowView
from pipeline.edge.following.landed import LandedTail
from pipeline.edge.following.positions import FollowPosition, FollowStart, parse_follow
from pipeline.edge.following.read_topics import read_topics
from pipeline.edge.following.refusals import Quarantine
from pipeline.store.edge_producers import EdgeProducer
from pipeline.store.games import known_names
from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse, LogPosition
from tests.tables.repair_world import CHESS, World

CALLER = EdgeProducer("caller", "0" * 64, games=(CHESS.name, "Unknown"))
ALL = EdgeProducer("all", "1" * 64, prefixes=("",))
Row = tuple[str, int]
"""Reason and offset."""


@dataclass
class Tail:
    """The tail of an edge, without its thread."""

    world: World
    quarantine: Quarantine = field(init=False)
    landed: LandedTail = field(init=False)

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(self.world.paths)
        self.landed = LandedTail(self.world.paths, self.world.environment)

    def look(self) -> FollowView:
        games = {name: key for key, name in known_names(self.world.engine).items()}
        landed = self.landed.look(games.values())
        version = self.quarantine.look()
        return FollowView(landed, version, self.quarantine.mark, games, read_topics(self.world.engine))

    def follower(self, token: bytes = b"", since: int | None = None, caller: EdgeProducer = CALLER) -> Follower:
        positions = [] if since is None else [LogPosition(partition=0, offset=since)]
        start = parse_follow(FollowRequest(token=token, since=positions).SerializeToString())
        return Follower(self.quarantine, start, self.look(), caller)

    def said(self, follower: Follower) -> "Said":
        """Look once, and return what a follower is told."""
        return Said.of(follower.step(self.look()))


@dataclass
class Said:
    """The contents of some messages."""

    refused: list[Row] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    landed: dict[str, int] = field(default_factory=dict)  # by game, through an offset of partition 0
    token: bytes = b""
    messages: list[FollowResponse] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[FollowResponse]) -> "Said":
        made = cls()
        for each in messages:
            made.messages.append(each)
            made.refused += [(row.reason, row.offset) for row in each.refused]
            made.replayed += [row.offset for row in each.replayed]
            for through in each.landed:
                made.landed.update(dict.fromkeys(through.games, through.through[0].offset))
            made.token = each.token or made.token
        return made


def replayed(world: World, **selection: Any) -> list[GameReplay]:
    """Replay what a world has in quarantine."""
    registry = LocalRegistry(world.engine)
    chosen = Selection(**selection)
    return replay_all(world.paths, world.environment, registry.snapshot, world.known(), chosen, dry_run=False)


__all__ = ["ALL", "CALLER", "FollowPosition", "FollowStart", "Said", "Tail", "replayed"]
