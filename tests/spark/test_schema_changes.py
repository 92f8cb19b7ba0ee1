import json
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pipeline.base.names import game_key
from pipeline.data.contracts.policies import parse_policies
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.spark.change_world import FIRST, KEY, WIDER, Producer
from tests.unit.data.contracts.definition_world import Fields, bundle, define

OTHER: dict[str, Fields] = {
    "M": {
        "n": (1, "int64"),
        "level": (2, "string"),
        "kills": (3, "uint32"),
        "title": (4, "repeated string"),
        "spots": (6, "repeated Spot"),
    },
    "Spot": {"x": (1, "string"), "_seq": (2, "int32")},
}
RETYPED: dict[str, Fields] = {**FIRST, "M": {**FIRST["M"], "level": (2, "string")}}


def _rows(world: Any) -> list[dict[str, Any]]:
    """Return the payload columns of the game's table as delta-rs reads them; all other readers must agree."""
    path = world.paths.table(KEY)
    table = DeltaTable(path).to_pyarrow_table()
    names = [name for name in table.column_names if not name.startswith("_")]
    rows: list[dict[str, Any]] = table.select(names).sort_by("n").to_pylist()
    frame = world.spark.read.format("delta").load(str(path)).select(*names).orderBy("n")
    assert [row.asDict(recursive=True) for row in frame.collect()] == rows
    files = DeltaTable(path).file_uris()
    read = duckdb.sql("SELECT * FROM read_parquet($files, union_by_name = true) ORDER BY n", params={"files": files})
    assert read is not None
    by_duckdb = read.to_arrow_table()
    held = [name for name in names if name in by_duckdb.column_names]  # a column nothing was written to is in no file
    assert [tuple(row[name] for name in held if name != "spots") for row in rows] == [
        tuple(row[name] for name in held if name != "spots") for row in by_duckdb.to_pylist()
    ]
    return rows


@pytest.mark.proves("B22", "B23", "G73")
def test_old_and_new_schemas_land_in_one_batch_without_a_restart(world: Any) -> None:
    """B22, B23: widened, renamed, removed, retyped fields of three versions are exact in one table, for any reader."""
    producer, group = Producer(world), world.group("a")
    first = producer.register(FIRST)
    old = {"level": -5, "kills": 2**32 - 1, "name": "a", "gone": True, "spots": [{"x": 0.5}]}
    producer.send(group, [producer.event(first, **old)])
    before = DeltaTable(world.paths.table(KEY)).schema().to_json()

    wider = producer.register(WIDER)
    other = producer.register(OTHER, parse_policies(["incompatible=side-column", "name=side-column"]))
    wide = {"level": 2**40, "kills": 2**64 - 1, "title": "b", "fresh": "c", "spots": [{"x": 0.1}]}
    odd = {"level": "high", "kills": 7, "title": ["d", "e"], "spots": [{"x": "left", "_seq": 1}, {}]}
    both = [producer.event(wider, **wide), producer.event(first, **old), producer.event(other, **odd)]
    producer.send(group, [*both, producer.event(first, **old), producer.event(wider, **wide)])

    def spot(x: float | None = None, text: str | None = None, seq: int | None = None) -> dict[str, Any]:
        return {"x": x, "x__v2": text, "_seq": seq}

    none = dict.fromkeys(["level", "kills", "name", "gone", "kills__v2", "fresh", "level__v2", "name__v2"])
    was = {**none, "level": -5, "kills": 2**32 - 1, "name": "a", "gone": True, "spots": [spot(0.5)]}
    is_wide = {**none, "level": 2**40, "kills__v2": 2**64 - 1, "name": "b", "fresh": "c", "spots": [spot(0.1)]}
    is_odd = {**none, "level__v2": "high", "kills": 7, "name__v2": ["d", "e"]}
    is_odd["spots"] = [spot(None, "left", 1), spot(None, "", 0)]
    rows = _rows(world)
    for row in rows:
        row["name__v2"] = row["name__v2"] or None  # a list of an older schema is null, of a newer one maybe empty
    assert [row.pop("n") for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows == [was, is_wide, was, is_odd, was, is_wide]
    assert world.verify().complete
    held = {field["name"]: field["type"] for field in _fields(before)}
    after = {field["name"]: field["type"] for field in _fields(DeltaTable(world.paths.table(KEY)).schema().to_json())}
    del held["spots"]  # which has got members
    assert held.items() <= after.items()


def _fields(schema: str) -> list[dict[str, Any]]:
    return list(json.loads(schema)["fields"])


@pytest.mark.proves("B22")
def test_rows_of_a_quarantined_schema_wait_outside(world: Any) -> None:
    """B22: with `quarantine` a schema's rows are refused with a reason of their own, until the schema is let in."""
    producer, group = Producer(world), world.group("a")
    first = producer.register(FIRST)
    odd = producer.register(RETYPED, parse_policies(["incompatible=quarantine"]))
    producer.send(
        group, [producer.event(first, level=1), producer.event(odd, level="x"), producer.event(first, level=2)]
    )
    assert [row["n"] for row in _rows(world)] == [1, 3]
    assert dict(world.verify().by_reason) == {"quarantined_schema": 1}
    (waiting,) = DeltaTable(world.paths.quarantine).to_pyarrow_table().to_pylist()
    assert waiting["detail"] == "level: its type changed from int32 to string"
    assert "level__v2" not in {field.name for field in DeltaTable(world.paths.table(KEY)).schema().fields}

    assert odd == producer.register(RETYPED, parse_policies(["incompatible=side-column"]))
    producer.send(group, [producer.event(odd, level="y"), producer.event(first, level=3)])
    assert [(row["level"], row["level__v2"]) for row in _rows(world)] == [(1, None), (2, None), (None, "y"), (3, None)]
    assert world.verify().complete


@pytest.mark.parametrize("policy", ["keep", "add"])
def test_two_games_lay_one_schema_out_each_in_its_own_way(world: Any, policy: str) -> None:
    """Law L5: rows of one schema id, decoded together, land where each game's own registrations say."""
    producer, group = Producer(world), world.group("a")
    renamed: dict[str, Fields] = {"M": {"n": (1, "int64"), "rank": (2, "int32")}}
    producer.register({"M": {"n": (1, "int64"), "level": (2, "int32")}})
    schema_id = producer.register(renamed, parse_policies([f"rename={policy}"]))
    producer.registry.register("go", "t.M", bundle(define(renamed)))
    events = [producer.event(schema_id, rank=number) for number in range(4)]
    there = [Wrapper.FromString(event) for event in events[:2]]
    for wrapper in there:
        wrapper.game = "go"
    producer.send(group, [*events[2:], *(wrapper.SerializeToString() for wrapper in there)])
    ours, others = (DeltaTable(world.paths.table(key)).to_pyarrow_table() for key in (KEY, game_key("go")))
    column = "level" if policy == "keep" else "rank"
    assert sorted(ours[column].to_pylist()) == [2, 3]
    assert sorted(others["rank"].to_pylist()) == [0, 1]
    assert ("rank" in ours.column_names) == (policy == "add")
    assert world.verify().complete
