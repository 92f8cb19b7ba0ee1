"""Breadth-first exploration of a scenario: every state it can reach, and the shortest way to a broken law.

Of a visited state only its hash and its parent's are kept, so that millions fit into memory; a trace is found again by
following the hashes from the first state. Two states of one hash would be taken for one: with 64 bits and 10 million
states, that happens with a probability of 3 in a million.
"""

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.model.laws import LAWS, OF_STEPS, Law, broken, incomplete
from tests.model.spec import PROGRESS, first, successors
from tests.model.state import Scenario, State
from tests.model.world import World

MAX_DRAIN_STEPS = 500


@dataclass
class Found:
    """The result of an exploration."""

    states: int
    transitions: int
    depth: int
    exhausted: bool  # every state that can be reached was seen
    drained: int  # states from which coming to rest was tried
    broken: str | None = None
    trace: list[tuple[str, State]] = field(default_factory=list)
    seconds: float = 0.0


def explore(
    scenario: Scenario,
    *,
    laws: tuple[Law, ...] = LAWS,
    max_states: int = 10_000_000,
    drain_every: int = 0,
) -> Found:
    """Visit every state of a scenario, the nearest first, until a law breaks.

    Args:
        scenario: the world.
        laws: what must hold in each state and step.
        max_states: where to stop.
        drain_every: from one state in this number, try whether all comes to rest and is complete; 0: from none.
    """
    started = time.perf_counter()
    world, begin = first(scenario)
    calm = World(replace(scenario, advances=True))
    parents: dict[int, int] = {hash(begin): 0}
    level, looked = [begin], 0
    of_steps = tuple(law for law in laws if law in OF_STEPS)
    found = Found(1, 0, 0, exhausted=True, drained=0)
    while level:
        following: list[State] = []
        for state in level:
            mine, looked = hash(state), looked + 1
            if drain_every and looked % drain_every == 0:
                found.drained += 1
                stuck = drain(calm, state)
                if stuck is not None:
                    found.broken = stuck
                    return _finished(found, world, begin, parents, mine, started)
            for sentence, after in successors(world, state):
                found.transitions += 1
                its = hash(after)
                is_known = its in parents
                found.broken = broken(world, state, after, of_steps if is_known else laws)
                if found.broken is not None:
                    found.depth += 1
                    done = _finished(found, world, begin, parents, mine, started)
                    done.trace.append((sentence, after))
                    return done
                if not is_known:
                    parents[its] = mine
                    following.append(after)
            if len(parents) >= max_states:
                found.exhausted = False
                return _finished(found, world, begin, parents, mine, started)
        found.depth += bool(following)
        level = following
    return _finished(found, world, begin, parents, hash(begin), started)


def drain(world: World, state: State) -> str | None:
    """Let every process go on until none can, with no further accident; return what is not complete then.

    One fixed order of steps, in which each process that can go on comes to its turn.
    """
    for _ in range(MAX_DRAIN_STEPS):
        after = next(itertools.chain.from_iterable(action(world, state) for action in PROGRESS), None)
        if after is None:
            return incomplete(world, state)
        bad = broken(world, state, after[1])
        if bad is not None:
            return bad
        state = after[1]
    return f"L7: after {MAX_DRAIN_STEPS} steps without an accident nothing has come to rest"


def _finished(found: Found, world: World, begin: State, parents: dict[int, int], last: int, started: float) -> Found:
    found.states = len(parents)
    found.seconds = time.perf_counter() - started
    if found.broken is not None:
        found.exhausted = False
        found.trace = _trace(world, begin, parents, last)
    return found


def _trace(world: World, begin: State, parents: dict[int, int], last: int) -> list[tuple[str, State]]:
    hashes = [last]
    while parents[hashes[-1]]:
        hashes.append(parents[hashes[-1]])
    trace = [("at the beginning", begin)]
    for wanted in reversed(hashes[:-1]):
        trace.append(next(step for step in successors(world, trace[-1][1]) if hash(step[1]) == wanted))
    return trace


# --------------------------------------------------------------------------------------------------------------- words


def render(found: Found) -> str:
    """Return a counter-example as text: each step a sentence, and what it changed."""
    lines = [f"{found.broken}", f"after {len(found.trace) - 1} steps, of {found.states} states seen:"]
    for number, (sentence, state) in enumerate(found.trace):
        lines.append(f"{number:3}. {sentence}")
        before = found.trace[number - 1][1] if number else None
        lines += [f"       {each}" for each in _differences(before, state)]
    return "\n".join(lines)


def _differences(before: State | None, state: State) -> Iterable[str]:
    for game, table in enumerate(state.tables):
        if before is None or before.tables[game] != table:
            rows = [(row.seq, row.pos) for file in table.files for row in file.rows]
            yield f"table {game}: cursors {table.cursors}, rows {rows}, {table.repairs} repairs"
    for game, held in enumerate(state.quarantine):
        if before is not None and before.quarantine[game] != held:
            yield f"quarantine of game {game}: {sorted((row.seq, row.pos) for row in held.rows)}"
    if before is None or before.bronze != state.bronze:
        yield "bronze: " + "; ".join(
            f"seq {seq} (batch {commit.batch}) " + ", ".join(f"game {game} after {prev}" for game, prev in commit.links)
            for seq, commit in enumerate(state.bronze, 1)
        )
    for index, driver in enumerate(state.drivers):
        known = before.drivers[index] if before is not None else None
        if driver is None or driver == known:
            continue
        for game, stream in enumerate(driver.streams):
            if stream is not None and (known is None or known.streams[game] != stream):
                words = [f"cursor {stream.cursor}", f"complete through {stream.through}"]
                words += [word for word, so in (("behind", stream.behind), ("leaving", stream.leaving)) if so]
                words += [f"read by {stream.claim}"] if stream.claim else []
                yield f"driver {index} knows of game {game}: {', '.join(words)}"
