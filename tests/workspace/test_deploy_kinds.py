"""Guards kinds of `turnout deploy` one by one: bodies of requests, apps that do not start, marks, commands."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from databricks.sdk import WorkspaceClient
from databricks.sdk.service import apps, catalog, dashboards, iam, jobs, postgres, sql
from databricks.sdk.service.apps import App, ApplicationState

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.platforms.databricks.deploy import opening
from pipeline.platforms.databricks.deploy.build import AppSource, Wheel
from pipeline.platforms.databricks.deploy.kinds.apps import Apps
from pipeline.platforms.databricks.deploy.kinds.kind import Scope, carries
from pipeline.platforms.databricks.deploy.rules import lost
from pipeline.platforms.databricks.workspace.client import Workspace, open_workspace
from tests.workspace.deploy_world import Target, copy_bundle, prepare, sign_in
from tests.workspace.drifts import SECRET, write_secret
from tests.workspace.running import StandIn

JUDGES: Final[Mapping[str, Any]] = {  # the end of a path → the dataclass of its body, or of a field of it
    "/jobs/create": jobs.JobSettings,
    "/jobs/reset": ("new_settings", jobs.JobSettings),
    "/api/2.0/apps": apps.App,
    "/update": ("app", apps.AppUpdate),
    "/deployments": apps.AppDeployment,
    "/schemas": catalog.SchemaInfo,
    "/external-locations": catalog.ExternalLocationInfo,
    "/projects": ("spec", postgres.ProjectSpec),
    "/roles": ("spec", postgres.RoleRoleSpec),
    "/databases": ("spec", postgres.DatabaseDatabaseSpec),
    "/api/2.0/alerts": sql.AlertV2,
    "/lakeview/dashboards": dashboards.Dashboard,
    "/published": dashboards.PublishedDashboard,
}


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
    return Target(workspace, copy_bundle(tmp_path / "bundle"))


def test_bodies_are_those_of_the_sdk(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each body that an installation sends has the fields and values that the SDK's own dataclasses know."""
    sent: list[tuple[str, str, Any]] = []
    send = Workspace.send

    def record(self: Workspace, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
        sent.append((method, path, body))
        return send(self, method, path, body, query)

    monkeypatch.setattr(Workspace, "send", record)
    target.apply()
    judged = set()
    for method, path, body in sent:
        end = next((end for end in JUDGES if path.endswith(end)), None)
        if path.startswith("/api/2.0/permissions/") and method == "PUT":
            for each in body["access_control_list"]:
                assert list(lost(each, iam.AccessControlRequest, path)) == []
        elif method == "POST" and end is not None:
            judge = JUDGES[end]
            field, dataclass = judge if isinstance(judge, tuple) else (None, judge)
            assert list(lost(body if field is None else body[field], dataclass, path)) == []
            judged.add(end)
    assert JUDGES.keys() - judged == {"/update", "/jobs/reset"}  # of updates


def test_an_app_that_does_not_start_is_a_sentence(target: Target, admin: WorkspaceClient) -> None:
    """A deployment that fails names the reason and the logs; jobs stay as they were, and the next apply tries again."""
    target.apply()
    target.content = "bad001"
    built = target.built()
    (target.folder / "app-source" / "healthy.py").write_text("raise SystemExit(3)\n", "utf-8")

    def broken(self: Target) -> Any:
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "built", broken)
        with pytest.raises(Refused, match=r"'turnout-dev' does not start: .*code 3.*databricks apps logs turnout-dev"):
            target.apply()
        left = [step.address for step in target.deployment().plan() if step.is_change]
        assert left[0] == "apps.dashboard"
        assert {each.partition(".")[0] for each in left[1:]} == {"jobs", "files"}  # as they were before
    target.content = "good02"
    target.apply()
    assert target.changes() == []
    state = admin.apps.get("turnout-dev").app_status
    assert state is not None
    assert state.state == ApplicationState.RUNNING


def test_secrets_that_nobody_has_put_are_a_sentence(target: Target, admin: WorkspaceClient) -> None:
    """An app whose secrets are missing is not made: the plan says that it waits, the refusal how to put them."""
    target.apply()
    deployment = target.deployment()
    deployment.uninstall(deployment.uninstall_plan(), lambda _: None)
    deployment = target.deployment()
    steps = deployment.plan()
    (said,) = [str(step) for step in steps if step.address == "apps.dashboard"]
    assert said.endswith(": apply ends here until you put the secrets aws_access_key_id, aws_secret_access_key")
    with pytest.raises(Refused, match="put-secret turnout-dev aws_access_key_id`, then apply again"):
        deployment.apply(steps, lambda _: None, restart=False)
    (said,) = [str(step) for step in target.deployment().plan() if step.address == "apps.dashboard"]
    assert said.endswith("until you put the secrets aws_access_key_id, aws_secret_access_key")
    target.put_secrets()
    assert "the secrets" not in str(
        next(step for step in target.deployment().plan() if step.address == "apps.dashboard")
    )
    target.apply()
    assert target.changes() == []


def test_an_app_says_what_others_refer_to(target: Target, admin: WorkspaceClient) -> None:
    """An app has its name as id, its address, and the principal that grants name."""
    target.apply()
    deployment = target.deployment()
    state = Apps().read(Scope(open_workspace(), "dev", deployment.scope.folder), "turnout-dev")
    assert state is not None
    found = admin.apps.get("turnout-dev")
    principal = found.service_principal_client_id
    expected = {"id": found.name, "url": found.url, "service_principal_client_id": principal}
    assert expected.items() <= dict(state.attributes).items()


def test_an_app_of_somebody_else_is_not_taken(target: Target, admin: WorkspaceClient) -> None:
    """An app of our name whose description lacks the mark is refused, also where it appears after the plan."""
    definition = {"name": "turnout-theirs", "description": "turnout (turnout_env=dev)"}
    admin.apps.create(App("turnout-theirs", description="theirs (turnout_env=dev2)"), no_compute=True)
    scope = target.deployment().scope
    found = Apps().find(scope, definition)
    assert found is not None
    assert not found.is_ours
    with pytest.raises(Refused, match="same name already exists: turnout-theirs"):
        Apps().create(scope, definition)


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("a (turnout_env=dev)", True),
        ("turnout_env=dev", True),
        ("turnout_env=dev2", False),
        ("turnout_env=dev-eu", False),
        ("my_turnout_env=dev", False),
        ("turnout_env=prod", False),
        (None, False),
    ],
)
def test_a_mark_is_a_whole_word(text: str | None, is_ours: bool) -> None:
    """The mark of an environment is not part of the mark of another."""
    assert carries(text, "dev") is is_ours


def run(target: Target, *words: str) -> tuple[int, str]:
    given = [f"--var={name}={value}" for name, value in target.variables().items()]
    words = ("deploy", *words, "--bundle", str(target.folder), "--env-dir", str(target.folder / "env"), *given)
    ended = CliRunner().invoke(cli, words)
    return ended.exit_code, ended.output if ended.exception is None else f"{ended.output}{ended.exception}"


@pytest.fixture
def small(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The target, whose commands build the small app."""
    (target.folder / "env").mkdir()

    def build(_: Path, out: Path) -> AppSource:
        built = target.built()
        sizes = {path.name: path.stat().st_size for path in built.files}
        return AppSource(out, Wheel(built.wheel, built.version, ""), sizes)

    monkeypatch.setattr(opening, "build_app_source", build)
    return target


@pytest.mark.proves("G282")
def test_the_commands_say_what_they_do(small: Target, admin: WorkspaceClient) -> None:
    """`plan`, `diff`, `apply` and `drift` print steps, and no secret; `drift` ends with 1 where something drifted."""
    small.apply()
    assert run(small, "drift")[0] == 0
    admin.lakeview.trash(str(next(iter(admin.lakeview.list())).dashboard_id))
    write_secret(admin)
    said = [
        run(small, "drift"), run(small, "plan", "--json"), run(small, "diff"), run(small, "apply", "--yes"),
        run(small, "plan"),
    ]  # fmt: skip
    assert [code for code, _ in said] == [1, 0, 0, 0, 0]
    assert [text.count("spark_env_vars.DB_PASSWORD: (hidden)") for _, text in said] == [1, 1, 1, 1, 0]
    assert SECRET not in str(said)
    assert "dashboards.turnout" in said[0][1]
    steps = json.loads(said[1][1][said[1][1].index("{") :])["steps"]
    assert [each["address"] for each in steps if each["what"] == "create"] == ["dashboards.turnout"]
    assert "done: + dashboards.turnout" in said[3][1]
    for _, text in said[2:]:
        assert "Target dev: environment dev, tables below s3://tables/dev/, control store lakebase://projects/" in text
    assert "nothing to do" in said[4][1]
    assert small.workspace.admin_token not in str(said)


def test_a_wrong_bundle_sends_nothing(small: Target) -> None:
    """The rules come before the first request."""
    small.edit("resources/jobs.yml", lambda tree: tree["resources"]["jobs"]["ingest"].pop("run_as"))
    before = len(small.workspace.requests())
    code, said = run(small, "plan")
    assert code != 0
    assert "run_as is missing" in said
    assert len(small.workspace.requests()) == before
