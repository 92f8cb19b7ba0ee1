"""Looks at a workspace and carries a plan out: each change is in the journal before the request, its id after it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.failpoints import effect
from pipeline.base.texts import join_limited
from pipeline.platforms.databricks.deploy.bundle import Resource, put, unresolved
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.desired import group_of
from pipeline.platforms.databricks.deploy.groups import Groups
from pipeline.platforms.databricks.deploy.journal import Journal, JournalEntry
from pipeline.platforms.databricks.deploy.kinds.apps import missing_secrets
from pipeline.platforms.databricks.deploy.kinds.jobs import active_runs, marked_jobs
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Kind, Scope, State
from pipeline.platforms.databricks.deploy.limits import require_room
from pipeline.platforms.databricks.deploy.plan import (
    DeployStep,
    ObservedResource,
    differences,
    in_order,
    plan,
    removals,
)
from pipeline.platforms.databricks.deploy.restarts import Restarts

_AT_A_TIME: Final = 8  # requests: with hundreds of groups a plan reads as many jobs

_AT_ONCE: Final = ("permissions", "tags", "timeout_seconds", "continuous", "schedule", "max_concurrent_runs")
"""Changes of a job that no run has to start again for."""

_WITH_RUNS: Final = frozenset({"nothing", "update", "adopt"})
"""Steps of jobs that may have runs."""

_WITH_RESTARTS: Final = frozenset({"restart", "update", "adopt"})
"""Steps after which a run may have to start again."""


@dataclass(slots=True)
class Deployment:
    """A target of the bundle in a workspace."""

    scope: Scope
    kinds: Mapping[str, Kind]
    resources: Sequence[Resource]  # what should be there
    journal: Journal
    groups: Groups | None = None  # None: the control store cannot be reached
    attributes: dict[str, str] = field(default_factory=dict)  # of things that are there, by their references
    _seen: dict[str, State | None] = field(default_factory=dict)  # for one plan

    def plan(self) -> list[DeployStep]:
        """Look at everything and return what an apply does.

        Raises:
            Refused: the bundle is wrong, something that an apply would need is not ours, or the workspace is full.
            Transient: the workspace does not answer.
        """
        self._seen = self._read_all({each.address for each in self.resources})
        observed, resolved = {}, []
        for resource in in_order(self.resources):
            now = self._resolved(resource)
            resolved.append(now)
            observed[resource.address] = self._observe(now, self.journal.entries.get(resource.address))
        self._seen = {}
        wanted = {each.address for each in resolved}
        observed |= {each: self._recorded(each) for each in self.journal.entries if each not in wanted}
        steps = plan(resolved, self.kinds, observed, self.journal.entries)
        require_room(self.scope.workspace, steps)
        return [self._with_secrets(self._with_restart(each)) for each in steps]

    def apply(self, steps: Sequence[DeployStep], done: Callable[[DeployStep], None], *, restart: bool) -> None:
        """Do what a plan says; `done` hears of each step after it. With `restart` runs that need it start again.

        Raises:
            Refused: another apply has ended since the plan; or the workspace refuses a step, and those before are
                done; or a group does not run again, and those after it go on as before the change.
            Transient: it does not answer; apply again.
        """
        self.journal.require_newest()
        self.journal.settle()  # also after applies of which none ended in order
        for step in steps:
            self._do(step)
            if step.is_change and step.what != "restart":
                done(step)
        if restart:
            owed = [step for step in steps if step.what in _WITH_RESTARTS and self._owed(step.address)]
            Restarts(self.scope, self.journal, self.groups, done).run(owed)
        self.journal.settle()

    def drift(self) -> list[DeployStep]:
        """Return what differs from its last apply, with the differences."""
        drifted = []
        for address, state in self._read_all(set(self.journal.entries)).items():
            entry = self.journal.entries[address]
            if entry.applied is None:
                continue
            kind = self.kinds[entry.kind]
            resource = Resource(entry.kind, address.partition(".")[2], entry.applied)
            found = () if state is None else tuple(differences(resource, kind, state, entry))
            why = "it is gone" if state is None else ""
            if found or why:
                drifted.append(DeployStep("update", address, entry.label, resource, entry.id, found, why))
        return drifted

    def adopt(self, address: str) -> DeployStep:
        """Take the thing with the name of a resource into the environment, and bring it to its definition.

        Raises:
            Refused: the bundle has no such resource, or the workspace no thing of its name.
        """
        for step_resource in in_order(self.resources):
            resource = self._resolved(step_resource)
            kind = self.kinds[resource.kind]
            if resource.address != address:
                self._observe(resource, self.journal.entries.get(resource.address))
                continue
            found = kind.find(self.scope, resource.definition)
            state = None if found is None else kind.read(self.scope, found.id)
            if found is None or state is None:
                raise Refused(f"The workspace has no {kind.label(resource.definition)!r} to adopt as {address}.")
            step = DeployStep(
                "adopt", address, kind.label(resource.definition), resource, found.id,
                tuple(differences(resource, kind, state, None)), "taken by a person",
            )  # fmt: skip
            self._do(step)
            return step
        known = ", ".join(sorted(each.address for each in self.resources))
        raise Refused(f"The bundle has no resource {address!r}. Resources: {known}.")

    def uninstall_plan(self) -> list[DeployStep]:
        """Look at everything that the journal names and return what an uninstall removes and leaves."""
        observed = {address: self._recorded(address) for address in self.journal.entries}
        return removals(self.kinds, observed, self.journal.entries)

    def uninstall(self, steps: Sequence[DeployStep], done: Callable[[DeployStep], None]) -> None:
        """Remove what `uninstall_plan` says; the journal goes last, where nothing of ours is left but data.

        Raises:
            Refused: another apply has ended since the plan; or the workspace refuses a step, and those before are done.
            Transient: it does not answer; uninstall again.
        """
        self.journal.require_newest()
        for step in steps:
            if step.what == "delete":
                self._delete(step)
            done(step)
        if not any(step.what == "keep" and "mark" in step.why for step in steps):
            self.journal.forget()

    def others(self, steps: Sequence[DeployStep]) -> list[str]:
        """Return the jobs with the environment's tag that neither the journal nor these steps name, such as copies.

        Nobody but a person removes them.
        """
        known = {entry.id for entry in self.journal.entries.values() if entry.kind == "jobs"}
        known |= {step.id for step in steps if step.address.startswith("jobs.")}
        return [
            f"Job {name!r} (id {number}) has the tag of environment {self.scope.environment} and is none of the "
            "bundle's, such as a copy: it is left as it is."
            for number, name in marked_jobs(self.scope).items()
            if number not in known
        ]

    def _read_all(self, addresses: set[str]) -> dict[str, State | None]:
        """Return what those of the addresses are now whose ids the journal has, in its order; several at a time."""
        entries = {
            address: (self.kinds[entry.kind], entry.id)
            for address, entry in self.journal.entries.items()
            if address in addresses and entry.kind in self.kinds and entry.id is not None
        }
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            states = pool.map(lambda each: each[0].read(self.scope, each[1]), entries.values())
            return dict(zip(entries, states, strict=True))

    def _resolved(self, resource: Resource) -> Resource:
        return replace(resource, definition=put(resource.definition, self.attributes))

    def _observe(self, resource: Resource, entry: JournalEntry | None) -> ObservedResource:
        kind = self.kinds[resource.kind]
        if entry is not None and entry.id is not None:
            seen = self._seen
            state = seen[resource.address] if resource.address in seen else kind.read(self.scope, entry.id)
            if state is not None and not state.is_ours and entry.id == kind.label(resource.definition):
                return ObservedResource(entry.id, None, Found(entry.id, is_ours=False))  # ours is gone, or its mark
            if state is not None:
                self._remember(resource.address, state)
                return ObservedResource(entry.id, state)
        if self.journal_only(resource):
            return ObservedResource(None if entry is None else entry.id)
        found = kind.find(self.scope, resource.definition)
        if found is None or (found.is_bare and entry is not None and not found.is_ours):
            return ObservedResource(None if entry is None else entry.id)
        state = kind.read(self.scope, found.id) if found.is_ours else None
        if state is not None:
            self._remember(resource.address, state)
        return ObservedResource(found.id, state, found)

    def journal_only(self, resource: Resource) -> bool:
        """Return whether a thing cannot be looked for by its name, as what it lies in is not there."""
        label = self.kinds[resource.kind].label(resource.definition)
        return bool(unresolved(label) or unresolved(resource.definition.get("parent", "")))

    def _recorded(self, address: str) -> ObservedResource:
        """Return what the workspace has of something that the journal names: by its id, else by its name.

        What holds data stays whatever it is, so nobody looks at it: the store may be away.
        """
        entry = self.journal.entries[address]
        if self.kinds[entry.kind].holds_data:
            return ObservedResource(entry.id)
        if entry.id is not None:
            state = self.kinds[entry.kind].read(self.scope, entry.id)
            if state is not None:
                self._remember(address, state)
            return ObservedResource(entry.id, state)
        for resource in self.resources:
            if resource.address == address:
                return self._observe(self._resolved(resource), None)
        return ObservedResource()

    def _remember(self, address: str, state: State) -> None:
        self.attributes |= {f"resources.{address}.{name}": value for name, value in state.attributes.items()}

    def _do(self, step: DeployStep) -> None:
        if step.what == "delete":
            self._delete(step)
        if step.resource is None or step.what in {"keep", "delete"}:
            return
        resource = self._resolved(step.resource)
        if left := unresolved(resource.definition):
            raise Refused(f"{step.address} in the bundle refers to {left[0]}, which nothing there has.")
        kind, found, thing = self.kinds[resource.kind], list(step.changes), step.id
        step = replace(step, label=kind.label(resource.definition))
        if step.what == "create":
            self.journal.write("create", step.address, step.label)
            with effect("deploy_create"):
                thing = kind.create(self.scope, resource.definition)
            self.journal.write("made", step.address, step.label, thing, resource.definition)
        elif step.what == "adopt":
            self.journal.write("made", step.address, step.label, thing)
        if thing is None:
            raise Refused(f"{step.address} has no id. Plan again.")
        if step.what != "create":
            found = self._update(step, resource, kind, thing, found)
        state = kind.read(self.scope, thing)
        if state is not None:
            self._remember(step.address, state)

    def _update(
        self, step: DeployStep, resource: Resource, kind: Kind, thing: str, found: list[Change]
    ) -> list[Change]:
        """Change a thing in place, also where a reference became known after the plan."""
        entry = self.journal.entries.get(step.address)
        if step.resource is not None and unresolved(step.resource.definition):
            state = kind.read(self.scope, thing)
            found = found if state is None else differences(resource, kind, state, entry)
        if found:
            self._note_runs(step, thing, found)
            with effect("deploy_update"):
                kind.update(self.scope, thing, resource.definition, found)
            self._note_runs(step, thing, found)  # one may have begun meanwhile
        if found or entry is None or entry.applied != resource.definition:
            self.journal.write("applied", step.address, step.label, thing, resource.definition)
        return found

    def _delete(self, step: DeployStep) -> None:
        entry = self.journal.entries.get(step.address)
        if entry is None:
            return
        if step.id is not None:
            self.journal.write("delete", step.address, step.label)
            with effect("deploy_delete"):
                self.kinds[entry.kind].delete(self.scope, step.id)
        self.journal.write("deleted", step.address, step.label)

    def _with_restart(self, step: DeployStep) -> DeployStep:
        """Say what has to start again for a step, or still for one of before, and whom that disturbs."""
        if not step.address.startswith("jobs.") or step.what not in _WITH_RUNS or step.id is None:
            return step
        owed, is_needed = self._owed(step.address), _needs_restart(step.changes)
        if not owed and not is_needed:
            return step
        group = group_of(step.address)
        if any(is_needed or run in owed for run in active_runs(self.scope, step.id)):
            whom = "" if group is None or self.groups is None else f": {self.groups.disturbed(group)}"
            why, restarts = "it runs as before its last change", f"its run has to start again{whom}"
        elif owed and group is not None and self.groups is not None and not self.groups.runs_again(group, None):
            why, restarts = "it does not run since its last change", "other groups wait until it does"
        else:
            return step
        if step.what == "nothing":
            return replace(step, what="restart", why=why, restarts=restarts)
        return replace(step, restarts=restarts)

    def _with_secrets(self, step: DeployStep) -> DeployStep:
        """Say which secrets the step of an app waits for."""
        if not step.address.startswith("apps.") or step.resource is None or not step.is_change:
            return step
        keys = [key for _, key in missing_secrets(self.scope, step.resource.definition)]
        waits = f"apply ends here until you put the secrets {join_limited(keys)}" if keys else ""
        return replace(step, why=", and ".join(each for each in (step.why, waits) if each))

    def _owed(self, address: str) -> Sequence[int]:
        """Return the runs from before a job's last change, as long as no later one was seen."""
        entry = self.journal.entries.get(address)
        return () if entry is None else entry.runs

    def _note_runs(self, step: DeployStep, job_id: str, found: Sequence[Change]) -> None:
        """Write down which runs a change finds: an apply that is killed after it leaves them to the next one."""
        if not step.address.startswith("jobs.") or not _needs_restart(found):
            return
        known = self._owed(step.address)
        runs = active_runs(self.scope, job_id)
        if not set(runs) <= set(known):
            self.journal.write("restart", step.address, step.label, job_id, runs=sorted({*known, *runs}))


def _needs_restart(found: Sequence[Change]) -> bool:
    """Return whether a run has to start again to take changes of its job."""
    return any(change.path.split(".")[0].split("[")[0] not in _AT_ONCE for change in found)
