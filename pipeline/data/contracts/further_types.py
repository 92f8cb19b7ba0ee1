"""The event types of a game by a schema set, and the registrations that accept or withdraw one. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import beyond
from pipeline.data.contracts.structs import free_name, taken_names

TypeState = Literal["first", "accepted", "waits", "withdrawn"]


@dataclass(frozen=True, slots=True)
class GameType:
    """One event type of a game."""

    name: str  # the full name without versions of its package; of a renamed type the first one
    state: TypeState
    struct: str | None  # the column of its fields; None: they are columns of the table, or it has none
    schemas: tuple[tuple[Schema, FieldPlacement], ...]  # in the order of their registration

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that rows of it have in `_type`."""
        return tuple(dict.fromkeys(event_type(schema.message) for schema, _ in self.schemas))


def game_types(schemas: SchemaSet, key: GameKey, merges: str | None = None) -> list[GameType]:
    """Return the event types of a game: the first one, those with a struct column, then those that wait.

    `merges` are those that its table names: schemas are left out by which no row has landed yet, as a rebuild has to
    move its columns first. None: all schemas count.
    """
    placed = schemas.placed(key)
    later = set[int]() if merges is None else beyond((schema for schema, _ in placed), merges)
    return types_of([each for each in placed if each[0].schema_id not in later])


def types_of(placed: Collection[tuple[Schema, FieldPlacement]]) -> list[GameType]:
    """Return the event types of a game's schemas, which are in the order of their registration.

    A schema that is declared no more has the state of its type.
    """
    withdrawn = {event_type(schema.message): at.struct for schema, at in placed if at.withdrawn}
    parts: dict[tuple[TypeState, str], list[tuple[Schema, FieldPlacement]]] = {}
    for schema, at in placed:
        own, struct = event_type(schema.message), at.struct
        state: TypeState = "accepted" if struct is not None else "first"
        if at.other_type or (at.undeclared and own in withdrawn):
            struct = at.struct or withdrawn.get(own)  # versions that came after the withdrawal wait with the others
            state = "withdrawn" if struct is not None else "waits"
        parts.setdefault((state, own if state == "waits" else struct or ""), []).append((schema, at))
    order = {"first": 0, "accepted": 1, "withdrawn": 2, "waits": 3}
    return [
        GameType(event_type(held[0][0].message), state, None if state == "waits" else part or None, tuple(held))
        for (state, part), held in sorted(parts.items(), key=lambda each: (order[each[0][0]], each[0][1]))
    ]


def accepting(
    schemas: SchemaSet, key: GameKey, game: str, types: Iterable[str], actor: str, policies: Policies = DEFAULTS
) -> list[Registration]:
    """Return the registrations that accept event types of a game: one for each of their names.

    The other versions of that name come with it.

    Raises:
        Refused: no rows of such a type wait.
    """
    waiting = [each for each in game_types(schemas, key) if each.state in {"waits", "withdrawn"}]
    found = [_named(waiting, name, game, "waits") for name in dict.fromkeys(types)]
    firsts = {event_type(schema.message): schema for each in found for schema in reversed(_counting(each))}
    named = [firsts[name] for each in found for name in each.names]
    return [replace(_registration(game, schema, actor), new_type=True, policies=policies) for schema in named]


def withdrawing(schemas: SchemaSet, key: GameKey, game: str, types: Iterable[str], actor: str) -> list[Registration]:
    """Return the registrations that withdraw event types of a game: one for each of their schemas.

    Raises:
        Refused: such a type was not accepted.
    """
    accepted = [each for each in game_types(schemas, key) if each.state == "accepted"]
    found = [_named(accepted, name, game, "was accepted") for name in dict.fromkeys(types)]
    schemas_of = [schema for each in found for schema in _counting(each)]
    return [replace(_registration(game, schema, actor), withdraws=True) for schema in schemas_of]


def _counting(found: GameType) -> list[Schema]:
    """Return the schemas of a type that are accepted and withdrawn with it: not those that are declared no more."""
    return [schema for schema, at in found.schemas if not at.undeclared]


def nesting(schemas: SchemaSet, key: GameKey, game: str, actor: str) -> tuple[str, list[Registration]]:
    """Return a game's first type, and the registrations by which its fields lie in a struct column, too.

    Raises:
        Refused: no type's fields are columns of the table; or it is JSON, whose documents without a type are of it.
    """
    first = next((each for each in game_types(schemas, key) if each.state == "first"), None)
    if first is None:
        raise Refused(f"No event type of the game {shown(game)} has its fields as columns of the table.")
    if any(schema.format.startswith("json") for schema, _ in first.schemas):
        raise Refused(
            f"{shown(first.name)} of the game {shown(game)} is JSON and cannot be nested: a document that names no "
            f"event type is of the one whose fields are columns of the table."
        )
    struct = free_name(first.name, taken_names(schemas.placed(key)))
    return first.name, [replace(_registration(game, schema, actor), nests=struct) for schema, _ in first.schemas]


def flattening(schemas: SchemaSet, key: GameKey, game: str, name: str, actor: str) -> list[Registration]:
    """Return the registrations by which the fields of one event type are columns of the table again.

    Raises:
        Refused: those of another type are, or such a type was not accepted.
    """
    types = game_types(schemas, key)
    if (first := next((each for each in types if each.state == "first"), None)) is not None:
        raise Refused(f"The fields of {shown(first.name)} are columns of the table of the game {shown(game)}.")
    of = _named([each for each in types if each.state == "accepted"], name, game, "lies in a column")
    return [replace(_registration(game, schema, actor), nests="") for schema, _ in of.schemas]


def _named(found: Sequence[GameType], name: str, game: str, what: str) -> GameType:
    """Return a type by its full name, or by its last segment where only one has it."""
    exact = [each for each in found if event_type(name) in each.names]
    short = [each for each in found if any(one.rsplit(".", 1)[-1] == name for one in each.names)]
    if len(chosen := exact or short) == 1:
        return chosen[0]
    which = join_limited([shown(each.name) for each in chosen or found], 10) or "no type"
    raise Refused(f"No one event type {shown(name)} of the game {shown(game)} {what}. Such are: {which}.")


def _registration(game: str, schema: Schema, actor: str) -> Registration:
    return Registration(game, schema.message, schema.definition, format=schema.format, actor=actor)
