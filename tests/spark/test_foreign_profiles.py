"""A source with a foreign profile through the real queries, beside older files of bronze."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from sqlalchemy import delete

from pipeline.base.names import game_key
from pipeline.data.contracts.registries.supported import resolution_of
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.streams.group import Group
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import FRAMED
from pipeline.settings.registries import RegistrySettings
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import profiles
from pipeline.store.games import generations, register_group
from tests.onboarding_world import give_rules, rule

LAPS = game_key("laps")
LAP = b'{"type":"record","name":"Lap","namespace":"acme","fields":[{"name":"n","type":"int"}]}'


def lap(number: int, schema: int = 7) -> bytes:
    """Return a payload as Confluent's serializer writes it, of a number below 64."""
    return b"\0" + schema.to_bytes(4) + bytes([2 * number])


def land(world: Any, *values: bytes) -> None:
    rows = pa.table({"key": [b"laps"] * len(values), "value": list(values)}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")


def split(world: Any) -> None:
    register_group(world.engine, "a", placing())
    group = Group(
        world.spark, world.settings, world.paths, world.engine, "a", world.passes.append,
        resolution=resolution_of(world.engine, world.settings, world.paths.bronze),
    )  # fmt: skip
    world.split(group)
    group.stop()


def laps(world: Any) -> list[int]:
    table = DeltaTable(world.paths.table(LAPS)).to_pyarrow_table(columns=["_seq", "_pos", "n"])
    return [row["n"] for row in table.sort_by([("_seq", "ascending"), ("_pos", "ascending")]).to_pylist()]


@pytest.mark.proves("G190")
def test_framed_records_follow_turnouts_own_in_one_environment(world: Any, tmp_path: Path) -> None:
    """Laws L1 and L13: a query reads files without the columns of framing beside framed ones, also after a loss.

    Bronze's properties say what the profile is that the store has lost.
    """
    world.simulate(60, games=2, versions=1, bad_share=0.0)
    world.ingest()
    own = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=list(FRAMED))
    assert all(own.column(name).null_count == len(own) for name in FRAMED)
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "7.avsc").write_bytes(LAP)
    source = replace(world.settings.source, envelope="none", routing="key", framing="confluent", registry="main")
    registries = {"main": RegistrySettings(kind="folder", folder=str(folder))}
    give_rules(world.engine, rule("laps"))
    world.settings = replace(world.settings, source=source, registries=registries)
    land(world, lap(1), b"\xff", lap(2))
    world.ingest()
    with writing(world.engine) as connection:
        assert connection.execute(delete(profiles)).rowcount == 1
    split(world)
    assert laps(world) == [1, 2]
    wanted = Wanted(LocalRegistry(world.engine, world.paths.bronze).snapshot)
    balance = verify(world.paths, world.settings.environment, generations(world.engine), wanted=wanted)
    assert balance.complete, balance.problems
    assert balance.values is not None
    assert (balance.values.rows, balance.values.mismatches) == (62, 0)
