"""One environment in which many games change their schemas at once, each by its way; all parts but Spark are real."""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key
from pipeline.data.contracts.policies import CHOICES, DEFAULTS, Policies, parse_policies
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registries.answers import SchemaResolver
from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.query import Ingest
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.lookup import Lookup
from pipeline.data.streams.outage import CachedRegistry
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.rows import Rows
from pipeline.data.streams.writing.split import split
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.registries import RegistrySettings, split_key
from pipeline.settings.source import source_problems
from pipeline.settings.tree import Demux, Paths, PlacementSettings, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import generations, register_group
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.game_streams import LocalBronze, roster_of
from tests.onboarding_world import give_rules, rule
from tests.tables.ingest_world import Rows as LocalRows
from tests.tables.matrix_cases import BENDING, Case, Change, Way
from tests.tables.matrix_schemas import Folder, Shelf, Written

START = 1_800_000_000.0
_LONG = 1e5
"""Seconds in which a registry must not change its mind before "there is none" counts."""
INDEX = b"\x02\x02"
"""The index path of t.M, the second message of its file."""
NOBODYS = 999_999
"""A number that turnout gave no schema."""


@dataclass
class Game:
    """A case's game: its two schemas and its records."""

    case: Case
    number: int
    own_ids: list[int | None] = field(default_factory=list)  # turnout's numbers of its schemas

    @property
    def change(self) -> Change:
        return self.case.change

    @property
    def way(self) -> Way:
        return self.case.way

    @property
    def name(self) -> str:
        return f"{self.case.name} Ü"

    @property
    def key(self) -> str:
        return str(game_key(self.name))

    @property
    def versions(self) -> tuple[Written, Written]:
        one, two = self.case.formats
        return Written(one, self.change.before), Written(two, self.change.after)

    @property
    def sent(self) -> list[tuple[int, int | None]]:
        """Return batch and schema of each record in order; None: a broken payload of the first schema."""
        if self.way.generations:
            return [(0, 0), (1, 0), (1, None), (1, 0), (2, 1), (2, 1)]
        return [(0, 0), (1, 0), (1, 1), (1, None), (1, 1), (1, 0)]

    @property
    def in_bronze(self) -> list[tuple[int, int | None]]:
        """Return what was sent in bronze's order: of one batch, topic by topic."""
        return sorted(self.sent, key=lambda each: (each[0], self.topic(each[1] or 0)))

    @property
    def before_second(self) -> int:
        """Return the number of good records in the batches before the second schema comes."""
        first = min(batch for batch, version in self.sent if version == 1)
        return sum(batch < first and version == 0 for batch, version in self.sent)

    @property
    def is_late(self) -> bool:
        """Whether the registry has no answer about the second schema yet when it has one about the first."""
        return bool(self.registry(1)) and self.number % 4 == 0

    @property
    def waits_for_second(self) -> bool:
        """Whether it waits for its second schema while the first one is known: "there is none" is not believed yet."""
        return self.is_late or (bool(self.registry(1)) and self.change.answer == "absent")

    def registry(self, version: int) -> str:
        """Return the generation of the registry that knows a schema; empty: turnout itself."""
        if not self.way.registry or (version == 0 and self.way.first_is_own):
            return ""
        base = registry_name(self.way, self.case.bending)
        return f"{base}.2" if version and self.way.generations else base

    def writer(self, version: int) -> bytes:
        """Return the id of a schema as on the wire, without an index path."""
        number = 2 * self.number + version + 1
        match self.way.id:
            case "number" | "prefix":
                return b"\0" + number.to_bytes(4)
            case "prefixed GUID" | "GUID in a header":
                return b"\1" + UUID(int=number << 64 | number).bytes
            case "plain" | "zlib":
                return b"\3" + UUID(int=number << 64 | number).bytes
            case "topic":
                return self.topic(version).encode()
            case _:
                return self.name.encode()

    def topic(self, version: int) -> str:
        if self.way.source.routing == "topic":
            return self.name
        return f"{self.name} {version}" if self.way.id == "topic" else "laps"

    def record(self, version: int, payload: bytes) -> dict[str, Any]:
        """Return a payload as its producer sends it."""
        headers: list[dict[str, Any]] = []
        schema_id = self.own_ids[version]
        if self.registry(version):
            writer = self.writer(version)
            is_indexed = writer[0] in (0, 1) and self.way.id != "number"
            path = INDEX if is_indexed and self.versions[version].format == "protobuf" else b""
            match self.way.id:
                case "number":
                    schema_id = int.from_bytes(writer[1:])
                case "prefix" | "prefixed GUID":
                    payload = writer + path + payload
                case "GUID in a header":
                    headers.append({"key": "__value_schema_id", "value": writer + path})
                case "plain":
                    payload = b"\3\0" + writer[1:] + payload
                case "zlib":
                    payload = b"\3\5" + writer[1:] + zlib.compress(payload)
        if self.way.source.envelope == "wrapper":
            payload = Wrapper(game=self.name, schema_id=schema_id or 0, payload=payload).SerializeToString()
        if self.way.id == "type":
            parts = json.dumps(self.name).encode(), payload
            payload = b'{"game":%b,"is":{"a":"t.M"},"event":%b}' % parts
        if self.way.source.routing == "header:game":
            headers.append({"key": "game", "value": self.name.encode()})
        key = self.name.encode() if self.way.source.routing == "key" else None
        return {"key": key, "value": payload, "topic": self.topic(version), "headers": headers}


def registry_name(way: Way, bending: bool) -> str:
    return "".join(each if each.isalnum() else "-" for each in way.name.lower()) + ("-b" if bending else "")


@dataclass
class Matrix:
    """The environment."""

    paths: Paths
    settings: Settings
    engine: Engine
    games: list[Game]
    spark: Any = None
    registries: dict[str, Shelf | Folder] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)  # games that had neither landed nor refused a row without an answer
    waited_for_second: set[str] = field(default_factory=set)  # games that landed the rows before those of the second
    now: float = START
    quarantined: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by game key, at the end
    offsets: dict[str, int] = field(default_factory=dict)
    batches: int = 0

    @property
    def schemas(self) -> LocalRegistry:
        return self._schemas

    def __post_init__(self) -> None:
        self._schemas = LocalRegistry(self.engine)
        self.settings = replace(
            self.settings,
            placement=PlacementSettings(max_games_per_group=10_000),
            demux=Demux(catchup_seqs=10_000),
        )
        register_group(self.engine, "a", placing(10_000))
        give_rules(self.engine, rule(*(each.name for each in self.games)))

    # ------------------------------------------------------------------------------------------------------- before

    def publish(self) -> None:
        """Give each schema its id where it comes from; the landing table may have headers, as some ways need them."""
        columns = pa.schema({"key": pa.binary(), "value": pa.binary(), "headers": pa.map_(pa.string(), pa.binary())})
        DeltaTable.create(Path(self.paths.landing), Schema.from_arrow(columns))
        for game in self.games:
            for version in (0, 1):
                registry = game.registry(version)
                game.own_ids.append(None if registry else self._register(game, version))
                if not registry:
                    continue
                shelf = self.registries.setdefault(registry, self._opened(registry, game.way))
                written, writer = game.versions[version], game.writer(version)
                answer = game.change.answer if version else "found"
                if version and game.is_late:
                    shelf.away.add(writer)
                if answer != "absent":
                    kind = "JSON" if answer == "unusable" else written.kind
                    shelf.put(writer, kind, "{}" if answer == "unusable" else written.text)

    def _opened(self, registry: str, way: Way) -> Shelf | Folder:
        return Folder(self.paths.root / "registries" / registry) if way.registry == "folder" else Shelf()

    def _register(self, game: Game, version: int) -> int:
        """Register a schema as a person does; if the table cannot take it, with the policy `quarantine`."""
        if version and game.change.answer == "absent":
            return NOBODYS
        written = game.versions[version]

        def registered(policies: Policies) -> int:
            wanted = Registration(game.name, "t.M", written.definition, policies, format=written.format)
            return self.schemas.register_many([wanted])[0].schema_id

        try:
            return registered(parse_policies(BENDING) if game.case.bending else DEFAULTS)
        except Refused:
            assert game.change.quarantined, game.name
            return registered(parse_policies([f"{each}=quarantine" for each in CHOICES]))

    # --------------------------------------------------------------------------------------------------------- rows

    def land(self) -> None:
        """Let the records arrive, way by way, each with its own profile."""

        def profile(game: Game) -> tuple[str, bool]:
            return game.way.name, game.case.bending

        for _, same in groupby(sorted(self.games, key=profile), key=profile):
            games = list(same)
            way, bending = games[0].way, games[0].case.bending
            payloads = [self._payloads(each) for each in games]
            ingest = self._ingest(way, bending, 1)
            for batch in range(3 if way.generations else 2):
                if batch == 2:
                    ingest = self._ingest(way, bending, 2)
                self._arrive(
                    ingest,
                    [
                        each.record(version or 0, made[version])
                        for each, made in zip(games, payloads, strict=True)
                        for at, version in each.sent
                        if at == batch
                    ],
                )

    def _payloads(self, game: Game) -> dict[int | None, bytes]:
        """Return a payload of each schema, and for None a broken one."""
        rows = game.change.old, game.change.new
        made = [each.payloads([row])[0] for each, row in zip(game.versions, rows, strict=True)]
        return {0: made[0], 1: made[1], None: b"[1]" if game.way.id == "type" else b"\xff\xff\xff\xff"}

    def _ingest(self, way: Way, bending: bool, generation: int) -> Ingest:
        name = registry_name(way, bending)
        source = replace(way.source, registry=name if way.registry else "")
        assert source_problems(replace(source, kind="kafka")) == []
        table = RegistrySettings(kind=way.registry or "glue", generation=generation)  # type: ignore[arg-type]
        settings = replace(self.settings, source=source, registries={name: table} if way.registry else {})
        return Ingest(self.spark, settings, self.paths, self.engine, lambda _: None, self.resolution.note)

    def _arrive(self, ingest: Ingest, records: Sequence[Mapping[str, Any]]) -> None:
        offsets = []
        for each in records:
            offsets.append(self.offsets.get(each["topic"], 0))
            self.offsets[each["topic"]] = offsets[-1] + 1
        count = len(records)
        header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        batch = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([each["key"] for each in records], pa.binary()),
                "value": pa.array([each["value"] for each in records], pa.binary()),
                "topic": pa.array([each["topic"] for each in records]),
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "source_time": pa.nulls(count, pa.timestamp("us", "UTC")),
                "headers": pa.array([each["headers"] for each in records], header),
                "source_clock": pa.array(["broker"] * count),
            }
        )
        ingest._batch(self.frame(batch), self.batches)
        self.batches += 1

    def frame(self, batch: pa.RecordBatch) -> Any:
        """Return records as the source gives them: here without Spark."""
        return LocalRows([batch])

    # ------------------------------------------------------------------------------------------------------ answers

    def begin(self, patience: Patience, clock: Callable[[], float]) -> None:
        """Let the schemas have their ids, and the records arrive."""
        self.publish()
        policies = {name: parse_policies(BENDING) for name in self.registries if name.removesuffix(".2").endswith("-b")}
        resolvers: dict[str, SchemaResolver] = dict(self.registries)
        self.resolution = Resolution(
            self.engine, resolvers, clock, steady=clock, policies=policies, patience=patience,
            others=lambda key: resolvers[split_key(key)[0]],
        )  # fmt: skip
        self.land()

    def run(self, passes: Passes) -> None:
        """Let everything happen: while no registry answers, while they lack some second schemas, and then all."""
        self.begin(Patience(absent_for=_LONG, sample=1000 * _LONG), lambda: self.now)
        self.catch_up = _LocalCatchUp.of(self, passes)
        self.wait(1, 1, 1)
        self.note_waiting(self.catch_up.streams)
        for shelf in self.registries.values():
            shelf.silent = False
        late = Counter(each.registry(1) for each in self.games if each.is_late)
        rounds = 3 + max(late.values(), default=0)
        self.wait(3, rounds, 61)
        self.waited_for_second = {
            each.key for each in self.games if self._waits(self.catch_up.streams, each, each.before_second)
        }
        for shelf in self.registries.values():
            shelf.away.clear()
        self.wait(2, 4, _LONG)
        self.end()

    def note_waiting(self, streams: Mapping[str, Stream]) -> None:
        """Note the games that wait for a schema with nothing landed and nothing refused."""
        refused = {row["game_key"] for row in self.refused()}
        self.waited = {each.key for each in self.games if self._waits(streams, each, 0) and each.key not in refused}

    def end(self) -> None:
        self.quarantined = {each.key: [] for each in self.games}
        for row in self.refused():
            self.quarantined[row["game_key"]].append(row)

    def wait(self, times: int, rounds: int, seconds: float) -> None:
        """Let the driver read and then ask for long, again and again; an error of a registry ends a round."""
        for _ in range(times):
            self.split()
            for _ in range(rounds):
                self.now += seconds
                while self.resolution.step() <= 0:
                    pass
                self.split()

    def _waits(self, streams: Mapping[str, Stream], game: Game, landed: int) -> bool:
        """Return whether a game waits for a schema, with `landed` rows in the files of its table."""
        files = Path(self.paths.table(game_key(game.name))).glob("*.parquet")
        waits = streams[game.key].waits
        return waits is not None and landed == sum(pq.read_metadata(file).num_rows for file in files)

    def split(self) -> None:
        """Let the driver read all that is there."""
        self.catch_up.prepare()
        while self.catch_up.step(lambda _: 10_000, lambda _: 10_000):
            pass

    # -------------------------------------------------------------------------------------------------------- after

    def game(self, case: Case) -> Game:
        (found,) = [each for each in self.games if each.case == case]
        return found

    def rows(self, game: Game) -> list[dict[str, Any]]:
        """Return the rows of a game's table in order."""
        path = self.paths.table(game_key(game.name))
        if not path.is_folder():
            return []
        rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["_seq"], row["_pos"]))

    def refused(self) -> list[dict[str, Any]]:
        """Return the rows of quarantine in order."""
        table = DeltaTable(self.paths.quarantine).to_pyarrow_table(
            columns=["game_key", "seq", "pos", "reason", "detail"]
        )
        return sorted(table.to_pylist(), key=lambda row: (row["game_key"], row["seq"], row["pos"]))

    def check(self) -> Balance:
        wanted = Wanted(self.schemas.snapshot())
        return verify(self.paths, self.settings.environment, generations(self.engine), wanted=wanted)


@dataclass(frozen=True)
class _LocalRows:
    """Rows of bronze, split by one task."""

    rows: pa.Table

    def split(self, job: SplitJob) -> list[Any]:
        done = split(iter(self.rows.to_batches()), job)
        columns = ("report", "rejects")
        return [SimpleNamespace(**{name: each.column(name)[0].as_py() for name in columns}) for each in done]


class _LocalCatchUp(CatchUp):
    """Catch-up that splits here what tasks would."""

    @classmethod
    def of(cls, matrix: Matrix, passes: Passes) -> "_LocalCatchUp":
        held = DeltaTable(matrix.paths.bronze).to_pyarrow_table(columns=list(READ)).sort_by("seq")

        def rows_of(low: int, high: int, _keys: Collection[GameKey]) -> Rows:
            rows = held.filter((pc.field("seq") > low) & (pc.field("seq") <= high)).combine_chunks()
            return cast("Rows", _LocalRows(rows))

        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
        roster = roster_of(matrix.settings, matrix.paths, matrix.engine)
        lookup = Lookup(matrix.engine, matrix.resolution)
        driver = DemuxContext(
            spark, matrix.settings, roster, CachedRegistry(matrix.schemas), lambda _: None, lookup.want
        )
        bronze = LocalBronze(matrix.settings, matrix.paths, matrix.engine, rows_of)
        return cls(driver, matrix.paths.checkpoints / "a", bronze, passes)

    @property
    def streams(self) -> Mapping[str, Stream]:
        return self._driver.roster.streams

    def prepare(self) -> None:
        self._driver.roster.sync()


def games_of(cases: Iterable[Case]) -> list[Game]:
    return [Game(case, number) for number, case in enumerate(cases)]


def matrix_of(root: Path, cases: Iterable[Case]) -> Matrix:
    settings, paths = load(root, {})
    return Matrix(paths, settings, open_store(settings, paths), games_of(cases))


def passes_of(matrix: Matrix, pool: Any) -> Passes:
    quarantine = CursorTable.create(matrix.paths.quarantine, QUARANTINE, "test")
    folder = matrix.paths.checkpoints / "a"
    folder.mkdir(parents=True, exist_ok=True)
    return Passes(matrix.paths.tables, quarantine, pool, ActiveGames(folder, "shared"))
