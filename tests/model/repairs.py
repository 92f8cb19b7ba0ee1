"""Rebuild, and compaction: what replaces files of a game's table (`repair/rebuild.py`, `maintenance/compact.py`)."""

from tests.model.state import RETIRED, File, Game, Repair, State, Table
from tests.model.tables import with_rows
from tests.model.world import Next, World, first_need, split


def with_repair(state: State, slot: int, repair: Repair | None, *, done: bool = False, **also: object) -> State:
    """Return the state with one repair changed, and whatever else."""
    repairs = (*state.repairs[:slot], repair, *state.repairs[slot + 1 :])
    if done:
        state = state._replace(done=(*state.done[:slot], True, *state.done[slot + 1 :]))
    return state._replace(repairs=repairs, **also)  # type: ignore[arg-type]


def with_table(state: State, game: Game, table: Table) -> tuple[Table, ...]:
    """Return the tables with one of them changed."""
    return (*state.tables[:game], table, *state.tables[game + 1 :])


def again(state: State, slot: int, repair: Repair | None) -> State:
    """Return the state after a repair found itself overtaken: it begins again so and so often, then it gives up."""
    left = state.budget.attempts
    if left == 0:
        return with_repair(state, slot, None, done=True)
    return with_repair(state, slot, repair, budget=state.budget._replace(attempts=left - 1))


def running(state: State, kind: str, step: str) -> list[tuple[int, Repair]]:
    """Return the repairs of a kind that are at a step, with their slots."""
    found = enumerate(state.repairs)
    return [(slot, each) for slot, each in found if each is not None and each.kind == kind and each.step == step]


def waiting(world: World, state: State, kind: str) -> list[tuple[int, Game]]:
    """Return the repairs of a kind that are to be done and not under way."""
    return [
        (slot, game)
        for slot, (each, game) in enumerate(world.scenario.repairs)
        if each == kind and state.repairs[slot] is None and not state.done[slot]
    ]


def kill(world: World, state: State) -> Next:
    """The process of a repair is killed; somebody begins it again."""
    if not state.budget.crashes:
        return
    budget = state.budget._replace(crashes=state.budget.crashes - 1)
    for slot, each in enumerate(state.repairs):
        if each is not None:
            yield f"the {each.kind} of game {each.game} is killed", with_repair(state, slot, None, budget=budget)


# ------------------------------------------------------------------------------------------------------------- rebuild


def submit_rebuild(world: World, state: State) -> Next:
    """A person asks for a rebuild of a game that has a table."""
    for slot, game in waiting(world, state, "rebuild"):
        if state.tables[game] != Table():
            work = _submitted(game) if world.rules.rebuild_has_todays_schemas else _submitted(game, state.schemas)
            yield f"a rebuild of game {game} is asked for", with_repair(state, slot, work)


def open_rebuild(world: World, state: State) -> Next:
    """An attempt reads the schema set, the table's repair counter and generation, and quarantine's counter first."""
    for slot, submitted in running(state, "rebuild", "asked"):
        game, table, held = submitted.game, state.tables[submitted.game], state.quarantine[submitted.game]
        version = submitted.version or state.schemas
        work = Repair("rebuild", game, "opened", table.repairs, held.removals, table.generation, version)
        read = f"schema set {work.version}, generation {work.generation} and {work.repairs} repairs"
        after = with_repair(state, slot, work, recorded=_recorded(state, game, table.generation))
        yield f"the rebuild of game {game} notes {read}", after


def _submitted(game: Game, version: int = 0) -> Repair:
    """Return a rebuild that begins; where the rules are without law L15, with the schema set for all its attempts."""
    return Repair("rebuild", game, "asked", version=version)


def _overtaken(world: World, work: Repair) -> Repair:
    return _submitted(work.game) if world.rules.rebuild_has_todays_schemas else _submitted(work.game, work.version)


def _recorded(state: State, game: Game, generation: int) -> tuple[int, ...]:
    known = max(state.recorded[game], generation)
    return (*state.recorded[:game], known, *state.recorded[game + 1 :])


def read_rebuild(world: World, state: State) -> Next:
    """It reads bronze on to its head, and notes which refused rows quarantine does not have yet."""
    for slot, work in running(state, "rebuild", "opened"):
        head = len(state.bronze)
        if head <= work.through:
            continue
        parts = world.between(state.bronze, work.game, work.through, head)
        if first_need(world.rules, parts, work.version, state.lookup) is not None:
            sentence = f"the rebuild of game {work.game} finds a row whose writer is not known yet, and gives up"
            yield sentence, with_repair(state, slot, None)
            continue
        rows, refused, decoded = split(world.rules, parts, work.version, state.lookup)
        new = refused - state.quarantine[work.game].rows
        decoded |= work.decoded
        after = work._replace(step="read", through=head, rows=work.rows + rows, places=new, decoded=decoded)
        yield f"the rebuild of game {work.game} reads bronze up to seq {head}", with_repair(state, slot, after)


def refuse_rebuild(world: World, state: State) -> Next:
    """It writes its refused rows to quarantine, if no row was removed there since it began."""
    for slot, work in running(state, "rebuild", "read"):
        held = state.quarantine[work.game]
        if world.rules.rebuild_checks_removals and held.removals != work.removals:
            yield (
                f"the rebuild of game {work.game} finds rows removed from quarantine and begins again",
                again(state, slot, _overtaken(world, work)),
            )
            continue
        after = held._replace(rows=held.rows | work.places, removals=held.removals + 1)
        quarantine = (*state.quarantine[: work.game], after, *state.quarantine[work.game + 1 :])
        next_work = work._replace(step="refused", removals=held.removals + 1, places=frozenset())
        sentence = f"the rebuild of game {work.game} writes its refused rows to quarantine"
        yield sentence, with_repair(state, slot, next_work, quarantine=quarantine)


def switch(world: World, state: State) -> Next:
    """The switch: one commit takes all files out, the new ones in, and sets the new generation's cursor (law L12)."""
    rules = world.rules
    for slot, work in running(state, "rebuild", "refused"):
        table = state.tables[work.game]
        if rules.rebuild_checks_repairs and table.repairs != work.repairs:
            yield (
                f"the rebuild of game {work.game} finds the table repaired and begins again",
                again(state, slot, _overtaken(world, work)),
            )
            continue
        if rules.rebuild_has_todays_schemas and state.schemas != work.version:
            yield (
                f"the rebuild of game {work.game} finds schema set {state.schemas} registered and begins again",
                again(state, slot, _overtaken(world, work)),
            )
            continue
        if rules.rebuild_reads_on and table.cursor_of(work.generation) > work.through:
            yield (
                f"the rebuild of game {work.game} finds that the stream went on, and reads on",
                with_repair(state, slot, work._replace(step="opened")),
            )
            continue
        links = world.between(state.bronze, work.game, 0, work.through)
        cursor = links[-1].seq if links else work.through
        if not rules.new_generation:  # the same application id, begun again: what a deleted checkpoint would be
            after = Table((), (*table.cursors[:-1], 0), table.repairs + 1)
            words = f"the reset of game {work.game} empties its table and sets the same cursor back to 0"
        else:
            old = RETIRED if rules.retire_old_generation else table.cursor_of(work.generation)
            cursors = (*table.cursors[: work.generation - 1], old, cursor, *table.cursors[work.generation + 1 :])
            after = with_rows(
                Table((), cursors, table.repairs + 1),
                work.generation + 1,
                work.rows,
                work.decoded,
                kept_files=world.scenario.kept_files,
            )
            words = f"the rebuild of game {work.game} switches to generation {work.generation + 1} at cursor {cursor}"
        next_work = Repair("rebuild", work.game, "switched", generation=work.generation + 1)
        yield words, with_repair(state, slot, next_work, tables=with_table(state, work.game, after))


def record(world: World, state: State) -> Next:
    """It tells the control store of the new generation, and removes stale twins."""
    for slot, work in running(state, "rebuild", "switched"):
        recorded = state.recorded
        if world.rules.new_generation:
            recorded = _recorded(state, work.game, work.generation)
        sentence = f"the rebuild of game {work.game} records the generation"
        yield sentence, with_repair(state, slot, Repair("removal", work.game, "asked"), recorded=recorded)


# ---------------------------------------------------------------------------------------------------------- compaction


def open_compaction(world: World, state: State) -> Next:
    """Maintenance reads a table's files and writes their rows into one."""
    for slot, game in waiting(world, state, "compaction"):
        files = state.tables[game].files
        if len(files) > 1:
            work = Repair("compaction", game, "written", files=files)
            sentence = f"compaction reads {len(files)} files of game {game} and writes one"
            yield sentence, with_repair(state, slot, work)


def replace_files(world: World, state: State) -> Next:
    """It replaces them in one commit, if all of them are still in the table."""
    for slot, work in running(state, "compaction", "written"):
        table = state.tables[work.game]
        if world.rules.compaction_checks_files and not set(work.files) <= set(table.files):
            yield (
                f"compaction finds that files of game {work.game} have left the table, and gives up",
                with_repair(state, slot, None, done=True),
            )
            continue
        kept = [file for file in table.files if file not in work.files]
        rows = tuple(sorted(row for file in work.files for row in file.rows))
        merged = File(work.files[0].generation, rows)
        after = table._replace(files=tuple(sorted((*kept, merged))))
        sentence = f"compaction puts the merged file into the table of game {work.game}"
        yield sentence, with_repair(state, slot, None, done=True, tables=with_table(state, work.game, after))
