"""Guards the waves in which `turnout deploy apply` starts groups again after a change."""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused
from pipeline.control.deployed_groups import StoredGroups
from pipeline.health.facts.placing import placing
from pipeline.platforms.databricks.deploy import journal
from pipeline.platforms.databricks.deploy.groups import Groups
from pipeline.platforms.databricks.deploy.journal import Journal
from pipeline.platforms.databricks.deploy.kinds.jobs import active_runs
from pipeline.platforms.databricks.deploy.kinds.kind import Scope
from pipeline.platforms.databricks.deploy.plan import DeployStep
from pipeline.platforms.databricks.deploy.restarts import Restarts
from pipeline.platforms.databricks.workspace.client import open_workspace
from pipeline.platforms.databricks.workspace.jobs import cancel_run
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import groups as group_rows
from pipeline.store.groups import Group, create
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from pipeline.store.processes.runs import begin_run, end_run, open_runs
from tests.workspace.deploy_world import sign_in
from tests.workspace.fixtures import made, started, until, wheel
from tests.workspace.running import StandIn

ROOT = "/Workspace/Applications/turnout/waves"


@dataclass
class Driven:
    """Groups of a store, of which each runs again after a number of looks; it keeps the requests in their order."""

    looks: int = 2
    controllers: list[str | None] = field(default_factory=lambda: ["old"])  # at each look; the last one stays
    asked: list[str] = field(default_factory=list)
    away: int = 0  # looks at which the store does not answer
    _seen: dict[str, int] = field(default_factory=dict)

    def restarts(self) -> list[str]:
        return [each for each in self.asked if each != "controller?"]

    def disturbed(self, group: str) -> str:
        return group

    def restart(self, group: str) -> int | None:
        self.asked.append(f"end {group}")
        return 7

    def controller(self) -> object | None:
        self.asked.append("controller?")
        return self.controllers.pop(0) if len(self.controllers) > 1 else self.controllers[0]

    def runs_again(self, group: str, run_id: int | None) -> bool:
        assert run_id in {7, None}
        if self.away:
            self.away -= 1
            raise OperationalError("SELECT", {}, Exception("the store is away"))
        self._seen[group] = self._seen.get(group, 0) + 1
        if self._seen[group] < self.looks:
            return False
        self.asked.append(f"{group} runs")
        return True


@dataclass
class Changed:
    """Jobs of a workspace whose definition has changed while each had a run."""

    scope: Scope
    steps: Sequence[DeployStep]

    def journal(self) -> Journal:
        return Journal.read(self.scope.workspace, ROOT, "dev", "dev")

    def restart(self, groups: Groups | None, patience_seconds: float = 60.0) -> list[str]:
        done: list[str] = []
        Restarts(self.scope, self.journal(), groups, lambda step: done.append(step.address), patience_seconds, 0.0).run(
            self.steps
        )
        return done

    def end(self, address: str) -> None:
        """Let the run of a job end."""
        (step,) = (step for step in self.steps if step.address == address)
        for run_id in active_runs(self.scope, step.id or ""):
            cancel_run(self.scope.workspace, run_id)
        until(lambda: address not in self.active(), f"the run of {address} does not end")

    def owed(self) -> list[str]:
        return sorted(address for address, entry in self.journal().entries.items() if entry.runs)

    def active(self) -> list[str]:
        return [step.address for step in self.steps if step.id is not None and active_runs(self.scope, step.id)]


@pytest.fixture
def change(workspace: StandIn, admin: WorkspaceClient) -> Iterator[Callable[..., Changed]]:
    """Return what makes jobs that run and have changed since."""
    workspace.settings(pending_seconds=600.0)
    patch = sign_in(workspace)
    scope = Scope(open_workspace(patience_seconds=3), "dev", ROOT)

    def make(*names: str) -> Changed:
        journal = Journal.read(scope.workspace, ROOT, "dev", "dev")
        steps = []
        for name in names:
            job_id = made(admin, wheel("pass", "-"))
            run_id = started(admin, job_id)
            address = f"jobs.{name}"
            journal.write("made", address, name, str(job_id), {"name": name})
            journal.write("restart", address, name, runs=[run_id])
            steps.append(DeployStep("update", address, name, id=str(job_id), restarts="its run has to start again"))
        return Changed(scope, steps)

    yield make
    Journal.read(scope.workspace, ROOT, "dev", "dev").forget()
    workspace.settings(pending_seconds=0.0)
    patch.undo()


def test_a_wave_begins_when_the_last_one_runs_again(change: Callable[..., Changed]) -> None:
    """Few groups start again one by one, after what the platform keeps running; then nothing is owed."""
    changed, groups = change("group_a", "ingest", "group_b"), Driven()
    assert changed.restart(groups) == ["jobs.ingest", "jobs.group_a", "jobs.group_b"]
    assert groups.restarts() == ["end a", "a runs", "end b", "b runs"]
    assert changed.owed() == []
    until(lambda: "jobs.ingest" not in changed.active(), "ingest goes on as before")


def test_of_many_groups_a_tenth_starts_again_at_a_time(change: Callable[..., Changed]) -> None:
    """Of eleven groups two are a wave."""
    groups = Driven(looks=1)
    change(*(f"group_{letter}" for letter in "abcdefghijk")).restart(groups)
    assert groups.restarts()[:6] == ["end a", "end b", "a runs", "b runs", "end c", "end d"]
    assert groups.restarts()[-2:] == ["end k", "k runs"]


def test_a_version_that_does_not_start_stops_one_wave(change: Callable[..., Changed]) -> None:
    """Where a group does not run again, those after it go on as before; the next apply goes on with both."""
    changed, groups = change("group_a", "group_b"), Driven(looks=10**9)
    with pytest.raises(Refused, match=r"The group a does not run after .* The groups b go on as before the change"):
        changed.restart(groups, patience_seconds=0.0)
    assert changed.owed() == ["jobs.group_a", "jobs.group_b"]
    changed.end("jobs.group_a")
    with pytest.raises(Refused, match="The group a does not run"):
        changed.restart(groups, patience_seconds=0.0)
    assert "end b" not in groups.asked
    assert changed.restart(Driven()) == ["jobs.group_a", "jobs.group_b"]


def test_a_store_that_is_away_for_a_moment_ends_no_wave(change: Callable[..., Changed]) -> None:
    """A look at the store that fails within a wave is repeated."""
    assert change("group_a").restart(Driven(away=3)) == ["jobs.group_a"]


def test_groups_go_on_until_the_new_controller_runs(change: Callable[..., Changed]) -> None:
    """The controller starts again first, as nothing else starts groups; if it does not, no group stops."""
    changed, groups = change("group_a", "controller"), Driven(looks=1, controllers=["old", "old", None, "new"])
    changed.restart(groups)
    assert groups.asked == [*["controller?"] * 4, "end a", "a runs"]
    changed, groups = change("controller", "group_a"), Driven(controllers=["old", None])
    for _ in range(2):
        with pytest.raises(Refused, match=r"The controller does not run .* The groups a go on as before the change"):
            changed.restart(groups, patience_seconds=0.0)
    assert "end a" not in groups.asked


def test_without_the_store_groups_go_on(change: Callable[..., Changed]) -> None:
    """Where nobody can ask a group's driver, it goes on as before the change, and the sentence says so."""
    changed = change("group_a", "ingest")
    with pytest.raises(Refused, match="The control store is not read, so the groups a go on as before the change"):
        changed.restart(None)
    assert changed.owed() == ["jobs.group_a"]
    until(lambda: changed.active() == ["jobs.group_a"], "ingest goes on as before")


def test_a_run_that_began_after_the_change_goes_on(
    workspace: StandIn, admin: WorkspaceClient, change: Callable[..., Changed]
) -> None:
    """A group that has started again by itself is not disturbed a second time."""
    changed, groups = change("group_a"), Driven()
    job_id = int(changed.steps[0].id or 0)
    admin.jobs.cancel_all_runs(job_id=job_id)
    until(lambda: not changed.active(), "the run does not end")
    started(admin, job_id)
    changed.restart(groups)
    assert "end a" not in groups.asked
    assert changed.active() == ["jobs.group_a"]


def test_a_process_runs_again_when_a_later_one_has_reported(tmp_path: Path) -> None:
    """A run that ends or still starts does not count, and a new controller differs from the old one."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    create(engine, Group("a", "databricks"), "ann", "", placing())
    groups = StoredGroups(settings, paths, engine)
    assert groups.controller() is None
    with leased(engine, settings.store, "controller", "main"):
        start_driver(engine, "controller", "main", None)
        heartbeat(engine, "controller", "main", "running", None)
        old = groups.controller()
        start_driver(engine, "controller", "main", None)
        heartbeat(engine, "controller", "main", "running", None)
        assert groups.controller() not in {None, old}
    assert groups.restart("a") is None
    first = begin_run(engine, "a", backend="databricks")
    assert first is not None
    start_driver(engine, "group", "a", None, first)
    heartbeat(engine, "group", "a", "running", None)
    assert groups.restart("a") == first
    assert open_runs(engine)["a"].stop_requested_at is not None
    assert not groups.runs_again("a", first)
    end_run(engine, first, "it ended", died=False)
    later = begin_run(engine, "a", backend="databricks")
    assert not groups.runs_again("a", first)
    with leased(engine, settings.store, "group", "a", later):
        start_driver(engine, "group", "a", None, later)
        assert not groups.runs_again("a", first)
        heartbeat(engine, "group", "a", "running", None)
        assert groups.runs_again("a", first)
    assert not groups.runs_again("a", None)
    with engine.begin() as connection:
        connection.execute(update(group_rows).values(backend="none"))
    assert groups.runs_again("a", first), "a group that is released has no job that could start again"
    engine.dispose()


def test_the_journal_keeps_what_is_owed_beside_its_entries(
    change: Callable[..., Changed], admin: WorkspaceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with all that is known has entries as version 0.1.0 reads them, which knows no runs in them."""
    monkeypatch.setattr(journal, "_MOST_FILES", 0)
    changed = change("group_a")
    changed.journal().settle()
    newest = max(str(each.path) for each in admin.workspace.list(f"{ROOT}/journal"))
    record = json.loads(base64.b64decode(admin.workspace.export(newest).content or ""))
    assert record["entries"]["jobs.group_a"].keys() == {"kind", "label", "id", "applied"}
    assert changed.owed() == ["jobs.group_a"]
