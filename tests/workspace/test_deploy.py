"""Guards `turnout deploy` as a whole, with the committed bundle: see tests/workspace/deploy_world.py."""

import ast
import base64
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.apps import AppDeployment
from sqlalchemy import text

from pipeline.base import failpoints
from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.deploy import limits
from pipeline.platforms.databricks.deploy.kinds.store_roles import StoreRoles
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.postgres import Postgres, postgres_server
from tests.workspace.deploy_world import SENTINEL, Target, census, copy_bundle, prepare, sign_in
from tests.workspace.drifts import DRIFTS
from tests.workspace.fixtures import started, until
from tests.workspace.killing import ends_at
from tests.workspace.running import StandIn

REQUESTS: Final = (
    "/workspace/import", "/external-locations", "/external_location/turnout_dev", "/scopes/create", "/secrets/put",
    "/acls/put", "/postgres/projects", "/roles", "/databases", "/api/2.0/apps", "/permissions/apps/turnout-dev",
    "/turnout-dev/start", "/deployments", "/schemas", "/schema/main.turnout_dev", "/jobs/create",
    "/lakeview/dashboards", "/published", "/api/2.0/alerts",
)  # fmt: skip
"""Ends of the paths of what an installation sends, in its order."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def workspace(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(tmp_path_factory.mktemp("workspace"), postgres.url()) as started:
        prepare(started)
        patch = sign_in(started)
        yield started
        patch.undo()


@pytest.fixture(scope="module")
def fresh(workspace: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The bundle, of which nothing is in the workspace yet."""
    return Target(workspace, copy_bundle(tmp_path_factory.mktemp("bundle")))


@pytest.fixture(scope="module")
def target(fresh: Target) -> Target:
    """The bundle, applied; where a test has killed applies before, the last of them ends here."""
    fresh.apply()
    return fresh


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK wait shortly before it sends something again."""
    monkeypatch.setattr("databricks.sdk.clock.RealClock.sleep", lambda _, seconds: time.sleep(min(seconds, 0.01)))


def once_each(admin: WorkspaceClient) -> bool:
    """Return whether nothing is in the workspace twice."""
    return {count for each in census(admin).values() for count in each.values()} == {1}


@pytest.mark.long
def test_an_apply_that_is_killed_in_a_creation_goes_on(fresh: Target, admin: WorkspaceClient, tmp_path: Path) -> None:
    """An apply killed right after any kind of request is completed by the next, and makes nothing twice."""
    for each in REQUESTS:
        assert ends_at(1, fresh.apply, tmp_path / "log", of_requests=each) is not None, each
    fresh.apply()
    assert fresh.changes() == []
    assert once_each(admin)


@pytest.mark.parametrize(
    ("of_requests", "hits"),
    [
        pytest.param(None, (2, 4, 3, 6) * 45, marks=pytest.mark.long, id="points"),
        pytest.param("", (2, 3, 4, 5, 6, 1, 9) * 30, marks=pytest.mark.long, id="requests"),
        pytest.param(None, (3, 8, 22), id="some points"),
    ],
)
@pytest.mark.timeout(600)
def test_an_apply_that_is_killed_goes_on(
    fresh: Target, admin: WorkspaceClient, of_requests: str | None, hits: tuple[int, ...], tmp_path: Path
) -> None:
    """An apply killed at any point is completed by the next, and makes nothing twice."""
    if fresh.deployment().journal.entries:
        uninstall(fresh)
    ends = (ends_at(hit, fresh.apply, tmp_path / "log", of_requests=of_requests) for hit in hits)
    killed = Counter(itertools.takewhile(bool, ends))
    assert killed.total() == len(hits) or killed.total() > len(census(admin))
    fresh.apply()
    assert fresh.changes() == []
    assert once_each(admin)


def test_an_apply_leaves_nothing_to_do(target: Target, admin: WorkspaceClient) -> None:
    """A plan after an apply is empty, and so is the drift."""
    assert target.changes() == []
    assert target.deployment().drift() == []
    assert once_each(admin)


def test_a_run_from_before_a_change_is_found_by_the_next_plan(
    workspace: StandIn, target: Target, admin: WorkspaceClient
) -> None:
    """An apply that ends between a change and its restart, or leaves it out, owes it until that run has ended."""

    def owed() -> list[str]:
        steps = [step for step in target.deployment().plan() if step.address == "jobs.maintenance"]
        return [str(step) for step in steps if step.is_change]

    workspace.settings(pending_seconds=600.0)
    job_id = int(target.deployment().journal.entries["jobs.maintenance"].id or 0)
    started(admin, job_id)
    target.content = "beef02"
    deployment = target.deployment()
    deployment.apply(deployment.plan(), lambda _: None, restart=False)
    assert "it runs as before its last change; its run has to start again" in owed()[0]
    admin.jobs.cancel_all_runs(job_id=job_id)
    until(lambda: not owed(), "something is owed for a run that has ended")
    workspace.settings(pending_seconds=0.0)


@pytest.mark.parametrize("way", ["apply", "adopt"])
def test_a_run_that_begins_after_the_plan_is_found(
    workspace: StandIn, target: Target, admin: WorkspaceClient, way: str
) -> None:
    """A run that a change finds and no plan saw, such as after a death, is owed a restart as well."""
    workspace.settings(pending_seconds=600.0)
    job_id = int(target.deployment().journal.entries["jobs.maintenance"].id or 0)
    target.content = f"beef-{way}"
    deployment = target.deployment()
    steps = deployment.plan()
    started(admin, job_id)
    if way == "apply":
        deployment.apply(steps, lambda _: None, restart=False)
    else:
        deployment.adopt("jobs.maintenance")
    assert "jobs.maintenance" in [step.address for step in target.deployment().plan() if step.restarts]
    admin.jobs.cancel_all_runs(job_id=job_id)
    workspace.settings(pending_seconds=0.0)
    target.apply()


@pytest.mark.long
def test_updates_that_are_killed_go_on(target: Target, admin: WorkspaceClient, tmp_path: Path) -> None:
    """A new build reaches every job and the app, however often its apply is killed."""
    target.content = "beef01"
    for hit in (9, 1, 2, 3, 4, 11):
        ends_at(hit, target.apply, tmp_path / "log")
    target.apply()
    assert target.changes() == []
    assert once_each(admin)
    wheels = {
        str(library.whl)
        for job in admin.jobs.list(expand_tasks=True)
        for task in (job.settings and job.settings.tasks) or []
        for library in task.libraries or []
    }
    assert len(wheels) == 1
    assert "beef01" in wheels.pop()
    source = (admin.apps.get("turnout-dev").active_deployment or AppDeployment()).source_code_path or ""
    assert source.endswith("/beef01")


def test_jobs_are_made_after_the_store(target: Target) -> None:
    """A continuous job starts once it is there, so everything that it looks for is there before it."""
    steps = [step.address.partition(".")[0] for step in target.deployment().plan()]
    first = steps.index("jobs")
    assert {"store_roles", "postgres_databases", "secret_scopes", "external_locations", "schemas"} <= set(steps[:first])
    assert set(steps[first:]) == {"jobs", "dashboards", "alerts"}


def test_the_app_has_its_variables(workspace: StandIn, target: Target, admin: WorkspaceClient) -> None:
    """The bundle's variables reach the app, by value and by resource; a changed one makes a new deployment."""
    shown = variables_of(workspace, admin)
    assert shown["TURNOUT_ENVIRONMENT"] == "dev"
    assert shown["AWS_SECRET_ACCESS_KEY"] == SENTINEL
    assert shown["TURNOUT_STORE__URL"].endswith("/endpoints/primary")
    target.edit("resources/app.yml", lambda tree: env_of(tree).append({"name": "EXTRA", "value": "1"}))
    assert [step.address for step in target.apply()] == ["apps.dashboard"]
    assert variables_of(workspace, admin)["EXTRA"] == "1"
    target.edit("resources/app.yml", lambda tree: env_of(tree).pop())
    target.apply()
    assert "EXTRA" not in variables_of(workspace, admin)
    assert target.changes() == []


def test_the_store_opens_for_those_who_need_it(workspace: StandIn, target: Target, tmp_path: Path) -> None:
    """After an apply the controller migrates the store, and drivers and the app read and write its rows."""
    assert target.changes() == []
    url = "lakebase://projects/turnout-dev/branches/production/endpoints/primary/turnout"
    found = {}
    for name in ("controller", "drivers"):
        patch = sign_in(workspace, workspace.identity(name).token)
        patch.setenv("TURNOUT_STORE__URL", url)
        try:
            engine = open_store(*load(tmp_path))
            with engine.begin() as connection:
                found[name] = connection.execute(text("SELECT pg_has_role('turnout_user', 'MEMBER')")).scalar_one()
                owner = connection.execute(text("SELECT tableowner FROM pg_tables WHERE tablename = 'games'"))
                assert owner.scalar_one() == "turnout_owner"
                connection.execute(text("UPDATE games SET game_key = game_key"))
            engine.dispose()
        finally:
            patch.undo()
    assert found["drivers"]


def test_a_lost_answer_makes_nothing_twice(workspace: StandIn, target: Target, admin: WorkspaceClient) -> None:
    """Each change whose answer is lost is sent again by the SDK: all is there once, and as it should be."""
    uninstall(target)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for nth in range(1, 400, 2):  # each second one is what the SDK sends again
            workspace.fault(method, "/api/", nth, "cut", "after")
    before = len(workspace.requests())
    target.apply()
    cut = [each for each in workspace.requests()[before:] if each["status"] == "cut"]
    workspace.calm()
    assert len(cut) > 40
    assert target.changes() == []
    assert once_each(admin)


@pytest.mark.long
def test_two_applies_at_once_do_no_harm(target: Target, admin: WorkspaceClient) -> None:
    """Of two applies at the same time one ends with a sentence, and nothing is there twice."""
    for point in ("before_deploy_journal", "before_deploy_create", "after_deploy_create"):
        remove_job(admin, "turnout dev ingest")
        one = target.deployment()
        steps = one.plan()
        seen: list[str] = []

        def apply_too(name: str, point: str = point, seen: list[str] = seen) -> None:
            if name == point and not seen:
                seen.append(name)
                failpoints.on_hit = None
                other = target.deployment()
                other.apply(other.plan(), lambda _: None, restart=False)

        failpoints.on_hit = apply_too
        try:
            with pytest.raises(Refused, match="Another `turnout deploy` works on this target"):
                one.apply(steps, lambda _: None, restart=False)
        finally:
            failpoints.on_hit = None
        assert seen == [point]
        assert target.changes() == []
        assert once_each(admin)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.long)])
def test_a_change_by_others_is_found_and_reverted(target: Target, admin: WorkspaceClient, count: int) -> None:
    """A field of a resource that another person changes is in `drift` and in the plan; an apply sets it back."""
    draw = random.Random(38)
    drifts = draw.sample(DRIFTS, len(DRIFTS)) * (count // len(DRIFTS) + 1)
    for address, change in drifts[:count]:
        change(admin)
        deployment = target.deployment()
        assert [step.address for step in deployment.drift()] == [address], change
        steps = deployment.plan()
        changed = [step.address for step in steps if step.is_change and step.what != "restart"]
        assert changed == [address], change
        deployment.apply(steps, lambda _: None, restart=False)
    assert target.changes() == []
    assert once_each(admin)


def test_a_foreign_thing_is_refused_and_can_be_adopted(target: Target, admin: WorkspaceClient) -> None:
    """A plan refuses a job of our name without our tag; `adopt` takes that very job."""
    remove_job(admin, "turnout dev ingest")
    theirs = admin.jobs.create(name="turnout dev ingest").job_id
    with pytest.raises(Refused, match=rf"id {theirs}\), which is not of this environment.*adopt jobs.ingest"):
        target.deployment().plan()
    target.deployment().adopt("jobs.ingest")
    assert target.changes() == []
    assert [job.job_id for job in admin.jobs.list(name="turnout dev ingest")] == [theirs]


@pytest.mark.parametrize("most", ["MOST_JOBS", "MOST_TASKS"])
def test_a_workspace_without_room_is_refused(
    workspace: StandIn, target: Target, admin: WorkspaceClient, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    """A plan that the workspace has no room for is one sentence, before anything is changed; runs take room, too."""
    before = census(admin)
    workspace.settings(pending_seconds=600)  # a run that begins now does not end before the plan looks
    run = admin.jobs.run_now(next(iter(admin.jobs.list(name="turnout dev group main"))).job_id or 0)
    monkeypatch.setattr(limits, most, sum(before["jobs"].values()) + 2 if most == "MOST_JOBS" else 3)
    with pytest.raises(Refused, match=r"at most .*, and the plan adds 3\. .*nothing was changed\."):
        target.deployment(["b", "c", "d"]).plan()
    admin.jobs.cancel_run(run.run_id)
    workspace.calm()
    assert census(admin) == before


def test_no_secret_is_shown(workspace: StandIn, target: Target, admin: WorkspaceClient) -> None:
    """Neither plans nor the journal have a secret, a token or a password."""
    target.edit("resources/app.yml", lambda tree: env_of(tree).append({"name": "EXTRA", "value": "2"}))
    shown = target.changes() + [str(step) for step in target.apply()]
    target.edit("resources/app.yml", lambda tree: env_of(tree).pop())
    shown += [str(step) for step in target.apply()]
    for each in admin.workspace.list("/Workspace/Applications/turnout/dev/journal"):
        shown.append(base64.b64decode(admin.workspace.export(str(each.path)).content or "").decode())
    assert any("XDG_STATE_HOME" in each for each in shown)
    assert not [each for each in shown if SENTINEL in each or workspace.admin_token in each]


def test_a_principal_without_rights_gets_one_sentence(workspace: StandIn, target: Target) -> None:
    """A person without rights is refused before anything is changed, with a sentence of one line."""
    patch = sign_in(workspace, workspace.add_principal("nobody"))
    try:
        with pytest.raises(Refused) as refused:
            target.deployment().plan()
    finally:
        patch.undo()
    assert "\n" not in str(refused.value)
    assert "permi" in str(refused.value)


def test_an_uninstall_needs_no_store(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is away, an uninstall still says what it removes; a plan says that the store is away."""
    expected = [str(step) for step in target.deployment().uninstall_plan()]

    def away(*_: Any) -> None:
        raise Transient("the store is away")

    monkeypatch.setattr(StoreRoles, "read", away)
    assert [str(step) for step in target.deployment().uninstall_plan()] == expected
    with pytest.raises(Transient, match="the store is away"):
        target.deployment().plan()


@pytest.mark.parametrize("hits", [(3, 17), pytest.param((1, 2, 3, 4, 5) * 40, marks=pytest.mark.long)])
def test_an_uninstall_leaves_data_and_what_is_not_ours(
    target: Target, admin: WorkspaceClient, hits: tuple[int, ...], tmp_path: Path
) -> None:
    """An uninstall, killed or not, removes all of ours but data; the next install takes the data back."""
    theirs = admin.jobs.create(name="turnout dev ingest").job_id  # the same name, without the tag
    for hit in hits:
        ends_at(hit, lambda: uninstall(target), tmp_path / "log")
    uninstall(target)
    until(lambda: not list(admin.apps.list()), "the app is not deleted")
    left = census(admin)
    assert {kind: sorted(each) for kind, each in left.items() if each} == {
        "jobs": ["turnout dev ingest"],
        "schemas": ["main.turnout_dev"],
        "locations": ["turnout_dev"],
        "projects": ["projects/turnout-dev"],
        "roles": sorted(left["roles"]),
    }
    assert target.deployment().journal.entries == {}
    admin.jobs.delete(theirs or 0)
    target.apply()
    assert target.changes() == []
    assert once_each(admin)


def uninstall(target: Target) -> None:
    deployment = target.deployment()
    deployment.uninstall(deployment.uninstall_plan(), lambda _: None)


def remove_job(admin: WorkspaceClient, name: str) -> None:
    for job in admin.jobs.list(name=name):
        admin.jobs.delete(job.job_id or 0)


def env_of(tree: Any) -> list[Any]:
    env: list[Any] = tree["resources"]["apps"]["dashboard"]["config"]["env"]
    return env


def variables_of(workspace: StandIn, admin: WorkspaceClient) -> dict[str, str]:
    """Return the environment of the app's process, which our small app shows."""
    url = admin.apps.get("turnout-dev").url
    page = requests.get(f"{url}/", headers={"Authorization": f"Bearer {workspace.admin_token}"}, timeout=10)
    return dict(ast.literal_eval(page.text))


def test_a_second_admin_needs_a_role_of_the_store(workspace: StandIn, target: Target) -> None:
    """An admin without a PostgreSQL role gets a sentence with the role's name, and no advice to try again."""
    patch = sign_in(workspace, workspace.add_principal("bea@turnout.example", kind="user", admin=True))
    try:
        with pytest.raises(Refused, match=r"no PostgreSQL role in projects/turnout-dev.*the role bea@turnout\.example"):
            target.deployment().plan()
    finally:
        patch.undo()
