"""Derived streams that a person applies: first what they would change, then the write.

Called by `turnout derived plan | apply`. They are written at once, without an operation, if nobody was faster; drivers
carry them from their next look on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.derived import definition_file
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import Definition, dumps, loads
from pipeline.data.derived.kinds import columns
from pipeline.data.streams.writing.columns import target_schema
from pipeline.settings.tree import Settings
from pipeline.store import derived
from pipeline.store.derived import AppliedStreams, read_definitions
from pipeline.store.operations import hash_of


@dataclass(frozen=True, slots=True, eq=False)
class DerivedProposal:
    """Derived streams as they would be, beside those that are in force."""

    seen: AppliedStreams
    definitions: tuple[Definition, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return dumps(self.definitions) != self.seen.definitions

    @property
    def hash(self) -> str:
        """Return a hash of the definitions before and after."""
        return hash_of({"seen": self.seen.number, "derived": dumps(self.definitions)})


def plan(engine: Engine, schemas: SchemaSet, games: Collection[str], text: str) -> DerivedProposal:
    """Plan to replace the derived streams by those of a file's text; `games` has the names of all games.

    Raises:
        Refused: naming everything that is wrong with the file, or with what it names.
    """
    seen, definitions = read_definitions(engine), definition_file.parse(text)
    found: dict[str, pa.Schema] = {}
    problems: dict[str, None] = {}  # what a silver stream lacks, its gold streams lack too
    for each in definitions:
        try:
            if (of := _checked(each, schemas, games)) is not None:
                found[each.name] = of
        except Refused as refused:
            problems[str(refused)] = None
    if problems:
        raise Refused("\n".join(problems))
    before = loads(seen.definitions)
    lines = [*_differences(before, definitions), *_columns(before, definitions, found)]
    return DerivedProposal(seen, definitions, tuple(lines) or ("Nothing to change: these are in force.",))


def apply(settings: Settings, engine: Engine, proposal: DerivedProposal, actor: str, reason: str) -> AppliedStreams:
    """Write planned derived streams, with their audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; or another person has applied some meanwhile.
            Then nothing is written.
    """
    gate.permit(settings, engine, actor, DirectAct.CHANGE_DERIVED, reason)
    return derived.apply(engine, dumps(proposal.definitions), proposal.seen.number, actor, reason)


def _checked(definition: Definition, schemas: SchemaSet, games: Collection[str]) -> pa.Schema | None:
    """Return the columns that a definition's table has by the schemas of today, None where its game has no schema."""
    if definition.game not in games:
        kind = definition.kind.capitalize()
        raise Refused(f"{kind} {definition.name}: no game is named {shown(definition.game)}.")
    if not schemas.games.get(definition.game_key):
        return None
    return columns(definition, target_schema(schemas, definition.game_key), schemas)


def _differences(before: Sequence[Definition], then: Sequence[Definition]) -> Iterator[str]:
    was, now = {each.name: each for each in before}, {each.name: each for each in then}
    for name, each in now.items():
        if name not in was:
            yield f"+ {name}: {_said(each)}"
        elif was[name] != each:
            yield f"~ {name}: {_said(was[name])} → {_said(each)}; its table begins a new generation"
    yield from (f"- {name}: its table stays, and gets no more rows" for name in was if name not in now)
    if [*was] != [*now] and was.keys() == now.keys():
        yield "The derived streams are in another order, which decides nothing."


def _columns(before: Sequence[Definition], then: Sequence[Definition], found: Mapping[str, pa.Schema]) -> Iterator[str]:
    """Yield a line with the columns of each table that is new or changes."""
    for each in then:
        if each in before:
            continue
        if each.name in found:
            yield f"{each.name} has the columns {', '.join(found[each.name].names)}"
        else:
            yield f"{each.name} waits: {shown(each.game)} has no schema yet"


def _said(definition: Definition) -> str:
    fields = {name: value for name, value in definition_file.tree(definition).items() if name != "name"}
    return "; ".join(f"{name} {value}" for name, value in fields.items())
