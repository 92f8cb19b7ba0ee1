"""Replay of quarantine and removal of stale twins (`repair/replay.py`, `repair/twins.py`)."""

from tests.model.repairs import again, running, waiting, with_repair, with_table
from tests.model.state import FOREIGN, NEVER, Repair, Row, State
from tests.model.tables import with_rows
from tests.model.world import Next, World, landed, lands

# -------------------------------------------------------------------------------------------------------------- replay


def choose_replay(world: World, state: State) -> Next:
    """A replay reads which rows of the game quarantine has, and the newest schema set."""
    for slot, game in waiting(world, state, "replay"):
        held = state.quarantine[game].rows
        if held:
            work = Repair("replay", game, "chosen", version=state.schemas, places=held)
            sentence = f"the replay of game {game} chooses {len(held)} rows, with schema set {state.schemas}"
            yield sentence, with_repair(state, slot, work)


def open_replay(world: World, state: State) -> Next:
    """It reads the table's repair counter and cursor, before it looks what is in the table."""
    for slot, work in running(state, "replay", "chosen"):
        table = state.tables[work.game]
        after = work._replace(step="opened", repairs=table.repairs, through=table.cursor)
        sentence = f"the replay of game {work.game} notes {table.repairs} repairs and cursor {table.cursor}"
        yield sentence, with_repair(state, slot, after)


def look_replay(world: World, state: State) -> Next:
    """It decodes what is at or below the cursor and not in the table."""
    for slot, work in running(state, "replay", "opened"):
        present = work.places & landed(state.tables[work.game])
        missing = work.places - present if world.rules.replay_looks else work.places
        decided = [row for row in missing if row.seq <= work.through or not world.rules.replay_up_to_cursor]
        schemas = {row: _decodes(world, state, work, row) for row in decided}
        rows = tuple(sorted(row for row, schema in schemas.items() if schema is not None))
        decoded = frozenset((row, schema) for row, schema in schemas.items() if schema)
        sentence = f"the replay of game {work.game} finds {len(rows)} rows to put into the table"
        if rows:
            yield sentence, with_repair(state, slot, work._replace(step="looked", rows=rows, decoded=decoded))
        elif present:
            yield sentence, with_repair(state, slot, Repair("removal", work.game, "asked"))
        else:
            yield sentence, with_repair(state, slot, None, done=True)


def _decodes(world: World, state: State, work: Repair, row: Row) -> int | None:
    """Return the schema by which a row decodes, 0 where it is not of a foreign writer, None where it does not."""
    parts = world.parts(state.bronze + state.hidden, work.game)
    kinds = {each: kind for part in parts for each, kind in zip(part.rows, part.kinds, strict=True)}
    kind = kinds.get(row, NEVER)
    if kind > FOREIGN:
        return state.lookup.meaning(kind - FOREIGN, work.version) or None
    return 0 if lands(kind, work.version) else None


def commit_replay(world: World, state: State) -> Next:
    """The rows land by a compare-and-set on the repair counter."""
    for slot, work in running(state, "replay", "looked"):
        table = state.tables[work.game]
        if world.rules.replay_checks_repairs and table.repairs != work.repairs:
            chosen = work._replace(step="chosen", repairs=0, through=0, rows=(), decoded=frozenset())
            yield f"the replay of game {work.game} finds the table repaired and tries again", again(state, slot, chosen)
            continue
        kept = world.scenario.kept_files
        after = with_rows(table, table.generation, work.rows, work.decoded, kept_files=kept)
        after = after._replace(repairs=table.repairs + 1)
        sentence = f"the replay of game {work.game} commits {len(work.rows)} rows"
        removal = Repair("removal", work.game, "asked")
        yield sentence, with_repair(state, slot, removal, tables=with_table(state, work.game, after))


# ------------------------------------------------------------------------------------------------------------- removal


def open_removal(world: World, state: State) -> Next:
    """A removal reads quarantine's counter and rows, then the table's counter, then what is in the table."""
    submitted = [(slot, each.game) for slot, each in running(state, "removal", "asked")]
    for slot, game in [*submitted, *waiting(world, state, "removal")]:
        held, table = state.quarantine[game], state.tables[game]
        if world.rules.removal_looks and not held.rows & landed(table):
            if state.repairs[slot] is not None:
                yield f"the removal for game {game} finds no stale twin", with_repair(state, slot, None, done=True)
            continue
        if not held.rows:
            continue
        work = Repair("removal", game, "opened", table.repairs, held.removals, places=held.rows)
        if not world.rules.removal_moves_counter:
            work = work._replace(step="looked", places=held.rows & landed(table))
        sentence = f"a removal of stale twins of game {game} notes {table.repairs} repairs, {held.removals} removals"
        yield sentence, with_repair(state, slot, work)


def count_removal(world: World, state: State) -> Next:
    """It moves the table's repair counter, so that no rebuild that began before can switch any more."""
    for slot, work in running(state, "removal", "opened"):
        table = state.tables[work.game]
        if table.repairs != work.repairs:
            yield (
                f"the removal for game {work.game} finds the table repaired and begins again",
                again(state, slot, Repair("removal", work.game, "asked")),
            )
            continue
        after = table._replace(repairs=table.repairs + 1)
        sentence = f"the removal for game {work.game} moves the table's repair counter"
        yield (
            sentence,
            with_repair(state, slot, work._replace(step="counted"), tables=with_table(state, work.game, after)),
        )


def look_removal(world: World, state: State) -> Next:
    """Only now it looks which rows are in the table."""
    for slot, work in running(state, "removal", "counted"):
        twins = work.places & landed(state.tables[work.game]) if world.rules.removal_looks else work.places
        sentence = f"the removal for game {work.game} takes {len(twins)} rows for stale twins"
        yield sentence, with_repair(state, slot, work._replace(step="looked", places=twins))


def delete_twins(world: World, state: State) -> Next:
    """It deletes them from quarantine, if quarantine's counter is what it read."""
    for slot, work in running(state, "removal", "looked"):
        held = state.quarantine[work.game]
        if world.rules.removal_checks_removals and held.removals != work.removals:
            yield (
                f"the removal for game {work.game} finds another repair and begins again",
                again(state, slot, Repair("removal", work.game, "asked")),
            )
            continue
        after = held._replace(rows=held.rows - work.places, removals=held.removals + 1)
        quarantine = (*state.quarantine[: work.game], after, *state.quarantine[work.game + 1 :])
        sentence = f"the removal for game {work.game} deletes {len(work.places)} rows from quarantine"
        yield sentence, with_repair(state, slot, None, done=True, quarantine=quarantine)
