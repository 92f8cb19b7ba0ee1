"""A small environment without Spark: events get their place in bronze, and passes split them with the real parts."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf.message_factory import GetMessageClass
from sqlalchemy import Engine, delete

from pipeline.base.failpoints import ENVIRON
from pipeline.base.names import MALFORMED, bronze_app_id, game_key
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.bronze_progress import PLAN
from pipeline.data.streams.bronze_to_game import GameTables
from pipeline.data.streams.stream import Stream, stream_of
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.data.streams.writing.writers import DirectWriter
from pipeline.data.verify.balance import Balance, verify
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.opening import open_table, rows_of
from pipeline.lake.delta.quarantine import QUARANTINE, without_present
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import registrations
from pipeline.store.games import Assignment, Game, generations, known_games, record_seen
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.data.contracts.definition_world import Fields, bundle, define

CHESS = Game(game_key("Chess"), "Chess")
GO = Game(game_key("Go\x1b[2J\u202e"), "Go\x1b[2J\u202e")
"""A game whose name would clear a terminal and turn its text around."""


@dataclass(frozen=True)
class Message:
    """A payload's definition."""

    fields: Fields

    @property
    def descriptor_set(self) -> bytes:
        return bundle(define({"M": self.fields}))

    def payload(self, **values: Any) -> bytes:
        made = GetMessageClass(describe("t.M", canonical("t.M", self.descriptor_set)))(**values)
        return made.SerializeToString()


FIRST = Message({"points": (1, "int64")})
SECOND = Message({"points": (1, "int64"), "player": (2, "string")})
OTHER = Message({"points": (1, "string")})
"""Cannot follow the first two: a column would change its type."""

BROKEN = b"\xff\xff\xff\xff"
"""A payload that no message is."""


@dataclass(frozen=True)
class Event:
    """One wrapper as it arrives."""

    game: Game
    schema_id: int
    payload: bytes
    event_id: str = field(default="", kw_only=True)

    @property
    def raw(self) -> bytes:
        return Wrapper(
            game=self.game.name, schema_id=self.schema_id, payload=self.payload, event_id=self.event_id
        ).SerializeToString()


def good(number: int, game: Game = CHESS) -> Event:
    """An event of the first schema, which every world registers first."""
    return Event(game, 1, FIRST.payload(points=number))


def early(number: int, game: Game = CHESS) -> Event:
    """An event of the second schema, which is registered later, if at all."""
    return Event(game, 2, SECOND.payload(points=number, player=f"player {number}"))


def broken(game: Game = CHESS) -> Event:
    return Event(game, 1, BROKEN)


@dataclass
class World:
    """Bronze, quarantine, game tables and the control store of one environment."""

    paths: Paths
    settings: Settings
    engine: Engine
    seq: int = 0
    last_seqs: dict[str, int] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    checkpoint_interval: int = 10
    offset_base: int = 0  # offsets are 1,000 for each seq, less this
    reads_landing: bool = False  # a landing table with a file for each seq, in the commit of that number

    @property
    def environment(self) -> str:
        return self.settings.environment

    @property
    def registry(self) -> LocalRegistry:
        return LocalRegistry(self.engine)

    def register(self, game: Game = CHESS, message: Message = FIRST) -> int:
        return self.registry.register(game.name, "t.M", message.descriptor_set).schema_id

    def forget(self, game: Game = CHESS) -> None:
        """Take a game's schemas away, as no command can."""
        with self.engine.begin() as connection:
            connection.execute(delete(registrations).where(registrations.c.game_key == game.key))

    def ingest(self, *events: Event) -> None:
        """Give events their place: one bronze commit, quarantine first."""
        self.seq += 1
        known = self.registry.snapshot().games
        rows = [self._placed(event, pos, event.game.key in known) for pos, event in enumerate(events)]
        self.last_seqs.update({row["game_key"]: self.seq for row in rows})
        refused = [{**row, "reason": row["refused"], "detail": "nobody knows it"} for row in rows if row["refused"]]
        if refused:
            self.quarantine(refused)
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: (row["game_key"], row["pos"])), schema=BRONZE)
        bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(self.environment))
        end = f'{{"topic":{{"0":{self._offset(len(events))}}}}}'
        if self.reads_landing:
            end = json.dumps({"reservoirVersion": self.seq + 1, "index": -1, "isStartingVersion": False})
        plan = {PLAN: f"v1\n{{}}\n{end}"}  # as Spark writes it
        bronze.commit([write_file(table, self.paths.bronze, ["seq", "game_key"])], bronze.cursor, self.seq, plan)
        seen = {str(event.game.key): event.game.name for event in events if event.game.key in known}
        record_seen(self.engine, seen, self.seq, placing())

    def _placed(self, event: Event, pos: int, known: bool) -> dict[str, Any]:
        key = event.game.key if known else MALFORMED
        return {
            "game_key": str(key),
            "game": event.game.name,
            "schema_id": event.schema_id,
            "seq": self.seq,
            "pos": pos,
            "prev_seq": self.last_seqs.get(key, 0),
            "refused": None if known else "unknown_game",
            "topic": f"{self.seq}.parquet" if self.reads_landing else "topic\x07",
            "event_id": event.event_id or None,
            "partition": None if self.reads_landing else 0,
            "offset": pos if self.reads_landing else self._offset(pos),
            "raw": event.raw,
        }

    def _offset(self, pos: int) -> int:
        return self.seq * 1000 + pos - self.offset_base

    def quarantine(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append rows to quarantine."""
        when = pa.scalar(1_800_000_000_000_000 + self.seq * 1_000_000, pa.timestamp("us", "UTC")).as_py()
        table = pa.Table.from_pylist([{"quarantined_at": when, **row} for row in rows], schema=QUARANTINE)
        self.append_quarantine(table)

    def append_quarantine(self, table: pa.Table) -> None:
        target = CursorTable.create(self.paths.quarantine, QUARANTINE, "test")
        target.append([write_file(table, self.paths.quarantine, ["seq", "game_key"])])

    def stream(self, game: Game) -> Stream:
        """The stream as its driver holds it, with the control store's generation."""
        known = generations(self.engine).get(game.key, 1)
        held = self.streams.get(game.key)
        if held is None or held.generation < known:
            assignment = Assignment(game.key, game.name, 1, known, 0)
            writer = DirectWriter(self.paths.tables, self.checkpoint_interval)
            target = GameTables(self.environment, writer, self.paths)
            held = self.streams[game.key] = stream_of(assignment, target)
            held.open()
        return held

    def split(self, game: Game = CHESS, through: int | None = None) -> None:
        """Let a game's stream apply what bronze has for it, as its driver would: after a conflict once more."""
        try:
            self._split(self.stream(game), game, through)
        except TableConflict:
            self._split(self.stream(game), game, through)

    def _split(self, stream: Stream, game: Game, through: int | None) -> None:
        """Quarantine first, then one commit."""
        expected, seq = stream.position, pc.field("seq")
        above = (seq > expected.cursor) & (seq <= (through or self.seq))
        rows = rows_of(self.paths.bronze).to_table(columns=list(READ), filter=above)
        if not rows.num_rows:
            return
        job = SplitJob({game.key: expected.cursor}, self.registry.snapshot(), self.paths.tables)
        report, rejects = split_rows(rows, job)
        if game.key not in report:
            return
        if needs := report[game.key]["needs"]:  # as a driver: its rows before the need land, and the others wait
            if needs[0][0] - 1 > expected.cursor:
                self._split(stream, game, needs[0][0] - 1)
            return
        if stop := report[game.key].get("stop"):  # likewise; a driver parks the stream then
            if stop[0] - 1 > expected.cursor:
                self._split(stream, game, stop[0] - 1)
            return
        new = without_present(rejects, self.paths.quarantine).select(QUARANTINE.names)
        if new.num_rows:
            self.append_quarantine(new)
        cursor = max(seq for seq, _ in report[game.key]["links"])
        files = [DataFile(**file) for file in report[game.key]["files"]]
        stream.commit(files, expected, cursor, landing_schema(job.schema_set, game.key))

    def verify(self) -> Balance:
        return verify(self.paths, self.environment, generations(self.engine))

    def known(self) -> dict[str, str]:
        return known_games(self.engine) | {str(game.key): game.name for game in (CHESS, GO)}

    def rows(self, game: Game = CHESS) -> list[tuple[int, int]]:
        """The places in a game's table."""
        return sorted((row["_seq"], row["_pos"]) for row in self.contents(game))

    def contents(self, game: Game = CHESS) -> list[dict[str, Any]]:
        table = open_table(self.paths.table(game.key)).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: (row["_seq"], row["_pos"]))

    def refused(self) -> list[tuple[int, int]]:
        """The places in quarantine, one for each of its rows."""
        table = open_table(self.paths.quarantine).to_pyarrow_table(columns=["seq", "pos"])
        return sorted((row["seq"], row["pos"]) for row in table.to_pylist())


def split_rows(rows: pa.Table, job: SplitJob) -> tuple[dict[str, Any], pa.Table]:
    (done,) = split(iter(rows.combine_chunks().to_batches()), job)
    report = json.loads(done.column("report")[0].as_py())["games"]
    return report, pa.ipc.open_stream(done.column("rejects")[0].as_py()).read_all()


def make_world(root: Path, storage: str = "") -> World:
    """An empty environment in which Chess has its first schema, with its tables in the folder or at a URL."""
    paths, settings = Paths(root / "env=é x", storage), Settings()  # a name that readers may take for a partition
    world = World(paths, settings, open_store(settings, paths))
    assert world.register() == 1
    return world


def copied(world: World, root: Path) -> World:
    """Return a copy of an environment, for a test that may change it: much cheaper than its commits."""
    paths = Paths(root / world.paths.root.name)
    world.engine.dispose()  # so that all of the store is in its file
    shutil.copytree(world.paths.root, paths.root)
    return World(paths, world.settings, open_store(world.settings, paths), world.seq, dict(world.last_seqs))


def arming(folder: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> Callable[[int], None]:
    """Return what arms an exception at the n-th hit of a fail-point."""
    folder.mkdir()
    monkeypatch.setenv(ENVIRON, str(folder))

    def armed(number: int) -> None:
        (folder / "armed").write_text(f"{point} raise {number}\n")

    return armed
