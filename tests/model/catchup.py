"""Catch-up: bounded reads of bronze for streams that are behind (`catchup.py`, law L7)."""

from collections.abc import Mapping

from pipeline.data.streams.catchup import next_turn
from tests.model.drivers import replaced, synced
from tests.model.passes import CHUNK, departs, with_streams, with_work
from tests.model.state import Driver, Game, Item, Pinned, State, Stream, Work
from tests.model.tables import begun, item_of
from tests.model.world import Next, World


def choose(world: World, state: State) -> Next:
    """A driver looks which streams no pass will bring further, and chooses seqs to read for the nearest or furthest."""
    for index, before in enumerate(state.drivers):
        if before is None or before.chunk is not None:
            continue
        driver = synced(state, index, before)
        driver, behind = _behind(world, state, driver)
        if world.rules.games_that_wait_are_not_read:
            behind = {game: stream for game, stream in behind.items() if not is_held(state, stream)}
        if not behind:
            continue
        pins = [each for each in state.checkpoints[index].chunk if each.game in behind]
        pins = [each for each in pins if behind[each.game].through < each.high]
        first = min(pins, key=lambda each: behind[each.game].through, default=None)
        others = {game: stream for game, stream in behind.items() if game not in {each.game for each in pins}}
        if first is not None:
            alike = [each for each in pins if each.version == first.version]
            pinned = {each.game: behind[each.game] for each in alike}
            version = first.version if world.rules.schema_pin else state.schemas
            yield from _turns(world, state, index, driver, pinned, min(each.high for each in alike), version)
        if others:  # before them only where the last chunk failed
            yield from _turns(world, state, index, driver, others, len(state.bronze), state.schemas)


def _turns(
    world: World, state: State, index: int, driver: Driver, chosen: Mapping[Game, Stream], end: int, version: int
) -> Next:
    """Choose a chunk, whoever had the one before."""
    through = {str(game): stream.through for game, stream in chosen.items()}
    turns = {next_turn(through, end, world.scenario.chunk_seqs, furthest_waits=waits) for waits in (False, True)}
    for turn in sorted(filter(None, turns), key=lambda each: each.low):
        items = tuple(
            Item(game, stream.generation, stream.cursor, "chosen")
            for game, stream in chosen.items()
            if str(game) in turn.games
        )
        work = Work("chosen", version, turn.low, turn.high, len(state.bronze), (), items)
        games = ", ".join(f"game {item.game} at cursor {item.cursor}" for item in items)
        sentence = f"driver {index} chooses seqs {turn.low + 1} to {turn.high} for a chunk: {games}"
        yield sentence, replaced(state, index, with_work(driver, CHUNK, work))


def _behind(world: World, state: State, driver: Driver) -> tuple[Driver, dict[Game, Stream]]:
    """Return the streams that are behind and that the running pass cannot reach (`Roster.behind`)."""
    changed: dict[Game, Stream] = {}
    behind: dict[Game, Stream] = {}
    for game, stream in enumerate(driver.streams):
        if stream is None or stream.leaving:
            continue
        frontier, reach = _reach(driver, game)
        current = stream
        reported = world.last_seq(state.bronze[: state.ingest.reported], game)
        if stream.claim and world.rules.claims:
            continue
        if stream.through < min(reported, frontier) and not stream.behind:
            current = changed[game] = stream._replace(behind=True)
        if current.behind and current.through < reach:
            behind[game] = current
    return with_streams(driver, changed), behind


def is_held(state: State, stream: Stream) -> bool:
    """Return whether a stream's next row still waits for what the newest schema set lacks (`Stream.is_held`)."""
    waits = stream.waits
    if waits is None or waits.seq <= stream.cursor or stream.cursor < waits.after:
        return False
    return state.lookup.meaning(waits.writer, state.schemas) is None


def _reach(driver: Driver, game: Game) -> tuple[int, int]:
    """Return the last seq that a stream's query has passed, and the last that its running pass can reach."""
    query = driver.queries[game]
    frontier = driver.frontier if query is None else query.frontier
    work = driver.shared if query is None else driver.own[game]
    running = work is not None and work.step != "ended"
    return frontier, max(frontier, work.ceiling) if running and work is not None else frontier


def claim(world: World, state: State) -> Next:
    """The chunk is pinned, and its streams are claimed and split, but for those that somebody else has or has moved."""
    for index, driver in enumerate(state.drivers):
        chunk = None if driver is None else driver.chunk
        if driver is None or chunk is None or chunk.step != "chosen":
            continue
        items: list[Item] = []
        changed: dict[Game, Stream] = {}
        for chosen in chunk.items:
            stream = driver.streams[chosen.game]
            if stream is None or stream.leaving or not chosen.live:
                continue
            if world.rules.claims and (stream.claim or not stream.behind):
                continue
            low = max(chunk.low, stream.cursor)
            parts = world.between(state.bronze, chosen.game, low, chunk.high)
            item = item_of(world.rules, chosen.game, stream, parts, chunk.version, state.lookup, ends_early=True)
            items.append(item)
            behind = stream.behind or item.state in {"apart", "held"}
            changed[chosen.game] = stream._replace(claim="chunk", behind=behind)
        if not items:
            yield (
                f"driver {index} gives up the chunk, others have its streams",
                replaced(state, index, with_work(driver, CHUNK, None)),
            )
            continue
        work = begun(world.rules, chunk._replace(step="split", items=tuple(items)))
        alarms = state.alarms
        before = state.checkpoints[index].chunk
        if departs(before, driver, work):
            alarms = (*alarms, f"a chunk of driver {index} is repeated with another schema set than before")
        checkpoint = state.checkpoints[index]._replace(chunk=_pinned(before, items, work))
        checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
        after = with_work(with_streams(driver, changed), CHUNK, work)
        games = ", ".join(f"game {item.game} from cursor {item.cursor}" for item in items)
        yield (
            f"driver {index} claims and splits its chunk with schema set {work.version}: {games}",
            replaced(state, index, after, checkpoints=checkpoints, alarms=alarms),
        )


def _pinned(before: tuple[Pinned, ...], items: list[Item], work: Work) -> tuple[Pinned, ...]:
    """Return the pins with those of a chunk that begins; a repetition may come to fewer seqs."""
    pins = {each.game: each for each in before}
    for item in items:
        held = pins.get(item.game)
        reached = held.high if held is not None and held.version == work.version else 0
        pins[item.game] = Pinned(item.game, work.version, max(work.high, reached))
    return tuple(pins[game] for game in sorted(pins))


def _goes_on(pin: Pinned, work: Work, ended: Mapping[Game, Stream]) -> bool:
    """Return whether a pin outlives a chunk: it is of another game, or goes on beyond the chunk."""
    return pin.game not in ended or work.high <= ended[pin.game].through < pin.high


def end_chunk(world: World, state: State) -> Next:
    """A chunk ends: a stream whose rows were committed, or had none in it, is complete up to the chunk's end."""
    for index, driver in enumerate(state.drivers):
        work = None if driver is None else driver.chunk
        if driver is None or work is None or work.step != "written":
            continue
        if any(item.state == "ready" for item in work.items):
            continue
        alarms = state.alarms
        changed: dict[Game, Stream] = {}
        for item in work.items:
            stream = driver.streams[item.game]
            if stream is None:
                continue
            if item.live:
                stream, gap = _after_chunk(world, state, work, item, stream)
                if gap:
                    alarms = (*alarms, f"driver {index} parks game {item.game} for a gap of bronze")
            changed[item.game] = stream._replace(claim="" if stream.claim == "chunk" else stream.claim)
        # Of a waiting game's rows from the need on nothing was written, so that they may take a newer set.
        waiting = {item.game for item in work.items if item.waits is not None}
        pins = tuple(each for each in state.checkpoints[index].chunk if each.game not in waiting)
        pins = tuple(each for each in pins if _goes_on(each, work, changed))
        checkpoint = state.checkpoints[index]._replace(chunk=pins)
        checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
        after = with_work(with_streams(driver, changed), CHUNK, None)
        yield f"the chunk of driver {index} ends", replaced(state, index, after, checkpoints=checkpoints, alarms=alarms)


def _after_chunk(world: World, state: State, work: Work, item: Item, stream: Stream) -> tuple[Stream, bool]:
    """Return what the driver knows of a stream after its chunk, and whether it took bronze to have a gap."""
    if item.waits is not None:
        return stream._replace(behind=True, waits=item.waits), False
    if item.state == "failed":
        return stream, False
    if item.state == "apart":
        table = state.tables[item.game]
        gap = table.cursor == stream.cursor
        known = stream._replace(generation=table.generation, cursor=table.cursor, through=table.cursor)
        return known, gap and not state.hidden
    reported = world.last_seq(state.bronze[: state.ingest.reported], item.game)
    if stream.cursor < reported <= work.high:
        if stream.cursor < work.low:  # it is read once more from its cursor on
            return stream._replace(through=stream.cursor, behind=True), False
        return stream, not state.hidden
    return stream._replace(through=max(stream.through, work.high)), False
