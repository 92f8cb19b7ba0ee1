"""Documents of several event types: the table is a function of bronze and registrations, however bronze is cut."""

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams.writing.columns import target_schema
from tests.tables.bad_documents_world import (
    INTEGER,
    STRING,
    declare,
    document,
    documents_world,
    one_pass,
    quarantined,
    rows_of,
)
from tests.tables.repair_world import CHESS
from tests.tables.value_world import ValueWorld
from tests.unit.data.contracts.formats.json.json_world import obj

NUMBER: Final = {"type": "number"}
COMMON: Final = {"game": STRING, "type": STRING}
LATER: Final = obj(**COMMON, player=STRING, level=NUMBER, team=STRING)
SOLD: Final = obj(**COMMON, item=INTEGER)
GIFT: Final = obj(**COMMON, item=NUMBER, gift={"type": "boolean"})
FIELDS: Final[dict[str, dict[str, Any]]] = {
    "first": {"player": "Ann", "level": 1},
    "both": {"player": "Bob"},
    "later": {"level": 1.5, "team": "red"},
    "sold": {"type": "Sold", "item": 2},
    "gift": {"type": "Sold", "item": 0.5, "gift": True},
    "undeclared": {"type": "Left", "item": 1},
    "broken": {"level": "x"},
}
_PLACE: Final = {"_seq", "_pos", "_source_time"}
KINDS: Final = st.lists(st.sampled_from([*FIELDS]), min_size=1, max_size=8)


def world_of(folder: Path) -> ValueWorld:
    """An environment in which Chess has two types with two schemas each."""
    world = documents_world(folder)
    declare(world, "Chess", "Joined", LATER)
    declare(world, "Chess", "Sold", SOLD, new_type=True)
    declare(world, "Chess", "Sold", GIFT)
    return world


def outcome(world: ValueWorld) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the rows of Chess without their places in bronze and in the source, and the refused ones."""
    table = rows_of(world, "Chess") if world.paths.table(CHESS.key).is_folder() else []
    rows = [{name: value for name, value in row.items() if name not in _PLACE} for row in table]
    refused = quarantined(world) if world.paths.quarantine.is_folder() else []
    return rows, [(row["raw"], row["reason"], row["detail"]) for row in refused]


def landed(folder: Path, records: Sequence[bytes], starts: Sequence[int], *, late: bool) -> Any:
    """Return what becomes of records that come in several commits, read one by one or, `late`, all at once."""
    world = world_of(folder)
    for start, end in pairwise([*starts, len(records)]):
        world.arrive(*records[start:end])
        if not late:
            one_pass(world)
    one_pass(world)
    found = outcome(world)
    if world.paths.table(CHESS.key).is_folder():
        rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
        assert outcome(world)[0] == found[0]
    world.engine.dispose()
    return found


def require_one_table(folder: Path, kinds: Sequence[str], cuts: set[int]) -> None:
    records = [document("Chess", **FIELDS[kind]) for kind in kinds]
    starts = sorted({0, *(each for each in cuts if each < len(records))})
    whole = landed(folder / "whole", records, [0], late=True)
    assert len(whole[0]) + len(whole[1]) == len(records)
    for name, chosen, late in (("cut", starts, False), ("late", starts, True), ("single", range(len(records)), False)):
        assert landed(folder / name, records, chosen, late=late) == whole


def test_each_kind_of_document_lands_alike_however_bronze_is_cut(tmp_path: Path) -> None:
    """Law L5: single rows, passes, one catch-up and a rebuild give the same rows, types and refusals."""
    require_one_table(tmp_path, [*FIELDS, "first"], {2, 5})


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(kinds=KINDS, cuts=st.sets(st.integers(1, 7)))
def test_the_table_is_the_same_however_bronze_is_cut(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], cuts: set[int]
) -> None:
    """Law L5, for random documents and random cuts."""
    require_one_table(tmp_path_factory.mktemp("cuts"), kinds, cuts)


def test_types_that_are_no_names_of_messages_land_each_in_its_column(tmp_path: Path) -> None:
    """A producer names its types as it likes; those whose columns would have one name get different ones."""
    world = documents_world(tmp_path / "env")
    names = ["level-up", "level_up", "Level Up", "1st", "Zoë's", "acme.v2.Joined", "%", "\U0001f600"]
    for name in names:
        declare(world, "Chess", name, SOLD, new_type=True)
    world.arrive(*(document("Chess", type=name, item=number) for number, name in enumerate(names)))
    one_pass(world)
    found = rows_of(world, "Chess")
    rows = [{name: value["item"] for name, value in row.items() if isinstance(value, dict)} for row in found]
    assert [[*each.values()] for each in rows] == [[number] for number in range(len(names))]
    assert len({name for each in rows for name in each}) == len(names)
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, len(names))
    world.engine.dispose()


TYPES: Final = st.sampled_from([INTEGER, STRING, NUMBER, {"type": "boolean"}, obj(a=INTEGER), obj(a=STRING, b=STRING)])
SCHEMAS: Final = st.lists(
    st.tuples(st.sampled_from(["Joined", "Sold"]), st.dictionaries(st.sampled_from("abA"), TYPES, max_size=3)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=4, deadline=None)
@given(schemas=SCHEMAS)
def test_a_column_never_changes_its_type(
    tmp_path_factory: pytest.TempPathFactory, schemas: list[tuple[str, dict[str, Any]]]
) -> None:
    """ADR 7: whatever schemas a game's types get, each column and each member keeps its name and its type."""
    require_stable(tmp_path_factory.mktemp("types"), schemas)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(schemas=SCHEMAS)
def test_a_column_never_changes_its_type_in_many_orders(
    tmp_path_factory: pytest.TempPathFactory, schemas: list[tuple[str, dict[str, Any]]]
) -> None:
    """ADR 7, for more schemas."""
    require_stable(tmp_path_factory.mktemp("types"), schemas)


def require_stable(folder: Path, schemas: Sequence[tuple[str, dict[str, Any]]]) -> None:
    world = documents_world(folder)
    known: dict[str, Any] = {}
    for number, (title, fields) in enumerate(schemas):
        with suppress(Refused):  # then nothing may change
            declare(world, "Chess", title, obj(**fields), new_type=title == "Sold")
        columns = leaves(target_schema(world.registry.snapshot(), str(game_key("Chess"))))
        assert known == {name: columns.get(name) for name in known}, f"after schema {number}"
        known = columns
    world.engine.dispose()


def leaves(fields: Any, before: str = "") -> dict[str, Any]:
    """Return the type of each column and of each member, by its path; of a struct that it is one."""
    found: dict[str, Any] = {}
    for each in fields:
        path = f"{before}{each.name}"
        is_struct = json.dumps(str(each.type)).startswith('"struct')
        found[path] = "struct" if is_struct else each.type
        if is_struct:
            found |= leaves(each.type, f"{path}.")
    return found
