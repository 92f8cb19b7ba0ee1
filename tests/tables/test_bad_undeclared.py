"""Bad documents of a game that declared nothing, from bronze to tables: refused or contained, and nobody waits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from pipeline.base.names import game_key
from tests.tables.bad_documents_world import BAD, BY_TYPE, NAMES, document, one_pass, quarantined, rows_of, with_text
from tests.tables.registering_world import drive, reported, shapes, supersets
from tests.tables.shapes_world import shapes_world
from tests.tables.value_world import ValueWorld

REFUSED: Final = {each.name: each for each in BAD if each.reason != "malformed_payload"} | {
    each.name: each for each in BAD if each.name in {"a key twice", "40 levels"}
}
OTHER_TYPE: Final = "a type that is no name"
CONTAINED: Final = {
    **{each.name: each.raw for each in BAD if each.name not in REFUSED},
    "digits of no double": with_text(b'"level":123456789012345678901234567890'),
    "a key like an id": with_text(b'"4711":1'),
    "ids as keys inside": with_text(b'"of":{"4711":1,"0f8fad5b-d9cb-469f-a165-70867728950e":"x"}'),
    "unlike elements": with_text(b'"mixed":[1,"a",{}]'),
    "names of ours": with_text(b'"__other__":1,"level__v2":true,"\\u007fother":2'),
    "1,200 keys": with_text(b",".join(b'"r%d":%d' % (each, each) for each in range(1200))),
}
FLOOD: Final = with_text(b",".join(b'"%05x":1' % number for number in range(100_000)))


def undeclared_world(folder: Path) -> ValueWorld:
    """An environment of two games, in whose documents the type `Joined` has the columns `game`, `player`, `type`."""
    world = shapes_world(folder, replace(BY_TYPE, undeclared="register"))
    world.names.clear()
    for name in NAMES:
        world.names[name] = str(game_key(name))
        world.arrive(document(name, player="first"))
    drive(world)
    return world


def registered(world: ValueWorld) -> None:
    """Let one driver register all that both games lack, in one step."""
    driver = shapes(world)
    driver.note(reported(world))
    driver.step()


def require_other_game_landed(world: ValueWorld, bad: list[bytes]) -> dict[str, Any]:
    """Land bad documents of Chess among good ones; Go lands in the first pass, and its new shape in the next one."""
    good = [document("Go", player=f"p{number}") for number in range(len(bad))]
    world.arrive(*(each for pair in zip(bad, good, strict=True) for each in pair))
    report = one_pass(world)
    assert (report[game_key("Go")]["needs"], report[game_key("Go")]["error"]) == ([], None)
    assert [row["player"] for row in rows_of(world, "Go")] == ["first", *(f"p{number}" for number in range(len(bad)))]
    world.arrive(document("Go", player="last", team="red"))
    registered(world)
    assert supersets(world, "Go")[-1] == ("Joined", 2, ("game", "player", "team", "type"))
    one_pass(world)
    assert rows_of(world, "Go")[-1]["team"] == "red"
    return report


def require_chess(world: ValueWorld, landed: int) -> None:
    """Chess has these rows, and verify finds no value that differs."""
    drive(world)
    assert len(rows_of(world, "Chess")) == landed
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches) == ((), 0)
    world.engine.dispose()


def test_bad_documents_are_refused_or_contained_and_no_other_game_waits(tmp_path: Path) -> None:
    """Laws L5, L6: each has its reason and bytes in quarantine, or lands; Go's rows and shapes do not wait."""
    world = undeclared_world(tmp_path / "env")
    bad = [each.raw for each in REFUSED.values()]
    require_other_game_landed(world, [*bad, *CONTAINED.values(), document("Chess", player="Ann")])
    drive(world)
    found = {row["raw"]: (row["reason"], row["detail"]) for row in quarantined(world)}
    wanted = {each.raw: "other_type" if name == OTHER_TYPE else each.reason for name, each in REFUSED.items()}
    assert {raw: reason for raw, (reason, _) in found.items()} == wanted
    assert all(detail for _, detail in found.values())
    require_chess(world, 1 + len(CONTAINED) + 1)


def test_quarantine_names_the_cause(tmp_path: Path) -> None:
    """Quarantine names the cause in words of turnout."""
    world = undeclared_world(tmp_path / "env")
    names = ["text that is not UTF-8", "a key that is not UTF-8", "half of a pair", "the other half in a key"]
    world.arrive(*(REFUSED[name].raw for name in names))
    one_pass(world)
    place = len(with_text(b"")) - 1
    half = "a text or key has half of a surrogate pair"
    wanted = [f"not UTF-8 at byte {place + 10}", f"not UTF-8 at byte {place + 1}", half, half]
    assert [row["detail"] for row in quarantined(world)] == wanted
    world.engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_document_with_100_000_keys_lands_whole(tmp_path: Path) -> None:
    """Law L6: the document opens no column and closes nothing."""
    world = undeclared_world(tmp_path / "env")
    require_other_game_landed(world, [FLOOD, document("Chess", level=1)])
    drive(world)
    assert rows_of(world, "Chess")[1]["__other__"] == FLOOD.decode()
    assert rows_of(world, "Chess")[2]["level"] == 1
    require_chess(world, 3)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_10_000_random_types_end_at_1_000_and_no_other_game_waits(tmp_path: Path) -> None:
    """Law L6: a game gets 1,000 types; rows of others are refused with their bytes, and the other game never waits."""
    world = undeclared_world(tmp_path / "env")
    flood = [json.dumps({"game": "Chess", "type": f"t{number}"}).encode() for number in range(10_000)]
    require_other_game_landed(world, flood)
    drive(world)
    assert len({name for name, _, _ in supersets(world)}) == 1_000
    reasons = [(row["reason"], row["raw"]) for row in quarantined(world)]
    assert reasons == [("other_type" if at < 999 else "unknown_schema", raw) for at, raw in enumerate(flood)]
    require_chess(world, 1)
