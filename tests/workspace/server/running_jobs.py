"""The platform behind runs: starts their tasks as processes of this machine, ends them, restarts continuous jobs.

A cancelled task gets no signal before its end: none is documented [iss dotnet/spark#427].
"""

import json
import re
import sys
from collections.abc import Mapping
from typing import Final

from tests.workspace.server import lakebase, secret_scopes
from tests.workspace.server.calls import ApiError, Json
from tests.workspace.server.jobs import run_as
from tests.workspace.server.runs import is_active, new_run
from tests.workspace.server.state import WORKSPACE_ID, World

_REFERENCE: Final = re.compile(r"\{\{\s*([\w.\-]+)\s*\}\}")
_SECRET: Final = re.compile(r"\{\{secrets/([^/}]+)/([^/}]+)\}\}")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+")
_FAILURE: Final = "Workload failed, see run output for details"
"""The platform's message for every task that failed [cli testserver/jobs.go, measured]."""


def tick(world: World, _: float) -> None:
    """Give each run and each continuous job a step."""
    for run in list(world.data.runs.values()):
        if is_active(run):
            _step(world, run)
    for job in world.data.jobs.values():
        _restart(world, job)


def _step(world: World, run: Json) -> None:
    now = world.now()
    if run["cancel"] and run["life"] == "QUEUED":
        _end(world, run, "TERMINATED", "CANCELED", "USER_CANCELED", "Run cancelled.")
    elif run["cancel"]:
        _terminate(world, run, "CANCELED", "USER_CANCELED", "Run cancelled.", world.settings.cancel_seconds)
    elif run["life"] == "QUEUED":
        _promote(world, run)
    elif run["life"] == "PENDING":
        if now >= run["created"] + world.settings.pending_seconds:
            run.update(life="RUNNING", started=now)
            _advance(world, run)
    elif _is_late(world, run):
        _terminate(world, run, "TIMEDOUT", "CANCELED", "Run timed out.", 0.0)
    else:
        _advance(world, run)


def _promote(world: World, run: Json) -> None:
    """Let the oldest queued run begin where there is room."""
    job = world.data.jobs.get(run["job_id"])
    others = [each for each in world.data.runs.values() if each["job_id"] == run["job_id"] and is_active(each)]
    busy = sum(each["life"] != "QUEUED" for each in others)
    first = min(each["run_id"] for each in others if each["life"] == "QUEUED")
    if job is None or (busy < job["settings"]["max_concurrent_runs"] and first == run["run_id"]):
        run.update(life="PENDING", queue=None, message="", created=world.now())


def _terminate(world: World, run: Json, result: str, code: str, message: str, seconds: float) -> None:
    """Go through TERMINATING; then kill all processes of the run."""
    if run["terminating_since"] is None:
        run.update(life="TERMINATING", terminating_since=world.now(), message=message)
        for attempt in _open_attempts(run):
            attempt["life"] = "TERMINATING"
    if world.now() < run["terminating_since"] + seconds:
        return
    for attempt in _open_attempts(run):
        world.processes.forget(_name(attempt))
        _close(world, run, attempt, result, code, message)
    _end(world, run, "TERMINATED", result, code, message)


def _is_late(world: World, run: Json) -> bool:
    """Return whether a run exceeds its job's limit of now: the one setting that reaches active runs [sdk jobs]."""
    job = world.data.jobs.get(run["job_id"])
    limit = (job["settings"] if job else run["settings"]).get("timeout_seconds") or 0
    return bool(limit) and world.now() > run["started"] + limit


def _advance(world: World, run: Json) -> None:
    by_key = {each["task_key"]: each for each in run["tasks"]}
    for task in run["tasks"]:
        if task["result"] is not None:
            continue
        attempt = task["attempts"][-1] if task["attempts"] else None
        if attempt is not None and attempt["life"] == "RUNNING":
            _look(world, run, task, attempt)
            continue
        before = [
            by_key[each["task_key"]]["result"]
            for each in task["task"].get("depends_on") or ()
            if each["task_key"] in by_key
        ]
        if any(each not in {None, "SUCCESS"} for each in before):
            task["result"] = "UPSTREAM_FAILED"
        elif None not in before and world.now() >= task["wait_until"]:
            _begin(world, run, task)
    results = [each["result"] for each in run["tasks"]]
    if None in results:
        return
    if all(each == "SUCCESS" for each in results):
        _end(world, run, "TERMINATED", "SUCCESS", "SUCCESS", "")
    else:
        failed = next(each for each in run["tasks"] if each["result"] not in {"SUCCESS", "UPSTREAM_FAILED"})
        last = failed["attempts"][-1]
        message = f"Task {failed['task_key']} failed with message: {last['message']}."
        _end(world, run, "INTERNAL_ERROR", "FAILED", last["code"], message)


def _begin(world: World, run: Json, task: Json) -> None:
    log = world.folder / "runs" / f"{run['run_id']}.log"
    number = len(task["attempts"])
    attempt: Json = {
        "run_id": world.next_number(), "task_key": task["task_key"], "attempt_number": number, "life": "RUNNING",
        "result": None, "code": None, "message": "", "created": world.now(), "started": world.now(), "ended": None,
        "cluster_id": f"{run['run_id']}-{number}-cluster", "token": None,
        "log_from": log.stat().st_size if log.exists() else 0, "log_to": None,
    }  # fmt: skip
    task["attempts"].append(attempt)
    try:
        command = _command(world, run, task["task"], attempt)
        environ = _environ(world, run, task["task"], attempt)
        cwd = world.folder / "runs" / str(attempt["run_id"])
        (cwd / "disk").mkdir(parents=True, exist_ok=True)
        environ["TMPDIR"] = str(cwd / "disk")  # a new cluster has an empty disk
        world.processes.start(_name(attempt), command, environ, cwd, log)
    except (ApiError, OSError) as error:
        _close(world, run, attempt, "FAILED", "INVALID_RUN_CONFIGURATION", str(error).rstrip("."))
        task["result"] = "FAILED"


def _look(world: World, run: Json, task: Json, attempt: Json) -> None:
    """See whether a task's process has ended; start another attempt where the task has retries left."""
    code = world.processes.code(_name(attempt))
    if code is None:
        return
    world.processes.forget(_name(attempt))
    if code == 0:
        _close(world, run, attempt, "SUCCESS", "SUCCESS", "")
        task["result"] = "SUCCESS"
        return
    _close(world, run, attempt, "FAILED", "RUN_EXECUTION_ERROR", _FAILURE)
    retries = task["task"].get("max_retries") or 0
    if retries < 0 or len(task["attempts"]) - task["tries"] <= retries:
        task["wait_until"] = world.now() + (task["task"].get("min_retry_interval_millis") or 0) / 1000
    else:
        task["result"] = "FAILED"


def _close(world: World, run: Json, attempt: Json, result: str, code: str, message: str) -> None:
    log = world.folder / "runs" / f"{run['run_id']}.log"
    attempt.update(
        life="TERMINATED", result=result, code=code, message=message, ended=world.now(),
        log_to=log.stat().st_size if log.exists() else 0,
    )  # fmt: skip
    world.data.tokens.pop(attempt["token"] or "", None)


def _end(world: World, run: Json, life: str, result: str, code: str, message: str) -> None:
    """End a run; of a continuous job say when the next begins, later after each failure in a row."""
    now = world.now()
    run.update(life=life, result=result, code=code, message=message, ended=now)
    job = world.data.jobs.get(run["job_id"])
    if job is None:
        return
    was_long = run["started"] is not None and now - run["started"] >= world.settings.long_run_seconds
    job["failures"] = 0 if result in {"SUCCESS", "CANCELED"} else (1 if was_long else job["failures"] + 1)
    backoff = world.settings.backoff_seconds * 2 ** (job["failures"] - 1) if job["failures"] else 0.0
    job["next_start"] = now + max(world.settings.restart_seconds, backoff)


def _restart(world: World, job: Json) -> None:
    """Start a continuous job's next run: also after a cancel, unless it is PAUSED [doc jobs/continuous]."""
    continuous = job["settings"].get("continuous")
    if not continuous or continuous.get("pause_status") == "PAUSED" or world.now() < job["next_start"]:
        return
    runs = [each for each in world.data.runs.values() if each["job_id"] == job["job_id"]]
    if not any(is_active(each) for each in runs):
        was_failure = job["failures"] > 0
        new_run(world, job, "CONTINUOUS_RESTART" if was_failure else "CONTINUOUS", job["creator_user_name"], {})


def _command(world: World, run: Json, task: Json, attempt: Json) -> list[str]:
    wheel = task.get("python_wheel_task")
    if wheel is None:
        raise ApiError(400, "INVALID_RUN_CONFIGURATION", "The stand-in runs python_wheel_task only")
    given = run["asked"].get("python_params")
    if given is None:
        given = wheel.get("parameters") or [
            f"--{name}={value}" for name, value in (wheel.get("named_parameters") or {}).items()
        ]
    module = "tests.workspace.cluster" if wheel["package_name"] == "turnout" else wheel["package_name"]
    return [sys.executable, "-m", module, *(_resolved(world, run, attempt, str(each)) for each in given)]


def _resolved(world: World, run: Json, attempt: Json, text: str) -> str:
    """Put a run's values into a parameter [doc jobs/dynamic-value-references]; unknown references stay."""
    values = {
        "job.id": str(run["job_id"]),
        "job.name": run["name"],
        "job.run_id": str(run["run_id"]),
        "job.repair_count": "0",
        "job.trigger.type": run["trigger"].lower(),
        "job.start_time.timestamp_ms": str(int(run["started"] * 1000)),
        "task.name": attempt["task_key"],
        "task.run_id": str(attempt["run_id"]),
        "task.execution_count": str(attempt["attempt_number"] + 1),
        "workspace.id": WORKSPACE_ID,
        "workspace.url": world.url.removeprefix("http://"),
    }
    given = run["asked"].get("job_parameters") or {}
    for each in run["settings"].get("parameters") or ():
        value = str(given.get(each["name"], each.get("default", "")))
        values[f"job.parameters.{each['name']}"] = _replaced(value, values)
    return _replaced(text, values)


def _replaced(text: str, values: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: values.get(found[1], found[0]), text)


def _environ(world: World, run: Json, task: Json, attempt: Json) -> dict[str, str]:
    """Return the variables of a task: its cluster's, and what the platform sets."""
    job = world.data.jobs.get(run["job_id"])
    who = run_as(world.data, job) if job is not None else None
    if who is None:
        raise ApiError(400, "INVALID_RUN_CONFIGURATION", "The principal that the job runs as does not exist")
    clusters = {each["job_cluster_key"]: each["new_cluster"] for each in run["settings"].get("job_clusters") or ()}
    cluster = task.get("new_cluster") or clusters.get(task.get("job_cluster_key")) or {}

    def secret(found: re.Match[str]) -> str:
        return secret_scopes.value_for(world.data, who, found[1], found[2])

    given = {name: _SECRET.sub(secret, str(value)) for name, value in (cluster.get("spark_env_vars") or {}).items()}
    version = _VERSION.match(str(cluster.get("spark_version", "")))
    attempt["token"] = world.mint(who["id"])
    return {
        "STANDIN_SPARK_CONF": json.dumps(cluster.get("spark_conf") or {}),
        "DATABRICKS_RUNTIME_VERSION": version[0] if version else "19.0",
        "DATABRICKS_HOST": world.url,
        "DATABRICKS_TOKEN": attempt["token"],
        **lakebase.variables(world),
        **given,
    }


def _open_attempts(run: Json) -> list[Json]:
    return [each for task in run["tasks"] for each in task["attempts"] if each["result"] is None]


def _name(attempt: Json) -> str:
    return f"run {attempt['run_id']}"
