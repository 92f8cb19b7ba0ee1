"""An environment whose rows went the whole way through the real parts: landed by ingest's task, split by a pass's."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from google.protobuf.message_factory import GetMessageClass

from pipeline.base.names import bronze_app_id, game_key
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.profile import SourceProfile, dumps
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import Game, generations, record_seen
from pipeline.store.writers import number_of_definition
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.repair_world import World


@dataclass
class ValueWorld(World):
    """A world that is fed with wrappers' bytes."""

    names: dict[str, str] = field(default_factory=dict)  # exact name → key
    offset: int = 0
    topic: str = "events"
    partition: int | None = 0  # None: a landing table, with the topic for a file
    profile: SourceProfile | None = None  # None: wrappers arrive

    def add_schema(self, game: str, message: str, descriptor_set: bytes, policies: Policies = DEFAULTS) -> int:
        self.names[game] = str(game_key(game))
        return self.registry.register(game, message, descriptor_set, policies).schema_id

    def make(self, schema_id: int) -> Any:
        """The message class of a registered schema."""
        schema = self.registry.snapshot().schemas[schema_id]
        return GetMessageClass(describe(schema.message, schema.definition))

    def arrive(self, *wrappers: bytes) -> None:
        """Land one micro-batch, and nothing else."""
        self.seq += 1
        job = IngestJob(
            seq=self.seq,
            last_seqs=self.last_seqs,
            known=self.names,
            onboarding=self.settings.onboarding,
            bronze=self.paths.bronze,
            quarantine=self.paths.quarantine,
            bronze_files=2,
            sources=(SourceJob(self._numbered()),),
        )
        (done,) = land(iter([self._records(wrappers)]), job)
        report = json.loads(done.column("report")[0].as_py())
        if report["quarantine"] is not None:
            quarantine = CursorTable.create(self.paths.quarantine, QUARANTINE, "ingest")
            quarantine.append([DataFile(**report["quarantine"])])
        bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(self.environment))
        bronze.commit([DataFile(**file) for file in report["files"]], bronze.cursor, self.seq)
        self.last_seqs.update(dict.fromkeys(report["counts"], self.seq))
        record_seen(self.engine, report["routed"], self.seq, placing())

    def _numbered(self) -> NumberedProfile | None:
        if self.profile is None:
            return None
        return NumberedProfile(number_of_definition(self.engine, dumps(self.profile)), self.profile)

    def _records(self, wrappers: Sequence[bytes]) -> pa.RecordBatch:
        count = len(wrappers)
        first, self.offset = self.offset, self.offset + count
        times = [1_800_000_000_000_000 + number for number in range(count)]
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array([None] * count, pa.binary()),
                "value": pa.array(wrappers, pa.binary()),
                "topic": pa.array([self.topic] * count),
                "partition": pa.array([self.partition] * count, pa.int32()),
                "offset": pa.array(range(first, first + count), pa.int64()),
                "source_time": pa.array(times, pa.timestamp("us", "UTC")),
                "headers": pa.nulls(count, BRONZE.field("headers").type),
                "source_clock": pa.array(["broker"] * count),
            }
        )

    def split_all(self) -> None:
        for name in sorted(self.names):
            self.split(Game(game_key(name), name))

    def check(self, sample: int | None = None) -> Balance:
        wanted = Wanted(self.registry.snapshot(), sample)
        return verify(self.paths, self.environment, generations(self.engine), wanted=wanted)

    def alter(
        self, game: str, column: str, change: Callable[[Any], Any], place: tuple[int, int], copy: int = 0
    ) -> None:
        """Change one value in a data file of a game's table, as a bug or a hand would."""

        def altered(table: pa.Table) -> pa.Table:
            rows = table.to_pylist()
            mine = [row for row in rows if (row["_seq"], row["_pos"]) == place]
            mine[copy][column] = change(mine[copy][column])
            return pa.Table.from_pylist(rows, schema=table.schema)

        self.rewrite(game, place, altered)

    def rewrite(self, game: str, place: tuple[int, int], change: Callable[[pa.Table], pa.Table]) -> None:
        """Change the data file that has a row."""
        _rewrite(Path(self.paths.table(game_key(game))), ("_seq", "_pos"), place, change)

    def damage_bronze(self, place: tuple[int, int], change: Callable[[bytes], bytes]) -> None:
        """Change the wrapper of one row of bronze."""

        def changed(table: pa.Table) -> pa.Table:
            rows = [
                row | {"raw": change(row["raw"])} if (row["seq"], row["pos"]) == place else row
                for row in table.to_pylist()
            ]
            return pa.Table.from_pylist(rows, schema=table.schema)

        _rewrite(Path(self.paths.bronze), ("seq", "pos"), place, changed)


def _rewrite(
    folder: Path, names: tuple[str, str], place: tuple[int, int], change: Callable[[pa.Table], pa.Table]
) -> None:
    for uri in DeltaTable(folder).file_uris():
        file = unquote(uri).removeprefix("file://")
        table = pq.ParquetFile(file).read()
        if place in zip(*(table.column(name).to_pylist() for name in names), strict=True):
            pq.write_table(change(table), file)
            return
    raise AssertionError(f"{folder} has no row {place}")


def wrapped(game: str, schema_id: int, payload: bytes, **others: Any) -> bytes:
    return Wrapper(game=game, schema_id=schema_id, payload=payload, **others).SerializeToString()


def value_world(root: Path) -> ValueWorld:
    paths, settings = Paths(root), Settings()
    return ValueWorld(paths, settings, open_store(settings, paths))
