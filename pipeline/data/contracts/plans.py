"""A plan: the effect of a schema's registration on one game's table, shown beforehand."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from pipeline.base.names import shown
from pipeline.base.texts import first_lines
from pipeline.data.contracts.policies import CHOICES
from pipeline.data.contracts.schemas import FieldPlacement

KEEP: Final = "stay as they are"
TYPE: Final = "type"
"""The kind of a step about the event type; no policy can choose what becomes of another type."""
_HARMLESS: Final = frozenset({
    ("add", "add"), ("widen", "widen"), ("rename", "keep"), ("format", "keep"), (TYPE, "accept"),
})  # fmt: skip
"""Kinds of change with a policy by which every reader of the table goes on as before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a new schema."""

    path: str  # of the field, in the new schema's words; of the old field when it was removed
    kind: str  # a kind of change, see `pipeline.data.contracts.policies`
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

    def inside(self, struct: str) -> "Step":
        """Return the change of an event type whose fields lie in a struct column."""
        return self if self.column is None else replace(self, column=f"{struct}.{self.column}")

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
    with_it: "tuple[RegistrationPlan, ...]" = ()
    """What waited as another event type and is registered with it, under the versions before it and after."""

    @property
    def refused(self) -> tuple[Step, ...]:
        """Return the changes that forbid it."""
        return tuple(step for step in self.steps if step.policy == "refuse")

    @property
    def breaking(self) -> tuple[Step, ...]:
        """Return the changes that break something, where the registration changes anything."""
        each = (*self.steps, *(step for plan in self.with_it for step in plan.steps))
        return tuple(step for step in each if step.breaks) if self.new else ()

    @property
    def hash(self) -> str:
        """Return the id of this plan, 16 hex digits of a hash."""
        content = {name: each for name, each in asdict(self).items() if name != "with_it" or each}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def render_plan(plan: RegistrationPlan) -> Iterator[str]:
    """Yield a plan as lines of text."""
    yield f"{shown(plan.message)} as version {plan.version} of the game {shown(plan.game)}"
    if not plan.new:
        yield "  is already registered: no change"
    elif not plan.steps:
        yield "  no changes in the table"
    yield from _changes(plan)
    for each in plan.with_it:
        yield f" with it {shown(each.message)}, which waited as another type, as version {each.version}"
        yield from _changes(each)
    if breaking := len(plan.breaking):
        count = len(plan.steps) + sum(len(each.steps) for each in plan.with_it)
        yield f" {breaking} of {count} change(s) are breaking, marked by '!': readers or producers must know"
    if count := len(plan.refused):
        choices = ", ".join(f"{kind}={' or '.join(_others(kind))}" for kind in sorted({e.kind for e in plan.refused}))
        yield f" refused because of {count} change(s): choose --policy {choices}, or change the definition"
    yield f"plan {plan.hash}"


def _others(kind: str) -> Iterator[str]:
    """Yield the policies by which a kind of change is registered."""
    yield from (policy for policy in CHOICES[kind] if policy != "refuse")


def _changes(plan: RegistrationPlan) -> Iterator[str]:
    for step in plan.steps:
        yield f"{'! ' if step.breaks else '  '}{step}"
        place = "" if step.column is None else f" -> {step.column} {step.type}"
        yield f"      {step.kind}: {step.policy}{place}"
        yield f"      old rows {step.old_rows}; new rows {step.new_rows}"
    yield from (f"  note: {each}" for each in first_lines(plan.remarks))
    if plan.placement.quarantined is not None:
        yield "  all rows of this schema go to quarantine; the table stays unchanged"
