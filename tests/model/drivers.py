"""A driver's process: it starts, crashes, and hears which games are its own (`pipeline/data/streams/roster.py`)."""

from tests.model.state import EVERYBODY, Budget, Checkpoint, Driver, Game, Item, Query, State, Stream, Work
from tests.model.world import Next, World, is_owner


def replaced(state: State, index: int, driver: Driver, **also: object) -> State:
    """Return the state with one driver's memory changed, and whatever else."""
    drivers = (*state.drivers[:index], driver, *state.drivers[index + 1 :])
    return state._replace(drivers=drivers, **also)  # type: ignore[arg-type]


def opened(state: State, game: Game) -> Stream:
    """Return the stream of a game whose table is opened now."""
    table = state.tables[game]
    return Stream(table.generation, table.cursor, table.cursor, own=state.own[game])


def start(world: World, state: State) -> Next:
    """A driver starts: cursors are in the tables, so it knows what it needs (law L3); a game behind is found."""
    head = len(state.bronze)
    for index, driver in enumerate(state.drivers):
        if driver is not None:
            continue
        checkpoint = state.checkpoints[index]
        frontier = 0
        if not checkpoint.begun:  # the query begins at bronze's newest commit; what lies before is catch-up's (law L2)
            frontier = head
            checkpoint = Checkpoint(begun=True, passed=max(head - 1, 0))
        games = range(world.scenario.games)
        streams = tuple(opened(state, game) if is_owner(state, index, game) else None for game in games)
        nothing = (None,) * world.scenario.games
        checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
        memory = Driver(streams, frontier, own=nothing, queries=nothing)
        yield f"driver {index} starts", replaced(state, index, memory, checkpoints=checkpoints)


def crash(world: World, state: State) -> Next:
    """A driver is killed: what it remembered is gone, and tables, quarantine and its checkpoint stay."""
    if not state.budget.crashes:
        return
    budget = state.budget._replace(crashes=state.budget.crashes - 1)
    for index, driver in enumerate(state.drivers):
        if driver is not None:
            drivers = (*state.drivers[:index], None, *state.drivers[index + 1 :])
            yield f"driver {index} is killed", state._replace(drivers=drivers, budget=budget)


def synced(state: State, index: int, driver: Driver) -> Driver:
    """Return the driver after it asked the control store which games are its own (`Roster.sync`)."""
    streams = tuple(_synced_stream(state, index, game, stream) for game, stream in enumerate(driver.streams))
    if streams == driver.streams:
        return driver
    renewed = {
        game
        for game, (before, after) in enumerate(zip(driver.streams, streams, strict=True))
        if before is not None and (after is None or after.generation > before.generation)
    }
    driver = driver._replace(streams=streams)
    if renewed:
        driver = driver._replace(
            shared=_orphaned(driver.shared, renewed),
            chunk=_orphaned(driver.chunk, renewed),
            own=tuple(_orphaned(work, renewed) for work in driver.own),
        )
    return driver


def _synced_stream(state: State, index: int, game: Game, stream: Stream | None) -> Stream | None:
    if not is_owner(state, index, game):
        if stream is None or not stream.claim:
            return None
        return stream if stream.leaving else stream._replace(leaving=True)
    if stream is None:
        return opened(state, game)
    if stream.generation < state.recorded[game]:  # a rebuild: the table is opened anew
        return opened(state, game)._replace(claim=stream.claim)
    if stream.leaving or stream.own != state.own[game]:
        return stream._replace(leaving=False, own=state.own[game])
    return stream


def _orphaned(work: Work | None, renewed: set[Game]) -> Work | None:
    if work is None or not any(item.game in renewed for item in work.items):
        return work
    items: tuple[Item, ...] = tuple(item._replace(live=False) if item.game in renewed else item for item in work.items)
    return work._replace(items=items)


def sync(world: World, state: State) -> Next:
    """A driver asks the control store, outside of any pass."""
    for index, driver in enumerate(state.drivers):
        if driver is None:
            continue
        after = synced(state, index, driver)
        if after is not driver:
            yield f"driver {index} hears which games are its own", replaced(state, index, after)


def sync_queries(world: World, state: State) -> Next:
    """A driver starts and stops the queries of single games, as decided (`Group.sync_queries`)."""
    for index, driver in enumerate(state.drivers):
        if driver is None:
            continue
        for game, stream in enumerate(driver.streams):
            query = driver.queries[game]
            wanted = stream is not None and stream.own and not stream.leaving
            if wanted and query is None:
                head = len(state.bronze)
                queries = (*driver.queries[:game], Query(head, max(head - 1, 0)), *driver.queries[game + 1 :])
                sentence = f"driver {index} starts an own query for game {game} at seq {head}"
                yield sentence, replaced(state, index, driver._replace(queries=queries))
            elif not wanted and query is not None and driver.own[game] is None:
                queries = (*driver.queries[:game], None, *driver.queries[game + 1 :])
                sentence = f"driver {index} stops the own query of game {game}"
                yield sentence, replaced(state, index, driver._replace(queries=queries))


def advance(world: World, state: State) -> Next:
    """Bronze has not grown for a while and no shared pass runs: all of it counts as passed (`wiring._Idle`)."""
    if not world.scenario.advances:
        return
    head = len(state.bronze)
    for index, driver in enumerate(state.drivers):
        if driver is None or (driver.shared is not None and driver.shared.step != "ended"):
            continue
        queries = tuple(each and each._replace(frontier=max(each.frontier, head)) for each in driver.queries)
        if driver.frontier < head or queries != driver.queries:
            after = driver._replace(frontier=max(driver.frontier, head), queries=queries)
            yield (
                f"driver {index} counts bronze as passed up to seq {head}, where it has not grown",
                replaced(state, index, after),
            )


def move(world: World, state: State) -> Next:
    """A person moves a game to another driver; the old one hears of it when it next asks."""
    if not state.budget.moves:
        return
    for game, owner in enumerate(state.owners):
        for index in range(len(state.drivers)):
            if owner not in {index, EVERYBODY}:
                owners = (*state.owners[:game], index, *state.owners[game + 1 :])
                budget: Budget = state.budget._replace(moves=state.budget.moves - 1)
                yield f"game {game} is moved to driver {index}", state._replace(owners=owners, budget=budget)


def flip(world: World, state: State) -> Next:
    """A person decides that a game has a query of its own, or none any more."""
    if not state.budget.flips:
        return
    budget = state.budget._replace(flips=state.budget.flips - 1)
    for game, own in enumerate(state.own):
        decided = (*state.own[:game], not own, *state.own[game + 1 :])
        word = "the shared query" if own else "a query of its own"
        yield f"game {game} is to be read by {word}", state._replace(own=decided, budget=budget)


def register(world: World, state: State) -> Next:
    """A person registers a schema: from now on it decodes rows that were refused."""
    if state.budget.schemas:
        budget = state.budget._replace(schemas=state.budget.schemas - 1)
        yield (
            f"schema set {state.schemas + 1} is registered",
            state._replace(schemas=state.schemas + 1, budget=budget),
        )
