"""A plan: what registering a schema does to one game's table, shown before it is done."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from pipeline.contracts.schemas import Placement
from pipeline.names import shown

KEEP: Final = "stay as they are"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a new schema changes."""

    path: str  # of the field, in the new schema's words; of the old field when it was removed
    kind: str  # a kind of change, see `pipeline.contracts.policies`
    policy: str  # what is done about it
    what: str  # the change itself
    column: str | None = None  # where new values lie, as a path in the table; None: nowhere
    type: str | None = None  # that column's type
    old_rows: str = KEEP
    new_rows: str = "have their value there"

    def __str__(self) -> str:
        """Return the change as it is reported: the path, then what happened to it."""
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What registering a schema does to one game."""

    game: str
    message: str
    fingerprint: str  # of the schema
    version: int  # which of the game's versions it becomes
    new: bool  # False when the game has this very schema, so that nothing is done
    steps: tuple[Step, ...]
    placement: Placement

    @property
    def refused(self) -> tuple[Step, ...]:
        """Return the changes that forbid it."""
        return tuple(step for step in self.steps if step.policy == "refuse")

    @property
    def hash(self) -> str:
        """Return what tells this plan from any other, 16 hex digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def render_plan(plan: Plan) -> Iterator[str]:
    """Yield a plan as lines for people."""
    yield f"{shown(plan.message)} as version {plan.version} of the game {shown(plan.game)}"
    if not plan.new:
        yield "  is registered already: nothing is done"
    elif not plan.steps:
        yield "  changes nothing in the table"
    for step in plan.steps:
        yield f"  {step}"
        place = "" if step.column is None else f" -> {step.column} {step.type}"
        yield f"      {step.kind}: {step.policy}{place}"
        yield f"      old rows {step.old_rows}; new rows {step.new_rows}"
    if plan.placement.quarantined is not None:
        yield "  all rows of this schema go to quarantine; the table is left as it is"
    if count := len(plan.refused):
        yield f"  refused because of {count} change(s): give them another policy, or change the definition"
    yield f"plan {plan.hash}"
