"""The protocol of a silver table: its game's table, drivers that carry it at once, and all that can happen. Pure.

`docs/derived.md` is its prose. The rules can be switched off one by one, so that each is known to be needed.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

Row: TypeAlias = tuple[int, str]
"""A row of the game's table: its number, and the id of its event."""

NOTHING: Final = -1  # the position of a silver table without a generation


@dataclass(frozen=True)
class SilverRules:
    """The rules that a driver follows."""

    compares: bool = True  # the commit of a step, with the position that its rows follow from
    compares_generations: bool = True  # that of a new generation, with the version that it replaces
    sees_removals: bool = True  # a step, in the versions that it reads
    knows_commits: bool = True  # a position, by more than the commit's number
    asks: bool = True  # whether its definition is in force, before a generation becomes visible
    looks_again: bool = True  # at the game's table, where silver is ahead of what it saw of that


@dataclass(frozen=True)
class Commit:
    """A version of the game's table: rows that it adds, or all rows that it leaves."""

    rows: tuple[Row, ...]
    replaces: bool = False
    mark: int = 0  # another one where a power cut took a commit and the next one got its number


@dataclass(frozen=True)
class SilverTable:
    """A version of the silver table."""

    number: int = 0
    generation: int = 1
    cursor: int = NOTHING
    mark: int = 0
    definition: int = 0
    begun: int = 0  # the version with which the generation began
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Step:
    """The next commit of a driver, and the version of silver that it follows from."""

    before: SilverTable
    made: SilverTable
    is_asked: bool = False


@dataclass(frozen=True)
class Driver:
    """One of the drivers that carry it."""

    definition: int = 0  # that it knows
    head: int | None = None  # the version at which it has opened the game's table
    step: Step | None = None


@dataclass(frozen=True)
class SilverState:
    """All there is."""

    source: tuple[Commit, ...]
    first: int = 0  # versions before it are no more in the log
    definition: int = 0
    silver: SilverTable = SilverTable()
    drivers: tuple[Driver, ...] = (Driver(), Driver())
    landings: tuple[str, ...] = ()  # the events to come
    kills: int = 0
    changes: tuple[str, ...] = ()  # what may still happen, each once


Next: TypeAlias = Iterator[tuple[str, SilverState]]


def rows_at(source: tuple[Commit, ...], version: int) -> tuple[Row, ...]:
    """Return the rows of the game's table at a version."""
    rows: tuple[Row, ...] = ()
    for commit in source[: version + 1]:
        rows = commit.rows if commit.replaces else (*rows, *commit.rows)
    return rows


def kept(rows: tuple[Row, ...], more: tuple[Row, ...], definition: int) -> tuple[Row, ...]:
    """Return silver rows with further ones: the first definition keeps one row of an event, the second all rows."""
    for row in more:
        if definition or all(row[1] != event for _, event in rows):
            rows = (*rows, row)
    return rows


def exact(source: tuple[Commit, ...], silver: SilverTable) -> tuple[Row, ...]:
    """Return what silver has to be at its position, recomputed from the game's table."""
    rows = kept((), rows_at(source, silver.begun), silver.definition)
    for commit in source[silver.begun + 1 : silver.cursor + 1]:
        rows = kept(() if commit.replaces else rows, commit.rows, silver.definition)
    return rows


def successors(rules: SilverRules, state: SilverState) -> Next:
    """Yield everything that can happen next."""
    yield from progress(rules, state)
    yield from _befalls(state)


def progress(rules: SilverRules, state: SilverState) -> Next:
    """Yield the steps that drivers take by themselves."""
    for number, driver in enumerate(state.drivers):
        for sentence, moved, silver in _of_driver(rules, state, driver):
            drivers = (*state.drivers[:number], moved, *state.drivers[number + 1 :])
            yield f"driver {number} {sentence}", replace(state, drivers=drivers, silver=silver)


def _of_driver(rules: SilverRules, state: SilverState, driver: Driver) -> Iterator[tuple[str, Driver, SilverTable]]:
    silver, step = state.silver, driver.step
    if step is not None:
        yield from _committed(rules, state, driver, step)
    elif driver.head is None:
        if driver.definition != state.definition:
            yield "reads the definition", replace(driver, definition=state.definition), silver
        if is_behind(state) or driver.definition != state.definition:
            yield "opens the game's table", replace(driver, head=len(state.source) - 1), silver
    else:
        head = driver.head
        if silver.cursor > head and rules.looks_again:
            head = len(state.source) - 1
        made = _made(rules, state, driver.definition, head)
        after = None if made is None else Step(silver, made)
        yield "computes a step", replace(driver, head=None, step=after), silver


def is_behind(state: SilverState) -> bool:
    """Return whether silver lacks rows, or is by another definition."""
    silver = state.silver
    if silver.cursor != len(state.source) - 1 or silver.definition != state.definition:
        return True
    return silver.mark != state.source[-1].mark


def _made(rules: SilverRules, state: SilverState, definition: int, head: int) -> SilverTable | None:
    """Return silver with the next version of its game's table, or a new generation with all of them."""
    silver, source = state.silver, state.source
    at = silver.cursor
    is_known = at != NOTHING and silver.definition == definition and at <= head and at + 1 >= state.first
    if is_known and rules.knows_commits and source[at].mark != silver.mark:
        is_known = False
    if is_known and at == head:
        return None
    if is_known and not (source[at + 1].replaces and rules.sees_removals):
        rows = kept(silver.rows, source[at + 1].rows if not source[at + 1].replaces else (), definition)
        return replace(silver, number=silver.number + 1, cursor=at + 1, mark=source[at + 1].mark, rows=rows)
    number = silver.generation + (at != NOTHING)
    rows = kept((), rows_at(source, head), definition)
    return SilverTable(silver.number + 1, number, head, source[head].mark, definition, head, rows)


def _committed(
    rules: SilverRules, state: SilverState, driver: Driver, step: Step
) -> Iterator[tuple[str, Driver, SilverTable]]:
    silver, made, ended = state.silver, step.made, replace(driver, step=None)
    begins = made.begun != step.before.begun or made.generation != step.before.generation or not step.before.number
    if begins and rules.asks and not step.is_asked:
        if driver.definition != state.definition:
            yield "is told that its definition is an older one", ended, silver
        else:
            yield "is told that its definition holds", replace(driver, step=replace(step, is_asked=True)), silver
        return
    if begins:
        fits = silver.number == step.before.number or not rules.compares_generations
    else:
        fits = (silver.generation, silver.cursor) == (step.before.generation, step.before.cursor) or not rules.compares
    if not fits:
        yield "finds that another one was first", ended, silver
        return
    rows = made.rows
    if not begins:  # its rows join those that are there
        rows = (*silver.rows, *(row for row in made.rows if row not in step.before.rows))
    yield "commits", ended, replace(made, number=silver.number + 1, rows=rows)


def _befalls(state: SilverState) -> Next:
    """Yield what comes from outside: rows, repairs, people and accidents."""
    source, rows = state.source, rows_at(state.source, len(state.source) - 1)
    if state.landings:
        landed = Commit(((len(rows), state.landings[0]),))
        yield "a pass lands a row", replace(state, source=(*source, landed), landings=state.landings[1:])
    for each in state.changes:
        left = replace(state, changes=tuple(other for other in state.changes if other != each))
        match each:
            case "compaction":
                yield "maintenance compacts", replace(left, source=(*source, Commit(())))
            case "rebuild":
                turned = tuple(sorted(rows, key=lambda row: (row[1], -row[0])))
                yield "the game is rebuilt", replace(left, source=(*source, Commit(turned, replaces=True)))
            case "removal":
                yield "a dedupe removes a row", replace(left, source=(*source, Commit(rows[1:], replaces=True)))
            case "definition":
                yield "a person changes the definition", replace(left, definition=1 - state.definition)
            case "cleanup":
                yield "the log is cut", replace(left, first=len(source) - 1)
            case "power cut" if not source[-1].replaces and len(source) > 1:
                other = Commit(((9, "z"),), mark=1)
                drivers = tuple(Driver(each.definition) for each in state.drivers)
                yield "a power cut takes the last commit", replace(left, source=(*source[:-1], other), drivers=drivers)
    if state.kills:
        for number, driver in enumerate(state.drivers):
            if driver.step is not None or driver.head is not None:
                drivers = (*state.drivers[:number], Driver(state.definition), *state.drivers[number + 1 :])
                yield f"driver {number} is killed", replace(state, drivers=drivers, kills=state.kills - 1)


def broken(before: SilverState, after: SilverState) -> str | None:
    """Return the law that a step breaks; None: none."""
    was, silver = before.silver, after.silver
    if silver == was:
        return None
    if sorted(silver.rows) != sorted(exact(after.source, silver)):
        return f"L5: silver has {silver.rows} where a recomputation gives {exact(after.source, silver)}"
    if (silver.generation, silver.cursor) <= (was.generation, was.cursor) and was.cursor != NOTHING:
        return f"L4: silver went from {was.generation}, {was.cursor} to {silver.generation}, {silver.cursor}"
    if silver.cursor < was.cursor:
        return f"L12: silver went back from version {was.cursor} to {silver.cursor}"
    asked = any(each.step is not None and each.step.is_asked for each in before.drivers)
    if silver.generation > was.generation and silver.definition != before.definition and not asked:
        return f"L15: generation {silver.generation} is by an older definition, and nobody asked"
    return None


@dataclass
class Explored:
    """The result of an exploration."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


def explore(begin: SilverState, rules: SilverRules) -> Explored:
    """Visit every state, the nearest first, until a law breaks; from each, drivers alone must come to all rows."""
    known: dict[SilverState, tuple[SilverState | None, str]] = {begin: (None, "")}
    waiting = deque([begin])
    while waiting:
        state = waiting.popleft()
        for sentence, after in successors(rules, state):
            problem = broken(state, after) or (None if after in known else _stuck(rules, after))
            if after not in known:
                known[after] = state, sentence
                waiting.append(after)
            if problem is not None:
                return Explored(len(known), problem, (*_way(known, state), sentence))
    return Explored(len(known))


def _stuck(rules: SilverRules, state: SilverState) -> str | None:
    """Return what silver lacks once drivers have gone on undisturbed for long."""
    for _ in range(60):
        after = next((each for _, each in progress(rules, state)), None)
        if after is None:
            break
        if (problem := broken(state, after)) is not None:
            return problem
        state = after
    return f"L7: silver stays at {state.silver}" if is_behind(state) else None


def _way(known: dict[SilverState, tuple[SilverState | None, str]], state: SilverState) -> tuple[str, ...]:
    way: list[str] = []
    at: SilverState | None = state
    while at is not None:
        at, sentence = known[at]
        way.append(sentence)
    return tuple(reversed(way[:-1]))
