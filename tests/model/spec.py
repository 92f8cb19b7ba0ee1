"""The protocol: where it begins, and everything that can happen. `docs/protocol.md` is its prose."""

from collections.abc import Callable
from typing import Final, TypeAlias

from tests.model import bronze, catchup, drivers, lookup, passes, quarantine, repairs
from tests.model.state import (
    EVERYBODY,
    Bronze,
    Budget,
    Checkpoint,
    Ingest,
    Lookup,
    Refusals,
    Scenario,
    State,
    Table,
)
from tests.model.world import Next, World, last_seqs_of

Action: TypeAlias = Callable[[World, State], Next]
"""One kind of thing that can happen: its guard, and the states after it."""

PROGRESS: Final[tuple[Action, ...]] = (
    repairs.open_rebuild,
    repairs.read_rebuild,
    repairs.refuse_rebuild,
    repairs.switch,
    repairs.record,
    repairs.replace_files,
    quarantine.open_replay,
    quarantine.look_replay,
    quarantine.commit_replay,
    quarantine.open_removal,
    quarantine.count_removal,
    quarantine.look_removal,
    quarantine.delete_twins,
    bronze.report,
    drivers.start,
    drivers.sync,
    drivers.sync_queries,
    lookup.keep,
    lookup.ask,
    lookup.want,
    passes.write_quarantine,
    passes.commit,
    passes.end,
    passes.note,
    catchup.claim,
    catchup.end_chunk,
    passes.begin,
    passes.begin_own,
    catchup.choose,
    drivers.advance,
)
"""Steps that processes take by themselves: where one of these is possible, it happens at last."""

BEFALLS: Final[tuple[Action, ...]] = (
    bronze.land,
    bronze.note_batch,
    bronze.start_ingest,
    bronze.crash_ingest,
    bronze.adopt,
    bronze.restore_older,
    bronze.restore_newest,
    drivers.crash,
    drivers.move,
    drivers.flip,
    drivers.register,
    lookup.leave,
    lookup.come_back,
    lookup.upload,
    lookup.lie,
    lookup.want_again,
    repairs.kill,
    repairs.submit_rebuild,
    repairs.open_compaction,
    quarantine.choose_replay,
)
"""Steps from outside: rows, people's wishes, and accidents."""

ACTIONS: Final = (*PROGRESS, *BEFALLS)


def first(scenario: Scenario) -> tuple[World, State]:
    """Return the world of a scenario and its first state."""
    world = World(scenario)
    games, count = scenario.games, scenario.drivers
    last_seqs = (0,) * games
    log: Bronze = ()
    for batch in range(1, scenario.landed + 1):
        log = (*log, world.commit_of(batch, last_seqs))
        last_seqs = last_seqs_of(log, games)
    state = State(
        bronze=log,
        hidden=(),
        ingest=Ingest(scenario.landed, last_seqs, reported=scenario.landed),
        schemas=scenario.schemas,
        tables=(Table(),) * games,
        quarantine=(Refusals(),) * games,
        owners=scenario.assigned or (EVERYBODY,) * games,
        own=(False,) * games,
        recorded=(1,) * games,
        drivers=(None,) * count,
        checkpoints=(Checkpoint(),) * count,
        repairs=(None,) * len(scenario.repairs),
        done=(False,) * len(scenario.repairs),
        budget=scenario.budget,
        lookup=Lookup(scenario.writers),
    )
    if scenario.started:
        while (starts := list(drivers.start(world, state))) != []:
            state = starts[0][1]
    return world, state


def successors(world: World, state: State) -> Next:
    """Yield everything that can happen next."""
    for action in ACTIONS:
        yield from action(world, state)


__all__ = ["ACTIONS", "BEFALLS", "PROGRESS", "Budget", "first", "successors"]
