"""Jobs (Jobs API 2.2): found by exact name and tag, changed by a reset, never made twice.

Facts: databricks-sdk `service/jobs.py`; what the server fills in: databricks/cli,
`bundle/direct/dresources/resources.yml` and `libs/testserver/jobs.go`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.base.errors import Unclear
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State
from pipeline.platforms.databricks.deploy.kinds.permissions import bring_permissions, read_permissions
from pipeline.platforms.databricks.workspace.client import Absent
from pipeline.platforms.databricks.workspace.jobs import ENVIRONMENT_TAG

_BESIDE: Final = frozenset({"permissions", "lifecycle"})  # of the bundle, and not of a job's settings
_ARRAYS: Final = ("tasks", "job_clusters", "environments", "parameters")


class Jobs:
    """The kind `jobs`; see `Kind`."""

    name: Final = "jobs"
    holds_data: Final = False
    unseen: Final = frozenset[str]()
    fixed: Final = frozenset[str]()
    filled: Final[Mapping[str, Sequence[Any]]] = {
        "format": ["MULTI_TASK"],
        "max_concurrent_runs": [1],
        "timeout_seconds": [0],
        "email_notifications": [],
        "webhook_notifications": [],
        "run_as_user_name": [],
        "performance_target": ["PERFORMANCE_OPTIMIZED", "STANDARD"],
        "tasks.run_if": ["ALL_SUCCESS"],
        "tasks.timeout_seconds": [0],
        "tasks.email_notifications": [],
        "tasks.min_retry_interval_millis": [0],
        "job_clusters.new_cluster.aws_attributes": [],
        "job_clusters.new_cluster.azure_attributes": [],
        "job_clusters.new_cluster.gcp_attributes": [],
        "job_clusters.new_cluster.enable_elastic_disk": [True],
        "job_clusters.new_cluster.runtime_engine": [],
        "continuous.task_retry_mode": ["NEVER"],
    }

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["name"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        return {key: value for key, value in definition.items() if key != "lifecycle"}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; a job that is ours goes before others of the same name."""
        found = [
            Found(str(each["job_id"]), each["settings"].get("tags", {}).get(ENVIRONMENT_TAG) == scope.environment)
            for each in _named(scope, self.label(definition))
        ]
        return min(found, key=lambda job: (not job.is_ours, int(job.id)), default=None)

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`."""
        try:
            job = _whole(scope, int(id))
        except Absent:
            return None
        settings = dict(job.get("settings", {}))
        permissions = read_permissions(scope.workspace, f"jobs/{id}")
        if permissions:
            settings["permissions"] = permissions
        run_as = settings.get("run_as") or job.get("run_as")
        if run_as:
            settings["run_as"] = run_as
        is_ours = settings.get("tags", {}).get(ENVIRONMENT_TAG) == scope.environment
        return State(settings, {"id": id, "name": str(settings.get("name", ""))}, is_ours)

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`: the SDK sends a create again whose answer was lost, so of two jobs the younger is deleted."""
        try:
            made = scope.workspace.send("POST", "/api/2.2/jobs/create", _settings(definition))
        except Unclear as error:
            if (job_id := self._only(scope, definition)) is None:
                raise Unclear(f"the job {self.label(definition)!r} is not there yet: {error}. Apply again") from error
        else:
            job_id = self._only(scope, definition) or str(made["job_id"])  # a list may be older than the job
        bring_permissions(scope.workspace, f"jobs/{job_id}", definition.get("permissions", []))
        return job_id

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`: all settings at once, so that nothing is left of before."""
        if any(not change.path.startswith("permissions") for change in found):
            body = {"job_id": int(id), "new_settings": _settings(definition)}
            scope.workspace.send("POST", "/api/2.2/jobs/reset", body)
        if any(change.path.startswith("permissions") for change in found):
            bring_permissions(scope.workspace, f"jobs/{id}", definition.get("permissions", []))

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`; a continuous job is paused first: one whose run is cancelled would come back."""
        try:
            job = _whole(scope, int(id))
            if (continuous := job.get("settings", {}).get("continuous")) is not None:
                paused = {"continuous": {**continuous, "pause_status": "PAUSED"}}
                scope.workspace.send("POST", "/api/2.2/jobs/update", {"job_id": int(id), "new_settings": paused})
            scope.workspace.send("POST", "/api/2.2/jobs/runs/cancel-all", {"job_id": int(id)})
            scope.workspace.send("POST", "/api/2.2/jobs/delete", {"job_id": int(id)})
        except Absent:
            return

    def _only(self, scope: Scope, definition: Mapping[str, Any]) -> str | None:
        """Return the job that a create has made, and delete the others that its repetition by the SDK made."""
        ours = sorted(
            int(each["job_id"])
            for each in _named(scope, self.label(definition))
            if each["settings"].get("tags", {}).get(ENVIRONMENT_TAG) == scope.environment
        )
        for job_id in ours[1:]:
            self.delete(scope, str(job_id))
        return str(ours[0]) if ours else None


def active_runs(scope: Scope, job_id: str) -> list[int]:
    """Return the ids of a job's runs that have not ended."""
    query = {"job_id": int(job_id), "active_only": "true", "limit": 24}
    return [int(each["run_id"]) for each in scope.workspace.get("/api/2.2/jobs/runs/list", query).get("runs", [])]


def _settings(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key not in _BESIDE}


def marked_jobs(scope: Scope) -> dict[str, str]:
    """Return the names of all jobs with the environment's tag, by their ids."""
    jobs = scope.workspace.listed("/api/2.2/jobs/list", "jobs", {"limit": 100})
    return {
        str(each["job_id"]): str(each["settings"].get("name", ""))
        for each in jobs
        if each.get("settings", {}).get("tags", {}).get(ENVIRONMENT_TAG) == scope.environment
    }


def _named(scope: Scope, name: str) -> list[dict[str, Any]]:
    jobs = scope.workspace.listed("/api/2.2/jobs/list", "jobs", {"name": name, "limit": 100})
    return [each for each in jobs if each.get("settings", {}).get("name") == name]


def _whole(scope: Scope, job_id: int) -> dict[str, Any]:
    """Return a job with all pages of its arrays."""
    query: dict[str, Any] = {"job_id": job_id}
    job = scope.workspace.get("/api/2.2/jobs/get", query)
    token = job.get("next_page_token")
    while token:
        page = scope.workspace.get("/api/2.2/jobs/get", {**query, "page_token": token})
        for name in _ARRAYS:
            job["settings"].setdefault(name, []).extend(page.get("settings", {}).get(name, []))
        token = page.get("next_page_token")
    for name in _ARRAYS:
        if not job.get("settings", {}).get(name, True):
            del job["settings"][name]
    return job
