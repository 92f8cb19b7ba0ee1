"""A plain topic of JSON documents on its whole way: routed by a path, decoded by its event type, compared by verify."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.base.names import game_key
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registrations import Registration
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.verify.balance import verify
from pipeline.data.verify.replayable import landing
from tests.tables.repair_world import CHESS
from tests.tables.replay_laws import run
from tests.tables.value_world import ValueWorld, value_world
from tests.unit.data.contracts.formats.json.json_world import obj

GAME = "Chess"
INTEGER, STRING, NUMBER = ({"type": kind} for kind in ("integer", "string", "number"))
COMMON = {"game": STRING, "type": STRING}
JOINED = obj(**COMMON, player=STRING, level=INTEGER)
LATER = obj(**COMMON, player=STRING, level=NUMBER, team=STRING)
SOLD = obj(**COMMON, item=STRING)
BY_TYPE = SourceProfile(
    envelope="json", framing="type", fields=(("game", "game"), ("type", "type")), undeclared="quarantine"
)
SIDE = parse_policies(["incompatible=side-column"])


def register(world: ValueWorld, title: str, given: dict[str, Any], *, new_type: bool = False) -> None:
    world.names[GAME] = str(game_key(GAME))
    definition = json.dumps({**given, "title": title}).encode()
    world.registry.register_many([Registration(GAME, title, definition, SIDE, format="json", new_type=new_type)])


def document(**fields: Any) -> bytes:
    return json.dumps({"game": GAME, **fields}).encode()


def plain_world(folder: Path, profile: SourceProfile = BY_TYPE) -> ValueWorld:
    world = value_world(folder)
    world.profile = profile
    return world


def table(world: ValueWorld) -> list[dict[str, Any]]:
    order = [("_seq", "ascending"), ("_pos", "ascending")]
    rows = DeltaTable(Path(world.paths.table(game_key(GAME)))).to_pyarrow_table().sort_by(order)
    made: list[dict[str, Any]] = rows.to_pylist()
    return made


def quarantine(world: ValueWorld) -> list[tuple[str, bytes]]:
    order = [("seq", "ascending"), ("pos", "ascending")]
    rows = DeltaTable(Path(world.paths.quarantine)).to_pyarrow_table().sort_by(order).to_pylist()
    return [(row["reason"], row["raw"]) for row in rows]


def test_documents_are_routed_and_decoded_by_their_event_type(tmp_path: Path) -> None:
    """Laws L5, L6: a plain topic fills one table with all its types; undeclared documents wait with their bytes."""
    world = plain_world(tmp_path / "env")
    register(world, "Joined", JOINED)
    register(world, "Sold", SOLD, new_type=True)
    bad = [
        document(type="Left"), document(player="nobody"), b'{"game":"Chess","type":"Joined","level":1,"level":2}',
        b'{"game":"Chess","game":"Go"}',
    ]  # fmt: skip
    world.arrive(document(type="Joined", player="Ann", level=1), document(type="Sold", item="rook"), *bad)
    world.split_all()
    rows = [(row["_type"], row["player"], row["sold"] and row["sold"]["item"]) for row in table(world)]
    assert rows == [("Joined", "Ann", None), ("Sold", None, "rook")]
    reasons = ["unknown_schema", "malformed_framing", "malformed_payload", "malformed_wrapper"]
    assert sorted(quarantine(world)) == sorted(zip(reasons, bad, strict=True))
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 2)
    world.engine.dispose()


def replayable(world: ValueWorld) -> Mapping[str, int]:
    today = landing(world.registry.snapshot(), {key: name for name, key in world.names.items()}, ())
    return verify(world.paths, world.environment, landing=lambda: today).replayable


def once(world: ValueWorld) -> None:
    world.split_all()


def nothing(world: ValueWorld) -> None:
    """Split when all has come."""


@pytest.mark.parametrize("between", [once, nothing])
def test_a_later_schema_takes_over_no_document_of_an_earlier_one(
    tmp_path: Path, between: Callable[[ValueWorld], None]
) -> None:
    """Law L5: the table is the same however bronze is cut, as the first schema that decodes a document is its own."""
    world = plain_world(tmp_path / "env")
    register(world, "Joined", JOINED)
    early = [document(type="Joined", player="Ann", level=1), document(type="Joined", player="Bob", level=2)]
    world.arrive(*early)
    between(world)
    register(world, "Joined", LATER)
    late = [document(type="Joined", player="Eve", level=2.5, team="red"), document(type="Joined", level=3), early[0]]
    world.arrive(*late, document(type="Joined", other=1))
    world.split_all()
    rows = table(world)
    (side,) = {name for name in rows[0] if name.startswith("level__")}
    assert [(row["player"], row["level"], row[side], row["_schema_id"]) for row in rows] == [
        ("Ann", 1, None, 1), ("Bob", 2, None, 1), ("Eve", None, 2.5, 2), (None, 3, None, 1), ("Ann", 1, None, 1),
    ]  # fmt: skip
    assert [reason for reason, _ in quarantine(world)] == ["malformed_payload"]
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 5)
    world.engine.dispose()


def test_documents_without_a_type_are_of_the_games_first_one(tmp_path: Path) -> None:
    """A profile without a path for the type reads a game of one event type, and never guesses another one."""
    world = plain_world(tmp_path / "env", SourceProfile(envelope="json", framing="type", fields=(("game", "game"),)))
    register(world, "Joined", JOINED)
    register(world, "Sold", SOLD, new_type=True)
    world.arrive(document(player="Ann"), document(item="rook"))
    world.split_all()
    assert [(row["_type"], row["player"]) for row in table(world)] == [("Joined", "Ann")]
    assert quarantine(world) == [("malformed_payload", document(item="rook"))]
    assert world.check().problems == ()
    world.engine.dispose()


def test_a_declaration_lands_what_waited_and_a_rebuild_agrees(tmp_path: Path) -> None:
    """Laws L5, L13: a replay and a rebuild decode documents as a pass does; a declared type needs no new settings."""
    world = plain_world(tmp_path / "env")
    register(world, "Joined", JOINED)
    left = document(type="Left", at=5)
    newer = document(type="Joined", player="Eve", team="red")
    world.arrive(left, document(type="Joined", player="Ann"), newer)
    world.split_all()
    assert quarantine(world) == [("unknown_schema", left), ("malformed_payload", newer)]
    register(world, "Left", obj(**COMMON, at=INTEGER), new_type=True)
    register(world, "Joined", LATER)
    assert replayable(world) == {game_key(GAME): 1}, "verify reads no payload, so it leaves out what did not decode"
    done = run(world)[game_key(GAME)]
    assert (done.landed, dict(done.refused)) == (2, {})
    assert replayable(world) == {}
    rows = table(world)
    assert [(row["_type"], row["player"], row["left"] and row["left"]["at"]) for row in rows] == [
        ("Left", None, 5), ("Joined", "Ann", None), ("Joined", "Eve", None),
    ]  # fmt: skip
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert table(world) == rows
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 3)
    world.engine.dispose()
