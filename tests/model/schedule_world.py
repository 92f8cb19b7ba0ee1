"""Small worlds: which rows bronze gets, in which commits, and what must become of each of them."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, count, product
from typing import Any, Final, Self

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.formats.supported import fingerprint
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registry import LocalRegistry, number_of_profile
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.stored_schemas import write_schema
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.store.assignments import reassign
from pipeline.store.database.migrate import migrate
from pipeline.store.games import Game, record_one, register_group
from pipeline.store.processes.leases import Lease
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.model.schedule_tasks import START, Scheduler, Task
from tests.onboarding_world import give_rules, rule
from tests.unit.data.contracts.definition_world import bundle, define

GAMES: Final = tuple(Game(game_key(name), name) for name in ("Chess", "Go", "Poker", "Tag"))
FIRST: Final = bundle(define({"M": {"points": (1, "int64")}}))
SECOND: Final = bundle(define({"M": {"points": (1, "int64"), "player": (2, "string")}}))
THIRD: Final = bundle(define({"M": {"points": (1, "int64"), "bonus": (3, "int64")}}))
FURTHER: Final[Mapping[int, Schema]] = {
    schema_id: Schema(schema_id, "protobuf", name, canonical(name, bundle(define({name[2:]: fields}))))
    for schema_id, name, fields in (
        (4, "t.Sold", {"price": (1, "int64")}),
        (5, "t.Left", {}),
        (6, "t.Sold", {"price": (1, "int64"), "gift": (2, "bool")}),
    )
}
"""Schemas of further event types, by id."""
WORLDS: Final = 16

REGISTRY: Final = "main"
PROFILE: Final = SourceProfile("none", "topic", "confluent", REGISTRY)
KNOWN, OTHER, LATE, DENIED = (bytes([0, 0, 0, 0, number]) for number in (7, 8, 9, 10))
"""Writers of the registry: of the first schema, of the third, of the first once it is uploaded, and of none."""
_PROFILE: Final = 5  # its number, after four registrations
MOVE: Final = "t.Move"
"""The event type of all documents that nobody declared. A rule accepts it."""
SHAPED: Final = SourceProfile(
    envelope="json", framing="type", fields=(("game", "game"), ("payload", "data"), ("type", "type"))
)
_SHAPED: Final = 6  # its number
_DOCUMENTS: Final[Sequence[Callable[[int], dict[str, Any]]]] = (
    lambda points: {"x": points},
    lambda points: {"x": points, "y": f"player {points}"},
    lambda points: {"x": f"text {points}"},
    lambda points: {"x": points + 0.5},
    lambda points: {"y": True, "z": {"deep": points}},
)
"""Documents of several shapes, which have the same keys with values of other kinds."""
_FILES: Final = 2  # of a bronze commit; a game's rows lie in one


@dataclass(frozen=True)
class Row:
    """A row of bronze, and what must become of it."""

    game: Game
    seq: int
    pos: int
    points: int
    # good, broken (refused always), early (of a schema that is registered later, if at all), denied (refused, as its
    # registry has no schema), late (refused or not, as its registry gets the schema later), typed (waits until its
    # event type is accepted, if it is at all)
    kind: str
    writer: bytes | None = None  # in the foreign registry
    further: int | None = None  # its schema, where that is of a further event type
    shape: int | None = None  # which of the documents it is, where nobody declared it
    event: str | None = None  # its id, which others have, too

    @property
    def place(self) -> tuple[int, int]:
        return self.seq, self.pos

    @property
    def type(self) -> str | None:
        """Its event type, None for the first one of its game."""
        return None if self.further is None else FURTHER[self.further].message

    @property
    def schema_id(self) -> int:
        if self.further is not None:
            return self.further
        if self.writer == OTHER:
            return 3
        return 2 if self.kind == "early" else 1

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its payload."""
        if self.shape is not None:
            return _DOCUMENTS[self.shape](self.points)
        if self.further is not None:
            return {4: {"price": self.points}, 5: {}, 6: {"price": self.points, "gift": True}}[self.further]
        if self.writer == OTHER:
            return {"points": self.points, "bonus": self.points + 1}
        return {"points": self.points} | ({"player": f"player {self.points}"} if self.kind == "early" else {})

    @property
    def values(self) -> dict[str, Any]:
        """The columns that it has in the table; of a document without the numbers of side columns."""
        if self.shape is not None:
            return {"_type": MOVE, "move": self.fields}
        if self.further is None:
            return {"_type": "t.M", **self.fields}
        return {"_type": self.type} | ({"sold": self.fields} if self.fields else {})


@dataclass(frozen=True)
class World:
    """The rows that come into bronze."""

    number: int
    discovered: bool  # games become known as their first rows come, not before
    commits: tuple[tuple[Row, ...], ...]  # by seq, from 1
    files: tuple[tuple[pa.Table, ...], ...] = field(repr=False, compare=False)
    foreign: bool = False
    typed: bool = False
    shaped: bool = False
    repeated: bool = False  # rows have event ids and source times, so that some are second ones of an event

    @property
    def games(self) -> tuple[Game, ...]:
        return tuple(game for game in GAMES if any(row.game == game for rows in self.commits for row in rows))

    def rows(self, game: Game) -> list[Row]:
        return [row for rows in self.commits for row in rows if row.game == game]

    def has(self, writer: bytes) -> list[Game]:
        """Return the games with rows of a foreign writer."""
        return [game for game in self.games if any(row.writer == writer for row in self.rows(game))]

    def last_seq(self, game: Game) -> int:
        return max((row.seq for row in self.rows(game)), default=0)


@lru_cache(maxsize=4 * WORLDS)
def world(
    number: int, *, foreign: bool = False, typed: bool = False, shaped: bool = False, repeated: bool = False
) -> World:
    """Return one of the worlds; some of its games are quiet most of the time.

    In a `foreign` one some of the rows are written by others, with ids of their registry; in a `typed` one some are
    of further event types; in a `shaped` one some are documents that nobody declared; in a `repeated` one some are
    second ones of an event.
    """
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
    discovered = draw.random() < 0.4
    if foreign:
        commits = _with_writers(number, commits)
    if typed:
        commits = _with_types(number, commits)
    if shaped:
        commits = _with_documents(number, commits)
    if repeated:
        commits = _with_events(number, commits)
    return World(number, discovered, tuple(commits), _files(commits), foreign, typed, shaped, repeated)


def _with_writers(number: int, commits: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    draw = random.Random(f"foreign {number}")
    kinds = {KNOWN: "good", OTHER: "good", LATE: "late", DENIED: "denied"}

    def written(row: Row) -> Row:
        writer = draw.choice((None, None, None, KNOWN, OTHER, LATE, DENIED))
        return row if writer is None or row.kind != "good" else replace(row, writer=writer, kind=kinds[writer])

    return [tuple(written(row) for row in rows) for rows in commits]


def _with_types(number: int, commits: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    draw = random.Random(f"typed {number}")

    def written(row: Row) -> Row:
        further = draw.choice((None, None, *FURTHER))
        is_other = further is not None and row.kind == "good" and row.writer is None
        return replace(row, further=further, kind="typed") if is_other else row

    return [tuple(written(row) for row in rows) for rows in commits]


def _with_events(number: int, commits: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    draw = random.Random(f"repeated {number}")
    return [tuple(replace(row, event=draw.choice(("x", "y", "z"))) for row in rows) for rows in commits]


def _with_documents(number: int, commits: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    draw = random.Random(f"shaped {number}")

    def written(row: Row) -> Row:
        shape = draw.choice((None, *range(len(_DOCUMENTS))))
        return row if row.kind != "good" else replace(row, shape=shape)

    return [tuple(written(row) for row in rows) for rows in commits]


def _files(commits: list[tuple[Row, ...]]) -> tuple[tuple[pa.Table, ...], ...]:
    last_seqs: dict[Game, int] = {}
    made = []
    for rows in commits:
        placed = [(row, last_seqs.get(row.game, 0)) for row in rows]
        last_seqs.update({row.game: row.seq for row in rows})
        shares: list[list[dict[str, Any]]] = [[] for _ in range(_FILES)]
        for row, before in sorted(placed, key=lambda each: (each[0].game.key, each[0].pos)):
            shares[GAMES.index(row.game) % _FILES].append(_bronze_row(row, before))
        made.append(tuple(pa.Table.from_pylist(share, schema=BRONZE) for share in shares if share))
    return tuple(made)


def _bronze_row(row: Row, prev_seq: int) -> dict[str, Any]:
    if row.shape is not None:
        document = json.dumps({"game": row.game.name, "type": MOVE, "data": row.fields}).encode()
        own = {"profile": _SHAPED, "writer": MOVE.encode(), "raw": document}
    elif row.writer is not None:
        own = {"profile": _PROFILE, "registry": REGISTRY, "writer": row.writer, "raw": row.writer + _payload(row)}
    else:
        own = {"schema_id": row.schema_id, "raw": _wrapper(row)}
    if row.event is not None:
        own |= {"event_id": row.event, "source_time": datetime.fromtimestamp(START + row.seq, UTC)}
    return own | {
        "game_key": str(row.game.key),
        "game": row.game.name,
        "seq": row.seq,
        "pos": row.pos,
        "prev_seq": prev_seq,
        "topic": "events",
        "partition": 0,
        "offset": row.seq * 100 + row.pos,
    }


def _wrapper(row: Row) -> bytes:
    return Wrapper(game=row.game.name, schema_id=row.schema_id, payload=_payload(row)).SerializeToString()


def _payload(row: Row) -> bytes:
    if row.kind == "broken":
        return b"\xff\xff\xff\xff"
    if row.further is not None:
        described = describe(FURTHER[row.further].message, FURTHER[row.further].definition)
    else:
        described = describe("t.M", canonical("t.M", (FIRST, SECOND, THIRD)[row.schema_id - 1]))
    return bytes(GetMessageClass(described)(**row.fields).SerializeToString())


@dataclass(frozen=True)
class Beginning:
    """The content of the control store when a schedule begins."""

    with_games: bool  # else they become known as their first rows come
    two_groups: bool
    shaped: bool = False  # there is a profile for documents that nobody declared, and a rule that accepts their type


REMEMBERED: Final[Mapping[str, tuple[str, ...]]] = {
    "decided": ("stream_control",),
    "assigned": ("games",),
    "_read_held": ("games", "leases"),
    "bronze_id": ("ingest_identities",),
    "latest_number": ("registrations", "writers", "profiles", "output_contracts"),
    "latest_and_mark": ("registrations", "writers", "profiles", "output_contracts"),
    "contracts_in": ("output_contracts",),
    "stored_ids": ("schemas",),
    "read_schemas": ("schemas",),
    "read_writers": ("writers",),
    "read_profiles": ("profiles",),
    "newest_writers": ("writers",),
    "read_needs": ("schema_needs",),
    "read_states": ("registry_states",),
}
"""Which tables each function reads whose answers are remembered."""


class ControlStore:
    """One control store in memory, begun anew for each schedule from what it is when a system starts."""

    def __init__(self) -> None:
        self.engine: Engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        self._connect = self.engine.connect
        self._used: Callable[[], None] = _nothing
        self._scheduler: Scheduler | None = None
        self._holder: Task | None = None  # whose transaction is open; all others wait for its end, as for a lock
        self._states: dict[str, object] = {}  # by table: what tells its rows at one time from those at another
        self._unfinished: set[str] = set()  # tables that the running transaction has written to
        self._known: dict[Any, Any] = {}  # answers about rows that are there at the beginning
        self._known_now: dict[Any, Any] = {}  # answers of this schedule
        self._versions = count(1_000)  # of the schema; no image has one of them
        self._images = self._all_images()
        event.listen(self.engine, "before_cursor_execute", self._note_write)
        event.listen(self.engine, "commit", self._note_commit)
        event.listen(self.engine, "rollback", self._note_rollback)
        event.listen(self.engine, "rollback_savepoint", self._note_rollback)
        self.engine.connect, self.engine.begin = self._connected, self._begun  # type: ignore[method-assign,assignment]

    def begin(self, beginning: Beginning) -> None:
        self._restore(self._images[beginning])
        self._states = dict.fromkeys(chain(*REMEMBERED.values()), beginning)
        self._known_now.clear()

    def on_use(self, used: Callable[[], None] | None, scheduler: Scheduler | None = None) -> None:
        """Have something called whenever the store is about to be asked, by the tasks of a schedule."""
        self._used, self._scheduler, self._holder = used or _nothing, scheduler, None

    def remembered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that asks the store only when the tables that it reads were written to since."""
        tables = REMEMBERED[function.__name__]

        def submitted(engine: Any, *arguments: Any) -> Any:
            if isinstance(engine, Engine):
                self._used()  # others may go on here
                self._wait()
            states = [self._states[table] for table in tables]
            known = self._known if all(isinstance(each, Beginning) for each in states) else self._known_now
            key = (function, *states, *map(_as_key, arguments))
            if key not in known:
                used, self._used = self._used, _nothing
                try:
                    known[key] = function(engine, *arguments)
                finally:
                    self._used = used
            found = known[key]
            return type(found)(found) if isinstance(found, dict | list) else found

        return submitted

    def _all_images(self) -> dict[Beginning, bytes]:
        migrate(self.engine)
        registry = LocalRegistry(self.engine)
        for game in GAMES:
            assert registry.register(game.name, "t.M", FIRST).schema_id == 1
        with self.engine.begin() as connection:  # so that their ids do not depend on who registers first
            ids = NewIds(connection, None)
            known = [
                Schema(each, "protobuf", "t.M", canonical("t.M", made)) for each, made in ((2, SECOND), (3, THIRD))
            ]
            for schema in (*known, *FURTHER.values()):
                values = (schema.format, schema.message, schema.definition)
                assert write_schema(connection, ids, fingerprint(*values), *values, 0.0) == schema.schema_id
        assert number_of_profile(self.engine, PROFILE) == _PROFILE
        register_group(self.engine, "a", placing())
        made, empty = {}, self._raw().serialize()
        for with_games, two_groups, shaped in product((False, True), repeat=3):
            self._restore(empty)
            if shaped:
                assert number_of_profile(self.engine, SHAPED) == _SHAPED
                give_rules(self.engine, rule(*(game.name for game in GAMES), event_types=(MOVE,)))
            if with_games:
                for game in GAMES:
                    record_one(self.engine, game.key, game.name, 0)
                with self.engine.begin() as connection:
                    reassign(connection, {game.key: (1, "a") for game in GAMES})
            if two_groups:
                register_group(self.engine, "b", placing())
            made[Beginning(with_games, two_groups, shaped)] = self._raw().serialize()
        return made

    def _restore(self, image: bytes) -> None:
        """Go on with an image; without a new version SQLite crashes of statements prepared for its tables before."""
        raw = self._raw()
        raw.deserialize(image)
        raw.execute(f"PRAGMA schema_version = {next(self._versions)}")

    def _connected(self) -> "_Connection":
        self._used()
        self._wait()
        return _Connection(self._connect)

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        self._used()
        self._wait()
        held, self._holder = self._holder, None if self._scheduler is None else self._scheduler.current
        try:
            with self._connect() as connection, connection.begin():
                yield connection
        finally:
            self._holder = held

    def _wait(self) -> None:
        """Wait until no transaction of another task is open: there is one connection, which would see its rows."""
        if self._holder is not None and self._scheduler is not None and self._scheduler.current is not self._holder:
            self._scheduler.wait(lambda: self._holder is None, name="transaction")

    def _note_write(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("SELECT"):
            written = [table for table in self._states if f" {table} " in f"{statement} "]
            self._states.update((table, object()) for table in written)
            self._unfinished.update(written)

    def _note_commit(self, _connection: object) -> None:
        self._unfinished.clear()

    def _note_rollback(self, *_: object) -> None:
        self._states.update((table, object()) for table in self._unfinished)

    def _raw(self) -> Any:
        with self._connect() as connection:
            return connection.connection.dbapi_connection


class _Connection:
    """A connection that is not opened where all that is asked of it is remembered."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._opened: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def __getattr__(self, name: str) -> Any:
        if self._opened is None:
            self._opened = self._connect()
        return getattr(self._opened, name)


def _as_key(argument: Any) -> Any:
    if isinstance(argument, Lease):
        return argument.name, argument.epoch
    if isinstance(argument, dict | list):
        return tuple(argument)
    return frozenset(argument) if isinstance(argument, set) else argument


def _nothing() -> None:
    """Nobody asked to be called."""
