"""The two effects of a pass or chunk on what others see: refused rows into quarantine, and one commit per game."""

from collections.abc import Iterable

from tests.model.state import File, Item, Lookup, Refusals, Row, Rules, Stream, Table, Work
from tests.model.world import Part, connects, first_need, split

Tables = tuple[Table, ...]
Quarantine = tuple[Refusals, ...]


def with_rows(
    table: Table, generation: int, rows: Iterable[Row], decoded: frozenset[tuple[Row, int]], *, kept_files: bool
) -> Table:
    """Return a table with rows added as a file; where it does not matter which rows share one, files are merged."""
    added = tuple(rows)
    if not added:
        return table
    if decoded:
        table = table._replace(decoded=table.decoded | decoded)
    if kept_files:
        return table._replace(files=tuple(sorted((*table.files, File(generation, added)))))
    there = table.files[0].rows if table.files else ()
    return table._replace(files=(File(0, tuple(sorted((*there, *added)))),))


def quarantined(quarantine: Quarantine, items: Iterable[Item]) -> Quarantine:
    """Return quarantine with the refused rows of the games that are to be committed, in one commit."""
    after = list(quarantine)
    for item in items:
        if item.refused and item.state in {"ready", "committed"}:
            held = after[item.game]
            after[item.game] = held._replace(rows=held.rows | item.refused)
    return tuple(after)


def compare_and_set(rules: Rules, table: Table, item: Item, stream: Stream | None, *, kept_files: bool) -> Table | None:
    """Return the table after a game's commit: its rows and its cursor; None where it is refused (law L4).

    The cursor must still be the one that the rows were split from. The old protocol took the stream's cursor at
    the moment of the commit, which another thread of the same driver may have moved since.
    """
    generation, expected = item.generation, item.cursor
    if not rules.commit_expects_split_position and stream is not None and item.live:
        generation, expected = stream.generation, stream.cursor
    if rules.compare_and_set and table.cursor_of(generation) != expected:
        return None
    cursors = (*table.cursors[: generation - 1], item.to, *table.cursors[generation:])
    return with_rows(table._replace(cursors=cursors), generation, item.rows, item.decoded, kept_files=kept_files)


def item_of(
    rules: Rules, game: int, stream: Stream, parts: tuple[Part, ...], version: int, lookup: Lookup, *, ends_early: bool
) -> Item:
    """Return what tasks make of a game's rows, which are above its cursor: files, refused rows, and do they connect?

    Where the schema set lacks something, the game waits: a pass decides none of its rows, and a chunk, which
    `ends_early`, those before. In the code a chunk reads these anew, which is as if it had chosen fewer seqs.
    """
    if not parts:
        return Item(game, stream.generation, stream.cursor, "idle")
    waits = first_need(rules, parts, version, lookup)
    if waits is not None:
        before = tuple(part for part in parts if part.seq < waits.seq)
        if not ends_early:
            return Item(game, stream.generation, stream.cursor, "held", waits=waits)
        if not before or not connects(stream.cursor, before):  # a gap before the need is found once it is answered
            return Item(game, stream.generation, stream.cursor, "held", waits=waits._replace(after=stream.cursor))
        parts = before
    if rules.chain_check and not connects(stream.cursor, parts):
        return Item(game, stream.generation, stream.cursor, "apart")
    rows, refused, decoded = split(rules, parts, version, lookup)
    to = parts[-1].seq
    return Item(game, stream.generation, stream.cursor, "ready", rows, refused, to, waits=waits, decoded=decoded)


def begun(rules: Rules, work: Work) -> Work:
    """Return work that was split, past the writing of quarantine where there is nothing to write."""
    return work if any(item.refused for item in work.items) else work._replace(step="written")
