"""How two versions of a game differ, and what its table got from one: the steps of plans, and lines of text. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final, Literal

from pipeline.base.texts import join_limited
from pipeline.data.contracts.ages import UNKNOWN, Ages
from pipeline.data.contracts.catalogue.fields import TextLine, as_text
from pipeline.data.contracts.catalogue.superset_steps import superset_steps
from pipeline.data.contracts.catalogue.versions import GameVersions, Version
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.game_types import acceptance, rename
from pipeline.data.contracts.layout import Registered
from pipeline.data.contracts.plans import TYPE, Step
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.schemas import PLAIN, Schema

Mark = Literal[" ", "-", "+"]
_FEW: Final = 2  # changes that a summary names


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a diff."""

    mark: Mark  # in both, only in the first, only in the second
    text: str


def changes(before: Schema, after: Schema) -> tuple[Step, ...]:
    """Return what a schema changes against another one, as if it followed it in a new table.

    The steps' policies are the default ones, not those of any registration.

    Raises:
        Refused: a definition cannot be read, or both together make too many columns.
    """
    if before.format == after.format == UNDECLARED:
        return superset_steps(superset_of(before), superset_of(after), after.message)
    return evolve(((before, PLAIN),), after, DEFAULTS)[0]


def table_steps(game: GameVersions, version: Version, schemas: Mapping[int, Schema]) -> tuple[Step, ...]:
    """Return what the game's table got from a version, by the policies it was registered with.

    `schemas` has the version's and those of `landing_before`. A change that was refused to a registry's schema, which
    no person has chosen a policy for, is one that sends its rows to quarantine.

    Raises:
        Refused: a definition cannot be read, or the table would have too many columns.
    """
    if version.placement.other_type:
        return (Step(version.message, TYPE, "quarantine", "is another event type", new_rows="go to quarantine"),)
    before, struct = game.landing_before(version), version.placement.struct
    held = tuple((schemas[each.schema_id], each.placement) for each in before if each.placement.struct == struct)
    schema = schemas[version.schema_id]
    steps = _computed(held, schema) if schema.format == UNDECLARED else _as_placed(held, schema, version)
    if struct is not None:
        steps = tuple(each.inside(struct) for each in steps)
        steps = steps if held else (acceptance(version.message, struct, ()), *steps)
    if version.placement.continues is not None:
        steps = (rename(version.message, version.placement.continues, ()), *steps)
    return tuple(replace(step, policy="quarantine") if step.policy == "refuse" else step for step in steps)


def _computed(held: Registered, schema: Schema) -> tuple[Step, ...]:
    """Return what a superset added to the one before of its event type."""
    chain = (superset_of(each) for each, _ in held if each.format == UNDECLARED and each.message == schema.message)
    earlier = (each for each in chain if each.version < superset_of(schema).version)
    before = max(earlier, key=lambda each: each.version, default=Superset())
    return superset_steps(before, superset_of(schema), schema.message)


def _as_placed(held: Registered, schema: Schema, version: Version) -> tuple[Step, ...]:
    """Return the changes that led to a version's placement: the ages known then decided which number was whose."""
    for ages in (None, Ages((UNKNOWN,) * len(held))):
        steps, placement = evolve(held, schema, version.policies, ages)
        waits = placement.quarantined is not None or any(step.policy == "refuse" for step in steps)
        if (placement.names, waits) == (version.placement.names, version.quarantined is not None):
            return steps
    return evolve(held, schema, version.policies)[0]


def text_diff(before: Schema, after: Schema) -> tuple[Line, ...]:
    """Return the lines of two schemas, each marked.

    Raises:
        Refused: a definition cannot be read.
    """
    return tuple(_diff(as_text(before), as_text(after)))


def summary(steps: tuple[Step, ...]) -> str:
    """Return steps in a few words, for a list; breaking ones first."""
    if not steps:
        return "no change of the table"
    return join_limited(sorted(steps, key=_mildness), _FEW, str)


def _mildness(step: Step) -> tuple[bool, bool]:
    return step.policy not in {"quarantine", "refuse"}, not step.breaks


def _diff(before: tuple[TextLine, ...], after: tuple[TextLine, ...]) -> Iterator[Line]:
    for _, start, end, second_start, second_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        same = before[start:end] == after[second_start:second_end]
        yield from (Line(" " if same else "-", each.text) for each in before[start:end])
        if not same:
            yield from (Line("+", each.text) for each in after[second_start:second_end])
