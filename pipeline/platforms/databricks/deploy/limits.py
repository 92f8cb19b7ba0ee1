"""What a workspace takes at most, looked at before anything is changed.

From Databricks' page on resource limits; an older one says 10,000 saved jobs and 50 apps.
"""

from collections.abc import Sequence
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.plan import DeployStep
from pipeline.platforms.databricks.workspace.client import Workspace

MOST_JOBS: Final = 12_000
MOST_APPS: Final = 100
MOST_TASKS: Final = 2_000
"""Tasks that run at the same time in a workspace."""


def require_room(workspace: Workspace, steps: Sequence[DeployStep]) -> None:
    """Look whether a workspace has room for what a plan creates; nothing is sent where it creates no job and no app.

    Raises:
        Refused: it has not.
    """
    made = [step for step in steps if step.what == "create" and step.resource is not None]
    jobs = [step for step in made if step.address.startswith("jobs.")]
    apps = [step for step in made if step.address.startswith("apps.")]
    if jobs:
        there = _count(workspace, "/api/2.2/jobs/list", "jobs", {"limit": 100})
        _require(there, len(jobs), MOST_JOBS, "saved jobs", workspace.address)
        tasks = sum(len(step.resource.definition.get("tasks", [])) for step in jobs if step.resource is not None)
        runs = _count(workspace, "/api/2.2/jobs/runs/list", "runs", {"limit": 24, "active_only": "true"})
        _require(runs, tasks, MOST_TASKS, "tasks at the same time", workspace.address)
    if apps:
        there = _count(workspace, "/api/2.0/apps", "apps", {"page_size": 100})
        _require(there, len(apps), MOST_APPS, "apps", workspace.address)


def _require(there: int, more: int, most: int, what: str, address: str) -> None:
    if there + more > most:
        raise Refused(
            f"The workspace at {address} takes at most {most:,} {what}: it has {there:,}, and the plan adds {more:,}. "
            "Remove what nobody needs there, or have fewer groups; nothing was changed."
        )


def _count(workspace: Workspace, path: str, field: str, query: dict[str, Any]) -> int:
    return sum(1 for _ in workspace.listed(path, field, query))
