"""An environment of three games that a demo could break; only Spark, the broker and the simulator are missing."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.contracts.decoded import Decoded
from pipeline.data.contracts.formats.supported import FORMATS
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.demo.breaking import faults
from pipeline.demo.breaking.breaker import Breaker, World
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import Event, family
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, load
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from protos.turnout.v1.wrapper_pb2 import Wrapper


class Source:
    """The demo's simulator, which only counts."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def stop(self) -> None:
        self.did.append("stop")

    def start(self) -> None:
        self.did.append("start")


class House:
    """An environment of two games, a fake source and a breaker."""

    def __init__(self, folder: Path) -> None:
        self.paths, self.source = Paths(folder), Source()
        self.sent: list[Event] = []
        self.first = threading.Event()
        self.fails: Exception | None = None
        settings, _ = load(folder)
        self.engine: Engine = open_store(settings, self.paths)
        register_group(self.engine, "a", placing(100))
        for name, kind in (("Chess", "protobuf"), ("Go", "avro"), ("Ludo", "json")):
            registered = [Registration(name, *payload_schema(family(name), each, kind), format=kind) for each in (1, 2)]
            LocalRegistry(self.engine).register_many(registered)
        record_seen(self.engine, {game_key(name): name for name in ("Chess", "Go", "Ludo")}, 1, placing())
        self.breaker = Breaker(World(self.paths, self.source, self.send, versions=2))

    def send(
        self, rows: Iterator[Sequence[Event]], rate: float | None, total: int | None, stop: threading.Event
    ) -> int:
        if self.fails is not None:
            raise self.fails
        self.sent += next(rows)
        self.first.set()
        if total is None:
            assert rate == faults.POISON_PER_SECOND
            assert stop.wait(20)
        return 0

    def decoded(self) -> Decoded:
        """Return what a decoder makes of the rows that were sent."""
        schemas = LocalRegistry(self.engine).snapshot()
        wrappers = [Wrapper.FromString(event.value) for event in self.sent]
        (schema_id,) = {each.schema_id for each in wrappers}
        schema = schemas.schemas[schema_id]
        decoder = FORMATS[schema.format].decoder(schema)
        return decoder.decode(pa.array([each.payload for each in wrappers], pa.binary()))

    def refused(self) -> set[str]:
        """Return why a decoder refuses the rows that were sent, empty where it takes them all."""
        decoded = self.decoded()
        assert len(decoded.refused) in {0, len(self.sent)}
        return {each.reason for each in decoded.refused}

    def acts(self) -> list[tuple[str, str, str | None]]:
        return [
            (each.action, each.phase, each.outcome)
            for each in audit.entries(self.engine)
            if each.action.startswith("break it")
        ]
