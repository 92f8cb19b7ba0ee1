"""Every format, framing, registry and change of a schema together: what is written is what the tables have."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.tables.matrix_cases import CASES, Case
from tests.tables.matrix_consequence import require_consequence
from tests.tables.matrix_world import Matrix, matrix_of, passes_of
from tests.tables.value_world import value_world


def _one_of_each() -> list[Case]:
    by_change: dict[tuple[Any, ...], list[Case]] = {}
    for case in CASES:
        if case.is_of_its_way:
            key = case.change.name, case.formats, case.bending, case.way.id == "type"
            by_change.setdefault(key, []).append(case)
    return [same[number % len(same)] for number, same in enumerate(by_change.values())]


ORDINARY = _one_of_each()
"""Each way with some changes, and each change between its formats with both kinds of policies; the rest is long."""


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


def test_ordinary_cases_lack_no_change_and_no_way() -> None:
    """The ordinary run omits only other ways of rows with the same change, formats and policies."""
    for seen in (lambda case: case.way.name, lambda case: (case.change.name, case.formats, case.bending)):
        assert {seen(case) for case in CASES if case.is_of_its_way} == {seen(case) for case in ORDINARY}


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
