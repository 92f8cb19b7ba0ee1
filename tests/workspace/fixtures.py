"""Shared by the tests of the stand-in: databricks-sdk as its client, and waiting for a condition."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.service.jobs import PythonWheelTask, Run, RunLifecycleStateV2State, Task

from tests.workspace.running import StandIn

_SECONDS: Final = 20.0
T = TypeVar("T")


def client(workspace: StandIn, token: str | None = None, *, patience_seconds: int = 5) -> WorkspaceClient:
    """Return the SDK's client of a stand-in, by default the admin's."""
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    config = Config(
        host=workspace.url,
        token=token or workspace.admin_token,
        auth_type="pat",
        retry_timeout_seconds=patience_seconds,
        http_timeout_seconds=20,
    )
    return WorkspaceClient(config=config)


def until(found: Callable[[], T | None], said: str) -> T:
    """Poll until something is found, and return it."""
    deadline = time.monotonic() + _SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
    return value


def wheel(*parameters: str, key: str = "driver", **more: Any) -> Task:
    """Return a task that runs `tests.workspace.task`: CODE, a file to WAIT for or "-", words to print."""
    return Task(
        key, python_wheel_task=PythonWheelTask("tests.workspace.task", "main", parameters=list(parameters)), **more
    )


def made(admin: WorkspaceClient, *tasks: Task, **more: Any) -> int:
    """Make a job, and return its id."""
    job_id = admin.jobs.create(name="a job", tasks=list(tasks), **more).job_id
    assert job_id is not None
    return job_id


def started(admin: WorkspaceClient, job_id: int, **more: Any) -> int:
    """Start a run, and return its id."""
    return int(admin.jobs.run_now(job_id, **more).bind()["run_id"])


def ended(admin: WorkspaceClient, run_id: int) -> Run:
    """Wait for a run's end, and return it."""

    def look() -> Run | None:
        run = admin.jobs.get_run(run_id)
        return run if run.status and run.status.state == RunLifecycleStateV2State.TERMINATED else None

    return until(look, f"run {run_id} does not end")


def until_printed(workspace: StandIn, run_id: int) -> str:
    """Wait until a run has printed a whole line, and return all that it printed: `print` writes word by word."""

    def look() -> str | None:
        log = workspace.log(run_id)
        return log if log.endswith("\n") else None

    return until(look, f"run {run_id} is silent")
