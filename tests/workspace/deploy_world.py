"""The committed bundle in a stand-in, as `turnout deploy` handles it, with a small app in place of the dashboard."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from databricks.sdk import WorkspaceClient

from pipeline.platforms.databricks.deploy.apply import Deployment
from pipeline.platforms.databricks.deploy.bundle import Bundle
from pipeline.platforms.databricks.deploy.desired import Built, desired
from pipeline.platforms.databricks.deploy.journal import Journal
from pipeline.platforms.databricks.deploy.kinds.kind import Scope
from pipeline.platforms.databricks.deploy.opening import KINDS
from pipeline.platforms.databricks.deploy.plan import DeployStep
from pipeline.platforms.databricks.workspace.client import open_workspace
from tests.checkout import ROOT
from tests.workspace.fixtures import client
from tests.workspace.running import StandIn
from tests.workspace.server.boards import WAREHOUSE

SENTINEL: Final = "sentinel-of-a-secret"
"""The value of every secret: no output, journal or error may have it."""

_APP: Final = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(repr(sorted(os.environ.items())).encode())

HTTPServer(("127.0.0.1", int(os.environ["DATABRICKS_APP_PORT"])), Healthy).serve_forever()
"""
_CONFIG: Final = 'command: ["python", "-S", "healthy.py"]\n'


@dataclass(slots=True)
class Target:
    """One target of a copy of the bundle."""

    workspace: StandIn
    folder: Path
    name: str = "dev"
    content: str = "c0ffee"  # of the built files
    token: str | None = None

    def variables(self) -> dict[str, str]:
        return {
            "root": f"s3://tables/{self.name}/", "storage_credential": "turnout", "warehouse": WAREHOUSE,
            "notify": self.workspace.admin_name,
            "drivers": self.workspace.identity("drivers").name,
            "controller": self.workspace.identity("controller").name,
        }  # fmt: skip

    def built(self) -> Built:
        folder = self.folder / "app-source"
        folder.mkdir(exist_ok=True)
        wheel = folder / f"turnout-0.1.0+{self.content}-py3-none-any.whl"
        for path, text in ((folder / "app.yaml", _CONFIG), (folder / "healthy.py", _APP), (wheel, self.content)):
            path.write_text(text, "utf-8")
        return Built((folder / "app.yaml", folder / "healthy.py", wheel), wheel, f"0.1.0+{self.content}")

    def bundle(self, groups: Sequence[str] = ()) -> tuple[Bundle, list[Any]]:
        return desired(self.folder, self.name, self.variables(), groups, self.built())

    def deployment(self, groups: Sequence[str] = ()) -> Deployment:
        """Return what a command opens: it remembers nothing of the one before."""
        bundle, wanted = self.bundle(groups)
        workspace = open_workspace(patience_seconds=3)
        scope = Scope(workspace, bundle.environment, bundle.root_path)
        kept = [each for each in wanted if each.kind in KINDS]
        return Deployment(
            scope, KINDS, kept, Journal.read(workspace, bundle.root_path, bundle.target, bundle.environment)
        )

    def apply(
        self, groups: Sequence[str] = (), done: Callable[[DeployStep], None] = lambda _: None
    ) -> list[DeployStep]:
        """Plan and apply; a person puts the secrets once their scope is there."""
        deployment = self.deployment(groups)
        steps = deployment.plan()
        if any(step.address == "secret_scopes.turnout" and not step.is_change for step in steps):
            self.put_secrets()

        def after(step: DeployStep) -> None:
            if step.address == "secret_scopes.turnout":
                self.put_secrets()
            done(step)

        deployment.apply(steps, after, restart=True)
        return [each for each in steps if each.is_change]

    def put_secrets(self) -> None:
        admin = client(self.workspace)
        for key in ("aws_access_key_id", "aws_secret_access_key"):
            admin.secrets.put_secret(f"turnout-{self.name}", key, string_value=SENTINEL)

    def changes(self) -> list[str]:
        """Return what a plan would change, but for runs: those of continuous jobs come and go."""
        steps = [step for step in self.deployment().plan() if step.is_change and step.what != "restart"]
        return [f"{step} {list(map(str, step.changes))}" for step in steps]

    def edit(self, file: str, change: Callable[[Any], None]) -> None:
        """Change a file of the bundle."""
        path = self.folder / file
        tree = yaml.safe_load(path.read_text("utf-8"))
        change(tree)
        path.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")


def copy_bundle(folder: Path) -> Path:
    """Return a copy of the committed bundle."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "databricks.yml", folder / "databricks.yml")
    shutil.copytree(ROOT / "resources", folder / "resources", dirs_exist_ok=True)
    return folder


def prepare(workspace: StandIn) -> None:
    """Give a stand-in what exists before turnout comes: people, and a catalog."""
    for name in ("drivers", "controller"):
        workspace.add_principal(name)
    client(workspace).catalogs.create("main")


def sign_in(workspace: StandIn, token: str | None = None) -> pytest.MonkeyPatch:
    """Let this process be a person of the stand-in, the admin by default, until `undo`."""
    patch = pytest.MonkeyPatch()
    for name in [each for each in os.environ if each.startswith(("DATABRICKS_", "PG"))]:
        patch.delenv(name)
    for name, value in workspace.variables(token).items():
        patch.setenv(name, value)
    return patch


def census(admin: WorkspaceClient) -> dict[str, Counter[str]]:
    """Count the things of a workspace by name: nothing may be there twice."""
    nodes = admin.api_client.do("GET", "/api/2.0/postgres/projects")
    projects = [each["name"] for each in nodes.get("projects", [])]
    roles = [
        str(each.name) for project in projects for each in admin.postgres.list_roles(f"{project}/branches/production")
    ]
    return {
        "jobs": Counter(str(each.settings.name) for each in admin.jobs.list() if each.settings),
        "apps": Counter(each.name for each in admin.apps.list()),
        "alerts": Counter(str(each.display_name) for each in admin.alerts_v2.list_alerts()),
        "dashboards": Counter(str(each.path) for each in admin.lakeview.list()),
        "scopes": Counter(str(each.name) for each in admin.secrets.list_scopes()),
        "schemas": Counter(str(each.full_name) for each in admin.schemas.list("main")),
        "locations": Counter(str(each.name) for each in admin.external_locations.list()),
        "projects": Counter(projects),
        "roles": Counter(roles),
    }
