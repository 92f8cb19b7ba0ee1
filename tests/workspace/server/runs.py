"""Runs of jobs as the API shows and changes them [sdk jobs]; `running_jobs` moves them.

A run has both forms of its state: `state`, which is deprecated, and `status` [sdk jobs, Run]. A run whose task failed
is `INTERNAL_ERROR`/`FAILED` in the one and `TERMINATED` with `RUN_EXECUTION_ERROR` in the other, and its task is
`TERMINATED`/`FAILED` [cli testserver/jobs.go].
"""

import json
from typing import Any, Final

from tests.workspace.server import rights
from tests.workspace.server.calls import ApiError, Call, Json, invalid, page_of, route
from tests.workspace.server.jobs import managed, paged_arrays
from tests.workspace.server.state import WORKSPACE_ID, World

_RUNS: Final = "/api/2.2/jobs/runs"
_MAX_TOKEN: Final = 64  # characters [sdk jobs, RunNow.idempotency_token]
_MAX_PARAMS: Final = 10_000  # bytes of python_params as JSON [sdk jobs, RunNow.python_params]
_MAX_PAGE: Final = 25
_OUTPUT_BYTES: Final = 5_000_000  # [sdk jobs, RunOutput.logs]
ENDED: Final = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
_TYPES: Final = {"SUCCESS": "SUCCESS", "CLOUD_FAILURE": "CLOUD_FAILURE", "INTERNAL_ERROR": "INTERNAL_ERROR"}


@route("POST", "/api/2.2/jobs/run-now")
def run_now(call: Call) -> Json:
    """Start a run. The same token gives the same run, also when it has long ended [sdk jobs, RunNow]."""
    job = managed(call, call.needed("job_id"), "CAN_MANAGE_RUN")
    body = call.body
    token = body.get("idempotency_token") or ""
    if len(token) > _MAX_TOKEN:
        raise invalid(f"The idempotency token may have at most {_MAX_TOKEN} characters.")
    if token in call.data.run_tokens:
        known = call.data.runs.get(call.data.run_tokens[token])
        if known is None:
            raise invalid(f"The run that idempotency token {token} started was deleted.")
        return {"run_id": known["run_id"], "number_in_job": known["number_in_job"]}
    params = body.get("python_params")
    if params is not None and (
        len(json.dumps(params)) > _MAX_PARAMS or not json.dumps(params, ensure_ascii=False).isascii()
    ):
        raise invalid(f"python_params must be ASCII, and at most {_MAX_PARAMS} bytes of JSON.")
    defined = {each["name"] for each in job["settings"].get("parameters") or ()}
    unknown = set(body.get("job_parameters") or {}) - defined
    if unknown:
        raise invalid(f"Job parameters {sorted(unknown)} are not defined in the job.")
    only = body.get("only")
    if only and not set(only) <= {each["task_key"] for each in job["settings"].get("tasks") or ()}:
        raise invalid(f"Tasks {only} do not exist in the job.")
    asked: Json = {key: body[key] for key in ("job_parameters", "python_params", "only", "queue") if key in body}
    run = new_run(call.world, job, "ONE_TIME", call.who["name"], asked)
    job["failures"], job["next_start"] = 0, 0.0  # a continuous job resumes at once [doc jobs/continuous]
    if token:
        call.data.run_tokens[token] = run["run_id"]
    return {"run_id": run["run_id"], "number_in_job": run["number_in_job"]}


def new_run(world: World, job: Json, trigger: str, creator: str, asked: Json) -> Json:
    """Make a run of a job: PENDING, QUEUED where the job has a queue, or SKIPPED, by how many are active."""
    data, settings = world.data, job["settings"]
    active = [each for each in data.runs.values() if each["job_id"] == job["job_id"] and is_active(each)]
    busy = [each for each in active if each["life"] != "QUEUED"]
    limit = 1 if settings.get("continuous") else settings["max_concurrent_runs"]
    queue = asked.get("queue") or settings.get("queue") or {}
    job["runs_started"] += 1
    run_id, now = world.next_number(), world.now()
    only = set(asked.get("only") or ())
    run: Json = {
        "run_id": run_id, "job_id": job["job_id"], "number_in_job": job["runs_started"],
        "name": settings.get("name", ""),
        "creator": creator, "trigger": trigger, "asked": asked, "settings": settings, "cancel": False,
        "life": "PENDING", "result": None, "message": "", "code": None, "queue": None, "repairs": [],
        "created": now, "started": None, "ended": None, "terminating_since": None,
        "tasks": [
            {"task_key": each["task_key"], "task": each, "attempts": [], "wait_until": 0.0,
                "result": None, "tries": 0}
            for each in settings.get("tasks") or () if not only or each["task_key"] in only
        ],
    }  # fmt: skip
    if len(busy) >= limit or any(each["life"] == "QUEUED" for each in active):
        if queue.get("enabled") and limit:
            run.update(life="QUEUED", queue="MAX_CONCURRENT_RUNS_REACHED", message="Waiting for an active run to end.")
        else:
            run.update(
                life="SKIPPED", result="MAXIMUM_CONCURRENT_RUNS_REACHED", code="MAX_CONCURRENT_RUNS_EXCEEDED",
                ended=now,
                message=f"Skipping this run because the limit of {limit} maximum concurrent runs has been reached.",
            )  # fmt: skip
    data.runs[run_id] = run
    return run


def is_active(run: Json) -> bool:
    """Return whether a run is QUEUED, PENDING, RUNNING or TERMINATING [sdk jobs, JobsAPI.list_runs]."""
    return run["life"] not in ENDED


@route("POST", f"{_RUNS}/cancel")
def cancel(call: Call) -> Json:
    """Begin to cancel a run; an ended run keeps its outcome [sdk jobs, JobsAPI.cancel_run]."""
    run = _run(call, call.needed("run_id"), "CAN_MANAGE_RUN")
    run["cancel"] = True
    return {}


@route("POST", f"{_RUNS}/cancel-all")
def cancel_all(call: Call) -> Json:
    """Begin to cancel active runs of a job, or all that are queued: without a job in the whole workspace."""
    body = call.body
    if body.get("job_id") is None and not body.get("all_queued_runs"):
        raise invalid("Either job_id or all_queued_runs is required.")
    if body.get("job_id") is not None:
        managed(call, body["job_id"], "CAN_MANAGE_RUN")
    for run in call.data.runs.values():
        is_meant = body.get("job_id") in {None, run["job_id"]}
        if is_meant and is_active(run) and (not body.get("all_queued_runs") or run["life"] == "QUEUED"):
            run["cancel"] = True
    return {}


@route("GET", f"{_RUNS}/get")
def get(call: Call) -> Json:
    """Return a run of a job, or of a task; an unknown id is 400 [sdk errors/overrides.py makes it a 404]."""
    run_id = call.number("run_id")
    run, attempt = _found(call, run_id, "CAN_VIEW")
    if attempt is not None:
        return {**_attempt_json(call.world, run, attempt), "job_id": run["job_id"], "run_id": run_id}
    answer, token = paged_arrays(as_json(call.world, run), call.query.get("page_token"))
    if call.says("include_history"):
        original = {"type": "ORIGINAL", "start_time": answer["start_time"]}
        answer["repair_history"] = [original, *run["repairs"]]
    return {**answer, **token}


@route("GET", f"{_RUNS}/list")
def listed(call: Call) -> Json:
    """List runs, newest first, at most 24 or 25 a page [sdk jobs, JobsAPI.list_runs]."""
    limit = call.number("limit", 20) or 20
    if not 1 <= limit <= _MAX_PAGE:
        raise invalid(f"The limit must be between 1 and {_MAX_PAGE}, but was {limit}.")
    if call.says("active_only") and call.says("completed_only"):
        raise invalid("Only one of active_only and completed_only can be true.")
    job_id = call.number("job_id", 0)
    since, until = call.number("start_time_from", 0), call.number("start_time_to", 0)
    runs = [
        run
        for _, run in sorted(call.data.runs.items(), reverse=True)
        if (not job_id or run["job_id"] == job_id)
        and not (call.says("active_only") and not is_active(run))
        and not (call.says("completed_only") and is_active(run))
        and run["created"] * 1000 >= since
        and (not until or run["created"] * 1000 <= until)
        and _may(call, run, "CAN_VIEW")
    ]
    shown, following, before = page_of(runs, limit, call.query.get("page_token"))
    answer: Json = {"has_more": following is not None}
    if shown:
        answer["runs"] = [as_json(call.world, run) for run in shown]
        for each in () if call.says("expand_tasks") else answer["runs"]:
            del each["tasks"]
    return {
        **answer,
        **({"next_page_token": following} if following else {}),
        **({"prev_page_token": before} if before else {}),
    }


@route("GET", f"{_RUNS}/get-output")
def output(call: Call) -> Json:
    """Return what a task's run has printed, its first 5 MB, and why it failed."""
    run, attempt = _found(call, call.number("run_id"), "CAN_VIEW")
    if attempt is None:
        raise invalid(
            "Retrieving the output of runs with multiple tasks is not supported. Please retrieve the output of each "
            "individual task run instead."
        )
    path = call.world.folder / "runs" / f"{run['run_id']}.log"
    raw = path.read_bytes()[attempt["log_from"] : attempt["log_to"]] if path.exists() else b""
    logs = raw[:_OUTPUT_BYTES].decode("utf-8", "replace")
    answer: Json = {
        "metadata": {**_attempt_json(call.world, run, attempt), "job_id": run["job_id"]},
        "logs": logs,
        "logs_truncated": len(raw) > _OUTPUT_BYTES,
    }
    if attempt["result"] == "FAILED":
        lines = logs.rstrip().splitlines()
        answer.update(error=lines[-1] if lines else attempt["message"], error_trace=logs[-10_000:])
    return answer


@route("POST", f"{_RUNS}/repair")
def repair(call: Call) -> Json:
    """Run tasks of an ended run again, by the job's settings of now; later repairs must name the one before."""
    body = call.body
    run = _run(call, call.needed("run_id"), "CAN_MANAGE_RUN")
    job = managed(call, run["job_id"], "CAN_MANAGE_RUN")
    if is_active(run):
        raise ApiError(400, "INVALID_STATE", f"Run {run['run_id']} is in progress: it cannot be repaired.")
    if run["repairs"] and body.get("latest_repair_id") != run["repairs"][-1]["id"]:
        raise invalid("latest_repair_id is required, and must be that of the newest repair.")
    wanted = set(body.get("rerun_tasks") or ())
    if body.get("rerun_all_failed_tasks"):
        wanted |= {each["task_key"] for each in run["tasks"] if each["result"] != "SUCCESS"}
    if body.get("rerun_dependent_tasks"):
        for each in run["tasks"]:  # in the order of the definition, which is that of dependencies in ours
            if wanted & {one["task_key"] for one in each["task"].get("depends_on") or ()}:
                wanted.add(each["task_key"])
    definitions = {each["task_key"]: each for each in job["settings"].get("tasks") or ()}
    if not wanted or not wanted <= definitions.keys() & {each["task_key"] for each in run["tasks"]}:
        raise invalid("rerun_tasks must name tasks of the run, or rerun_all_failed_tasks be true.")
    for each in run["tasks"]:
        if each["task_key"] in wanted:
            each.update(task=definitions[each["task_key"]], result=None, wait_until=0.0, tries=len(each["attempts"]))
    run["asked"].update({key: body[key] for key in ("job_parameters", "python_params") if key in body})
    run.update(
        settings=job["settings"], life="PENDING", result=None, message="", code=None, cancel=False, ended=None,
        terminating_since=None, created=call.world.now(),
    )  # fmt: skip
    run["repairs"].append({"id": call.world.next_number(), "type": "REPAIR", "start_time": int(run["created"] * 1000)})
    return {"repair_id": run["repairs"][-1]["id"]}


@route("POST", f"{_RUNS}/delete")
def delete(call: Call) -> Json:
    """Delete a run that has ended; its idempotency token gives an error from then on [sdk jobs]."""
    run = _run(call, call.needed("run_id"), "CAN_MANAGE_RUN")
    if is_active(run):
        raise ApiError(400, "INVALID_STATE", f"Run {run['run_id']} is active: cancel it first.")
    del call.data.runs[run["run_id"]]
    return {}


@route("GET", "/api/2.1/clusters/get")
def cluster(call: Call) -> Json:
    """Return the cluster of a run, by the id that its task shows [sdk compute]."""
    cluster_id = call.query.get("cluster_id", "")
    for run in call.data.runs.values():
        for task in run["tasks"]:
            for attempt in task["attempts"]:
                if attempt["cluster_id"] == cluster_id and _may(call, run, "CAN_VIEW"):
                    state = "TERMINATED" if attempt["result"] else "RUNNING"
                    return {"cluster_id": cluster_id, "state": state, "cluster_source": "JOB"}
    raise invalid(f"Cluster {cluster_id} does not exist")


def as_json(world: World, run: Json) -> Json:
    """Return a run as the API shows it."""
    asked = run["asked"]
    given = asked.get("job_parameters") or {}
    parameters: list[Json] = [
        {"name": name, "default": default, **({"value": given[name]} if name in given else {})}
        for name, default in (
            (each["name"], each.get("default", "")) for each in run["settings"].get("parameters") or ()
        )
    ]
    answer: Json = {
        "run_id": run["run_id"], "job_id": run["job_id"], "number_in_job": run["number_in_job"],
        "original_attempt_run_id": run["run_id"], "run_name": run["name"], "creator_user_name": run["creator"],
        "run_type": "JOB_RUN", "trigger": run["trigger"], "format": "MULTI_TASK",
        "run_page_url": f"{world.url}/?o={WORKSPACE_ID}#job/{run['job_id']}/run/{run['run_id']}",
        "job_parameters": parameters,
        **_times(run), **_state(run["life"], run["result"], run["code"], run["message"], run["queue"]),
        "job_clusters": run["settings"].get("job_clusters") or [],
        "tasks": [_task_json(world, run, each) for each in run["tasks"]],
    }  # fmt: skip
    if "python_params" in asked:
        answer["overriding_parameters"] = {"python_params": asked["python_params"]}
    return answer


def _task_json(world: World, run: Json, task: Json) -> Json:
    if task["attempts"]:
        return _attempt_json(world, run, task["attempts"][-1])
    life = {"QUEUED": "QUEUED", "PENDING": "PENDING"}.get(
        run["life"], "TERMINATED" if not is_active(run) else "BLOCKED"
    )
    return {
        "task_key": task["task_key"], "attempt_number": 0,
        **_state(life, task["result"] or run["result"] if life == "TERMINATED" else None, run["code"], "", None),
        **{key: value for key, value in task["task"].items() if key not in {"task_key", "email_notifications"}},
    }  # fmt: skip


def _attempt_json(world: World, run: Json, attempt: Json) -> Json:
    task = next(each["task"] for each in run["tasks"] if each["task_key"] == attempt["task_key"])
    first = next(each["attempts"][0] for each in run["tasks"] if each["task_key"] == attempt["task_key"])
    return {
        **{key: value for key, value in task.items() if key != "email_notifications"},
        "run_id": attempt["run_id"], "task_key": attempt["task_key"], "attempt_number": attempt["attempt_number"],
        "original_attempt_run_id": first["run_id"], "job_run_id": run["run_id"],
        "run_page_url": f"{world.url}/?o={WORKSPACE_ID}#job/{run['job_id']}/run/{attempt['run_id']}",
        "cluster_instance": {"cluster_id": attempt["cluster_id"]},
        **_times(attempt),
        **_state(attempt["life"], attempt["result"], attempt["code"], attempt["message"], None),
    }  # fmt: skip


def _times(each: Json) -> Json:
    started, ended = each["started"] or each["created"], each["ended"]
    return {"start_time": int(started * 1000), "end_time": int(ended * 1000) if ended else 0}


def _state(life: str, result: str | None, code: str | None, message: str, queue: str | None) -> Json:
    state: Json = {"life_cycle_state": life, "state_message": message, "user_cancelled_or_timedout": False}
    status: Json = {"state": "TERMINATED" if life in ENDED else {"WAITING_FOR_RETRY": "WAITING"}.get(life, life)}
    if life in ENDED:
        state["result_state"] = result
        state["user_cancelled_or_timedout"] = result in {"CANCELED", "TIMEDOUT"}
        kind = _TYPES.get(str(code), "CLIENT_ERROR")
        status["termination_details"] = {"code": code or "SUCCESS", "type": kind, "message": message}
    if queue is not None and life == "QUEUED":
        state["queue_reason"] = message
        status["queue_details"] = {"code": queue, "message": message}
    return {"state": state, "status": status}


def _run(call: Call, run_id: Any, level: str) -> Json:
    run, _ = _found(call, int(run_id), level)
    return run


def _found(call: Call, run_id: int, level: str) -> tuple[Json, Json | None]:
    for run in call.data.runs.values():
        attempts = [each for task in run["tasks"] for each in task["attempts"] if each["run_id"] == run_id]
        if run["run_id"] == run_id or attempts:
            if not _may(call, run, level):
                rights.require(call, "jobs", run["job_id"], level)
            return run, attempts[0] if attempts else None
    raise invalid(f"Run {run_id} does not exist.")


def _may(call: Call, run: Json, level: str) -> bool:
    return rights.allows(call.data, call.who, "jobs", run["job_id"], level)
