"""Questions that every part of the model asks: what bronze holds of a game, what is newest, what connects. Pure."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tests.model.state import (
    EVERYBODY,
    FOREIGN,
    TYPED,
    Bronze,
    Commit,
    Game,
    Lookup,
    Need,
    Row,
    Rules,
    Scenario,
    State,
    Table,
)

Next: TypeAlias = Iterator[tuple[str, State]]
"""An outcome of an action: a sentence on what happened, and the state after it."""


class Part(NamedTuple):
    """A game's rows of one seq."""

    seq: int
    prev_seq: int
    rows: tuple[Row, ...]
    kinds: tuple[int, ...]


@dataclass
class World:
    """One scenario with what was worked out about it."""

    scenario: Scenario
    _parts: dict[tuple[Bronze, Game], tuple[Part, ...]] = field(default_factory=dict)

    @property
    def rules(self) -> Rules:
        """The rules that hold in it."""
        return self.scenario.rules

    def parts(self, bronze: Bronze, game: Game) -> tuple[Part, ...]:
        """Return all of a game's rows in bronze, seq by seq."""
        found = self._parts.get((bronze, game))
        if found is None:
            found = self._parts[bronze, game] = tuple(self._parts_of(bronze, game))
        return found

    def _parts_of(self, bronze: Bronze, game: Game) -> Iterator[Part]:
        for seq, commit in enumerate(bronze, 1):
            for each, prev_seq in commit.links:
                if each == game:
                    kinds = self.scenario.batches[commit.batch - 1][game]
                    yield Part(seq, prev_seq, tuple(Row(seq, pos, commit.batch) for pos in range(len(kinds))), kinds)

    def between(self, bronze: Bronze, game: Game, low: int, high: int) -> tuple[Part, ...]:
        """Return a game's rows of seqs above `low` up to `high`."""
        return tuple(part for part in self.parts(bronze, game) if low < part.seq <= high)

    def last_seq(self, bronze: Bronze, game: Game) -> int:
        """Return the last seq in which a game has rows, 0 for none."""
        parts = self.parts(bronze, game)
        return parts[-1].seq if parts else 0

    def commit_of(self, batch: int, last_seqs: tuple[int, ...]) -> Commit:
        """Return the commit that lands a batch of the source."""
        games = sorted(self.scenario.batches[batch - 1])
        return Commit(batch, tuple((game, last_seqs[game]) for game in games))


def last_seqs_of(bronze: Bronze, games: int) -> tuple[int, ...]:
    """Return the last seq of each game, as bronze tells it."""
    last_seqs = [0] * games
    for seq, commit in enumerate(bronze, 1):
        for game, _ in commit.links:
            last_seqs[game] = seq
    return tuple(last_seqs)


def lands(kind: int, version: int) -> bool:
    """Return whether a schema set decodes a payload that turnout's own schemas name."""
    return version % 2 == 0 if kind == TYPED else kind <= version


class Judged(NamedTuple):
    """The rows that a schema set decodes, and those that it refuses."""

    rows: tuple[Row, ...]  # that it decodes
    refused: frozenset[Row]
    decoded: frozenset[tuple[Row, int]]  # of the rows of foreign writers that it decodes: the schema


def first_need(rules: Rules, parts: tuple[Part, ...], version: int, lookup: Lookup) -> Need | None:
    """Return what a schema set lacks first for a game's rows."""
    if not lookup.schemas or not (rules.unknown_writers_wait and rules.rows_stop_before_a_need):
        return None
    for part in parts:
        for kind in part.kinds:
            if kind > FOREIGN and lookup.meaning(kind - FOREIGN, version) is None:
                return Need(part.seq, kind - FOREIGN, part.prev_seq if rules.rows_before_a_need_land else 0)
    return None


def split(rules: Rules, parts: tuple[Part, ...], version: int, lookup: Lookup) -> Judged:
    """Return the rows that decode with a schema set, and those that it refuses; the set lacks nothing for them."""
    rows: list[Row] = []
    refused: list[Row] = []
    decoded: list[tuple[Row, int]] = []
    for part in parts:
        for row, kind in zip(part.rows, part.kinds, strict=True):
            if kind <= FOREIGN:
                (rows if lands(kind, version) else refused).append(row)
                continue
            schema = lookup.meaning(kind - FOREIGN, version)
            if schema:
                rows.append(row)
                is_alone = rules.each_row_by_its_own_writer or not decoded
                decoded.append((row, schema if is_alone else decoded[0][1]))
            elif schema == 0 or not rules.unknown_writers_wait:
                refused.append(row)
    return Judged(tuple(rows), frozenset(refused), frozenset(decoded))


def connects(cursor: int, parts: tuple[Part, ...]) -> bool:
    """Return whether the rows lead on from a cursor without a gap (law L4)."""
    if parts[0].prev_seq > cursor:
        return False
    return all(after.prev_seq == before.seq for before, after in itertools.pairwise(parts))


def is_owner(state: State, driver: int, game: Game) -> bool:
    """Return whether the control store assigns a game to a driver."""
    return state.owners[game] in {driver, EVERYBODY}


def landed(table: Table) -> frozenset[Row]:
    """Return the places of the rows in a table."""
    return frozenset(row for file in table.files for row in file.rows)


def change(values: tuple[object, ...], index: int, value: object) -> tuple[object, ...]:
    """Return the values with another one at an index."""
    return (*values[:index], value, *values[index + 1 :])
