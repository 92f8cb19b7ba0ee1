"""Drivers ask a foreign registry what its writers mean (`contracts/registries/resolution.py`)."""

from collections.abc import Callable, Iterator

from tests.model.drivers import replaced
from tests.model.state import Answer, Lookup, State, Writer
from tests.model.world import Next, World, change

ABSENCES = 2
"""The registry denies a schema so often before its writer is refused; three times in the code."""


def want(world: World, state: State) -> Next:
    """A driver writes its streams' needs to the control store, where they outlive it."""
    for index, driver in enumerate(state.drivers):
        for stream in () if driver is None else driver.streams:
            if stream is None or stream.waits is None:
                continue
            writer = stream.waits.writer
            if state.lookup.meaning(writer, state.schemas) is None and writer not in _wanted(state.lookup):
                yield f"driver {index} notes that a game needs writer {writer}", _with_need(state, writer)


def want_again(world: World, state: State) -> Next:
    """A person repeats the question for a refused writer, once the registry has its schema."""
    lookup = state.lookup
    for writer, schema in enumerate(lookup.schemas, 1):
        if schema and lookup.meaning(writer, state.schemas) == 0 and writer not in _wanted(lookup):
            yield f"a person repeats the question for writer {writer}", _with_need(state, writer)


def _wanted(lookup: Lookup) -> set[Writer]:
    return {writer for writer, _ in lookup.needs}


def _with_need(state: State, writer: Writer) -> State:
    needs = tuple(sorted((*state.lookup.needs, (writer, 0))))
    return state._replace(lookup=state.lookup._replace(needs=needs))


def ask(world: World, state: State) -> Next:
    """A driver asks the registry, which may not answer: then nothing is known (law L14)."""
    for index, driver in enumerate(state.drivers):
        if driver is None or driver.answer is not None:
            continue
        for writer in sorted(_wanted(state.lookup)):
            if state.lookup.away:
                if not world.rules.away_decides_nothing:
                    sentence = f"the registry does not answer driver {index} about writer {writer}"
                    yield sentence, replaced(state, index, driver._replace(answer=(writer, 0)))
                continue
            schema = state.lookup.schema_of(writer)
            denied = state.lookup.denied if schema else state.lookup.denied | {writer}
            sentence = f"the registry answers driver {index}: writer {writer} has " + _named(schema)
            after = replaced(state, index, driver._replace(answer=(writer, schema)))
            yield sentence, after._replace(lookup=state.lookup._replace(denied=denied))


def _named(schema: int) -> str:
    return f"schema {schema}" if schema else "no schema"


def keep(world: World, state: State) -> Next:
    """The driver writes the answer under the next number, if it adds something."""
    for index, driver in enumerate(state.drivers):
        if driver is None or driver.answer is None:
            continue
        (writer, schema), lookup = driver.answer, state.lookup
        held = lookup.meaning(writer, state.schemas)
        absences = dict(lookup.needs).get(writer, 0) + (not schema)
        needs = tuple((each, count) for each, count in lookup.needs if each != writer)
        kept = held is None or (held == 0 and schema) or not world.rules.the_first_schema_counts
        if held is None and not schema and absences < ABSENCES:
            kept, needs = False, tuple(sorted((*needs, (writer, absences))))
        after = replaced(state, index, driver._replace(answer=None))
        words = f"driver {index} keeps the answer about writer {writer}"
        if kept:
            number = state.schemas + 1
            lookup = lookup._replace(answers=(*lookup.answers, Answer(number, writer, schema)))
            after = after._replace(schemas=number)
            words += f" as {_named(schema)} from schema set {number} on"
        yield words, after._replace(lookup=lookup._replace(needs=needs))


# ---------------------------------------------------------------------------------------------------- from outside


def leave(world: World, state: State) -> Next:
    """The registry does not answer any more."""
    if state.budget.outages and not state.lookup.away:
        budget = state.budget._replace(outages=state.budget.outages - 1)
        yield "the registry goes away", state._replace(lookup=state.lookup._replace(away=True), budget=budget)


def come_back(world: World, state: State) -> Next:
    """The registry answers again."""
    if state.lookup.away:
        yield "the registry is back", state._replace(lookup=state.lookup._replace(away=False))


def upload(world: World, state: State) -> Next:
    """A person puts a schema into the registry that it lacked."""
    if state.budget.uploads:
        budget = state.budget._replace(uploads=state.budget.uploads - 1)
        for writer, schemas in _with_other(state, lambda schema: schema == 0):
            yield (
                f"the registry gets the schema of writer {writer}",
                state._replace(lookup=state.lookup._replace(schemas=schemas), budget=budget),
            )


def lie(world: World, state: State) -> Next:
    """The registry is made anew, and gives a writer another schema."""
    if state.budget.lies:
        budget = state.budget._replace(lies=state.budget.lies - 1)
        for writer, schemas in _with_other(state, lambda schema: schema > 0):
            yield (
                f"the registry has another schema of writer {writer}",
                state._replace(lookup=state.lookup._replace(schemas=schemas), budget=budget),
            )


def _with_other(state: State, is_chosen: Callable[[int], bool]) -> Iterator[tuple[Writer, tuple[int, ...]]]:
    schemas = state.lookup.schemas
    for place, schema in enumerate(schemas):
        if is_chosen(schema):
            yield place + 1, change(schemas, place, max(schemas) + 1)  # type: ignore[misc]
