"""The event type of a game, and what becomes of a schema of another one. Pure; called by `registrations`.

The game's type is that of its first schema. Another type continues it only where a person or an alias says that it is
the same type under a new name; else its rows wait in quarantine as `other_type`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import message as message_of
from pipeline.data.contracts.plans import TYPE, Step
from pipeline.data.contracts.schemas import FieldPlacement, Schema


@dataclass(frozen=True, slots=True)
class Typed:
    """A schema's event type, judged."""

    is_other: bool = False  # its rows must wait
    continues: str | None = None  # the game's type that was renamed to it


def judged(types: Sequence[str], game: str, message: str, said: str | None, aliases: Iterable[str]) -> Typed:
    """Judge the event type of a schema.

    Args:
        types: the game's type and its later names, in order; empty before its first schema.
        game: the game's name.
        message: the full name of the schema's message or record.
        said: the type that a person says was renamed to it.
        aliases: full names that the record had before, as it says.

    Raises:
        Refused: the person names a type that is not the game's.
    """
    if event_type(message) in types:
        return Typed()
    if said is not None and event_type(said) not in types:
        has = f"the event type {types[-1]}" if types else "no schema yet"
        raise Refused(f"The game {shown(game)} has {has}, so nothing continues {shown(said)}. Leave out --continues.")
    earlier = [each for each in map(event_type, [said, *sorted(aliases)] if said else sorted(aliases)) if each in types]
    return Typed(is_other=bool(types) and not earlier, continues=earlier[0] if earlier else None)


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
        f"{types[-1]} if it is that type under a new name, or register it for a game of its own."
    )


def other_type(types: Sequence[str], message: str) -> tuple[tuple[Step, ...], FieldPlacement]:
    """Return the plan of a schema of another type that nobody is there to decide about: its rows wait."""
    what = f"is another event type than {types[-1]}, the game's"
    step = Step(message, TYPE, "quarantine", what, new_rows="go to quarantine")
    why = (
        f"{message} {what}. If it is that type under a new name, confirm it by `turnout schemas register … --continues "
        f"{types[-1]}`, then replay; else send it as a game of its own, as a game has one event type so far."
    )
    return (step,), FieldPlacement(quarantined=why, other_type=True)


def rename(message: str, continues: str, waiting: Sequence[int]) -> Step:
    """Return the step of a type under a new name; `waiting` are versions of it that are registered again with it."""
    versions = join_limited(waiting, 10)
    also = f"; its version(s) {versions}, which waited as another type, with it" if waiting else ""
    return Step(message, TYPE, "continue", f"continues {continues} under a new name{also}")
