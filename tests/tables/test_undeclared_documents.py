"""Documents that nobody declared, on their way from bronze to the game's table."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.base import failpoints
from pipeline.base.errors import Transient
from pipeline.data.contracts.formats.json import undeclared
from pipeline.data.contracts.formats.supported import decoder
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.contracts.shape_needs import SHAPES, writer_of
from pipeline.data.repair.asking import Ask
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import GameReplay, replay_all
from pipeline.data.streams.needs import Need, Waiting, is_open
from pipeline.store.schema_needs import OpenNeed, read_needs
from tests.tables.registering_world import drive, registry
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import (
    FIELDS,
    GAME,
    KEY,
    gather,
    one_by_one,
    quarantine,
    record,
    shapes_world,
    table,
    types,
    without_nulls,
)
from tests.tables.value_world import ValueWorld
from tests.unit.data.contracts.formats.json.json_world import obj

MOVES = [b'{"x":1}', b'{"x":2.5}', b'{"x":1,"name":"a"}', b'{"x":"b"}', b"{}", b'{"deep":{"k":[1,2]},"x":null}']
OWN = ("_seq", "_pos", "_event_time", "_event_id", "_source_time", "_type", "_schema_id")
HOSTILE = [
    b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":NaN}', b'{"a":1e999}', b"[1]", b'"x"',
    b"{" + b'"a":{' * 40 + b"}" * 41,
    b'{"_seq":1,"_SEQ":"x"}', b'{"a.b":1,"a":{"b":2}}', b'{"A":1,"a":2}', b'{"":[[[]]],"\\u007fother":"mine"}',
    b'{"4711":{"id":1}}', b'{"k":{"0f8fad5b-d9cb-469f-a165-70867728950e":5}}', b'{"n":123456789012345678901234567890}',
    b'{"mixed":[1,"a",{}]}', b'{"__other__":1,"x__v2":true}', b"{" + b'"' + b"k" * 300 + b'":1}',
    b"{" + b",".join(b'"r%d":%d' % (each, each) for each in range(1200)) + b"}",
]  # fmt: skip
SOUND = [b'{"a":1}', b'{"a":2.5}', b'{"b":{"c":1}}', b'{"b":{"c":"x","d":[{"e":1}]}}', b'{"m":{"1":1,"2":2.5}}']


def values(world: ValueWorld) -> list[dict[str, Any]]:
    """Each row's values that are not null, without those of columns of our own."""
    rows = table(world)
    return [{name: value for name, value in row.items() if value is not None and name not in OWN} for row in rows]


def verified(world: ValueWorld, rows: int) -> None:
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, rows)
    world.engine.dispose()


def test_a_game_waits_for_the_shapes_of_its_documents_and_lands_whole(tmp_path: Path) -> None:
    """Laws L13, L14: a game without schemas waits as a whole, and lands once its shapes are registered."""
    world = shapes_world(tmp_path / "env")
    world.arrive(*[record("move", each) for each in MOVES])
    world.split_all()
    assert table(world) == []
    gather(world, "move")
    world.split_all()
    assert values(world) == [
        {"x__v2": 1.0}, {"x__v2": 2.5}, {"x__v2": 1.0, "name": "a"}, {"x": "b"}, {}, {"deep": {"k": [1, 2]}},
    ]  # fmt: skip
    assert {(row["_type"], row["_schema_id"]) for row in table(world)} == {("move", 1)}
    verified(world, 6)


def test_rows_before_a_new_shape_land_and_each_row_names_the_first_superset_that_covers_it(tmp_path: Path) -> None:
    """Law L14: the first uncovered row holds its game back from its seq on; the ids are those of a rebuild."""
    world = shapes_world(tmp_path / "env")
    world.arrive(record("move", b'{"x":1}'))
    gather(world, "move")
    world.split_all()
    world.arrive(record("move", b'{"x":2}'))
    world.arrive(record("move", b'{"x":3}'), record("move", b'{"y":4}'))
    world.split_all()
    assert values(world) == [{"x": 1}, {"x": 2}]
    gather(world, "move")
    world.split_all()
    assert [(row["x"], row["y"], row["_schema_id"]) for row in table(world)] == [
        (1, None, 1), (2, None, 1), (3, None, 1), (None, 4, 2),
    ]  # fmt: skip
    verified(world, 4)


def test_a_need_is_answered_by_a_newer_superset_alone(tmp_path: Path) -> None:
    """A need carries the version that its task had, so that the same superset never answers it."""
    world = shapes_world(tmp_path / "env")
    first, later = [Need(1, 0, 1, SHAPES, writer_of("level-up", version)) for version in (0, 1)]
    assert is_open(first, KEY, world.registry.snapshot())
    world.arrive(record("level-up", b'{"x":1}'))
    gather(world, "level-up")
    assert [is_open(each, KEY, world.registry.snapshot()) for each in (first, later)] == [False, True]
    said = Waiting(0.0, (first, later), 0).sentence({})
    assert (
        said == "waits for shapes of the event type 'level-up', which are being registered; 1 more is needed after it"
    )
    world.engine.dispose()


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 8))])
def test_the_table_is_the_same_however_bronze_is_cut(tmp_path: Path, seed: int) -> None:
    """Laws L5, L12: passes between registrations, a rebuild and single rows give the same table; columns never change.

    Hostile documents are among them.
    """
    chance = random.Random(seed)
    world = shapes_world(tmp_path / "env")
    kinds: dict[str, str] = {}
    for _ in range(4):
        documents = chance.choices([*SOUND, *HOSTILE], k=chance.randint(1, 6))
        names = chance.choices(["move", "level-up"], k=len(documents))
        world.arrive(*[record(name, each) for name, each in zip(names, documents, strict=True)])
        for name in ("move", "level-up"):
            gather(world, name)
        if chance.random() < 0.7:
            world.split_all()
            now = types(world)
            assert {name: now[name] for name in kinds} == kinds
            kinds = now
    world.split_all()
    rows = table(world)
    refused = quarantine(world)
    assert len(rows) + len(refused) == world.offset
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert table(world) == rows
    kept = [without_nulls(row) for row in rows]
    assert one_by_one(world, tmp_path / "alone") == kept
    verified(world, len(rows))


def declare(world: ValueWorld, title: str, *, new_type: bool = False, **properties: Any) -> None:
    definition = json.dumps({**obj(**properties), "title": title}).encode()
    world.registry.register_many([Registration(GAME, title, definition, format="json", new_type=new_type)])


def test_documents_of_a_declared_type_are_not_registered(tmp_path: Path) -> None:
    """A schema that was declared first decides alone: what does not fit it is malformed."""
    world = shapes_world(tmp_path / "env")
    declare(world, "move", x={"type": "integer"})
    world.arrive(record("move", b'{"x":1}'), record("move", b'{"x":1,"y":2}'))
    world.split_all()
    assert values(world) == [{"x": 1}]
    assert quarantine(world) == [("malformed_payload", b'{"x":1,"y":2}')]
    verified(world, 1)


def test_a_schema_declared_later_takes_what_no_superset_covers(tmp_path: Path) -> None:
    """Law L5: a declaration moves no value that has landed, and ends the registration of shapes."""
    world = shapes_world(tmp_path / "env")
    world.arrive(record("move", b'{"x":1}'))
    gather(world, "move")
    world.split_all()
    declare(world, "move", x={"type": "integer"}, y={"type": "string"})
    world.arrive(record("move", b'{"x":2}'), record("move", b'{"x":3,"y":"a"}'), record("move", b'{"z":1}'))
    world.split_all()
    rows = [(row["x"], row["y"], row["_schema_id"]) for row in table(world)]
    assert rows == [(1, None, 1), (2, None, 1), (3, "a", 2)]
    assert quarantine(world) == [("malformed_payload", b'{"z":1}')]
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert [(row["x"], row["y"], row["_schema_id"]) for row in table(world)] == rows
    verified(world, 3)


def test_a_source_may_send_undeclared_documents_to_quarantine(tmp_path: Path) -> None:
    """The setting of a source decides: its documents wait for a registration, or for a person in quarantine."""
    profile = SourceProfile(envelope="json", framing="type", fields=FIELDS, undeclared="quarantine")
    world = shapes_world(tmp_path / "env", profile)
    world.arrive(record("move", b'{"x":1}'))
    world.split_all()
    assert quarantine(world) == [("unknown_schema", b'{"x":1}')]
    gather(world, "move")
    world.arrive(record("move", b'{"x":2}'), record("move", b'{"y":2}'))
    world.split_all()
    assert values(world) == [{"x": 2}]
    assert quarantine(world)[1:] == [("unknown_schema", b'{"y":2}')]
    verified(world, 1)


def test_a_repair_waits_for_shapes_as_a_pass_does(tmp_path: Path) -> None:
    """Law L14: a rebuild of rows that no superset covers changes nothing, and lands them once they are registered."""
    world = shapes_world(tmp_path / "env")
    world.arrive(record("move", b'{"x":1}'))
    gather(world, "move")
    world.split_all()
    world.arrive(record("move", b'{"y":1}'))
    with pytest.raises(Transient, match="wait for new shapes of the event type 'move'"):
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert values(world) == [{"x": 1}]
    balance = world.check()
    assert (balance.problems, balance.totals.pending) == ((), 1)
    with world.engine.connect() as connection:
        assert [(each.registry, each.writer, each.seq) for each in read_needs(connection)] == [
            (SHAPES, writer_of("move", 1), 2)
        ]
    gather(world, "move")
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert values(world) == [{"x": 1}, {"y": 1}]
    verified(world, 2)


def test_a_replay_asks_for_the_shapes_of_rows_that_their_stream_has_passed(tmp_path: Path) -> None:
    """A replay has what its rows lack registered: no stream reads them again."""
    profile = SourceProfile(envelope="json", framing="type", fields=FIELDS, undeclared="quarantine")
    world = shapes_world(tmp_path / "env", profile)
    world.arrive(record("move", b'{"x":1}'), record("move", b'{"y":1}'))
    world.split_all()
    gather(world, "move", most=1)
    asked: list[OpenNeed] = []

    def ask(needs: Sequence[OpenNeed]) -> None:
        asked.extend(needs)
        if needs:
            gather(world, "move")

    def replayed(ask: Ask | None) -> GameReplay:
        known, snapshot = world.known(), registering
        (done,) = replay_all(world.paths, world.environment, snapshot, known, Selection(), dry_run=False, ask=ask)
        return done

    def registering() -> SchemaSet:
        """The schemas, and the profile as if its setting was changed since."""
        now = world.registry.snapshot()
        changed = {number: replace(each, undeclared="register") for number, each in now.profiles.items()}
        return replace(now, profiles=changed)

    assert "wait for new shapes of the event type 'move'" in str(replayed(None).error)
    assert asked == []
    assert replayed(ask).done.landed == 2
    assert [each.writer for each in asked] == [writer_of("move", 1)]
    assert values(world) == [{"x": 1}, {"y": 1}]
    verified(world, 2)


@pytest.mark.parametrize("bug", ["nothing", "versions"])
def test_a_bug_of_the_fast_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """Verify shares neither the fast path nor the way to the id of a row."""
    world = shapes_world(tmp_path / "env")
    world.arrive(record("move", b'{"x":[1],"y":"a"}'), record("move", b'{"x":[]}'))
    gather(world, "move")
    world.arrive(record("move", b'{"z":true}'))
    gather(world, "move")
    if bug == "nothing":
        monkeypatch.setattr(undeclared, "without_nothing", lambda values: values)
    else:
        newest = np.array([2, 2, 2])
        monkeypatch.setattr(undeclared, "first_versions", lambda *_: newest)
    decoder.cache_clear()
    world.split_all()
    decoder.cache_clear()
    monkeypatch.undo()
    balance = world.check()
    assert balance.values is not None
    found = {(each.column, each.expected, each.found) for each in balance.values.named}
    wanted = {"nothing": {("x", "null", "[]")}, "versions": {("_schema_id", "1", "2")}}
    assert found == wanted[bug]
    world.engine.dispose()


def test_documents_without_a_type_are_registered(tmp_path: Path) -> None:
    """A need without a type is that of the game's first type, or of the one that such documents get."""
    plain = SourceProfile(envelope="json", framing="type", fields=(("game", "game"), ("payload", "data")))
    world = shapes_world(tmp_path / "env", plain)
    world.arrive(record("any", b'{"x":1}'))
    drive(world)
    world.arrive(record("other", b'{"y":1}'))
    drive(world)
    assert [(row["_type"], row["x"], row["y"]) for row in table(world)] == [
        ("document", 1, None), ("document", None, 1),
    ]  # fmt: skip
    verified(world, 2)


def test_no_superset_follows_a_schema_that_is_declared_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration that meets a schema of its type writes nothing: rows that it decodes never move."""
    world = shapes_world(tmp_path / "env")
    world.arrive(record("move", b'{"x":1}'))
    acted: list[str] = []

    def other(name: str) -> None:
        if name == "before_commit_registration" and not acted:
            acted.append(name)
            declare(world, "move", x={"type": "integer"})

    monkeypatch.setattr(failpoints, "on_hit", other)
    drive(world)
    assert acted
    assert [(row["x"], row["_schema_id"]) for row in table(world)] == [(1, 1)]
    assert [each.format for each in registry(world).snapshot().of(KEY)] == ["json"]
    world.engine.dispose()
