"""Decides what an apply does: pure, from what should be, what is, and the journal.

Applying a plan and planning again gives nothing to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.platforms.databricks.deploy.bundle import Resource, unresolved
from pipeline.platforms.databricks.deploy.compare import Change, changes
from pipeline.platforms.databricks.deploy.journal import JournalEntry
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Kind, State

_LATE: Final = {"jobs": 1, "dashboards": 2, "alerts": 3}
"""Kinds after all others: a continuous job starts at once and looks for the store, and alerts for its rows."""

_SIGNS: Final = {
    "create": "+", "update": "~", "adopt": "=", "delete": "-", "keep": "!", "nothing": " ", "restart": "*",
}  # fmt: skip

What = Literal["create", "update", "adopt", "delete", "keep", "nothing", "restart"]


@dataclass(frozen=True, slots=True)
class ObservedResource:
    """What the workspace has for one address."""

    id: str | None = None  # by the journal, or found by name
    state: State | None = None
    found: Found | None = None  # by name, where the journal has no id


@dataclass(frozen=True, slots=True)
class DeployStep:
    """One thing to do."""

    what: What
    address: str
    label: str
    resource: Resource | None = None  # None: it should not be there any more
    id: str | None = None
    changes: tuple[Change, ...] = ()
    why: str = ""
    restarts: str = ""  # what has to start again for it, as a clause

    @property
    def is_change(self) -> bool:
        """Return whether an apply does something for it."""
        return self.what not in {"nothing", "keep"}

    def __str__(self) -> str:
        sign = _SIGNS[self.what]
        why = f": {self.why}" if self.why else ""
        return f"{sign} {self.address} ({self.label}){why}{f'; {self.restarts}' if self.restarts else ''}"


def in_order(resources: Sequence[Resource]) -> list[Resource]:
    """Return resources so that each stands after what it refers to, and jobs, which may start at once, near the end.

    Raises:
        Refused: a reference leads nowhere, or two resources refer to each other.
    """
    known = {each.address: each for each in resources}
    for each in resources:
        missing = sorted(each.needs - known.keys())
        if missing:
            raise Refused(f"{each.address} in the bundle refers to {missing[0]}, which the bundle does not have.")
    sorter = TopologicalSorter({each.address: sorted(each.needs) for each in resources})
    try:
        sorter.prepare()
    except CycleError as error:
        raise Refused(f"Resources of the bundle refer to each other: {', '.join(error.args[1])}.") from error
    places = {each.address: (_LATE.get(each.kind, 0), place) for place, each in enumerate(resources)}
    ready: list[str] = []
    order = []
    while sorter.is_active():
        ready = sorted((*ready, *sorter.get_ready()), key=lambda address: places[address])
        first = ready.pop(0)
        order.append(known[first])
        sorter.done(first)
    return order


def plan(
    resources: Sequence[Resource],
    kinds: Mapping[str, Kind],
    observed: Mapping[str, ObservedResource],
    journal: Mapping[str, JournalEntry],
) -> list[DeployStep]:
    """Return the steps, in the order of their doing; what needs nothing is among them.

    `resources` are in order, with the references put in whose ids are known.

    Raises:
        Refused: something of ours would have to be replaced that holds data, or a foreign thing has a name of ours.
    """
    steps = [
        _step(each, kinds[each.kind], observed.get(each.address, ObservedResource()), journal.get(each.address))
        for each in resources
    ]
    wanted = {each.address for each in resources}
    gone = {address: entry for address, entry in journal.items() if address not in wanted}
    for step in removals(kinds, observed, gone):
        why = f", and {step.why}" if step.why else ""
        steps.append(replace(step, why=f"the bundle does not name it any more{why}"))
    return steps


def removals(
    kinds: Mapping[str, Kind], observed: Mapping[str, ObservedResource], journal: Mapping[str, JournalEntry]
) -> list[DeployStep]:
    """Return what an uninstall does: all that the journal and its mark say is ours but data, the last made first."""
    places = {name: place for place, name in enumerate(kinds)}
    made = sorted(journal.items(), key=lambda item: (item[1].number, places[item[1].kind]))
    steps = []
    for address, entry in reversed(made):
        seen = observed.get(address, ObservedResource())
        if kinds[entry.kind].holds_data:
            steps.append(DeployStep("keep", address, entry.label, id=seen.id, why="it holds data"))
        elif seen.state is None:
            steps.append(DeployStep("delete", address, entry.label, why="it is gone already"))
        elif not seen.state.is_ours:
            steps.append(
                DeployStep("keep", address, entry.label, id=seen.id, why="it carries no mark of this environment")
            )
        else:
            contents = seen.state.contents
            why = f"with {join_limited(contents)}, which nobody can read back" if contents else ""
            steps.append(DeployStep("delete", address, entry.label, id=seen.id, why=why))
    return steps


def _step(resource: Resource, kind: Kind, seen: ObservedResource, entry: JournalEntry | None) -> DeployStep:
    label = kind.label(resource.definition)
    step = DeployStep("nothing", resource.address, label, resource, seen.id)
    if seen.state is None:
        if seen.found is not None and not seen.found.is_ours:
            raise Refused(
                f"The workspace has {label!r} ({resource.kind}, id {seen.found.id}), which is not of this environment. "
                f"Rename it there, or take it with `turnout deploy adopt {resource.address}`."
            )
        why = "" if seen.id is None else "it is gone from the workspace"
        return replace(step, what="create", id=None, why=why)
    found = tuple(differences(resource, kind, seen.state, entry))
    if seen.found is not None:
        return replace(step, what="adopt", changes=found, why="found by its name and mark")
    if not found:
        return step
    fixed = sorted({each.path for each in found if each.path.split(".")[0].split("[")[0] in kind.fixed})
    if fixed:
        raise Refused(
            f"{resource.address} ({label}) would have to be replaced, as {', '.join(fixed)} cannot change. Set it "
            "back in the bundle, or remove the thing by hand first."
        )
    return replace(step, what="update", changes=found, why=f"{len(found)} difference(s)")


def differences(resource: Resource, kind: Kind, state: State, entry: JournalEntry | None) -> list[Change]:
    """Return the differences, without values that nobody knows before other resources are there.

    What the workspace never shows is compared with what the journal's `entry` says was applied last.
    """
    found = changes(kind.comparable(resource.definition), state.definition, kind.filled)
    applied = {} if entry is None or entry.applied is None else entry.applied
    for name in sorted(kind.unseen):
        found += changes({name: resource.definition.get(name)}, {name: applied.get(name)}, {})
    return [each for each in found if not unresolved(each.should_be)]
