"""An environment whose control store is copied and put back, as a real SQLite file."""

import shutil
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from sqlalchemy import Connection

from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.given_ids import GivenIds, NewIds, with_ids
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Schema
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.values import Wanted
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import generations
from tests.tables.repair_world import CHESS, Event, Message, World

THIRD = Message({"points": (1, "int64"), "sword": (2, "string")})
"""Another schema, whose second field is on the wire what the second schema's is."""


class RestoredWorld(World):
    """A world whose control store, a real SQLite file, is copied and put back."""

    @property
    def registry(self) -> LocalRegistry:
        return LocalRegistry(self.engine, self.paths.bronze)

    def back_up(self) -> None:
        self.engine.dispose()
        shutil.copyfile(self.paths.control_db, self.paths.root / "copy.db")

    def restore(self) -> None:
        self.engine.dispose()
        for file in self.paths.root.glob("control.db*"):
            file.unlink()
        shutil.copyfile(self.paths.root / "copy.db", self.paths.control_db)

    def details(self) -> set[str]:
        table = open_table(self.paths.quarantine).to_pyarrow_table(columns=["detail"])
        return set(table.column("detail").to_pylist())

    def values(self) -> Balance:
        wanted = Wanted(self.registry.snapshot)
        return verify(self.paths, self.environment, generations(self.engine), wanted=wanted)


def restored_world(root: Any) -> RestoredWorld:
    """Return a world with the first schema."""
    paths, settings = Paths(root / "env"), Settings()
    made = RestoredWorld(paths, settings, open_store(settings, paths))
    assert made.register() == 1
    return made


def by_points(world: RestoredWorld) -> dict[int, tuple[Any, ...]]:
    return {row["points"]: (row.get("player"), row.get("sword")) for row in world.contents()}


def empty_world(root: Any) -> RestoredWorld:
    """Return a world without a schema."""
    paths, settings = Paths(root / "env"), Settings()
    return RestoredWorld(paths, settings, open_store(settings, paths))


def proto(text: str) -> Schema:
    """Return a schema without an id, of a message such as `M { int64 points = 1; }`."""
    name = f"acme.{text.split(maxsplit=1)[0]}"
    content = descriptor_set(f'syntax = "proto3"; package acme; message {text}', {}).SerializeToString()
    return Schema(0, "protobuf", name, format_of("protobuf").canonical(name, content))


def resolve(world: RestoredWorld, *schemas: Schema, policies: Policies = DEFAULTS) -> list[int]:
    """Register schemas for chess as the resolution registers what a registry gave; return their ids."""
    batch = [unattended(CHESS.name, CHESS.key, each, policies, registry="main") for each in schemas]

    def act(connection: Connection, ids: NewIds) -> list[int]:
        return [done.schema_id for done in RegistrationBatch(connection, batch, ids).write()]

    return with_ids(world.engine, GivenIds(world.paths.bronze), lambda _: True, act)


def sent(schema: Schema, schema_id: int, **values: Any) -> Event:
    """Return an event of chess."""
    payload = GetMessageClass(describe(schema.message, schema.definition))(**values)
    return Event(CHESS, schema_id, payload.SerializeToString())
