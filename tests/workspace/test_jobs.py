"""Guards jobs of the stand-in: what a definition keeps, who may do what with it, and lists."""

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, InvalidParameterValue, NotFound, PermissionDenied
from databricks.sdk.service.iam import AccessControlRequest, PermissionLevel
from databricks.sdk.service.jobs import (
    Continuous,
    CronSchedule,
    JobAccessControlRequest,
    JobPermissionLevel,
    JobRunAs,
    JobSettings,
    PauseStatus,
)

from tests.workspace.fixtures import client, wheel
from tests.workspace.running import StandIn


def test_a_create_sent_twice_is_two_jobs(admin: WorkspaceClient) -> None:
    """Names are not unique: the list by name finds both, the newest first, whatever the case."""
    made = [admin.jobs.create(name="Twice", tags={"turnout_env": str(n)}).job_id for n in range(2)]
    assert [each.job_id for each in admin.jobs.list(name="tWICE")] == made[::-1]
    assert list(admin.jobs.list(name="Twic")) == []
    tags = [each.settings.tags for each in admin.jobs.list(name="twice") if each.settings]
    assert tags == [{"turnout_env": "1"}, {"turnout_env": "0"}]


def test_get_shows_what_the_platform_added(admin: WorkspaceClient) -> None:
    """A read of a job has defaults that were not sent, which is no drift."""
    job_id = admin.jobs.create(name="defaults", tasks=[wheel("0")]).job_id
    assert job_id is not None
    job = admin.jobs.get(job_id)
    assert job.settings is not None
    assert job.settings.tasks is not None
    assert (job.settings.max_concurrent_runs, job.settings.timeout_seconds) == (1, 0)
    assert job.settings.tasks[0].run_if is not None
    assert job.run_as_user_name == job.creator_user_name


def test_arrays_come_by_a_hundred(admin: WorkspaceClient) -> None:
    """A job of 250 tasks takes three reads, which the SDK makes by itself; a list hides tasks."""
    job_id = admin.jobs.create(name="wide", tasks=[wheel(key=f"t{n}") for n in range(250)]).job_id
    assert job_id is not None
    raw = admin.api_client.do("GET", "/api/2.2/jobs/get", query={"job_id": job_id})
    assert isinstance(raw, dict)
    assert len(raw["settings"]["tasks"]) == 100
    assert raw["next_page_token"]
    whole = admin.jobs.get(job_id).settings
    assert whole is not None
    assert [each.task_key for each in whole.tasks or ()] == [f"t{n}" for n in range(250)]
    assert not [each for each in admin.jobs.list(name="wide") if each.settings and each.settings.tasks]
    expanded = next(admin.jobs.list(name="wide", expand_tasks=True))
    assert expanded.settings is not None
    assert len(expanded.settings.tasks or ()) == 250


def test_a_list_has_pages(admin: WorkspaceClient) -> None:
    """Pages of a list meet each job once; a page of more than 100 is refused."""
    made = [admin.jobs.create(name="paged").job_id for _ in range(7)]
    assert [each.job_id for each in admin.jobs.list(name="paged", limit=3)] == made[::-1]
    first = admin.api_client.do("GET", "/api/2.2/jobs/list", query={"name": "paged", "limit": 3})
    assert isinstance(first, dict)
    assert (len(first["jobs"]), first["has_more"]) == (3, True)
    with pytest.raises(InvalidParameterValue, match="between 1 and 100"):
        list(admin.jobs.list(limit=101))
    with pytest.raises(InvalidParameterValue):
        list(admin.jobs.list(page_token="invented"))


def test_reset_replaces_all_but_run_as(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A reset drops what it leaves out, except a `run_as`, which stays."""
    workspace.add_principal("runner")
    name = workspace.identity("runner").name
    job_id = admin.jobs.create(name="before", tags={"a": "b"}, run_as=JobRunAs(service_principal_name=name)).job_id
    assert job_id is not None
    admin.jobs.reset(job_id, JobSettings(name="after"))
    job = admin.jobs.get(job_id)
    assert job.settings is not None
    assert (job.settings.name, job.settings.tags, job.run_as_user_name) == ("after", None, name)
    with pytest.raises(InvalidParameterValue, match="does not exist"):
        admin.jobs.create(run_as=JobRunAs(service_principal_name="nobody"))


def test_update_merges_arrays_by_key(admin: WorkspaceClient) -> None:
    """An update replaces fields, keeps the tasks that it does not name, and removes by path."""
    job_id = admin.jobs.create(
        name="update", tasks=[wheel("0", key="a"), wheel("0", key="b")], tags={"a": "b"},
        schedule=CronSchedule("0 0 0 * * ?", "UTC"),
    ).job_id  # fmt: skip
    assert job_id is not None
    admin.jobs.update(job_id, new_settings=JobSettings(tasks=[wheel("1", key="b"), wheel("0", key="c")]))
    admin.jobs.update(job_id, fields_to_remove=["tasks/a", "schedule"])
    settings = admin.jobs.get(job_id).settings
    assert settings is not None
    wheels = {each.task_key: each.python_wheel_task for each in settings.tasks or ()}
    assert {key: each and each.parameters for key, each in wheels.items()} == {"b": ["1"], "c": ["0"]}
    assert (settings.tags, settings.schedule) == ({"a": "b"}, None)


def test_rights_come_before_existence(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A stranger gets 403 for a job that exists, and for a job that does not; the admin gets 404 for the latter."""
    stranger = client(workspace, workspace.add_principal("stranger"))
    job_id = admin.jobs.create(name="ours").job_id
    assert job_id is not None
    for call in (stranger.jobs.get, stranger.jobs.delete, stranger.jobs.run_now):
        with pytest.raises(PermissionDenied):
            call(job_id)
    assert list(stranger.jobs.list()) == []
    admin.jobs.delete(job_id)
    with pytest.raises(PermissionDenied):
        stranger.jobs.delete(job_id)
    with pytest.raises(NotFound):
        admin.jobs.delete(job_id)


def test_permissions_have_one_owner(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A PUT replaces all and needs exactly one owner; a PATCH adds; each level contains those below it."""
    token = workspace.add_principal("operator")
    operator, name = client(workspace, token), workspace.identity("operator").name
    job_id = str(admin.jobs.create(name="owned").job_id)
    may_run = JobAccessControlRequest(permission_level=JobPermissionLevel.CAN_MANAGE_RUN, service_principal_name=name)
    with pytest.raises(BadRequest, match="exactly one owner"):
        admin.jobs.set_permissions(job_id, access_control_list=[may_run])
    admin.jobs.update_permissions(job_id, access_control_list=[may_run])
    assert operator.jobs.get(int(job_id)).job_id == int(job_id)
    assert operator.jobs.run_now(int(job_id)).bind()
    with pytest.raises(PermissionDenied):
        operator.jobs.update(int(job_id), new_settings=JobSettings(name="mine"))
    shown = admin.jobs.get_permissions(job_id).access_control_list or []
    direct = {each.service_principal_name or each.user_name or each.group_name: each for each in shown}
    assert set(direct) == {name, workspace.admin_name, "admins"}
    owner = JobAccessControlRequest(permission_level=JobPermissionLevel.IS_OWNER, user_name=workspace.admin_name)
    admin.jobs.set_permissions(job_id, access_control_list=[owner])
    with pytest.raises(PermissionDenied):
        operator.jobs.get(int(job_id))
    unknown = AccessControlRequest(group_name="none", permission_level=PermissionLevel.CAN_VIEW)
    with pytest.raises(NotFound, match="does not exist"):
        admin.permissions.update("jobs", job_id, access_control_list=[unknown])


def test_a_group_gives_its_members_rights(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Permissions of a group are its members'."""
    member = client(workspace, workspace.add_principal("member", "user", groups=("readers",)))
    job_id = admin.jobs.create(name="for readers").job_id
    level = JobAccessControlRequest(permission_level=JobPermissionLevel.CAN_VIEW, group_name="readers")
    admin.jobs.update_permissions(str(job_id), access_control_list=[level])
    assert [each.job_id for each in member.jobs.list(name="for readers")] == [job_id]


@pytest.mark.parametrize(
    "settings",
    [
        {"tasks": [wheel(key="a"), wheel(key="a")]},
        {"tasks": [wheel(key="a", job_cluster_key="none")]},
        {"tags": {str(n): "" for n in range(26)}},
        {"continuous": Continuous(pause_status=PauseStatus.PAUSED), "tasks": [wheel(max_retries=1)]},
    ],
    ids=["doubled task", "unknown cluster", "too many tags", "retries of a continuous job"],
)
def test_a_definition_is_checked(admin: WorkspaceClient, settings: dict[str, object]) -> None:
    """The stand-in refuses at create what the platform refuses."""
    with pytest.raises(InvalidParameterValue):
        admin.jobs.create(**settings)  # type: ignore[arg-type]
