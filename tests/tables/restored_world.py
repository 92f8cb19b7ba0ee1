"""An environment whose control store is copied and put back, as a real SQLite file."""

import shutil
from typing import Any

from pipeline.contracts.registry import LocalRegistry
from pipeline.delta.opening import open_table
from pipeline.settings import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import generations
from pipeline.verify.balance import Balance, verify
from pipeline.verify.values import Wanted
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


def third(number: int, schema_id: int) -> Event:
    return Event(CHESS, schema_id, THIRD.payload(points=number, sword=f"sword {number}"))


def by_points(world: RestoredWorld) -> dict[int, tuple[Any, ...]]:
    return {row["points"]: (row.get("player"), row.get("sword")) for row in world.contents()}
