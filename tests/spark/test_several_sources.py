"""Several sources under one real ingest: landing tables with profiles of their own, changed sets, deaths between."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException

from pipeline.base.errors import Refused
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest import query
from pipeline.data.ingest.identity import Commits, Positions
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.verify import sources as verified
from pipeline.data.verify.balance import verify
from pipeline.settings.registries import RegistrySettings
from pipeline.settings.source import Source
from pipeline.store import sources
from tests.spark.conftest import World
from tests.spark.source_world import wrappers

HEADERS = pa.map_(pa.string(), pa.binary())


class Stage:
    """An environment with landing tables inside and outside of its folder."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.sent: Counter[tuple[str, bytes]] = Counter()
        registries = {"main": RegistrySettings(kind="folder", folder=str(folder))}
        world.settings = replace(world.settings, registries=registries)

    def path(self, name: str) -> Path:
        return Path(self.world.paths.landing if name == "own" else self.folder / name)

    def read(self, *names: str) -> None:
        """Let the environment read these tables: `framed` by headers, `own` in the environment's folder."""
        of = {
            "own": Source(),
            "other": Source(path=str(self.folder / "other")),
            "framed": Source(
                path=str(self.folder / "framed"), envelope="none", routing="header:game", framing="confluent",
                registry="main",
            ),
        }  # fmt: skip
        self.world.settings = replace(self.world.settings, sources={name: of[name] for name in names})

    def send(self, name: str, first: int, count: int = 3) -> None:
        values = wrappers(first, count)
        columns: dict[str, Any] = {"key": pa.nulls(count, pa.binary()), "value": values}
        schema = LANDING
        if name == "framed":
            schema = LANDING.append(pa.field("headers", HEADERS))
            columns["headers"] = pa.array([[("game", b"by header")]] * count, HEADERS)
        write_deltalake(self.path(name), pa.table(columns, schema=schema), mode="append")
        self.sent.update((name, value) for value in values)

    def ingest(self) -> None:
        self.world.ingest()

    def ids(self, *names: str) -> dict[str, str]:
        return {f"delta:{DeltaTable(self.path(name)).metadata().id}": name for name in names}

    def require(self, *names: str) -> list[dict[str, Any]]:
        """Require each row of these tables in bronze once, an unbroken chain, and that verify agrees."""
        columns = ["seq", "pos", "topic", "offset", "game", "profile", "raw", "source_time", "headers"]
        rows: list[dict[str, Any]] = DeltaTable(self.world.paths.bronze).to_pyarrow_table(columns=columns).to_pylist()
        ids = self.ids(*(name for name in names if name != "own"))
        found = [(ids.get(row["topic"].split("/")[0], "own"), row["raw"]) for row in rows]
        assert {each: count for each, count in self.sent.items() if each[0] in names} == Counter(found)
        assert all(row["source_time"] is not None for row in rows)
        prober = configured_source(self.world.settings, self.world.paths).prober
        known = verified.observe(self.world.settings, self.world.paths, self.world.engine, prober)
        balance = verify(self.world.paths, self.world.settings.environment, known=known)
        assert balance.ok, balance.problems
        assert balance.totals.source_duplicates == 0
        assert balance.lagging is not None
        assert (balance.lagging.records, balance.lagging.not_compared) == (0, ())
        return rows


@pytest.fixture
def stage(world: World, tmp_path: Path) -> Stage:
    return Stage(world, tmp_path)


@pytest.mark.proves("G4")
def test_two_tables_land_by_their_profiles(stage: Stage) -> None:
    """Laws L1 and L13: one query reads both, and each row has the profile of its table."""
    stage.send("own", 10)
    stage.send("framed", 20)
    stage.read("own", "framed")
    stage.ingest()
    found = {(row["topic"].startswith("delta:"), row["game"], row["profile"]) for row in stage.require("own", "framed")}
    assert found == {(False, "g", None), (True, "by header", 1)}


@pytest.mark.long
@pytest.mark.proves("G4", "G11")
def test_a_further_source_joins_and_each_row_lands_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: one table, then two, then three, with a death between: seqs have one writer, each row lands once."""
    stage.send("own", 0)
    stage.ingest()
    stage.send("own", 10)
    stage.send("framed", 20)
    stage.send("framed", 30)
    stage.read("own", "framed")
    with monkeypatch.context() as patch:
        patch.setattr(query, "hit", _die_at("after_schema_pin"))
        with pytest.raises(StreamingQueryException):
            stage.ingest()
    stage.ingest()
    rows = stage.require("own", "framed")
    framed = [row for row in rows if row["topic"].startswith("delta:")]
    assert {(row["game"], row["profile"] is not None, row["headers"] is not None) for row in framed} == {
        ("by header", True, True)
    }
    assert {(row["game"], row["profile"]) for row in rows if row not in framed} == {("g", None)}
    stage.send("own", 40)
    stage.send("framed", 50)
    with monkeypatch.context() as patch:
        patch.setattr(query, "hit", _die_at("after_bronze_write"))
        with pytest.raises(StreamingQueryException):
            stage.ingest()
    stage.send("other", 0)  # the values of another table: only the source tells them apart
    stage.send("framed", 60)
    stage.read("own", "framed", "other")
    stage.ingest()
    rows = stage.require("own", "framed", "other")
    places = sorted((row["seq"], row["pos"]) for row in rows)
    assert places == sorted({(seq, pos) for seq, pos in places})
    texts = [text for _, text, _ in sources.generations(stage.world.engine)]
    assert [text for text in texts if "until" not in text] == [
        configured_source(stage.world.settings, stage.world.paths).description
    ]


@pytest.mark.long
@pytest.mark.proves("G11", "G15")
def test_each_source_is_adopted_and_refused_by_its_name(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws L1 and L5: a lost checkpoint is adopted behind each table's last row; a table made anew is named."""
    stage.read("other", "framed")
    stage.send("other", 0)
    stage.send("framed", 10)
    stage.send("framed", 20)
    stage.ingest()
    shutil.rmtree(stage.world.paths.checkpoints / "ingest")
    with pytest.raises(Refused, match="Run `turnout ingest adopt`"):
        stage.ingest()
    adopted = adoption.adopt(stage.world.settings, stage.world.paths, stage.world.engine, accept_loss=False)
    described = {name: f"landing table {stage.path(name)}" for name in ("other", "framed")}
    assert adopted.position == Positions({described["other"]: Commits(1), described["framed"]: Commits(2)})
    stage.send("framed", 30)
    with monkeypatch.context() as patch:  # in the first batch behind a beginning that did not exist
        patch.setattr(query, "hit", _die_at("after_bronze_write"))
        with pytest.raises(StreamingQueryException):
            stage.ingest()
    stage.ingest()
    stage.require("other", "framed")
    shutil.rmtree(stage.path("other"))
    stage.send("other", 40)
    with pytest.raises(Refused, match=r"^Source other: The landing table .*other was deleted and recreated"):
        stage.ingest()


def _die_at(point: str) -> Any:
    def hit(reached: str) -> None:
        if reached == point:
            raise RuntimeError(point)

    return hit
