"""Jobs of a Databricks workspace and their runs, as the Jobs API 2.2 has them (databricks-sdk, `service/jobs.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.platforms.databricks.workspace.client import Workspace

ENVIRONMENT_TAG: Final = "turnout_env"
"""The tag with the environment's name that everything of ours has which can have tags."""

START_SECONDS: Final = 1200.0
"""From the start of a run until its driver reports: a cluster takes minutes."""

STOP_SECONDS: Final = 300.0
"""From the request to end until the run has ended its pass and its cluster is given back."""

_PAGE: Final = 100  # the most that a list returns at once
_OVER: Final = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
_OPEN: Final = frozenset({"QUEUED", "PENDING", "RUNNING", "TERMINATING", "BLOCKED", "WAITING", "WAITING_FOR_RETRY"})
_BEFORE: Final = frozenset({"QUEUED", "PENDING", "BLOCKED"})
_CODES: Final[Mapping[str, str]] = {
    "USER_CANCELED": "a person or program cancelled it",
    "CANCELED": "it was cancelled",
    "DRIVER_ERROR": "the cluster's driver node failed",
    "CLUSTER_ERROR": "its cluster failed",
    "CLOUD_FAILURE": "the cloud failed",
    "LIBRARY_INSTALLATION_ERROR": "a library could not be installed on its cluster",
    "UNAUTHORIZED_ERROR": "its principal lacks a right",
    "STORAGE_ACCESS_ERROR": "its cluster cannot reach the storage",
    "INVALID_CLUSTER_REQUEST": "the workspace refuses its cluster's definition",
    "WORKSPACE_RUN_LIMIT_EXCEEDED": "the workspace runs as many tasks as it may",
    "CLUSTER_REQUEST_LIMIT_EXCEEDED": "the workspace starts as many clusters as it may",
    "MAX_CONCURRENT_RUNS_EXCEEDED": "another run of its job is active",
    "MAX_JOB_QUEUE_SIZE_EXCEEDED": "the queue of its job is full",
    "BUDGET_POLICY_LIMIT_EXCEEDED": "its budget is used up",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job of an environment, as far as a start needs it."""

    job_id: int
    name: str
    parameters: tuple[str, ...]  # of its first task


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run as the workspace describes it."""

    run_id: int
    is_over: bool | None  # None: the workspace says a state that this version does not know
    has_begun: bool  # its task may run
    ending: str  # how it ended, as a clause, or its state
    page: str  # its address for people; empty where none is known
    was_skipped: bool = False  # it never began, as another run of its job was active


def find_job(workspace: Workspace, name: str, environment: str) -> Job | None:
    """Return the job with this exact name that carries the environment's tag; None where there is none.

    Names are not unique, and the server's filter ignores case: of two such jobs the older one counts, by its id.

    Raises:
        Refused: we may not.
        Transient: the workspace does not answer.
    """
    query = {"name": name, "limit": _PAGE, "expand_tasks": "true"}
    found = []
    for each in workspace.listed("/api/2.2/jobs/list", "jobs", query):
        settings = each.get("settings", {})
        if settings.get("name") == name and settings.get("tags", {}).get(ENVIRONMENT_TAG) == environment:
            found.append(Job(int(each["job_id"]), name, _parameters(settings)))
    return min(found, key=lambda job: job.job_id, default=None)


def run_now(workspace: Workspace, job_id: int, token: str, parameters: Sequence[str]) -> int:
    """Start a run whose task gets these parameters instead of its own; return its id.

    A second call with the same token, of at most 64 characters, returns the run of the first.

    Raises:
        Refused: we may not, or the job does not exist.
        Unclear: the workspace does not answer.
    """
    body = {"job_id": job_id, "idempotency_token": token, "python_params": list(parameters)}
    return int(workspace.send("POST", "/api/2.2/jobs/run-now", body)["run_id"])


def read_run(workspace: Workspace, run_id: int) -> JobRun:
    """Return what the workspace knows of a run.

    Raises:
        Absent: it knows none with this id.
        Refused: we may not.
        Transient: the workspace does not answer.
    """
    found = workspace.get("/api/2.2/jobs/runs/get", {"run_id": run_id})
    status, older = found.get("status", {}), found.get("state", {})
    said = str(status.get("state") or older.get("life_cycle_state") or "")
    is_over = True if said in _OVER else False if said in _OPEN else None
    ending = _ending(status.get("termination_details", {}), older) if is_over else f"its run is {said or 'unknown'}"
    is_skipped = "SKIPPED" in {older.get("life_cycle_state"), status.get("termination_details", {}).get("code")}
    is_skipped |= status.get("termination_details", {}).get("code") == "MAX_CONCURRENT_RUNS_EXCEEDED"
    page = str(found.get("run_page_url") or "")
    return JobRun(run_id, is_over, said not in _BEFORE, ending, page, was_skipped=is_skipped)


def cancel_run(workspace: Workspace, run_id: int) -> None:
    """End a run without asking it; a run that has ended keeps its outcome.

    Raises:
        Absent: there is none with this id.
        Refused: we may not.
        Transient: the workspace does not answer.
    """
    workspace.send("POST", "/api/2.2/jobs/runs/cancel", {"run_id": run_id})


def _parameters(settings: Mapping[str, Any]) -> tuple[str, ...]:
    for task in settings.get("tasks", []):
        for kind in ("python_wheel_task", "spark_python_task"):
            if kind in task:
                return tuple(str(each) for each in task[kind].get("parameters", []))
    return ()


def _ending(details: Mapping[str, Any], older: Mapping[str, Any]) -> str:
    code = str(details.get("code") or older.get("result_state") or older.get("life_cycle_state") or "")
    if code == "SUCCESS":
        return "its run succeeded"
    message = str(details.get("message") or older.get("state_message") or "").strip().rstrip(".")
    known = _CODES.get(code, f"its run ended with {code}" if code else "how its run ended is not known")
    return f"{known}: {message}" if message else known
