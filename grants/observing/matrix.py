"""All games against all principals, one verdict per cell; the why of a cell is the resolver's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from grants.model import Observed
from grants.observing.resolver import ReadableGames, Resolver

CellState = Literal["reads", "no", "unknown", "could"]
"""`could`: does not read, but could grant itself that."""

Way = Literal["direct", "group", "schema"]
"""The way by which a reader has SELECT: on the table itself, there by a group, or above the tables."""


@dataclass(frozen=True)
class Matrix:
    """The verdicts by principal and game; the columns are as long as `keys`, and in their order."""

    keys: tuple[str, ...]
    columns: Mapping[str, tuple[CellState, ...]]  # by the principal's name, in the order of the request

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {key: row for row, key in enumerate(self.keys)}

    def cell(self, principal: str, key: str) -> CellState:
        """Return one cell, of a principal as `columns` spells it; KeyError where there is none."""
        return self.columns[principal][self._rows[key]]

    @property
    def counts(self) -> Counter[CellState]:
        """Number of cells of each kind."""
        return sum((Counter(column) for column in self.columns.values()), Counter[CellState]())

    @property
    def by_principal(self) -> Mapping[str, Counter[CellState]]:
        """The same for each principal."""
        return {principal: Counter(column) for principal, column in self.columns.items()}

    @property
    def by_key(self) -> Mapping[str, Counter[CellState]]:
        """The same for each game."""
        rows = zip(*self.columns.values(), strict=True) if self.columns else ((),) * len(self.keys)
        return {key: Counter(row) for key, row in zip(self.keys, rows, strict=True)}


def by_game(observed: Observed) -> list[str]:
    """Return the keys of all tables, silver and gold ones below their games."""
    return sorted(observed.tables, key=lambda key: (observed.tables[key].game or key, observed.tables[key].game, key))


def matrix(resolver: Resolver, keys: Iterable[str] | None = None, principals: Iterable[str] | None = None) -> Matrix:
    """Return the matrix of games and principals; by default of all tables and of everybody in the directory.

    Raises:
        Refused: the catalog has no table of one of the games.
    """
    observed = resolver.observed
    rows = tuple(sorted(observed.tables) if keys is None else dict.fromkeys(keys))
    for key in rows:
        resolver.table(key)
    names = sorted(each.name for each in observed.directory.principals.values()) if principals is None else principals
    columns = {resolver.name(each): _column(resolver.reading(each), rows) for each in names}
    return Matrix(rows, columns)


def ways(resolver: Resolver, matrix: Matrix) -> Mapping[str, tuple[Way | None, ...]]:
    """Return the nearest way of each cell, by column; None where the principal is not known to read."""
    found: dict[str, tuple[Way | None, ...]] = {}
    for name, states in matrix.columns.items():
        far: Way = "schema" if resolver.selects_above(name) else "group"
        direct = resolver.selected_directly(name)
        found[name] = tuple(
            None if state != "reads" else "direct" if key in direct else far
            for key, state in zip(matrix.keys, states, strict=True)
        )
    return found


def _column(reading: ReadableGames, keys: Iterable[str]) -> tuple[CellState, ...]:
    return tuple(_state(reading, key) for key in keys)


def _state(reading: ReadableGames, key: str) -> CellState:
    if key in reading.reads:
        return "reads"
    if key in reading.unknown:
        return "unknown"
    return "could" if key in reading.could else "no"
