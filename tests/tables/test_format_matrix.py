"""Every format, framing, registry and change of a schema together: what is written is what the tables have."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.tables.matrix_cases import CASES, WAYS, Case, Row
from tests.tables.matrix_world import Game, Matrix, matrix_of, passes_of
from tests.tables.value_world import value_world

ORDINARY = [case for number, case in enumerate(CASES) if number % 5 == WAYS.index(case.way) % 5 and case.is_of_its_way]
"""Each way with some changes and one kind of policies, and each change by some ways; the rest is long."""


@pytest.fixture(scope="module")
def matrix_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Matrix]]:
    """Return the environment of the ordinary cases, or that of a way with all of its cases."""
    made: dict[str, Matrix] = {}
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def get(name: str) -> Matrix:
            if name not in made:
                cases = ORDINARY if name == "ordinary" else [case for case in CASES if case.way.name == name]
                made[name] = matrix_of(tmp_path_factory.mktemp("matrix") / "env", cases)
                stack.callback(made[name].engine.dispose)
                made[name].run(passes_of(made[name], pool))
            return made[name]

        yield get


ALL = [
    *(pytest.param("ordinary", case, id=f"{case.name}") for case in ORDINARY),
    *(pytest.param(case.way.name, case, id=f"long, {case.name}", marks=pytest.mark.long) for case in CASES),
]


@pytest.mark.proves("G190", "G191")
@pytest.mark.parametrize(("world", "case"), ALL)
def test_a_change_does_what_it_says(matrix_with: Callable[[str], Matrix], world: str, case: Case) -> None:
    """Laws L5, L13 and L14: each row has its writer's schema; it waits for it, then lands as written, or is refused."""
    matrix = matrix_with(world)
    game = matrix.game(case)
    require_consequence(matrix, game)
    assert (game.key in matrix.waited_for_second) == game.waits_for_second


def require_consequence(matrix: Matrix, game: Game) -> None:
    """Refuse other rows in the table and in quarantine than the change leads to, and rows without an answer."""
    change = game.change
    lands = change.quarantined is None
    second = change.new if change.lands is None else change.lands
    as_landed = {0: change.old} | ({1: second} if lands else {})
    require_rows(matrix.rows(game), [as_landed[version] for _, version in game.in_bronze if version in as_landed])
    reason = "unknown_schema" if change.answer != "found" else "quarantined_schema"
    refused = matrix.quarantined[game.key]
    expected = ["malformed_payload", *([] if lands else [reason] * 2)]
    assert sorted(row["reason"] for row in refused) == sorted(expected)
    if change.quarantined is not None and game.registry(1):
        assert all(change.quarantined in row["detail"] for row in refused if row["reason"] == reason)
    assert (game.key in matrix.waited) == bool(game.registry(0))


@pytest.mark.proves("G161")
def test_values_of_all_formats_and_framings_are_compared(matrix_with: Callable[[str], Matrix], tmp_path: Path) -> None:
    """Law L5: `verify --values` accuses nobody, whatever way rows came, and names the one value that was changed."""
    matrix = matrix_with("ordinary")
    game = next(each for each in matrix.games if each.case.formats == ("protobuf", "avro"))
    last = matrix.rows(game)[-1]
    world = value_world(shutil.copytree(matrix.paths.root, tmp_path / "env"))
    world.alter(game.name, "n", lambda number: number + 1, (last["_seq"], last["_pos"]))
    balance = world.check()
    world.engine.dispose()
    assert balance.values is not None
    assert (balance.problems, balance.totals.pending) == ((), 0)
    assert balance.values.rows == balance.totals.landed > 4 * len(ORDINARY)
    assert not balance.values.decodable
    assert sum(balance.values.undecodable.values()) == balance.totals.quarantined > len(ORDINARY)
    (wrong,) = balance.values.named
    assert balance.values.mismatches == 1
    assert (wrong.game_key, wrong.seq, wrong.pos, wrong.column) == (game.key, last["_seq"], last["_pos"], "n")


def require_rows(rows: list[dict[str, Any]], written: list[Row]) -> None:
    """Refuse other rows, other columns, and other values than these in the order of their arrival."""
    found = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    assert {name for row in found for name in row} == {name for row in written for name in row}
    for number, (row, wanted) in enumerate(zip_longest(found, written)):
        assert row is not None and wanted is not None, f"{len(found)} rows, {len(written)} expected"  # noqa: PT018
        assert same(row, wanted), f"row {number} is {row}, not {wanted}"


def same(value: Any, wanted: Any) -> bool:
    """Return whether a table's value is this one; names that it has beside the expected ones are null."""
    match wanted:
        case Mapping():
            members = dict(value) if isinstance(value, list) else value  # a map
            return members is not None and all(same(members[name], wanted.get(name)) for name in {*members, *wanted})
        case list():
            return len(value) == len(wanted) and all(map(same, value, wanted))
        case _:
            return type(value) is type(wanted) and bool(value == wanted)
