"""The platform behind apps: exports their source, starts and ends their processes, takes updates and deletions on.

An app gets SIGTERM, `stop_seconds`, SIGKILL [skill databricks-apps/references/platform-guide.md]. Packages of
`requirements.txt` are not installed: an app has those of this Python.
"""

import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import requests
import yaml

from tests.workspace.server import lakebase, rights, secret_scopes
from tests.workspace.server.app_proxy import AppProxy
from tests.workspace.server.apps import begin_deployment
from tests.workspace.server.calls import ApiError, Json
from tests.workspace.server.people import remove
from tests.workspace.server.processes import inherited
from tests.workspace.server.state import WORKSPACE_ID, World
from tests.workspace.server.trees import files_below

_MAX_BYTES: Final = 10_485_760  # of a file of the source [skill databricks-apps/references/platform-guide.md]
_START_SECONDS: Final = 600.0
_PROBE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05


def tick(world: World, _: float) -> None:
    """Give each app a step."""
    for app in list(world.data.apps.values()):
        _update(world, app)
        _STEPS[app["compute"]](world, app)


def _update(world: World, app: Json) -> None:
    update = app["update"]
    if update and update["state"] == "IN_PROGRESS" and _is_due(world, update["since"], world.settings.app_seconds):
        app["fields"].update(update["fields"])
        app["update"] = {"state": "SUCCEEDED"}


def _starting(world: World, app: Json) -> None:
    if _is_due(world, app["since"], world.settings.app_seconds):
        app.update(compute="ACTIVE", since=world.now())
        if app["source"]:
            begin_deployment(world, app, {"source_code_path": app["source"]}, app["creator"])


def _active(world: World, app: Json) -> None:
    if app["pending"] is not None:
        _deploy(world, app, app["deployments"][app["pending"]])
    elif app["active"] is not None and _code(world, app) is not None and app["status"] == "RUNNING":
        app.update(status="CRASHED", message=f"App exited with code {_code(world, app)}.")


def _deploy(world: World, app: Json, deployment: Json) -> None:
    if not _is_due(world, deployment["created"], world.settings.app_seconds):
        return
    try:
        if not deployment["began"]:
            if _ends(world, app, deployment["created"]):
                _begin(world, app, deployment)
            return
        if (code := _code(world, app)) is not None:
            raise ApiError(400, "BAD_REQUEST", f"app exited with code {code}")
        if _is_due(world, deployment["created"], _START_SECONDS):
            raise ApiError(400, "BAD_REQUEST", "app did not start within 10 minutes")
        if _answers(world, app, deployment):
            deployment.update(state="SUCCEEDED", message="App started successfully")
            app.update(active=app["pending"], pending=None, status="RUNNING", message="App has status: App is running")
    except (ApiError, OSError, yaml.YAMLError) as error:
        world.processes.forget(_name(app))
        deployment.update(state="FAILED", message=f"Error building app {app['name']}: {error}")
        app.update(pending=None, status="CRASHED" if deployment["began"] else "UNAVAILABLE", message=str(error))


def _stopping(world: World, app: Json) -> None:
    app.update(status="UNAVAILABLE", message="App status is unavailable.")
    if _ends(world, app, app["since"]):
        app.update(compute="STOPPED", since=world.now())


def _deleting(world: World, app: Json) -> None:
    ended = _ends(world, app, app["since"])
    if not ended or not _is_due(world, app["since"], world.settings.deleting_seconds):
        return
    proxy: AppProxy = world.alive.pop(f"proxy {app['name']}")
    proxy.close()
    remove(world.data, world.data.principals[app["principal"]])
    rights.forget(world.data, "apps", app["name"])
    del world.data.apps[app["name"]]


def _begin(world: World, app: Json, deployment: Json) -> None:
    deployment["began"] = True
    source = deployment["source_code_path"]
    files = files_below(world.data.nodes, source)
    if not files:
        raise ApiError(400, "BAD_REQUEST", f"source code path {source} does not exist or is empty")
    folder = world.folder / "apps" / app["name"] / deployment["deployment_id"]
    for name, content in files.items():
        if len(content) > _MAX_BYTES:
            raise ApiError(400, "BAD_REQUEST", f"file {name} exceeds the limit of {_MAX_BYTES} bytes")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    config = yaml.safe_load(files.get("app.yaml", files.get("app.yml", b"{}"))) or {}
    command = deployment.get("command") or config.get("command") or ["python", "app.py"]
    port = _free_port()
    environ = _environ(world, app, config, deployment, port)
    if command[0] in {"python", "python3"}:
        command = [sys.executable, *command[1:]]
    elif (beside := shutil.which(command[0], path=str(Path(sys.executable).parent))) is not None:
        command = [beside, *command[1:]]
    log = world.folder / "apps" / f"{app['name']}.log"
    world.processes.start(_name(app), [str(each) for each in command], environ, folder, log)
    proxy: AppProxy = world.alive[f"proxy {app['name']}"]
    proxy.upstream = port


def _environ(world: World, app: Json, config: Json, deployment: Json, port: int) -> dict[str, str]:
    who = world.data.principals[app["principal"]]
    resources = {each["name"]: each for each in app["fields"].get("resources") or ()}
    environ = {
        "DATABRICKS_HOST": world.url,
        "DATABRICKS_CLIENT_ID": who["name"],
        "DATABRICKS_CLIENT_SECRET": world.data.client_secrets[who["name"]],
        "DATABRICKS_WORKSPACE_ID": WORKSPACE_ID,
        "DATABRICKS_APP_NAME": app["name"],
        "DATABRICKS_APP_PORT": str(port),
        "PYTHONPATH": "" if "pipeline" in _packages(world, deployment) else inherited()["PYTHONPATH"],
    }
    for each in resources.values():  # the first database sets the variables [doc databricks-apps/lakebase]
        if "postgres" in each and "PGHOST" not in environ:
            environ |= {**lakebase.connection(world, each["postgres"]), "PGUSER": who["name"], "PGAPPNAME": app["name"]}
    given = [(each, "valueFrom") for each in config.get("env") or ()]
    given += [(each, "value_from") for each in deployment.get("env_vars") or ()]
    for each, field in given:
        if field in each:
            if each[field] not in resources:
                raise ApiError(400, "BAD_REQUEST", f"env {each['name']} refers to an unknown resource {each[field]}")
            environ[each["name"]] = _value(world, who, resources[each[field]])
        else:
            environ[each["name"]] = str(each.get("value", ""))
    return environ


def _packages(world: World, deployment: Json) -> set[str]:
    """Return the folders at the top of the source: where it brings our packages, those count."""
    return {
        name.partition("/")[0] for name in files_below(world.data.nodes, deployment["source_code_path"]) if "/" in name
    }


def _value(world: World, who: Json, resource: Json) -> str:
    """Return what `valueFrom` of a resource gives [doc databricks-apps/environment-variables]."""
    if "secret" in resource:
        return secret_scopes.value_for(world.data, who, resource["secret"]["scope"], resource["secret"]["key"])
    if "postgres" in resource:
        return f"{resource['postgres']['branch']}/endpoints/primary"
    if "job" in resource:
        return str(resource["job"]["id"])
    if "sql_warehouse" in resource:
        return str(resource["sql_warehouse"]["id"])
    if "app" in resource:
        return str(resource["app"]["name"])
    raise ApiError(400, "BAD_REQUEST", f"resource {resource['name']} is of a kind that the stand-in has no value for")


def _answers(world: World, app: Json, deployment: Json) -> bool:
    """Return whether the app listens, or whether its health check has answered with success."""
    proxy: AppProxy = world.alive[f"proxy {app['name']}"]
    check, key = deployment.get("health_check"), f"health {deployment['deployment_id']}"
    if not check:
        try:
            socket.create_connection(("127.0.0.1", proxy.upstream), _PROBE_SECONDS).close()
        except OSError:
            return False
        return True
    if key not in world.alive:
        world.alive[key] = False
        url = f"http://127.0.0.1:{proxy.upstream}{check.get('path', '/')}"
        threading.Thread(target=_probe, args=(world, key, url), daemon=True).start()
    return bool(world.alive[key])


def _probe(world: World, key: str, url: str) -> None:
    """Try an app's health check until it succeeds, beside the world's lock: the app may call the workspace."""
    deadline = world.now() + _START_SECONDS
    while not world.alive[key] and world.now() < deadline:
        try:
            world.alive[key] = requests.get(url, timeout=_PROBE_SECONDS).ok
        except requests.RequestException:
            time.sleep(_PAUSE_SECONDS)


def _ends(world: World, app: Json, since: float) -> bool:
    """Ask the app's process to end, kill it after a while, and return whether it has ended."""
    name = _name(app)
    if not world.processes.is_known(name):
        return True
    if world.processes.code(name) is None and not _is_due(world, since, world.settings.stop_seconds):
        if world.alive.get(f"signal {name}") != world.processes.pid(name):
            world.processes.signal(name, signal.SIGTERM)
            world.alive[f"signal {name}"] = world.processes.pid(name)
        return False
    world.processes.forget(name)
    return True


def _code(world: World, app: Json) -> int | None:
    return world.processes.code(_name(app)) if world.processes.is_known(_name(app)) else -1


def _is_due(world: World, since: float, seconds: float) -> bool:
    return world.now() >= since + seconds


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _name(app: Json) -> str:
    return f"app {app['name']}"


def _nothing(_world: World, _app: Json) -> None:
    """Wait for an order."""


_STEPS: Final[dict[str, Callable[[World, Json], Any]]] = {
    "STARTING": _starting,
    "ACTIVE": _active,
    "STOPPING": _stopping,
    "STOPPED": _nothing,
    "DELETING": _deleting,
}
