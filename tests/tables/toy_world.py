"""A second kind of stream: the words of a Delta table with seqs become a table of their lengths, for each key."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from listeners.stream_id import StreamId
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.pins import SetPin
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.definition import StreamDefinition
from pipeline.data.streams.demux import Demux, DemuxContext
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.writing.job import Place, SplitJob
from pipeline.data.streams.writing.rows import Split
from pipeline.data.streams.writing.writers import DirectWriter
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux as DemuxSettings
from pipeline.settings.tree import Settings
from pipeline.store.games import record_seen, register_group

APP: Final = "toy/words"
WORDS: Final = pa.schema(
    [
        ("game_key", pa.string()), ("seq", pa.int64()), ("pos", pa.int32()), ("prev_seq", pa.int64()),
        ("word", pa.string()),
    ]
)  # fmt: skip
LENGTHS: Final = pa.schema([("_seq", pa.int64()), ("_pos", pa.int32()), ("length", pa.int32()), ("rules", pa.int64())])
"""`rules` is the number of the pinned set."""


def count(batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
    """Write the lengths of each key's words above its cursor: this kind's split."""
    rows = pa.Table.from_batches(list(batches), WORDS)
    games = {}
    for key, cursor in job.cursors.items():
        own = rows.filter((pc.field("game_key") == key) & (pc.field("seq") > cursor))
        if own.num_rows:
            rules = pa.repeat(job.schema_set.version, own.num_rows)
            columns = [own["seq"], own["pos"], pc.utf8_length(own["word"]), rules]
            file = write_file(pa.table(columns, schema=LENGTHS), job.tables / key, ["_seq"])
            links = own.group_by(["seq", "prev_seq"]).aggregate([]).to_pylist()
            games[key] = {
                "links": [[link["seq"], link["prev_seq"]] for link in links], "arrivals": [],
                "files": [file.as_dict()], "rejects": {}, "types": {}, "error": None, "needs": [],
            }  # fmt: skip
    if rows.num_rows:
        report = {"seq_to": pc.max(rows["seq"]).as_py(), "games": games, "refused": None, "seconds": {}}
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)], "rejects": [b""]})


@dataclass(frozen=True)
class WordRows:
    """Words of seqs above `low` up to `high`, split here."""

    log: Location
    low: int
    high: int
    work: Split
    after_split: Callable[[], object]
    count: None = None

    def split(self, job: SplitJob) -> list[Any]:
        rows = open_table(self.log).to_pyarrow_table()
        rows = rows.filter((pc.field("seq") > self.low) & (pc.field("seq") <= self.high)).combine_chunks()
        reports = [each.column("report")[0].as_py() for each in self.work(iter(rows.to_batches()), job)]
        self.after_split()
        return [SimpleNamespace(report=report) for report in reports]

    def places(self, key: str, above: int) -> list[Place]:
        raise AssertionError(key, above)

    def last_seq(self) -> int | None:
        raise AssertionError


class Words:
    """The source: its micro-batches are ranges of seqs."""

    def __init__(self, log: Location, after_split: Callable[[], object], work: Split) -> None:
        table = CursorTable.open(log, APP)
        assert table is not None
        self.table, self._rows = table, partial(WordRows, log, work=work, after_split=after_split)

    def head(self) -> int:
        self.table.refresh()
        return self.table.cursor or 0

    def batches(self, _key: str | None, _query: Location, *, once: bool) -> Any:
        assert not once
        return SimpleNamespace(rows=lambda frame, _batch_id: self._rows(*frame))

    def between(self, low: int, high: int, _keys: Collection[GameKey]) -> WordRows:
        return self._rows(low, high)

    def failures(self, cursors: Mapping[str, int]) -> dict[str, Failure]:
        head = self.head()
        return {key: Failure("poison", "it is ahead") for key, cursor in cursors.items() if cursor > head}

    def commits(self, _first: int, _last: int) -> Sequence[Any]:
        return ()


@dataclass(frozen=True)
class LengthTables:
    """The target."""

    folder: Location
    environment: str = "toy"

    @property
    def writer(self) -> DirectWriter:
        return DirectWriter(self.folder, checkpoint_interval=10)

    def path(self, key: GameKey) -> Location:
        return self.folder / key

    def columns(self, _schemas: SchemaSet, _key: GameKey) -> pa.Schema:
        return LENGTHS

    def description(self, name: str) -> str:
        return f"lengths of {name}"

    def removal(self, key: GameKey) -> Exception:
        return FileNotFoundError(key)

    def require_source(self, key: GameKey, through: int) -> None:
        raise AssertionError(key, through)

    def before_create(self, key: GameKey, name: str, removed_at: int) -> None:
        pass


@dataclass
class ToyWorld:
    """The log of words, and what must become of it."""

    root: Path
    engine: Engine
    pool: ThreadPoolExecutor
    rules: int = 1
    chunk: int = 100  # seqs
    seq: int = 0
    last: dict[str, int] = field(default_factory=dict)
    words: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # by key: seq, pos and length

    def __post_init__(self) -> None:
        self.log = located(self.root / "words")
        self.target = LengthTables(located(self.root / "lengths"))
        CursorTable.create(self.log, WORDS, APP)
        register_group(self.engine, "a", placing())

    def add(self, words: Mapping[str, Sequence[str]]) -> None:
        """Commit the next seq, with some words of each key."""
        self.seq += 1
        rows = [
            (key, self.seq, pos, self.last.get(key, 0), word)
            for key, of_key in words.items()
            for pos, word in enumerate(of_key)
        ]
        for key, seq, pos, _, word in rows:
            self.words.setdefault(key, []).append((seq, pos, len(word)))
            self.last[key] = seq
        table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=WORDS)
        log = CursorTable.create(self.log, WORDS, APP)
        log.commit([write_file(table, self.log, ["seq", "game_key"])], log.cursor, self.seq)
        record_seen(self.engine, {key: key for key in words}, self.seq, placing())

    def lengths(self, key: str) -> list[tuple[int, int, int]]:
        """Return a key's rows as (seq, pos, length), those that are there twice too."""
        rows = open_table(self.target.path(GameKey(key))).to_pyarrow_table()
        return sorted((row["_seq"], row["_pos"], row["length"]) for row in rows.to_pylist())

    def rules_of(self, key: str) -> list[int]:
        """Return the number of the rules for each of a key's rows, by seq."""
        table = open_table(self.target.path(GameKey(key))).to_pyarrow_table().sort_by("_seq")
        return [int(number) for number in table["rules"].to_pylist()]


class ToyDriver:
    """A driver of this kind that starts now; `after_split` runs between the reading of rows and their commit."""

    def __init__(self, world: ToyWorld, after_split: Callable[[], object] = bool) -> None:
        self._world = world
        definition = StreamDefinition(partial(Words, world.log, after_split), count, world.target)
        context = SimpleNamespace(setLocalProperty=lambda *_: None, getLocalProperty=lambda _: None)
        spark: Any = SimpleNamespace(sparkContext=context)
        schemas: Any = SimpleNamespace(
            latest=lambda: SetPin(world.rules), snapshot=lambda pin: SchemaSet(pin.version, {}, {})
        )
        self.roster = Roster(definition.target, world.engine, "a", lease=None)
        settings = Settings(demux=DemuxSettings(catchup_seqs=world.chunk))
        driver = DemuxContext(spark, settings, self.roster, schemas, lambda _: None)
        checkpoint = world.root / "checkpoint"
        quarantine = CursorTable.create(located(world.root / "quarantine"), QUARANTINE, "toy/quarantine")
        source = definition.open()
        passes = Passes(
            definition.target.writer.folder, quarantine, world.pool, ActiveGames(checkpoint, "toy"),
            source.failures, source.commits,
        )  # fmt: skip
        self._catch_up = CatchUp(driver, checkpoint, source, passes)
        self._demux = Demux(driver, StreamId("demux", "a"), checkpoint, source, passes)

    def catch_up(self) -> None:
        """Read all that is in the log."""
        self.roster.sync()
        for stream in self.roster.streams.values():
            stream.behind = stream.complete_through < stream.last_seq
        while self._catch_up.step(lambda _: self._world.seq, lambda _: self._world.seq):
            pass

    def run_pass(self, batch: int, low: int, high: int) -> None:
        """Let the shared query have a micro-batch with the seqs above `low` up to `high`."""
        frame: Any = (low, high)
        self._demux._batch(frame, batch)
