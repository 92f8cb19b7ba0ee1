"""The event types of a game, and what becomes of a schema of another one. Pure; called by `registrations`.

A game has the type of its first schema, and those that a person has accepted. Another type continues one of them only
where a person or an alias says that it is the same type under a new name; else its rows wait in quarantine as
`other_type`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import message as message_of
from pipeline.data.contracts.plans import TYPE, Step
from pipeline.data.contracts.schemas import FieldPlacement, Schema

_NULL: Final = "have null there"


@dataclass(frozen=True, slots=True)
class Typed:
    """A schema's event type, judged."""

    is_other: bool = False  # its rows must wait
    continues: str | None = None  # the game's type that was renamed to it
    struct: str | None = None  # the column of the type's fields; None: they are columns of the table
    accepted: bool = False  # the type is the game's by this registration


def judged(
    types: Mapping[str | None, Sequence[str]], game: str, message: str, said: str | None, aliases: Iterable[str]
) -> Typed:
    """Judge the event type of a schema.

    Args:
        types: by the column of its fields each of the game's types with its later names, in order; none before its
            first schema.
        game: the game's name.
        message: the full name of the schema's message or record.
        said: the type that a person says was renamed to it.
        aliases: full names that the record had before, as it says.

    Raises:
        Refused: the person names a type that is not the game's.
    """
    structs = {name: struct for struct, names in types.items() for name in names}
    if (own := event_type(message)) in structs:
        return Typed(struct=structs[own])
    if said is not None and event_type(said) not in structs:
        has = f"the event type {', '.join(names[-1] for names in types.values())}" if types else "no schema yet"
        raise Refused(f"The game {shown(game)} has {has}, so nothing continues {shown(said)}. Leave out --continues.")
    named = map(event_type, [said, *sorted(aliases)] if said else sorted(aliases))
    if (earlier := next((each for each in named if each in structs), None)) is not None:
        return Typed(continues=earlier, struct=structs[earlier])
    return Typed(is_other=bool(types))


def first_of(types: Mapping[str | None, Sequence[str]]) -> Sequence[str]:
    """Return the names of the type whose fields are columns of the table, else of any."""
    return types.get(None) or next(iter(types.values()))


def names_of(schema: Schema) -> set[str]:
    """Return the event type of a schema, with the names that it had before, as the record's aliases say."""
    return {event_type(each) for each in (schema.message, *message_of(schema).aliases)}


def joined_types(schemas: Iterable[Schema]) -> dict[str, str]:
    """Return one name for each event type of some schemas; types that an alias joins have the same one."""
    joined: dict[str, str] = {}
    for names in map(names_of, schemas):
        known = {joined.get(each, each) for each in names}
        joined |= dict.fromkeys([*names, *(each for each, name in joined.items() if name in known)], min(known))
    return joined


def refusal(types: Sequence[str], game: str, message: str) -> Refused:
    """Return the refusal of another type to a person."""
    return Refused(
        f"{shown(message)} is another event type than {types[-1]}, the type of the game {shown(game)}: add --continues "
        f"{types[-1]} if it is that type under a new name, or --new-type to accept it as a further type of the game."
    )


def other_type(types: Sequence[str], message: str) -> tuple[tuple[Step, ...], FieldPlacement]:
    """Return the plan of a schema of another type that nobody is there to decide about: its rows wait."""
    what = f"is another event type than {types[-1]}, the game's"
    step = Step(message, TYPE, "quarantine", what, new_rows="go to quarantine")
    why = (
        f"{message} {what}. Accept it by `turnout schemas accept-type`; or, if it is {types[-1]} under a new name, "
        f"confirm it by `turnout schemas register … --continues {types[-1]}`, then replay."
    )
    return (step,), FieldPlacement(quarantined=why, other_type=True)


def acceptance(message: str, struct: str, waiting: Sequence[int]) -> Step:
    """Return the step of a further type of the game; `waiting` are versions of it that are registered again with it."""
    versions = join_limited(waiting, 10)
    also = f"; its version(s) {versions}, which waited, with it" if waiting else ""
    return Step(message, TYPE, "accept", f"is a further event type of the game{also}", struct, "struct", _NULL)


def withdrawn(message: str, at: FieldPlacement) -> FieldPlacement:
    """Return the placement of a schema whose event type is the game's no more: its next rows wait.

    What landed stays in its columns; a version that never landed has none.
    """
    why = f"{message} is an event type that was withdrawn from the game. Accept it by `turnout schemas accept-type`."
    if at.quarantined is not None and not at.withdrawn:
        return FieldPlacement(quarantined=why, other_type=True)
    return replace(at, quarantined=why, other_type=True)


def restored(at: FieldPlacement) -> FieldPlacement:
    """Return the placement that a withdrawn schema had: its columns are the old ones."""
    return replace(at, quarantined=None, other_type=False, landed=False)


def undeclared(at: FieldPlacement) -> FieldPlacement:
    """Return the placement of a declared schema that a person withdrew: its type goes by its superset again."""
    return replace(at, quarantined="It is declared no more: its event type grows by its documents.")


def rename(message: str, continues: str, waiting: Sequence[int]) -> Step:
    """Return the step of a type under a new name; `waiting` are versions of it that are registered again with it."""
    versions = join_limited(waiting, 10)
    also = f"; its version(s) {versions}, which waited as another type, with it" if waiting else ""
    return Step(message, TYPE, "continue", f"continues {continues} under a new name{also}")
