"""What a kind of resource must be able to do, so that `fleet` can make, compare, change and remove it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.fleet.compare import Change
from pipeline.workspace.client import Workspace


@dataclass(frozen=True, slots=True)
class Found:
    """A thing of a kind that has the exact name of a definition."""

    id: str
    is_ours: bool  # it carries the mark of the environment


@dataclass(frozen=True, slots=True)
class State:
    """What a thing is now."""

    definition: Mapping[str, Any]  # in the shape of the bundle's definition
    attributes: Mapping[str, str] = field(default_factory=dict)  # what references of other resources may name, and id
    is_ours: bool = True  # it carries the mark of the environment
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
        """Return what the server fills in where a definition leaves a value out: see `pipeline.fleet.compare`."""

    @property
    def fixed(self) -> frozenset[str]:
        """Return the fields that cannot change once it is there."""

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


MARK = "turnout_env={environment}"
"""What the comment or description of a thing without tags has."""


def mark(environment: str) -> str:
    """Return the mark of an environment's things."""
    return MARK.format(environment=environment)
