"""A pass, of the query many games share or of a game's own one, effect by effect (`demux.py`, `passes.py`)."""

from collections.abc import Iterator

from tests.model.drivers import replaced, synced
from tests.model.state import Checkpoint, Driver, Game, Item, Pinned, State, Stream, Work
from tests.model.tables import begun, compare_and_set, item_of, quarantined
from tests.model.world import Next, World

Slot = tuple[str, Game]
"""Which work of a driver: ("pass", -), ("chunk", -) or ("own", game)."""

SHARED: Slot = ("pass", 0)
CHUNK: Slot = ("chunk", 0)


def works(driver: Driver) -> Iterator[tuple[Slot, Work]]:
    """Yield what is under way in a driver."""
    if driver.shared is not None:
        yield SHARED, driver.shared
    if driver.chunk is not None:
        yield CHUNK, driver.chunk
    for game, work in enumerate(driver.own):
        if work is not None:
            yield ("own", game), work


def with_work(driver: Driver, slot: Slot, work: Work | None) -> Driver:
    """Return the driver with one piece of work changed."""
    kind, game = slot
    if kind == "pass":
        return driver._replace(shared=work)
    if kind == "chunk":
        return driver._replace(chunk=work)
    return driver._replace(own=(*driver.own[:game], work, *driver.own[game + 1 :]))


def named(index: int, slot: Slot) -> str:
    """Return who does the work, in words."""
    kind, game = slot
    what = {"pass": "the pass", "chunk": "the chunk", "own": f"the own pass of game {game}"}[kind]
    return f"{what} of driver {index}"


def with_streams(driver: Driver, changed: dict[Game, Stream]) -> Driver:
    """Return the driver with some of its streams changed."""
    if not changed:
        return driver
    return driver._replace(streams=tuple(changed.get(game, each) for game, each in enumerate(driver.streams)))


def without_pin(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint after the planned batch is done."""
    return checkpoint._replace(passed=max(checkpoint.passed, checkpoint.planned), planned=0, pin=0)


# --------------------------------------------------------------------------------------------------------------- begin


def begin(world: World, state: State) -> Next:
    """A pass begins: Spark plans the batch, the schema set is pinned, streams are claimed, and their rows are split."""
    head = len(state.bronze)
    for index, before in enumerate(state.drivers):
        if before is None or before.shared is not None:
            continue
        checkpoint = state.checkpoints[index]
        high = checkpoint.planned or head
        if high <= checkpoint.passed or high > head:
            continue
        version = checkpoint.pin if checkpoint.pin and world.rules.schema_pin else state.schemas
        alarms = state.alarms
        if checkpoint.pin not in {0, version}:
            alarms = (*alarms, f"a batch of driver {index} is repeated with another schema set than before")
        driver = synced(state, index, before)
        pins = checkpoint.chunk
        driver, work = _for_pass(world, state, driver, SHARED, (checkpoint.passed, high), version, pins)
        if departs(pins, driver, work):
            alarms = (*alarms, f"a pass of driver {index} repeats a chunk with another schema set than before")
        checkpoint = checkpoint._replace(planned=high, pin=version)
        checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
        yield (
            f"driver {index} begins a pass over seqs {checkpoint.passed + 1} to {high} with {_read(work)}",
            replaced(state, index, driver, checkpoints=checkpoints, alarms=alarms),
        )


def begin_own(world: World, state: State) -> Next:
    """The own query of a game begins a pass. Its checkpoint begins anew with each start, so no pin outlives it."""
    head = len(state.bronze)
    for index, before in enumerate(state.drivers):
        if before is None:
            continue
        for game, query in enumerate(before.queries):
            if query is None or before.own[game] is not None or head <= query.passed:
                continue
            driver = synced(state, index, before)
            pins = state.checkpoints[index].chunk
            driver, work = _for_pass(world, state, driver, ("own", game), (query.passed, head), state.schemas, pins)
            sentence = (
                f"the own query of game {game} in driver {index} begins a pass up to seq {head} with {_read(work)}"
            )
            yield sentence, replaced(state, index, driver)


def departs(pins: tuple[Pinned, ...], driver: Driver, work: Work) -> bool:
    """Return whether rows of a chunk that was cut short are classified with another schema set than before (law L5)."""
    held = {pin.game for pin in pins if pin.version != work.version and _is_cut_short(pin, driver.streams[pin.game])}
    return any(item.game in held and item.state == "ready" for item in work.items)


def _is_cut_short(pin: Pinned, stream: Stream | None) -> bool:
    return stream is not None and stream.through < pin.high


def _for_pass(
    world: World,
    state: State,
    driver: Driver,
    slot: Slot,
    span: tuple[int, int],
    version: int,
    pins: tuple[Pinned, ...],
) -> tuple[Driver, Work]:
    """Claim the streams of a pass and split their rows from the cursors they have now (`Roster.for_pass`)."""
    kind, own_game = slot
    query = driver.queries[own_game] if kind == "own" else None
    frontier = driver.frontier if query is None else query.frontier
    changed: dict[Game, Stream] = {}
    items: list[Item] = []
    whole: list[Game] = []
    for game, stream in enumerate(driver.streams):
        if stream is None or stream.leaving or (game != own_game if kind == "own" else stream.own):
            continue
        if stream.claim and world.rules.claims:
            continue
        current = stream
        if world.rules.chunks_are_repeated_first and any(
            pin.game == game and _is_cut_short(pin, stream) for pin in pins
        ):
            current = stream._replace(behind=True)  # catch-up has the schema set that its chunk was begun with
        elif stream.behind and stream.claim != "chunk" and stream.through >= frontier:
            current = stream._replace(behind=False)  # it has caught up, and rejoins at this pass boundary
        if not current.behind:
            parts = world.between(state.bronze, game, max(span[0], current.cursor), span[1])
            item = item_of(world.rules, game, current, parts, version, state.lookup, ends_early=False)
            items.append(item)
            reported = world.last_seq(state.bronze[: state.ingest.reported], game)
            if (frontier or reported) <= current.through:
                whole.append(game)
            current = current._replace(behind=item.state in {"apart", "held"}, claim=kind)
            if item.waits is not None:
                current = current._replace(waits=item.waits)
        changed[game] = current
    work = begun(world.rules, Work("split", version, *span, len(state.bronze), tuple(whole), tuple(items)))
    return with_work(with_streams(driver, changed), slot, work), work


def _read(work: Work) -> str:
    ready = [f"game {item.game} from cursor {item.cursor}" for item in work.items if item.state == "ready"]
    apart = [f"game {item.game} does not connect" for item in work.items if item.state == "apart"]
    held = [f"game {item.game} waits for writer {item.waits.writer}" for item in work.items if item.waits is not None]
    return f"schema set {work.version}: {', '.join(ready + apart + held) or 'no rows'}"


# ------------------------------------------------------------------------------------------------------------- effects


def write_quarantine(world: World, state: State) -> Next:
    """Refused rows are written, before the commits that move cursors past them (law L5)."""
    for index, driver in enumerate(state.drivers):
        if driver is None:
            continue
        for slot, work in works(driver):
            if work.step != "split":
                continue
            if not world.rules.quarantine_before_commit and any(item.state == "ready" for item in work.items):
                continue
            after = with_work(driver, slot, work._replace(step="written"))
            yield (
                f"{named(index, slot)} writes its refused rows to quarantine",
                replaced(state, index, after, quarantine=quarantined(state.quarantine, work.items)),
            )


def commit(world: World, state: State) -> Next:
    """One game's files and cursor go into its table in one commit, or nothing of it does (laws L3 and L4)."""
    step = "written" if world.rules.quarantine_before_commit else "split"
    for index, driver in enumerate(state.drivers):
        if driver is None:
            continue
        for slot, work in works(driver):
            if work.step not in {step, "written"}:
                continue
            for number, item in enumerate(work.items):
                if item.state == "ready":
                    yield from _commit(world, state, index, slot, work, number)
                    if not world.scenario.any_order:
                        break


def _commit(world: World, state: State, index: int, slot: Slot, work: Work, number: int) -> Next:
    driver, item = state.drivers[index], work.items[number]
    assert driver is not None
    stream = driver.streams[item.game] if item.live else None
    who = named(index, slot)
    table = state.tables[item.game]
    after = compare_and_set(world.rules, table, item, stream, kept_files=world.scenario.kept_files)
    if after is None:
        known = None
        if stream is not None:
            through = max(stream.through, table.cursor)
            known = stream._replace(generation=table.generation, cursor=table.cursor, through=through, behind=True)
        sentence = f"{who} finds the cursor of game {item.game} moved and commits nothing of it"
        yield sentence, _settled(state, index, slot, work, number, "failed", known)
        return
    tables = (*state.tables[: item.game], after, *state.tables[item.game + 1 :])
    moved = None if stream is None else stream._replace(cursor=item.to, through=item.to, waits=item.waits)
    sentence = f"{who} commits game {item.game}: its cursor goes from {item.cursor} to {item.to}"
    yield sentence, _settled(state._replace(tables=tables), index, slot, work, number, "committed", moved)
    if state.budget.failures:
        budget = state.budget._replace(failures=state.budget.failures - 1)
        behind = None if stream is None else stream._replace(behind=True)
        sentence = f"the storage fails when {who} commits game {item.game}"
        yield sentence, _settled(state._replace(budget=budget), index, slot, work, number, "failed", behind)


def _settled(
    state: State, index: int, slot: Slot, work: Work, number: int, outcome: str, stream: Stream | None
) -> State:
    """Return the state after one game's commit came to something."""
    driver = state.drivers[index]
    assert driver is not None
    item = work.items[number]
    items = (*work.items[:number], item._replace(state=outcome), *work.items[number + 1 :])
    if stream is not None:
        driver = with_streams(driver, {item.game: stream})
    return replaced(state, index, with_work(driver, slot, work._replace(items=items)))


# ----------------------------------------------------------------------------------------------------------------- end


def end(world: World, state: State) -> Next:
    """A pass ends: its streams are complete as far as it read, and it releases them."""
    for index, driver in enumerate(state.drivers):
        if driver is None:
            continue
        for slot, work in works(driver):
            if slot == CHUNK or work.step != "written" or any(item.state == "ready" for item in work.items):
                continue
            after = _ended(world, driver, slot, work)
            yield f"{named(index, slot)} ends", replaced(state, index, after)


def _ended(world: World, driver: Driver, slot: Slot, work: Work) -> Driver:
    kind, game = slot
    query = driver.queries[game] if kind == "own" else None
    frontier = max(driver.frontier if query is None else query.frontier, work.high)
    read_to = work.high if world.rules.complete_as_far_as_read else frontier
    changed: dict[Game, Stream] = {}
    for item in work.items:
        stream = driver.streams[item.game]
        if stream is None or stream.claim != kind:
            continue
        known = stream._replace(claim="")
        if item.live and (item.state == "committed" or (item.game in work.whole and not stream.behind)):
            known = known._replace(through=max(stream.through, read_to))
        changed[item.game] = known
    driver = with_streams(driver, changed)
    if query is not None:
        queries = (
            *driver.queries[:game],
            query._replace(frontier=frontier, passed=work.high),
            *driver.queries[game + 1 :],
        )
        return with_work(driver._replace(queries=queries), slot, None)
    return with_work(driver._replace(frontier=frontier), slot, work._replace(step="ended", whole=(), items=()))


def note(world: World, state: State) -> Next:
    """Spark writes into the query's checkpoint that the batch is done; before that, a restart repeats it."""
    for index, driver in enumerate(state.drivers):
        if driver is not None and driver.shared is not None and driver.shared.step == "ended":
            checkpoint = without_pin(state.checkpoints[index])
            checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
            after = driver._replace(shared=None)
            yield (
                f"the checkpoint of driver {index} has the batch as done",
                replaced(state, index, after, checkpoints=checkpoints),
            )
