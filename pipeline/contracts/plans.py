"""A plan: the effect of a schema's registration on one game's table, shown beforehand."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from pipeline.contracts.schemas import FieldPlacement
from pipeline.lists import first_lines
from pipeline.names import shown

KEEP: Final = "stay as they are"
TYPE: Final = "type"
"""The kind of a step about the event type; no policy can choose what becomes of another type."""
_HARMLESS: Final = frozenset({("add", "add"), ("widen", "widen"), ("rename", "keep"), ("format", "keep")})
"""Kinds of change with a policy by which every reader of the table goes on as before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a new schema."""

    path: str  # of the field, in the new schema's words; of the old field when it was removed
    kind: str  # a kind of change, see `pipeline.contracts.policies`
    policy: str  # the policy applied to it
    what: str  # the change itself
    column: str | None = None  # the column of new values, as a path in the table; None: none
    type: str | None = None  # the type of that column
    old_rows: str = KEEP
    new_rows: str = "have their value there"

    @property
    def breaks(self) -> bool:
        """Return whether readers or producers must know of it.

        New values lie in another column, mean something else, are null, or go to quarantine.
        """
        return (self.kind, self.policy) not in _HARMLESS

    def __str__(self) -> str:
        """Return the change for a report: the path, then the change."""
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class RegistrationPlan:
    """The effect of a schema's registration on one game."""

    game: str
    message: str
    fingerprint: str  # of the schema
    version: int  # the number of the game's version
    new: bool  # False when the game already has this very schema, so that nothing changes
    steps: tuple[Step, ...]
    placement: FieldPlacement
    remarks: tuple[str, ...] = ()  # on the definition itself, whatever the table has

    @property
    def refused(self) -> tuple[Step, ...]:
        """Return the changes that forbid it."""
        return tuple(step for step in self.steps if step.policy == "refuse")

    @property
    def breaking(self) -> tuple[Step, ...]:
        """Return the changes that break something, where the registration changes anything."""
        return tuple(step for step in self.steps if step.breaks) if self.new else ()

    @property
    def hash(self) -> str:
        """Return the id of this plan, 16 hex digits of a hash."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def render_plan(plan: RegistrationPlan) -> Iterator[str]:
    """Yield a plan as lines of text."""
    yield f"{shown(plan.message)} as version {plan.version} of the game {shown(plan.game)}"
    if not plan.new:
        yield "  is already registered: no change"
    elif not plan.steps:
        yield "  no changes in the table"
    for step in plan.steps:
        yield f"{'! ' if step.breaks else '  '}{step}"
        place = "" if step.column is None else f" -> {step.column} {step.type}"
        yield f"      {step.kind}: {step.policy}{place}"
        yield f"      old rows {step.old_rows}; new rows {step.new_rows}"
    yield from (f"  note: {each}" for each in first_lines(plan.remarks))
    if plan.placement.quarantined is not None:
        yield "  all rows of this schema go to quarantine; the table stays unchanged"
    if breaking := len(plan.breaking):
        yield f" {breaking} of {len(plan.steps)} change(s) are breaking, marked by '!': readers or producers must know"
    if count := len(plan.refused):
        yield f" refused because of {count} change(s): choose other policies, or change the definition"
    yield f"plan {plan.hash}"
