"""Small worlds: which rows bronze gets, in which commits, and what must become of each of them."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import StaticPool

from pipeline.bronze import BRONZE
from pipeline.contracts.messages import canonical, describe
from pipeline.contracts.registry import LocalRegistry
from pipeline.names import game_key
from pipeline.repair.game import Game
from pipeline.store.games import record_one, register_group
from pipeline.store.leases import Lease
from pipeline.store.migrate import migrate
from pipeline.store.seats import reassign
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.test_contracts_messages import bundle, define

GAMES: Final = tuple(Game(game_key(name), name) for name in ("Chess", "Go", "Poker", "Tag"))
FIRST: Final = bundle(define({"M": {"points": (1, "int64")}}))
SECOND: Final = bundle(define({"M": {"points": (1, "int64"), "player": (2, "string")}}))
WORLDS: Final = 16
_FILES: Final = 2  # of a bronze commit; a game's rows lie in one


@dataclass(frozen=True)
class Row:
    """A row of bronze, and what must become of it."""

    game: Game
    seq: int
    pos: int
    points: int
    kind: str  # good, broken (refused always), early (of a schema that is registered later, if at all)

    @property
    def place(self) -> tuple[int, int]:
        return self.seq, self.pos


@dataclass(frozen=True)
class World:
    """What comes into bronze."""

    number: int
    discovered: bool  # games become known as their first rows come, not before
    commits: tuple[tuple[Row, ...], ...]  # by seq, from 1
    files: tuple[tuple[pa.Table, ...], ...] = field(repr=False, compare=False)

    @property
    def games(self) -> tuple[Game, ...]:
        return tuple(game for game in GAMES if any(row.game == game for rows in self.commits for row in rows))

    def rows(self, game: Game) -> list[Row]:
        return [row for rows in self.commits for row in rows if row.game == game]

    def last_seq(self, game: Game) -> int:
        return max((row.seq for row in self.rows(game)), default=0)


@lru_cache(maxsize=WORLDS)
def world(number: int) -> World:
    """Return one of the worlds; some of its games are quiet most of the time."""
    draw = random.Random(f"world {number}")
    games = GAMES[: draw.randint(2, 4)]
    busy = {game: draw.choice((0.25, 0.4, 0.9)) for game in games}
    commits = []
    for seq in range(1, draw.randint(3, 6) + 1):
        rows: list[Row] = []
        present = [game for game in games if draw.random() < busy[game]] or [draw.choice(games)]
        for game in present:
            for _ in range(draw.choice((1, 1, 2))):
                kind = draw.choice(("good",) * 7 + ("broken", "early"))
                rows.append(Row(game, seq, len(rows), seq * 100 + len(rows), kind))
        commits.append(tuple(rows))
    return World(number, draw.random() < 0.4, tuple(commits), _files(commits))


def _files(commits: list[tuple[Row, ...]]) -> tuple[tuple[pa.Table, ...], ...]:
    heads: dict[Game, int] = {}
    made = []
    for rows in commits:
        placed = [(row, heads.get(row.game, 0)) for row in rows]
        heads.update({row.game: row.seq for row in rows})
        shares: list[list[dict[str, Any]]] = [[] for _ in range(_FILES)]
        for row, before in sorted(placed, key=lambda each: (each[0].game.key, each[0].pos)):
            shares[GAMES.index(row.game) % _FILES].append(_bronze_row(row, before))
        made.append(tuple(pa.Table.from_pylist(share, schema=BRONZE) for share in shares if share))
    return tuple(made)


def _bronze_row(row: Row, prev_seq: int) -> dict[str, Any]:
    return {
        "game_key": str(row.game.key),
        "game": row.game.name,
        "schema_id": 2 if row.kind == "early" else 1,
        "seq": row.seq,
        "pos": row.pos,
        "prev_seq": prev_seq,
        "topic": "events",
        "partition": 0,
        "offset": row.seq * 100 + row.pos,
        "raw": _wrapper(row),
    }


def _wrapper(row: Row) -> bytes:
    payload = b"\xff\xff\xff\xff"
    if row.kind != "broken":
        descriptor = SECOND if row.kind == "early" else FIRST
        values: dict[str, Any] = {"points": row.points}
        if row.kind == "early":
            values["player"] = f"player {row.points}"
        payload = GetMessageClass(describe("t.M", canonical("t.M", descriptor)))(**values).SerializeToString()
    return Wrapper(game=row.game.name, schema_id=2 if row.kind == "early" else 1, payload=payload).SerializeToString()


class ControlStore:
    """One control store in memory, begun anew for each schedule from what it is when a system starts."""

    def __init__(self) -> None:
        self.engine: Engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        migrate(self.engine)
        registry = LocalRegistry(self.engine)
        for game in GAMES:
            assert registry.register(game.name, "t.M", FIRST).schema_id == 1
        register_group(self.engine, "a")
        self._without_games = self._raw().serialize()
        for game in GAMES:
            record_one(self.engine, game.key, game.name, 0)
        with self.engine.begin() as connection:
            reassign(connection, {game.key: (1, "a") for game in GAMES})
        self._with_games = self._raw().serialize()
        self._used: Callable[[], None] = _nothing
        self.writes = 0  # transactions so far: what was read is still so while there is no other one
        connect, begin = self.engine.connect, self.engine.begin

        def connected() -> Connection:
            self._used()
            return connect()

        @contextmanager
        def begun() -> Iterator[Connection]:
            try:
                with begin() as connection:
                    yield connection
            finally:
                self.writes += 1

        self.engine.connect, self.engine.begin = connected, begun  # type: ignore[method-assign]

    def begin(self, *, with_games: bool) -> None:
        self.writes += 1
        self._raw().deserialize(self._with_games if with_games else self._without_games)

    def on_use(self, used: Callable[[], None] | None) -> None:
        """Have something called whenever the store is about to be asked."""
        self._used = used or _nothing

    def remembered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that reads the store as one that asks it only when something was written since."""
        known: dict[Any, Any] = {}
        at = -1

        def asked(engine: Any, *arguments: Any) -> Any:
            nonlocal at
            if isinstance(engine, Engine):
                self._used()  # others may go on here
            used, self._used = self._used, _nothing
            if at != self.writes:
                known.clear()
                at = self.writes
            key = tuple((each.name, each.epoch) if isinstance(each, Lease) else each for each in arguments)
            try:
                if key not in known:
                    known[key] = function(engine, *arguments)
            finally:
                self._used = used
            found = known[key]
            return type(found)(found) if isinstance(found, dict | list) else found

        return asked

    def _raw(self) -> Any:
        with self.engine.connect() as connection:
            return connection.connection.dbapi_connection


def _nothing() -> None:
    """Nobody asked to be called."""
