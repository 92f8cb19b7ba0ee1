"""Documents that nobody declared, registered from bronze: the table is a function of bronze and of what is kept."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.repair.rebuild import rebuild
from tests.tables.registering_world import arrive, drive, registry, require_kept, two_types
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import by_tasks, one_by_one, quarantine, table, types, without_nulls
from tests.tables.value_world import ValueWorld

Batch: TypeAlias = list[tuple[str, bytes]]

_UUID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
_KEYS: Final = st.sampled_from(["a", "b", "c", "A", "a.b", "_seq", "4711", _UUID, "x__v2", "__other__", "", "\x7f"])
_NUMBERS: Final = ["0", "-0", "7", "9007199254740993", "9223372036854775808", "5.0", "1e3", "2.5", "1e999"]
_SCALARS: Final = st.sampled_from(["null", "true", '""', '"a"', '"1"', "0.1234567890123456789", *_NUMBERS])


def _object(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in members.items()) + "}"


def _values(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
    return st.one_of(arrays, st.dictionaries(_KEYS, inner, max_size=3).map(_object))


_VALUES: Final = st.recursive(_SCALARS, _values, max_leaves=5)
_REFUSED: Final = st.sampled_from(['{"a":1,"a":2}', '{"a":"\\ud800"}', "[1]", "{" + '"a":{' * 40 + "}" * 41])
_DOCUMENTS: Final = st.one_of(
    *[st.dictionaries(_KEYS.filter(lambda key: key in "abcA"), _VALUES, max_size=3).map(_object)] * 4,
    st.dictionaries(_KEYS, _VALUES, max_size=4).map(_object),
    _REFUSED,
).map(str.encode)
BATCHES: Final = st.lists(
    st.lists(st.tuples(st.sampled_from(["move", "sold"]), _DOCUMENTS), min_size=1, max_size=5), min_size=1, max_size=4
)


def landed(world: ValueWorld) -> list[dict[str, Any]]:
    return [without_nulls(row) for row in table(world)]


def require_laws(folder: Path, batches: Sequence[Batch], passes: set[int], cuts: set[int]) -> None:
    """Land batches, with passes and registrations after some, and compare the table with each other way to it."""
    world = two_types(folder / "env")
    kinds: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for number, batch in enumerate(batches):
        arrive(world, batch)
        if number in passes or number == len(batches) - 1:
            drive(world)
            kinds, rows = require_stable(world, kinds, rows)
    assert len(rows) + len(quarantine(world)) == world.offset
    assert by_tasks(world, folder / "at-once", ()) == rows, "one task reads all rows"
    assert by_tasks(world, folder / "cut", cuts) == rows, "tasks read pieces"
    assert one_by_one(world, folder / "alone") == rows, "a task reads each row"
    require_kept(world)
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)
    assert landed(world) == rows, "a rebuild"
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, len(rows))
    world.engine.dispose()


def require_stable(
    world: ValueWorld, kinds: dict[str, str], rows: list[dict[str, Any]]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Compare columns and rows with those of before; return those of now."""
    now, landed_now = types(world), landed(world)
    assert {name: now.get(name) for name in kinds} == kinds
    assert landed_now[: len(rows)] == rows
    return now, landed_now


CASES: Final[dict[str, Any]] = {
    "batches": BATCHES, "passes": st.sets(st.integers(0, 3)), "cuts": st.sets(st.integers(1, 20), max_size=6),
}  # fmt: skip


CHANGES: Final[list[Batch]] = [
    [("move", b'{"a":1,"b":"x"}'), ("sold", b'{"a":[1]}'), ("move", b'{"a":2,"c":{"d":1}}')],
    [("move", b'{"a":2.5}'), ("move", b'{"a":1}'), ("move", b'{"b":5,"c":[1,"x"]}'), ("sold", b'{"a":{"k":"x"}}')],
    [
        ("move", b'{"a":[]}'),
        ("move", b'{"a":1,"a":2}'),
        ("move", b'{"a":3,"4711":1}'),
        ("sold", b'{"a":[2],"_seq":1e999}'),
    ],
]
"""Values of each kind change, and some documents are written again."""


@settings(max_examples=1, deadline=None)
@example(batches=CHANGES, passes={0, 1}, cuts={3, 7})
@given(**CASES)
def test_the_table_is_a_function_of_bronze_and_of_what_is_kept(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], passes: set[int], cuts: set[int]
) -> None:
    """Laws L1, L5, L12: passes, a catch-up, single rows, a store that lost its registrations and a rebuild agree.

    Columns keep their types, and landed rows their values, whatever comes later.
    """
    require_laws(tmp_path_factory.mktemp("laws"), batches, passes, cuts)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=40, deadline=None)
@given(**CASES)
def test_the_table_is_a_function_of_bronze_for_many_documents(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], passes: set[int], cuts: set[int]
) -> None:
    """Laws L1, L5, L12, for more documents and cuts."""
    require_laws(tmp_path_factory.mktemp("laws"), batches, passes, cuts)
