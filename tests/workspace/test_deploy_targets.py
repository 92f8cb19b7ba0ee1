"""Guards that a target of the bundle never touches what belongs to another one."""

import base64
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import PermissionDenied
from databricks.sdk.service.workspace import AclPermission

from pipeline.base.errors import Refused
from pipeline.cli.deploy import parse
from pipeline.control.deployed_groups import open_groups
from pipeline.platforms.databricks.deploy import opening
from pipeline.platforms.databricks.deploy.build import AppSource, Wheel
from pipeline.platforms.databricks.deploy.journal import Journal
from pipeline.platforms.databricks.deploy.plan import in_order, removals
from pipeline.platforms.databricks.deploy.rules import require_rules
from pipeline.settings.storage import machine_folder
from tests.workspace.deploy_world import SENTINEL, Target, copy_bundle, prepare, sign_in
from tests.workspace.drifts import UNMARKED, Change
from tests.workspace.fixtures import client, until
from tests.workspace.killing import ends_at
from tests.workspace.running import StandIn

T = TypeVar("T")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """A stand-in without PostgreSQL: the members of the store's roles are no part of this file."""
    with StandIn(tmp_path_factory.mktemp("workspace")) as started:
        prepare(started)
        patch = sign_in(started)
        yield started
        patch.undo()


@pytest.fixture
def target(workspace: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    kinds = {name: kind for name, kind in opening.KINDS.items() if name != "store_roles"}
    monkeypatch.setattr(opening, "KINDS", kinds)
    monkeypatch.setattr("tests.workspace.deploy_world.KINDS", kinds)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("TURNOUT_STORE__URL", "TURNOUT_ENVIRONMENT", "TURNOUT_ENV_DIR"):
        monkeypatch.delenv(name, raising=False)
    made = Target(workspace, copy_bundle(tmp_path / "bundle"))

    def build(_: Path, out: Path) -> AppSource:
        built = made.built()
        return AppSource(out, Wheel(built.wheel, built.version, ""), {path.name: 1 for path in built.files})

    monkeypatch.setattr(opening, "build_app_source", build)
    return made


def opened(target: Target, env_dir: Path, **given: str) -> opening.Opened:
    given = {**target.variables(), **given}
    out = target.folder / "app-source"
    return opening.open_deployment(env_dir, target.folder, target.name, given, out, open_groups, parse)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TURNOUT_STORE__URL", "lakebase://projects/turnout-dev/branches/production/endpoints/primary/turnout"),
        ("TURNOUT_STORE__URL", "postgresql://user:hidden@host/store"),
        ("TURNOUT_ENVIRONMENT", "dev"),
        ("TURNOUT_ACCESS__SCHEMA_NAME", "turnout_dev"),
    ],
)
def test_a_variable_of_another_target_is_refused(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    """A shell with the store or environment of another target is refused before a request, without the value."""
    target.name = "staging"
    monkeypatch.setenv(name, value)
    before = len(target.workspace.requests())
    with pytest.raises(Refused, match=f"The variable {name} of this shell differs .*target staging") as refused:
        opened(target, tmp_path)
    assert "hidden" not in str(refused.value)
    assert len(target.workspace.requests()) == before


def test_the_same_variable_is_taken(target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell that names the target's own environment changes nothing, and the places are those of the bundle."""
    monkeypatch.setenv("TURNOUT_ENVIRONMENT", "dev")
    found = opened(target, tmp_path)
    assert found.places == {
        "environment": "dev",
        "root": "s3://tables/dev/",
        "store": "lakebase://projects/turnout-dev/branches/production/endpoints/primary/turnout",
    }
    assert found.environ["TURNOUT_STORE__URL"] == found.places["store"]


def test_a_store_that_is_a_secret_is_not_compared_silently(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the bundle takes the store from a secret, a plan says that the shell's store may be another one."""

    def edit(tree: Any) -> None:
        cluster = tree["resources"]["jobs"]["controller"]["job_clusters"][0]["new_cluster"]
        cluster["spark_env_vars"]["TURNOUT_STORE__URL"] = "{{secrets/turnout-dev/store}}"

    target.edit("resources/jobs.yml", edit)
    assert not [note for note in opened(target, tmp_path).notes if "may be another" in note]
    monkeypatch.setenv("TURNOUT_STORE__URL", "postgresql://user:hidden@127.0.0.1:1/store")
    notes = opened(target, tmp_path).notes
    assert [note for note in notes if note.startswith("The control store of this shell may be another")] == [notes[0]]
    assert "hidden" not in str(notes)


@pytest.mark.parametrize("stated", ["in the target", "as a value"])
def test_an_environment_of_another_target_is_refused(target: Target, stated: str) -> None:
    """Where the bundle or a value names another URL than --env-dir, neither wins: the refusal names both."""
    target.name = "prod"
    env_dir = machine_folder("s3://games/dev")
    given = {key: value for key, value in target.variables().items() if key != "root"}
    if stated == "as a value":
        given["root"] = "s3://games/prod"
    else:
        own = {"root": "s3://games/${bundle.target}/"}
        target.edit("databricks.yml", lambda top: top["targets"]["prod"].setdefault("variables", {}).update(own))
    with pytest.raises(Refused, match=r"at s3://games/dev, and `root` .* is 's3://games/prod/?'"):
        opening.open_deployment(env_dir, target.folder, "prod", given, target.folder / "app-source", open_groups, parse)


def _target(name: str, **more: Any) -> Callable[[Any], object]:
    return lambda top: top["targets"][name].update(more)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_target("dev", workspace=None), "target dev: workspace.root_path is missing"),
        (_target("dev", workspace={"root_path": "turnout/dev"}), "must be a folder below /Workspace"),
        (_target("dev", workspace={"root_path": "/Workspace/a/../b"}), "must be a folder below /Workspace"),
        (_target("dev", workspace={"root_path": "/Workspace/${x}/b"}), "must be a folder below /Workspace"),
        (_target("dev", workspace={"root_path": "/Workspace/a/"}), "must be a folder below /Workspace"),
        (_target("dev", workspace={"root_path": "/Workspace/Shared/a"}), "is below /Workspace/Shared"),
        (_target("eu"), "targets dev and eu share the folder /Workspace/Applications/turnout/dev"),
        (
            _target("eu", workspace={"root_path": "/Workspace/Applications/turnout/dev/eu"}),
            "targets dev and eu share the folder /Workspace/Applications/turnout/dev:",
        ),
        (_target("prod", variables={"environment": "staging"}), "targets staging and prod have the same environment"),
        (_target("dev", variables={"environment": "prod"}), "targets dev and prod have the same environment"),
    ],
)  # fmt: skip
def test_targets_that_would_share_are_refused(target: Target, change: Callable[[Any], object], said: str) -> None:
    """No two targets share a folder or an environment, whichever is chosen, and no folder is open to all."""

    def edit(top: Any) -> None:
        top["targets"]["eu"] = {"workspace": {"root_path": "/Workspace/Applications/turnout/dev"}}
        if "eu" not in said:
            top["targets"].pop("eu")
        change(top)

    target.edit("databricks.yml", edit)
    bundle, wanted = target.bundle()
    with pytest.raises(Refused) as refused:
        require_rules(bundle, wanted, parse)
    assert said in str(refused.value)


def test_a_given_environment_of_another_target_is_refused(target: Target, tmp_path: Path) -> None:
    """A value of the command line does not make one target's environment that of another."""
    with pytest.raises(Refused, match="have the same environment, prod"):
        opened(target, tmp_path, environment="prod")


def test_the_journal_of_another_target_is_refused(target: Target, admin: WorkspaceClient) -> None:
    """A target whose folder has the journal of another one, or of another environment, reads nothing of it."""
    target.apply()
    path = "/Workspace/Applications/turnout/dev"
    target.edit("databricks.yml", lambda top: top["targets"].update(eu={"workspace": {"root_path": path}}))
    jobs = sorted(str(job.settings and job.settings.name) for job in admin.jobs.list())
    with pytest.raises(Refused, match="is of target dev, environment dev, not of target eu, environment eu"):
        Target(target.workspace, target.folder, "eu").deployment()
    assert sorted(str(job.settings and job.settings.name) for job in admin.jobs.list()) == jobs
    target.edit("databricks.yml", lambda top: top["variables"]["environment"].update(default="games"))
    with pytest.raises(Refused, match="environment dev, not of target dev, environment games"):
        target.deployment()


def test_only_admins_write_where_the_wheel_is(target: Target, admin: WorkspaceClient) -> None:
    """A plain user cannot replace the wheel or the journal; drivers, the controller and the app can read the wheel."""
    target.apply()
    eve = client(target.workspace, target.workspace.add_principal("eve", kind="user", groups=("users",)))
    wheel = wheel_of(target)
    content = base64.b64encode(b"eve").decode()
    for path in (wheel, f"{target.bundle()[0].root_path}/journal/999999.json"):
        with pytest.raises(PermissionDenied):
            eve.workspace.import_(path, content=content, overwrite=True)
    with pytest.raises(PermissionDenied):
        eve.workspace.delete(target.bundle()[0].root_path, recursive=True)
    for name in ("drivers", "controller"):
        assert client(target.workspace, target.workspace.identity(name).token).workspace.export(wheel).content
    folder = admin.workspace.get_status(wheel.rpartition("/")[0]).object_id
    held = admin.permissions.get("directories", str(folder)).access_control_list or []
    assert admin.apps.get("turnout-dev").service_principal_client_id in {each.service_principal_name for each in held}


def test_a_right_on_the_folder_is_drift(target: Target, admin: WorkspaceClient) -> None:
    """A right to write that somebody gives on the target's folder is drift, and the next apply takes it back."""
    target.apply()
    folder = admin.workspace.get_status(target.bundle()[0].root_path).object_id
    body = {"access_control_list": [{"group_name": "users", "permission_level": "CAN_EDIT"}]}
    admin.api_client.do("PATCH", f"/api/2.0/permissions/directories/{folder}", body=body)
    assert [step.address for step in target.deployment().drift()] == ["folders.root"]
    target.apply()
    assert target.deployment().drift() == []
    assert target.changes() == []


def test_a_changed_wheel_is_drift(target: Target, admin: WorkspaceClient) -> None:
    """A wheel whose content is another one than was applied is drift, and the next apply writes it again."""
    target.apply()
    wheel = wheel_of(target)
    admin.workspace.import_(wheel, content=base64.b64encode(b"eve").decode(), overwrite=True)
    assert [step.address for step in target.deployment().drift()] == [f"files.{'/'.join(wheel.rsplit('/', 2)[1:])}"]
    target.apply()
    assert base64.b64decode(admin.workspace.export(wheel).content or "") == target.content.encode()
    assert target.deployment().drift() == []


def wheel_of(target: Target) -> str:
    return f"{target.bundle()[0].root_path}/files/{target.content}/{target.built().wheel.name}"


@pytest.mark.parametrize("applies", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("does", ["apply", "uninstall"])
def test_a_plan_from_before_another_apply_does_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch, applies: int, does: str
) -> None:
    """A plan that a person looked at while another apply ended sends no change, whatever the journal has settled."""
    monkeypatch.setattr("pipeline.platforms.databricks.deploy.journal._MOST_FILES", 3)
    monkeypatch.setattr("pipeline.platforms.databricks.deploy.journal._KEPT", 5)
    target.apply()
    target.content = "old001"
    stale = target.deployment()
    steps = stale.plan() if does == "apply" else stale.uninstall_plan()
    for number in range(applies):
        target.content = f"new{number:03}"
        target.apply()
    before = len(target.workspace.requests())
    with pytest.raises(Refused, match=r"has since the plan.*then plan again"):
        stale.apply(steps, print, restart=False) if does == "apply" else stale.uninstall(steps, print)
    assert {each["method"] for each in target.workspace.requests()[before:] if each["who"] == sender(target)} == {"GET"}
    assert target.changes() == []


@pytest.mark.long
def test_numbers_of_the_journal_are_not_taken_twice(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apply that stood still while others settled the journal finds its next number taken."""
    monkeypatch.setattr("pipeline.platforms.databricks.deploy.journal._MOST_FILES", 3)
    target.apply()
    still = target.deployment().journal
    for number in range(3):
        target.content = f"new{number:03}"
        target.apply()
    with pytest.raises(Refused, match="Another `turnout deploy` works on this target"):
        still.write("create", "jobs.x", "x")
    assert target.changes() == []


@pytest.mark.proves("G281")
def test_an_uninstall_goes_back_the_way_of_the_installation(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """An uninstall removes the newest thing first, also after the journal was settled and a thing made again."""
    monkeypatch.setattr("pipeline.platforms.databricks.deploy.journal._MOST_FILES", 3)
    deployment = target.deployment()
    made = [each.address for each in in_order(deployment.resources)]
    journal = Journal(deployment.scope.workspace, f"/Workspace/{uuid.uuid4().hex}/journal", "dev", "dev")
    for address in (*made, "secret_scopes.turnout"):
        journal.write("create", address, address)
        journal.write("made", address, address, address)
    journal.settle()
    read = Journal.read(deployment.scope.workspace, journal.folder.removesuffix("/journal"), "dev", "dev")
    assert [step.address for step in removals(deployment.kinds, {}, read.entries)] == made[::-1]


def sender(target: Target) -> str:
    return str(client(target.workspace).current_user.me().user_name)


@pytest.fixture
def bea(workspace: StandIn) -> str:
    """Return the token of a second admin."""
    return workspace.add_principal(f"bea-{uuid.uuid4().hex}@turnout.example", kind="user", admin=True)


def as_somebody(target: Target, token: str, act: Callable[[], T]) -> T:
    patch = sign_in(target.workspace, token)
    try:
        return act()
    finally:
        patch.undo()


def test_a_second_admin_takes_nothing_from_the_first(target: Target, admin: WorkspaceClient, bea: str) -> None:
    """After one person's apply another person's finds nothing to do, and who made a thing still manages it."""
    target.apply()
    assert as_somebody(target, bea, target.changes) == []
    admin.secrets.put_acl("turnout-dev", "users", AclPermission.READ)
    target.content = "newone"
    assert "secret_scopes.turnout" in [step.address for step in as_somebody(target, bea, target.apply)]
    assert target.changes() == []
    held = {(each.principal, str(each.permission)) for each in admin.secrets.list_acls("turnout-dev")}
    assert (target.workspace.admin_name, "AclPermission.MANAGE") in held


@pytest.mark.long
def test_a_second_admin_goes_on_where_the_first_was_killed(
    target: Target, admin: WorkspaceClient, bea: str, tmp_path: Path
) -> None:
    """A scope that one person's apply made and did not mark is completed by another person's."""
    remove(target, admin)
    assert ends_at(1, target.apply, tmp_path / "log", of_requests="/scopes/create") is not None
    as_somebody(target, bea, target.apply)
    assert target.changes() == []


def remove(target: Target, admin: WorkspaceClient) -> None:
    """Uninstall, and wait until the app's name is free."""
    target.apply()
    deployment = target.deployment()
    deployment.uninstall(deployment.uninstall_plan(), lambda _: None)
    until(lambda: not list(admin.apps.list()), "the app is not deleted")


@pytest.mark.parametrize(("address", "change"), UNMARKED)
def test_a_thing_of_our_name_without_the_mark_is_refused(
    target: Target, admin: WorkspaceClient, address: str, change: Change
) -> None:
    """A thing of our name without our mark may be another team's, also where the journal names it; `adopt` takes it."""
    target.apply()
    change(admin)
    before = len(target.workspace.requests())
    with pytest.raises(Refused, match=f"is not of this environment.*adopt {address}"):
        target.apply()
    sent = {(each["method"], each["who"]) for each in target.workspace.requests()[before:]}
    assert ("GET", sender(target)) in sent
    assert not [method for method, who in sent if who == sender(target) and method != "GET"]
    assert address in [step.address for step in target.deployment().drift()]
    target.deployment().adopt(address)
    assert target.changes() == []


def test_a_scope_that_others_made_anew_is_left(target: Target, admin: WorkspaceClient) -> None:
    """A scope of our name that another team made after ours was deleted is neither taken nor removed."""
    target.apply()
    admin.secrets.delete_scope("turnout-dev")
    admin.secrets.create_scope("turnout-dev")
    admin.secrets.put_secret("turnout-dev", "payments_key", string_value="x")
    with pytest.raises(Refused, match="is not of this environment"):
        target.deployment().plan()
    (step,) = [each for each in target.deployment().uninstall_plan() if each.address == "secret_scopes.turnout"]
    assert step.what == "keep"
    admin.secrets.delete_scope("turnout-dev")
    remove(target, admin)


@pytest.mark.proves("G280")
@pytest.mark.parametrize("is_made_again_by", ["apply", pytest.param("a person", marks=pytest.mark.long)])
def test_the_app_reads_a_scope_that_was_made_again(
    target: Target, admin: WorkspaceClient, is_made_again_by: str
) -> None:
    """After its scope was deleted and made again the app's principal may read it, and its process has the secrets."""
    target.apply()
    admin.secrets.delete_scope("turnout-dev")
    if is_made_again_by == "a person":
        admin.secrets.create_scope("turnout-dev")
        target.deployment().adopt("secret_scopes.turnout")
        target.put_secrets()
    assert "apps.dashboard" in [step.address for step in target.deployment().drift()]
    assert "apps.dashboard" in [step.address for step in target.apply()]
    principal = str(admin.apps.get("turnout-dev").service_principal_client_id)
    assert admin.secrets.get_acl("turnout-dev", principal).permission == AclPermission.READ
    assert target.deployment().drift() == []
    assert target.changes() == []


def test_an_uninstall_names_the_secrets_that_go(target: Target, admin: WorkspaceClient) -> None:
    """An uninstall says first which secrets are in the scope that it removes, without values."""
    target.apply()
    admin.secrets.put_secret("turnout-dev", "kafka_password", string_value=SENTINEL)
    (said,) = [str(each) for each in target.deployment().uninstall_plan() if each.address == "secret_scopes.turnout"]
    assert "the secret kafka_password" in said
    assert "turnout_env" not in said
    assert SENTINEL not in said


@pytest.mark.long
def test_copies_of_jobs_are_named_and_left(target: Target, admin: WorkspaceClient) -> None:
    """A job with our tag that the journal does not name is in what plans, drift and uninstall say, and is left."""
    target.apply()
    assert target.deployment().others(target.deployment().plan()) == []
    (job,) = admin.jobs.list(name="turnout dev maintenance")
    settings: Any = admin.api_client.do("GET", "/api/2.2/jobs/get", query={"job_id": job.job_id})
    for name in ("turnout dev maintenance", "a copy"):
        made: Any = admin.api_client.do("POST", "/api/2.2/jobs/create", body={**settings["settings"], "name": name})
        deployment = target.deployment()
        for steps in ([], deployment.plan(), deployment.uninstall_plan()):
            (said,) = deployment.others(steps)
            assert f"Job {name!r} (id {made['job_id']})" in said
            assert "is left as it is" in said
        remove(target, admin)
        assert admin.jobs.get(made["job_id"]).job_id == made["job_id"]
        admin.jobs.delete(made["job_id"])
        target.apply()
        (job,) = admin.jobs.list(name="turnout dev maintenance")
