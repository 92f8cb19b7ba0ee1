"""What a game's new name takes over: schemas, output contracts, derived tables. Called by the operation `onboard`.

A key belongs to one name for ever, and quarantine, rebuild and verify find rows by it: the new name is a game of its
own, whose table goes on where the old one ends.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.catalogue.versions import Version
from pipeline.data.contracts.formats.json.merging import merges
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.formats.supported import FORMATS
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import Definition, loads_all, of_another_name
from pipeline.data.derived.definitions import dumps as dumps_derived
from pipeline.data.derived.definitions import loads as loads_derived
from pipeline.data.output_contracts.rules import dumps, loads, naming
from pipeline.data.variations.registering import newest_supersets
from pipeline.store import derived
from pipeline.store.derived import AppliedStreams, definitions_in, read_definitions
from pipeline.store.game_proposals import GameProposal
from pipeline.store.games import known_names, registered_keys
from pipeline.store.operations import Operation
from pipeline.store.output_contracts import apply_within, contracts_in, read_contracts

_LONGEST: Final = 36  # letters of a derived table's name that stay before a number


def facts(engine: Engine, old: str, name: str, proposal: GameProposal | None) -> dict[str, Any]:
    """Return what a renaming is about: the key of the old name, and the contracts and tables that the new one gets.

    Raises:
        Refused: the new name has a schema of its own, or is proposed with one; the old one's might not follow it.
    """
    if registered_keys(engine).get(game_key(name)):
        raise Refused(f"{name!r} is already a game by its schema; see `turnout games list`.")
    if proposal is not None and proposal.message:
        raise Refused(
            f"{name!r} is proposed with the schema {shown(proposal.message)}, and a new name gets the schemas of the "
            f"old one. Propose it again without --schema, or approve it as a game of its own."
        )
    before, given = loads(read_contracts(engine).contracts), known_names(engine)[old]
    then = naming(before, given, name)
    return {
        "renames": old,
        "contracts": [each.name for was, each in zip(before, then, strict=True) if was != each],
        "derived": [each.name for each in _derived(read_definitions(engine), given, name)],
    }


def lines(engine: Engine, old: GameKey, preview: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what becomes of the old name, as lines for people; `preview` has `facts`."""
    yield f"new name of {old}: it gets that game's schemas whose rows land, in a table of its own"
    if contracts := preview["contracts"]:
        yield f"output contracts {join_limited(contracts)} are for it, too: add it to their file"
    if own := preview["derived"]:
        yield f"derived tables {join_limited(own)} are for it: add them to the file of derived streams"
    if left := list(_left_behind(LocalRegistry(engine).snapshot(), old)):
        yield f"not carried over, as they are about columns that it gets later: {join_limited(left)}"
    yield f"{old} keeps its name and table, and what it still sends lands there; retire it when it sends nothing more"


def carry_contracts(connection: Connection, asked: Operation, old: str, name: str) -> None:
    """Let the output contracts of a game be for its new name, in a transaction that holds the lock of contracts.

    They stay so after an undo: nothing lands in the table of a retired game, and a restore finds them.
    """
    before = contracts_in(connection).contracts
    then = dumps(naming(loads(before), old, name))
    if then != dumps(loads(before)):
        apply_within(connection, then, asked.actor, asked.reason or f"new name of {old}", asked.operation_id)


def carry_derived(connection: Connection, asked: Operation, old: str, name: str) -> None:
    """Give a game's new name the derived tables of the old one, under own names; the caller holds audit's lock.

    They stay so after an undo, as output contracts do. A copy of a paused stream is paused.
    """
    before = definitions_in(connection)
    if more := _derived(before, old, name):
        then = dumps_derived([*loads_all(before.definitions), *more])
        derived.apply_within(connection, then, asked.actor, asked.reason or f"new name of {old}", asked.operation_id)
        controls = derived.controls_in(connection)
        own = (each for each in loads_derived(before.definitions) if each.game == old)
        for was, copy in zip(own, more, strict=True):
            control = derived.control_of(controls, was.name)
            if control.is_paused:
                derived.pause_within(connection, copy.name, control.paused_by or asked.actor, control.reason or "")


def _derived(applied: AppliedStreams, old: str, name: str) -> list[Definition]:
    """Return the definitions that the new name of a game gets; none where it has some."""
    held = loads_derived(applied.definitions)
    used = {each.name for each in held}

    def free(taken: str) -> str:
        own = next(each for number in count(2) if (each := f"{taken[:_LONGEST]}_{number}") not in used)
        used.add(own)
        return own

    return of_another_name(held, old, name, free) if all(each.game != name for each in held) else []


def registrations(
    schemas: SchemaSet, versions: Iterable[Version], old: GameKey, name: str, actor: str
) -> Iterator[Registration]:
    """Yield registrations of a game's schemas whose rows land, as they came, with their policies, for its new name.

    Shapes nobody declared are found again. Where the first type has no other schemas, further types wait as new ones
    do: the first schema of a game says which type's fields are columns of its table.
    """
    policies = {each.schema_id: each.policies for each in versions}
    for each in game_types(schemas, old):
        landing = [(schema, at) for schema, at in each.schemas if schema.format in FORMATS and at.quarantined is None]
        if each.state == "first" and not landing:
            return
        for schema, at in landing if each.state in {"first", "accepted"} else ():
            yield Registration(
                name,
                schema.message,
                schema.definition,
                policies.get(schema.schema_id, DEFAULTS),
                format=schema.format,
                actor=actor,
                continues=at.continues,
                new_type=each.state == "accepted",
            )


def _left_behind(schemas: SchemaSet, old: GameKey) -> Iterator[str]:
    """Yield what people chose about the columns of a game's undeclared types, which its new name lacks."""
    for name, schema in newest_supersets(schemas, old).items():
        superset = superset_of(schema)
        if superset.pinned:
            yield f"the pin of {shown(name)}"
        if superset.refused:
            yield f"{len(superset.refused):,} refused variation(s) of {shown(name)}"
        if merged := merges(superset):
            yield f"merged columns of {shown(name)}: {join_limited(sorted(merged))}"
