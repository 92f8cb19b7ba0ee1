"""Definitions of jobs: Jobs API 2.2 [sdk jobs], with what [cli testserver/jobs.go] says of the real one.

Names are not unique, a create sent twice makes two jobs, and nothing filters by tag.
"""

import copy
from typing import Any, Final

from tests.workspace.server import rights
from tests.workspace.server.calls import ApiError, Call, Json, denied, invalid, page_of, route
from tests.workspace.server.people import is_admin, named
from tests.workspace.server.state import Data

_JOBS: Final = "/api/2.2/jobs"
_ARRAYS: Final = {
    "tasks": "task_key", "job_clusters": "job_cluster_key", "environments": "environment_key", "parameters": "name"
}  # fmt: skip
"""Arrays of a job's settings that an update merges, and what identifies an element [sdk jobs, JobsAPI.update]."""

_ARRAY_PAGE: Final = 100  # elements of such an array in one answer [sdk jobs, JobsAPI.get]
_MAX_TASKS: Final = 1_000
_MAX_TAGS: Final = 25
_MAX_PAGE: Final = 100


@route("POST", f"{_JOBS}/create")
def create(call: Call) -> Json:
    """Make a job. No token makes it idempotent: sent twice, there are two."""
    settings = {key: value for key, value in call.body.items() if key != "access_control_list"}
    _check(settings)
    job_id = call.world.next_number()
    call.data.jobs[job_id] = {
        "job_id": job_id,
        "creator_user_name": call.who["name"],
        "created_time": int(call.world.now() * 1000),
        "settings": _filled(settings),
        "runs_started": 0,
        "failures": 0,
        "next_start": 0.0,
    }
    rights.own(call.data, "jobs", job_id, call.who)
    _name_run_as(call, call.data.jobs[job_id])
    return {"job_id": job_id}


@route("POST", f"{_JOBS}/reset")
def reset(call: Call) -> Json:
    """Replace all settings; a `run_as` that is left out stays [cli testserver/jobs.go]."""
    job = managed(call, call.needed("job_id"), "CAN_MANAGE")
    settings = dict(call.needed("new_settings"))
    _check(settings)
    if "run_as" in job["settings"]:
        settings.setdefault("run_as", job["settings"]["run_as"])
    job["settings"] = _filled(settings)
    _name_run_as(call, job)
    return {}


@route("POST", f"{_JOBS}/update")
def update(call: Call) -> Json:
    """Replace fields of the top level, merge arrays by key, and remove fields [sdk jobs, JobsAPI.update]."""
    job = managed(call, call.needed("job_id"), "CAN_MANAGE")
    settings = copy.deepcopy(job["settings"])
    for field in call.body.get("fields_to_remove") or ():
        name, _, key = str(field).partition("/")
        if not key:
            settings.pop(name, None)
        elif name in _ARRAYS and name != "parameters":
            settings[name] = [each for each in settings.get(name, ()) if each[_ARRAYS[name]] != key]
        else:
            raise invalid(f"Cannot remove nested field {field}: only tasks/KEY and job_clusters/KEY can be removed.")
    for name, value in (call.body.get("new_settings") or {}).items():
        if name in _ARRAYS and name != "parameters":
            by_key = {each[_ARRAYS[name]]: each for each in settings.get(name, ())}
            by_key.update({each[_ARRAYS[name]]: each for each in value})
            settings[name] = list(by_key.values())
        else:
            settings[name] = value
    _check(settings)
    job["settings"] = _filled(settings)
    _name_run_as(call, job)
    return {}


@route("POST", f"{_JOBS}/delete")
def delete(call: Call) -> Json:
    """Delete a job: rights are looked at before existence, so a stranger gets 403 [cli testserver/jobs.go].

    Runs that are active are cancelled [unv]; ended ones can still be read.
    """
    job = managed(call, call.needed("job_id"), "CAN_MANAGE")
    del call.data.jobs[job["job_id"]]
    rights.forget(call.data, "jobs", job["job_id"])
    for run in call.data.runs.values():
        if run["job_id"] == job["job_id"]:
            run["cancel"] = True
    return {}


@route("GET", f"{_JOBS}/get")
def get(call: Call) -> Json:
    """Return a job; arrays come by 100, and later pages leave those that have ended empty [sdk jobs, JobsAPI.get]."""
    job = managed(call, call.number("job_id"), "CAN_VIEW")
    settings, token = paged_arrays(job["settings"], call.query.get("page_token"))
    return {**_base(call.data, job), "settings": settings, **token}


@route("GET", f"{_JOBS}/list")
def listed(call: Call) -> Json:
    """List jobs, newest first, 20 by default and 100 at most; `name` is compared whole, without case [sdk jobs]."""
    limit = call.number("limit", 20)
    if not 1 <= limit <= _MAX_PAGE:
        raise invalid(f"The limit must be between 1 and {_MAX_PAGE}, but was {limit}.")
    wanted = call.query.get("name")
    jobs = [
        job
        for job_id, job in sorted(call.data.jobs.items(), reverse=True)
        if rights.allows(call.data, call.who, "jobs", job_id, "CAN_VIEW")
        and (wanted is None or str(job["settings"].get("name", "")).lower() == wanted.lower())
    ]
    shown, following, before = page_of(jobs, limit, call.query.get("page_token"))
    hidden = () if call.says("expand_tasks") else tuple(_ARRAYS)
    answer: Json = {"has_more": following is not None}
    if shown:
        answer["jobs"] = [
            {
                **_base(call.data, job),
                "settings": {key: value for key, value in job["settings"].items() if key not in hidden},
            }
            for job in shown
        ]
    return {
        **answer,
        **({"next_page_token": following} if following else {}),
        **({"prev_page_token": before} if before else {}),
    }


def managed(call: Call, job_id: Any, level: str) -> Json:
    """Return a job on which the caller has a level.

    Raises:
        ApiError: 403 before 404.
    """
    number = job_id if isinstance(job_id, int) else int(job_id) if str(job_id).isdecimal() else -1
    rights.require(call, "jobs", number, level)
    if number not in call.data.jobs:
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Job {number} does not exist.")
    found: Json = call.data.jobs[number]
    return found


def run_as(data: Data, job: Json) -> Json | None:
    """Return in whose name a job runs: `run_as`, else its owner; None where that principal is gone."""
    wanted = job["settings"].get("run_as") or {}
    name = wanted.get("service_principal_name") or wanted.get("user_name")
    if name is None:
        owner = rights.owner_of(data, "jobs", job["job_id"])
        name = owner[1] if owner else job["creator_user_name"]
    return named(data, name)


def paged_arrays(holder: Json, token: str | None) -> tuple[Json, dict[str, str]]:
    """Return an object whose arrays of the Jobs API are cut to one page, and the token of the next."""
    longest = max((len(holder.get(name) or ()) for name in _ARRAYS), default=0)
    pages = {
        name: page_of(holder[name], _ARRAY_PAGE, token)[0] for name in _ARRAYS if isinstance(holder.get(name), list)
    }
    _, following, _ = page_of(range(longest), _ARRAY_PAGE, token)
    return {**holder, **pages}, {"next_page_token": following} if following else {}


def _base(data: Data, job: Json) -> Json:
    runs_as = run_as(data, job)
    return {
        **{key: job[key] for key in ("job_id", "creator_user_name", "created_time")},
        **({"run_as_user_name": runs_as["name"]} if runs_as else {}),
    }


def _name_run_as(call: Call, job: Json) -> None:
    """Refuse a `run_as` that does not exist, and anybody who is no admin to name another service principal freely."""
    wanted = job["settings"].get("run_as")
    if wanted is None:
        return
    name = wanted.get("service_principal_name") or wanted.get("user_name")
    if named(call.data, name) is None:
        raise invalid(f"The run_as principal {name} does not exist.")
    if wanted.get("user_name") not in {None, call.who["name"]} and not is_admin(call.data, call.who):
        raise denied("A user can only set run_as to themselves.")


def _check(settings: Json) -> None:
    tasks = settings.get("tasks") or []
    if len(tasks) > _MAX_TASKS:
        raise invalid(f"A job may have at most {_MAX_TASKS} tasks.")
    keys = [each.get("task_key") for each in tasks]
    if len(set(keys)) != len(keys) or None in keys:
        raise invalid("Each task needs a task_key of its own.")
    if len(settings.get("tags") or {}) > _MAX_TAGS:
        raise invalid(f"A job may have at most {_MAX_TAGS} tags.")
    if len(str(settings.get("name") or "").encode()) > 4_096:
        raise invalid("The name of a job may have at most 4096 bytes.")
    clusters = {each["job_cluster_key"] for each in settings.get("job_clusters") or ()}
    for task in tasks:
        if task.get("job_cluster_key") not in {None, *clusters}:
            raise invalid(f"Task {task['task_key']} refers to an unknown job cluster {task['job_cluster_key']}.")
        if settings.get("continuous") and (task.get("depends_on") or task.get("max_retries")):
            raise invalid("A continuous job has no task dependencies and no retry policies.")


def _filled(settings: Json) -> Json:
    """Return settings with what the platform adds, so that they differ from what was sent [cli testserver/jobs.go]."""
    filled = copy.deepcopy(settings)
    filled.setdefault("format", "MULTI_TASK")
    filled.setdefault("max_concurrent_runs", 1)
    filled.setdefault("timeout_seconds", 0)
    filled.setdefault("email_notifications", {})
    filled.setdefault("webhook_notifications", {})
    for task in filled.get("tasks") or ():
        task.setdefault("run_if", "ALL_SUCCESS")
        task.setdefault("timeout_seconds", 0)
        task.setdefault("email_notifications", {})
        if "depends_on" in task:
            task["depends_on"].sort(key=lambda each: each["task_key"])
        if "new_cluster" in task:
            task["new_cluster"].setdefault("data_security_mode", "SINGLE_USER")
    if "continuous" in filled:
        filled["continuous"].setdefault("pause_status", "UNPAUSED")
    return filled
