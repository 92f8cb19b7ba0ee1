"""JSON documents on their whole way: wrapped, landed by ingest's task, split by a pass's, and compared by verify."""

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from pipeline.base.names import game_key
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registrations import Registration
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.value_world import ValueWorld, value_world, wrapped
from tests.unit.data.contracts.formats.json.json_world import obj

GAME = "Zoë's Race"
SIDE = parse_policies(["incompatible=side-column", "name=side-column"])
INTEGER, STRING, NUMBER = ({"type": kind} for kind in ("integer", "string", "number"))
FIRST = obj(
    "player",
    **{
        "player": STRING,
        "lap": INTEGER,
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "object", "additionalProperties": NUMBER},
        "cars": {"type": "array", "items": obj(model=STRING, number=INTEGER)},
        "_seq": INTEGER,
        "a.b": {"enum": ["x", "y"]},
    },
)
SECOND = obj("player", **(FIRST["properties"] | {"lap": STRING, "pit": obj(seconds=NUMBER)}))


def register(world: ValueWorld, given: dict[str, Any]) -> int:
    definition = json.dumps({**given, "title": "acme.Lap"}).encode()
    world.names[GAME] = str(game_key(GAME))
    (done,) = world.registry.register_many([Registration(GAME, "acme.Lap", definition, SIDE, format="json")])
    return done.schema_id


def test_documents_land_typed_and_every_value_is_what_the_oracle_reads(tmp_path: Path) -> None:
    """Laws L5, L6: all versions lie in one table, what does not fit waits with its bytes, and verify accuses nobody."""
    world = value_world(tmp_path / "env")
    first = register(world, FIRST)
    bad = [b'{"player":"a","player":"b"}', b'{"player":"\xff"}', b'{"player":"a","lap":1.5}', b'{"player":"a","new":1}']
    document = {
        "player": "Zoë", "lap": 5.0, "at": "2026-11-29T12:00:00.25+01:00", "tags": {"grip": 0.1},
        "cars": [{"model": "x"}], "_seq": 7, "a.b": "y",
    }  # fmt: skip
    documents = [json.dumps(document).encode(), b' {"player":""}\n', *bad]
    world.arrive(*(wrapped(GAME, first, each) for each in documents))
    second = register(world, SECOND)
    world.arrive(
        wrapped(GAME, second, b'{"player":"b","lap":"last","pit":{"seconds":1e3}}'), wrapped(GAME, first, documents[0])
    )
    world.split_all()
    table = (
        DeltaTable(Path(world.paths.table(game_key(GAME))))
        .to_pyarrow_table()
        .sort_by([("_seq", "ascending"), ("_pos", "ascending")])
    )
    rows = table.to_pylist()
    assert [(row["player"], row["lap"], row["lap__v2"]) for row in rows] == [
        ("Zoë", 5, None), ("", None, None), ("b", None, "last"), ("Zoë", 5, None),
    ]  # fmt: skip
    assert rows[0]["at"].isoformat() == "2026-11-29T11:00:00.250000+00:00"
    assert (rows[0]["tags"], rows[0]["cars"]) == ([("grip", 0.1)], [{"model": "x", "number": None}])
    assert (rows[2]["pit"], rows[0]["pit"]) == ({"seconds": 1000.0}, None)
    made = [name for name in table.column_names if "__j" in name]
    assert [rows[0][name] for name in sorted(made)] == ["y", 7]
    quarantined = DeltaTable(Path(world.paths.quarantine)).to_pyarrow_table().sort_by("pos").to_pylist()
    assert [(row["pos"], row["reason"]) for row in quarantined] == [(pos, "malformed_payload") for pos in (2, 3, 4, 5)]
    assert [Wrapper.FromString(row["raw"]).payload for row in quarantined] == bad
    assert "'new'" in quarantined[-1]["detail"]
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 4)
    world.alter(GAME, "lap", lambda number: number + 1, (1, 0))
    altered = world.check().values
    assert altered is not None
    assert altered.mismatches == 1
    world.engine.dispose()
