"""The programs of docs/readers.md, and what happens to the tables that they follow."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from tests.checkout import ROOT
from tests.tables.silver_world import Row, SilverWorld, cut_log

_PROGRAM: Final = re.compile(r"<!-- reader: ([\w-]+) -->\n```python\n(.*?)```", re.DOTALL)


def program(name: str) -> dict[str, Any]:
    """Return the names that a program of the page defines."""
    found = dict(_PROGRAM.findall((ROOT / "docs" / "readers.md").read_text("utf-8")))
    names: dict[str, Any] = {}
    exec(compile(found[name], f"docs/readers.md: {name}", "exec"), names)
    return names


def rows_of(table: Location) -> list[dict[str, Any]]:
    """Return the rows of a table in the order of their places."""
    return in_order(open_table(table).to_pyarrow_table().to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_seq"], row["_pos"]))


def changes(world: SilverWorld) -> Iterator[tuple[str, bool]]:
    """Let happen to both tables what readers meet; yield each change, and whether readers begin again at it."""
    full = world.columns
    world.columns = full.remove(full.get_field_index("tags"))
    world.commit(Row("a", 0.0), Row("a", 1.0), Row("b", 5.0))
    world.commit(Row("c", 6.0))
    world.carry()
    yield "the first rows", True
    world.commit(Row("d", 7.0), Row("a", 0.5), seq=1)
    world.carry()
    yield "rows of an earlier seq", False
    _compact(world)
    world.commit(Row("e", 9.0))
    world.carry()
    _compact(world)
    yield "merged files", False
    world.columns = full
    world.commit(Row("f", 11.0), Row("a", 1.5))
    world.carry()
    yield "a new column", False
    world.rebuild()
    world.carry()
    yield "a new generation", True
    world.commit(Row("g", 15.0))
    world.remove(0)
    world.commit(Row("h", 18.0))
    world.carry()
    yield "a row less", True
    for at in range(12):
        world.commit(Row(f"i{at}", 20.0 + at))
        world.carry()
    for table in (world.table, world.silver):
        cut_log(table)
    world.commit(Row("j", 30.0))
    world.carry()
    yield "a shorter log", True


def followed(world: SilverWorld, follow: Callable[[Location], tuple[list[dict[str, Any]], bool]]) -> None:
    """Check that a reader has each row of both tables once after each change, and begins again where it has to."""
    for what, again in changes(world):
        for table in (world.table, world.silver):
            rows, began = follow(table)
            assert in_order(rows) == rows_of(table), (what, table.name)
            assert began == again, (what, table.name)


def _compact(world: SilverWorld) -> None:
    world.compact()
    world.carry()
    world.compact_silver()
