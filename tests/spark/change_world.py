"""A producer whose schema changes."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake.writer import write_deltalake
from google.protobuf import message_factory

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.data.contracts.definition_world import Fields, bundle, define

GAME = "chess"
KEY = game_key(GAME)
FIRST: dict[str, Fields] = {
    "M": {
        "n": (1, "int64"),
        "level": (2, "int32"),
        "kills": (3, "uint32"),
        "name": (4, "string"),
        "gone": (5, "bool"),
        "spots": (6, "repeated Spot"),
    },
    "Spot": {"x": (1, "float")},
}
WIDER: dict[str, Fields] = {
    "M": {
        "n": (1, "int64"),
        "level": (2, "int64"),
        "kills": (3, "uint64"),
        "title": (4, "string"),
        "spots": (6, "repeated Spot"),
        "fresh": (7, "string"),
    },
    "Spot": {"x": (1, "double")},
}


class Producer:
    """Registers versions of one game's payload and makes events of them, numbered in their order."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.registry = LocalRegistry(world.engine)
        self.classes: dict[int, Any] = {}
        self.count = 0

    def register(self, fields: dict[str, Fields], policies: Policies = DEFAULTS) -> int:
        content = bundle(define(fields))
        done = self.registry.register(GAME, "t.M", content, policies)
        self.classes[done.schema_id] = message_factory.GetMessageClass(describe("t.M", canonical("t.M", content)))
        return done.schema_id

    def event(self, schema_id: int, **values: Any) -> bytes:
        self.count += 1
        payload = self.classes[schema_id](n=self.count, **values).SerializeToString()
        return Wrapper(game=GAME, schema_id=schema_id, payload=payload).SerializeToString()

    def send(self, group: Any, events: Sequence[bytes]) -> None:
        """Let the events arrive in one commit, hence in one batch, and split them."""
        rows = pa.table({"key": [None] * len(events), "value": list(events)}, schema=LANDING)
        write_deltalake(str(self.world.paths.landing), rows, mode="append")
        self.world.ingest()
        self.world.split(group)
