"""What a kind of resource must be able to do, so that `turnout deploy` can make, compare, change and remove it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.workspace.client import Workspace


@dataclass(frozen=True, slots=True)
class Found:
    """A thing of a kind that has the exact name of a definition."""

    id: str
    is_ours: bool  # it carries the mark of the environment
    is_bare: bool = False  # it has no mark yet, as a creation leaves it that was interrupted


@dataclass(frozen=True, slots=True)
class State:
    """What a thing is now."""

    definition: Mapping[str, Any]  # in the shape of the bundle's definition
    attributes: Mapping[str, str] = field(default_factory=dict)  # what references of other resources may name, and id
    is_ours: bool = True  # it carries the mark of the environment
    contents: tuple[str, ...] = ()  # what a removal takes along, as clauses
    is_busy: bool = False  # a change must wait until the workspace has ended an earlier one


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a kind works: the workspace, and whose things it may touch."""

    workspace: Workspace
    environment: str
    folder: str  # of the workspace's files that belong to the target


class Kind(Protocol):
    """One kind of resource. Each call sends requests; none waits longer than the workspace needs to take a change.

    All raise Refused where the workspace refuses, and Transient where it does not answer; `Unclear` where a change may
    have been made.
    """

    @property
    def name(self) -> str:
        """Return what the bundle calls it, such as `jobs`."""

    @property
    def holds_data(self) -> bool:
        """Return whether `uninstall` must leave it, and no apply may replace it."""

    @property
    def filled(self) -> Mapping[str, Sequence[Any]]:
        """Return what the server fills in where a definition leaves a value out; see `deploy/compare.py`."""

    @property
    def fixed(self) -> frozenset[str]:
        """Return the fields that cannot change once it is there."""

    @property
    def unseen(self) -> frozenset[str]:
        """Return the fields that the workspace never shows: the journal says with which of them a thing was made."""

    def label(self, definition: Mapping[str, Any]) -> str:
        """Return the exact name by which people and `find` know it."""

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what of a definition is compared with a state."""

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """Return the thing with this exact name; of several of ours the oldest."""

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002 - the word of the field
        """Return what a thing is now; None where it is gone."""

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """Make a thing that carries the mark of the environment; return its id."""

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """Bring a thing to its definition, in place."""

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Remove a thing; does nothing where it is gone."""


def mark(environment: str) -> str:
    """Return what the comment or description of a thing without tags has."""
    return f"turnout_env={environment}"


def carries(text: object, environment: str) -> bool:
    """Return whether a comment or description has the mark of this environment, and not of a longer name."""
    return re.search(rf"(?<![\w-]){re.escape(mark(environment))}(?![\w-])", str(text or "")) is not None


def changed(found: Sequence[Change]) -> set[str]:
    """Return the fields at the top of a definition in which differences lie."""
    return {re.split(r"[.\[]", each.path, maxsplit=1)[0] for each in found}
