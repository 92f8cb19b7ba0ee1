"""An environment with two games and a real embedded catalog, which a controller's steward looks after."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType, StructType
from sqlalchemy import Engine

from grants.applying import proposals
from grants.catalogs.embedded import Embedded
from grants.catalogs.opening import embedded
from grants.catalogs.people import add
from grants.model import Securable
from grants.planning.entitlements import AccessIntent
from grants.reconciler import AccessReconciler
from pipeline.base.names import game_key
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.games import record_seen
from pipeline.store.operations import Operation, list_operations, submit
from tests.unit.grants.catalog_world import Server, served

CHESS, GO = game_key("Chess"), game_key("Go")
ANN, BOB = "ann@example.com", "bob@example.com"


@dataclass
class House:
    """An environment whose controller looks after a catalog."""

    world: ControlContext
    server: Server
    steward: AccessReconciler

    @cached_property
    def catalog(self) -> Embedded:
        """The catalog's client: a new one would connect again, and prove that the server is this environment's."""
        return embedded(self.world.settings.access, self.world.paths)

    @property
    def schema(self) -> Securable:
        return proposals.schema_of(self.world.settings.access)

    def make_table(self, key: str) -> None:
        words = ArrayType(StructType([Field("word", PrimitiveType("string"))]), contains_null=True)
        fields = [Field("_seq", PrimitiveType("long")), Field("words", words)]
        DeltaTable.create(Path(self.world.paths.tables / key), Schema(fields))

    def rounds(self) -> None:
        """Let one whole round pass, however long it takes."""
        self.steward.run_round()

    def finish(self) -> Operation:
        """Bring everything on until nothing is open; return the newest operation."""
        pause = threading.Event()
        for _ in range(2_000):
            tick(self.world, self.steward.kinds)
            if not list_operations(self.world.engine, only_open=True):
                return max(list_operations(self.world.engine), key=lambda each: each.requested_at)
            pause.wait(0.01)  # the catalog is another process
        raise AssertionError(f"it does not end: {list_operations(self.world.engine, only_open=True)}")

    def do(self, *intents: AccessIntent, actor: str = "eve") -> Operation:
        world = self.world
        prepared = proposals.prepare(world.engine, self.catalog, world.settings.access, world.paths, intents)
        submit(world.engine, prepared.to_intent(actor, "numbers"))
        return self.finish()


@contextmanager
def house_at(engine: Engine, folder: Path) -> Iterator[House]:
    """Serve a catalog for an environment, with two people in it."""
    settings, paths = load(folder, {})
    record_seen(engine, {CHESS: "Chess", GO: "Go"}, 1, placing())
    with served(paths.catalog) as server:
        (folder / "turnout.toml").write_text(f"[access]\nport = {server.port}\n")
        settings = replace(settings, access=replace(settings.access, port=server.port))
        world = ControlContext(settings, engine, paths)
        made = House(world, server, AccessReconciler(world, os.environ))
        for name in (ANN, BOB):
            add(made.catalog, name, [])  # a moved environment has them
        yield made
        made.steward.stop()
