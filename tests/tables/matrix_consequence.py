"""The effect of each change of the matrix on the table of its game."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from tests.tables.matrix_cases import Row
from tests.tables.matrix_world import Game, Matrix


def require_consequence(matrix: Matrix, game: Game) -> None:
    """Refuse other rows in the table and in quarantine than the change leads to, and rows without an answer."""
    change = game.change
    lands = change.quarantined is None
    second = change.new if change.lands is None else change.lands
    as_landed = {0: change.old} | ({1: second} if lands else {})
    require_rows(matrix.rows(game), [as_landed[version] for _, version in game.in_bronze if version in as_landed])
    reason = "unknown_schema" if change.answer != "found" else "quarantined_schema"
    refused = matrix.quarantined[game.key]
    # A document that names no schema waits with the one of its type that waits, if no other decodes it.
    damaged = reason if not lands and game.case.way.source.framing == "type" else "malformed_payload"
    expected = [damaged, *([] if lands else [reason] * 2)]
    assert sorted(row["reason"] for row in refused) == sorted(expected)
    if change.quarantined is not None and game.registry(1):
        assert all(change.quarantined in row["detail"] for row in refused if row["reason"] == reason)
    assert (game.key in matrix.waited) == bool(game.registry(0))


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
