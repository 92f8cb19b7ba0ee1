"""The laws of the data path as invariants: each takes a state, or a step, and says in a sentence what is broken."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tests.model.state import FOREIGN, TYPED, Game, Refusals, Row, State, Table
from tests.model.world import Part, World, landed, lands


@lru_cache(maxsize=1 << 20)
def _of_game(parts: tuple[Part, ...], table: Table, quarantine: frozenset[Row], game: Game) -> str | None:
    there = Counter(row for file in table.files for row in file.rows)
    for row, count in there.items():
        if count > 1:
            return f"L5: row {_place(row)} of game {game} is in its table {count} times"
        if row.seq > table.cursor:
            return f"L5: row {_place(row)} of game {game} is in its table, above its cursor {table.cursor}"
    all_rows = {row for part in parts for row in part.rows}
    for row in there:
        if row not in all_rows:
            return f"L1: row {_place(row)} in the table of game {game} is no row of this game in bronze"
    for row in sorted(all_rows):
        if row.seq <= table.cursor and row not in there and row not in quarantine:
            return f"L5: row {_place(row)} of game {game} is lost: at or below its cursor {table.cursor}, and nowhere"
    for row in quarantine:
        if row not in all_rows:
            return f"L5: row {_place(row)} in quarantine is no row of game {game} in bronze"
    return None


def _place(row: Row) -> str:
    return f"(seq {row.seq}, pos {row.pos})"


def each_row_once(world: World, before: State | None, state: State) -> str | None:
    """L5: rows up to the cursor are in the table or in quarantine, once; rows above are not in the table."""
    same = before is not None and before.tables is state.tables and before.quarantine is state.quarantine
    if same and before is not None and before.bronze is state.bronze:
        return None
    bronze = state.bronze + state.hidden
    for game, table in enumerate(state.tables):
        held: Refusals = state.quarantine[game]
        broken = _of_game(world.parts(bronze, game), table, held.rows, game)
        if broken is not None:
            return broken
    return None


def bronze_is_the_source(world: World, before: State | None, state: State) -> str | None:
    """L1: each batch of the source is in bronze once, in order, and each row names its game's previous seq."""
    if before is not None and before.bronze is state.bronze:
        return None
    last_seqs = [0] * world.scenario.games
    for seq, commit in enumerate(state.bronze, 1):
        if commit.batch != seq:
            return f"L1: seq {seq} of bronze holds batch {commit.batch} of the source, not batch {seq}"
        for game, prev_seq in commit.links:
            if prev_seq != last_seqs[game]:
                last = last_seqs[game]
                return f"L1: game {game} in seq {seq} has prev_seq {prev_seq}, its rows before are of seq {last}"
            last_seqs[game] = seq
    return None


def cursors_go_forward(world: World, before: State | None, state: State) -> str | None:
    """L3: a generation's cursor never goes back, but when a rebuild retires it; there is always one newest."""
    if before is None or before.tables is state.tables:
        return None
    for game, (old, new) in enumerate(zip(before.tables, state.tables, strict=True)):
        if new.cursor < old.cursor and new.generation == old.generation:
            return f"L3: the cursor of game {game} goes back from {old.cursor} to {new.cursor}"
        for number in range(1, new.generation):
            if new.cursor_of(number) > old.cursor_of(number) and number < old.generation:
                return f"L12: the cursor of game {game} in generation {number} moves, though a newer one is current"
    return None


def nothing_is_taken_for_damage(world: World, before: State | None, state: State) -> str | None:
    """L5, L7: a repeated batch uses the schema set of before, and no gap is seen where bronze has none."""
    return f"L5, L7: {state.alarms[0]}" if state.alarms else None


def readers_lose_nothing(world: World, before: State | None, state: State) -> str | None:
    """L12, L15: a row that readers have seen stays in its table, also in a rebuild, while its type is accepted."""
    if before is None or before.tables is state.tables:
        return None
    for game, (old, new) in enumerate(zip(before.tables, state.tables, strict=True)):
        if gone := {row for row in landed(old) - landed(new) if not _is_withdrawn(world, state, game, row)}:
            places = ", ".join(_place(row) for row in sorted(gone))
            return f"L12, L15: readers of game {game} lose rows: {places} leave its table"
    return None


def _is_withdrawn(world: World, state: State, game: Game, row: Row) -> bool:
    """Return whether a row waits by the newest schema set as one of an event type that is not the game's."""
    parts = world.parts(state.bronze + state.hidden, game)
    kinds = {each: kind for part in parts for each, kind in zip(part.rows, part.kinds, strict=True)}
    return kinds[row] == TYPED and not lands(TYPED, state.schemas)


def writers_decide(world: World, before: State | None, state: State) -> str | None:
    """L13, L14: a row lands with the first schema its writer had, and only the registry's own word refuses one."""
    if not state.lookup.schemas:
        return None
    first: dict[int, int] = {}
    for answer in state.lookup.answers:
        if answer.schema:
            first.setdefault(answer.writer, answer.schema)
    for game, (table, held) in enumerate(zip(state.tables, state.quarantine, strict=True)):
        parts = world.parts(state.bronze + state.hidden, game)
        writers = {row: kind - FOREIGN for part in parts for row, kind in zip(part.rows, part.kinds, strict=True)}
        for row, schema in table.decoded:
            if schema != first.get(writers[row]):
                return (
                    f"L13: row {_place(row)} of game {game} has landed with schema {schema} of another writer or answer"
                )
        for row in held.rows:
            if writers[row] > 0 and writers[row] not in state.lookup.denied:
                return f"L14: row {_place(row)} of game {game} is refused, and its registry never said that it has none"
    return None


Law = Callable[[World, State | None, State], str | None]

LAWS: Final[tuple[Law, ...]] = (
    each_row_once,
    bronze_is_the_source,
    cursors_go_forward,
    readers_lose_nothing,
    nothing_is_taken_for_damage,
    writers_decide,
)
"""All that must always hold."""


OF_STEPS: Final[tuple[Law, ...]] = (cursors_go_forward, readers_lose_nothing)
"""Those that look at a step: they may break on another way into a state that is known."""


def broken(world: World, before: State | None, state: State, laws: tuple[Law, ...] = LAWS) -> str | None:
    """Return the first law that a step breaks, in a sentence, None where all hold."""
    for law in laws:
        found = law(world, before, state)
        if found is not None:
            return found
    return None


def incomplete(world: World, state: State) -> str | None:
    """L7: when nothing happens any more, every game is complete or waits for a registry; return which does not."""
    if state.hidden:
        return None  # a person has to put bronze right first
    for game, table in enumerate(state.tables):
        last = world.last_seq(state.bronze, game)
        if state.lookup.away:
            last = _before_the_first_need(world, state, game)
        if table.cursor < last:
            return f"L7: game {game} stays at cursor {table.cursor}, though bronze has rows of it up to seq {last}"
    return None


def _before_the_first_need(world: World, state: State, game: Game) -> int:
    """Return the last seq of a game's rows that wait for nothing."""
    last = 0
    for part in world.parts(state.bronze, game):
        if any(kind > FOREIGN and state.lookup.meaning(kind - FOREIGN, state.schemas) is None for kind in part.kinds):
            break
        last = part.seq
    return last
