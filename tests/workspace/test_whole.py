"""An environment in a workspace, from `turnout deploy apply` to `uninstall`: real jobs, app, bucket and PostgreSQL."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import boto3
import pytest
import requests
from databricks.sdk import WorkspaceClient
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from pipeline.base.actor import current_user
from tests.browser.lists import choose, take
from tests.browser.served import CHROMIUM, opened
from tests.checkout import ROOT
from tests.postgres import postgres_server
from tests.storage.served import served
from tests.workspace.deploy_world import census
from tests.workspace.fixtures import client, until
from tests.workspace.running import StandIn
from tests.workspace.server.boards import WAREHOUSE
from tests.workspace.server.state import ADMIN

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
]  # a cluster of this machine takes 20 s to start

_SECONDS: Final = 240.0
_GAMES: Final = 6
SOON: Final = 90_000
"""Milliseconds in which a browser sees what a cluster of this machine has done."""


class Deployed:
    """A person at a machine with a checkout, whose environment is in a bucket."""

    def __init__(self, workspace: StandIn, url: str, folder: Path) -> None:
        self.workspace, self.url, self.sent = workspace, url, 0
        self.admin: WorkspaceClient = client(workspace)
        self.admin.catalogs.create("main")
        for name in ("drivers", "controller"):
            workspace.add_principal(name)
        self.let_use_catalog(workspace.identity("controller").name, "MANAGE")
        self.reader = "reader@turnout.example"
        workspace.add_principal(self.reader, kind="user")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABRICKS_", "TURNOUT_"))}
        self.environ = {**kept, **workspace.variables(), "XDG_STATE_HOME": str(folder / "state")}
        variables = {
            "storage_credential": "turnout", "warehouse": WAREHOUSE, "notify": workspace.admin_name,
            "drivers": workspace.identity("drivers").name, "controller": workspace.identity("controller").name,
        }  # fmt: skip
        self.bundle = [word for name, value in variables.items() for word in ("--var", f"{name}={value}")]

    def let_use_catalog(self, principal: str, *more: str) -> None:
        """Do what docs/deploy/databricks.md asks an administrator for."""
        change = {"changes": [{"principal": principal, "add": ["USE_CATALOG", *more]}]}
        self.admin.api_client.do("PATCH", "/api/2.1/unity-catalog/permissions/catalog/main", body=change)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command as the person; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", *words, "--env-dir", self.url], cwd=ROOT, env=self.environ,
            capture_output=True, text=True, timeout=_SECONDS,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout + done.stderr

    def command(self, verb: str, *words: str, code: int = 0) -> str:
        return self.run("deploy", verb, *words, *self.bundle, code=code)

    def deploy(self) -> None:
        """Follow docs/deploy/databricks.md."""
        said = self.command("apply", "--yes", code=2)
        assert "databricks secrets put-secret turnout-dev aws_access_key_id" in said
        for key, value in (("aws_access_key_id", "key"), ("aws_secret_access_key", "secret")):
            self.admin.secrets.put_secret("turnout-dev", key, string_value=value)
        assert "Made the group main" in self.command("apply", "--yes")
        store = "lakebase://projects/turnout-dev/branches/production/endpoints/primary/turnout"
        self.environ |= {"TURNOUT_STORE__URL": store, "TURNOUT_ENVIRONMENT": "dev"}

    def status(self) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", "status", "--json", "--env-dir", self.url], cwd=ROOT, env=self.environ,
            capture_output=True, text=True, timeout=_SECONDS,
        )  # fmt: skip
        return json.loads(done.stdout) if done.stdout.startswith("{") else {"drivers": [], "games": []}

    def until(self, what: str, seen: Callable[[Any], bool]) -> None:
        """Wait until the status shows something."""
        deadline = time.monotonic() + _SECONDS
        while not seen(status := self.status()):
            assert time.monotonic() < deadline, f"{what}: {status}\n{self.logs()}"

    def drivers_run(self, *names: str) -> None:
        def seen(status: Any) -> bool:
            states = {each["name"] if each["kind"] == "group" else each["kind"]: each["state"]
                      for each in status["drivers"]}  # fmt: skip
            return bool(states) and all(states.get(name) == "running" for name in names)

        self.until(f"{names} do not run", seen)

    def games_run(self) -> None:
        def seen(status: Any) -> bool:
            return [each["status"] for each in status["games"]].count("RUNNING") >= _GAMES

        self.until("the games do not run", seen)

    def events(self, count: int) -> None:
        self.run("simulate", "--events", str(count), "--games", str(_GAMES))
        self.sent += count

    def verified(self) -> str:
        """Wait until every event that was sent is in its table, and return what verify says.

        Verify knows nothing of events that ingest has not read yet.
        """
        deadline = time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "pipeline", "verify", "--complete", "--env-dir", self.url], cwd=ROOT,
                env=self.environ, capture_output=True, text=True, timeout=_SECONDS,
            )  # fmt: skip
            if done.returncode == 0 and re.search(rf"^bronze rows +{self.sent:,}$", done.stdout, re.MULTILINE):
                return done.stdout
            assert time.monotonic() < deadline, f"{done.stdout}{done.stderr}{self.status()}\n{self.logs()}"

    @contextmanager
    def dashboard(self, playwright: Playwright) -> Iterator[Page]:
        """Open the app in a browser as an admin who is signed in at the workspace."""
        url = f"{self.admin.apps.get('turnout-dev').url}/?standin_user={self.workspace.admin_name}"
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        with opened(browser, url) as page:
            yield page
        browser.close()

    def active_runs(self) -> set[int]:
        """Return the ids of runs of drivers that have not ended."""
        return {int(each.run_id or 0) for each in self.admin.jobs.list_runs(active_only=True)}

    def logs(self) -> str:
        """Return the ends of what runs and the app have printed."""
        files = sorted(self.workspace.folder.glob("runs/*.log")) + sorted(self.workspace.folder.glob("apps/*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text('utf-8', 'replace')[-1500:]}" for file in files[-8:])


def newer_checkout(folder: Path) -> Path:
    """Return a copy of this checkout with another content, of which another wheel is built."""
    for name in ("app", "docs", "grants", "listeners", "pipeline", "protos", "resources"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("requirements*"), *(ROOT / name for name in ("LICENSE", "pyproject.toml"))):
        shutil.copyfile(file, folder / file.name)
    for name in ("app.yaml", "databricks.yml"):
        shutil.copyfile(ROOT / name, folder / name)
    with (folder / "pipeline" / "__init__.py").open("a", encoding="utf-8") as module:
        module.write("# a newer version\n")
    return folder


def _move(page: Page, game: str) -> None:
    """Move a game to the group b in the browser, and see that it is done."""
    page.goto("/groups")
    choose(page, "Games", game)
    take(page, "To group", "b")
    page.get_by_role("button", name="Preview the move").click()
    page.get_by_label("Reason").fill("a test")
    page.get_by_role("button", name=re.compile(r"^Move \d")).click()
    expect(page.get_by_text("✓ succeeded: Moved and seen: 1 in b.")).to_be_visible(timeout=SOON)


def _grant(page: Page, key: str, reader: str) -> None:
    """Grant a reader a game's table in the browser, and see that it is done."""
    page.goto(f"/access?{urlencode({'view': 'change', 'do': 'give', 'of_games': key, 'to': reader})}")
    page.get_by_label("Reason", exact=True).fill("a test", timeout=SOON)
    page.get_by_role("button", name="Preview the grant").click()
    page.get_by_role("button", name=re.compile(r"^Grant \d")).click(timeout=SOON)
    expect(page.get_by_text("✓ succeeded: 1 gained read access")).to_be_visible(timeout=SOON)


def put_settings(url: str) -> None:
    """Write the environment's settings beside its tables."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    text = (
        '[access]\ncatalog = "databricks"\ncatalog_name = "main"\nschema_name = "turnout_dev"\n'
        f'[access.identities]\n{current_user()} = "{ADMIN}"\n[maintenance]\nbackend = "databricks"\n'
        f'[roles]\nmovers = ["{current_user()}", "{ADMIN}"]\naccess_admins = ["{current_user()}", "{ADMIN}"]\n'
    )
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/turnout.toml", Body=text.encode())


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    with (
        served(tmp_path / "objects") as url,
        postgres_server() as postgres,
        StandIn(tmp_path / "workspace", f"postgresql://{postgres._address}") as workspace,
    ):
        put_settings(url)
        made = Deployed(workspace, url, tmp_path)
        made.deploy()
        yield made


def test_an_environment_is_deployed_works_is_upgraded_and_leaves_nothing_but_data(deployed: Deployed) -> None:
    """From apply to uninstall no row is lost or doubled, whatever moved, was repaired or started again meanwhile."""
    deployed.drivers_run("ingest", "controller", "main")
    deployed.run("groups", "create", "b", "--backend", "databricks", "--reason", "two")
    assert "jobs.group_b" in deployed.command("apply", "--yes")
    deployed.run("groups", "restart", "b", "--no-wait", "--reason", "it had no job")
    deployed.drivers_run("b")
    deployed.events(2_000)
    deployed.games_run()
    assert "OK" in deployed.verified()

    deployed.let_use_catalog(deployed.admin.apps.get("turnout-dev").service_principal_client_id or "")
    answer = requests.get(
        deployed.admin.apps.get("turnout-dev").url or "",
        headers={"Authorization": f"Bearer {deployed.workspace.admin_token}"}, timeout=30,
    )  # fmt: skip
    assert answer.status_code == 200, "the dashboard is an app that runs"

    names = {each["game_key"]: each["game"] for each in deployed.status()["games"] if each["group"] == "main"}
    first, second = list(names)[:2]
    with sync_playwright() as playwright, deployed.dashboard(playwright) as page:
        page.goto("/")
        expect(page.get_by_role("heading", name=f"{_GAMES} streams healthy")).to_be_visible(timeout=SOON)
        _move(page, names[first])
        deployed.run("move", second, "--to", "b", "--reason", "a test")
        deployed.events(1_000)
        deployed.run("repair", "rebuild", first, "--reason", "a test")
        assert "OK" in deployed.verified()
        _grant(page, first, deployed.reader)
    assert deployed.reader in deployed.run("grants", "why", first, deployed.reader)

    _drift(deployed)
    _upgrade(deployed)
    assert "postgres_projects.store" in deployed.command("uninstall", "--yes")
    assert not census(deployed.admin)["jobs"]
    until(lambda: not list(deployed.admin.apps.list()), "the app is not deleted")
    assert "OK" in deployed.verified(), "the data stays whole"


def _drift(deployed: Deployed) -> None:
    """Change a job by hand, and set it back."""
    assert "nothing to do" in deployed.command("plan")
    job = next(iter(deployed.admin.jobs.list(name="turnout dev group main")))
    deployed.admin.api_client.do(
        "POST", "/api/2.2/jobs/update", body={"job_id": job.job_id, "new_settings": {"max_concurrent_runs": 7}}
    )
    assert "jobs.group_main" in deployed.command("drift", code=1)
    deployed.command("apply", "--yes")
    assert "nothing to do" in deployed.command("plan")


def _upgrade(deployed: Deployed) -> None:
    """Deploy a newer wheel, and see that the drivers start again and land what comes next."""
    runs = deployed.active_runs()
    said = deployed.command("apply", "--yes", "--bundle", str(newer_checkout(deployed.workspace.folder / "newer")))
    main = sum(each["group"] == "main" for each in deployed.status()["games"])
    assert f"its run has to start again: its {main} streams stand still" in said
    deployed.until("the old runs go on", lambda _: not runs & deployed.active_runs())
    deployed.drivers_run("ingest", "controller", "main", "b")
    deployed.events(500)
    assert "OK" in deployed.verified(), "an upgrade loses nothing"
