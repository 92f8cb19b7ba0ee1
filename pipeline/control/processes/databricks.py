"""The backend `databricks`: each duty is a run of a job of its own in a workspace, which the controller starts.

The jobs are made by the bundle or by `turnout fleet apply`: what a run's task does stands in its job, and the start
adds the run's id. No signal reaches a run, so it ends in order only by the word of the control store.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

from pipeline.control.processes.backends import Limits, RunState
from pipeline.control.processes.duties import Duty, described
from pipeline.errors import Refused, Transient
from pipeline.store.processes.leases import Process
from pipeline.workspace.client import Absent, Workspace
from pipeline.workspace.jobs import JobRun, cancel_run, find_job, read_run, run_now

_AT_ONCE: Final = 8  # requests; a workspace takes 100 reads of runs a second


class Databricks:
    """Runs each duty as a run of its job; see `Backend`."""

    limits: Final = Limits(stop_seconds=300.0, start_seconds=1200.0)  # a cluster starts within minutes, as a rule
    starts_once: Final = True

    def __init__(self, environment: str, connect: Callable[[], Workspace]) -> None:
        """Find the jobs of an environment in the workspace that `connect` opens at the first use."""
        self._environment, self._connect = environment, connect

    def start(self, duty: Duty, run_id: int, token: str) -> str:
        """Start a run of the duty's job; see `Backend`."""
        name = job_name(self._environment, duty.kind, duty.name)
        job = find_job(self._workspace, name, self._environment)
        if job is None:
            raise Refused(
                f"the workspace has no job {name!r} with the tag turnout_env={self._environment}. Make it with "
                f"`turnout fleet apply`, then restart {described(duty.kind, duty.name)}"
            )
        once = hashlib.sha256(f"{self._environment}\n{job.job_id}\n{token}".encode()).hexdigest()
        job_run = run_now(self._workspace, job.job_id, once, [*job.parameters, "--run-id", str(run_id)])
        return json.dumps({"job_id": job.job_id, "run_id": job_run}, sort_keys=True)

    def observe(self, references: Collection[str]) -> Mapping[str, RunState]:
        """See `Backend`; asks for the runs side by side."""
        with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(references)))) as pool:
            return dict(zip(references, pool.map(self._observe, references), strict=True))

    def stop(self, reference: str) -> None:
        """See `Backend`: the control store asks it; a run whose task has not begun hears nothing and is cancelled."""
        run = self._read(reference)
        if run is not None and not run.is_over and not run.has_begun:
            self.kill(reference)

    def kill(self, reference: str) -> None:
        """See `Backend`: a run that is cancelled hears of nothing before its end."""
        run_id = _run_of(reference)
        if run_id is None:
            return
        try:
            cancel_run(self._workspace, run_id)
        except Absent:
            return

    def find(self, process: Process) -> str | None:  # noqa: ARG002 - a process on a cluster says nothing of its run
        """See `Backend`."""
        return None

    @cached_property
    def _workspace(self) -> Workspace:
        return self._connect()

    def _observe(self, reference: str) -> RunState:
        try:
            run = self._read(reference)
        except (Refused, Transient) as error:
            return RunState(is_alive=None, about=str(error).rstrip("."))
        if _run_of(reference) is None:
            return RunState(is_alive=None, about="no run of a job was noted for it", by_lease=True)
        if run is None:
            return RunState(is_alive=False, about="the workspace does not know its run any more")
        return RunState(is_alive=None if run.is_over is None else not run.is_over, about=run.ending)

    def _read(self, reference: str) -> JobRun | None:
        run_id = _run_of(reference)
        try:
            return None if run_id is None else read_run(self._workspace, run_id)
        except Absent:
            return None


def job_name(environment: str, kind: str, name: str) -> str:
    """Return the name of the job that does a duty of an environment."""
    return f"turnout {environment} {described(kind, name)}"


def _run_of(reference: str) -> int | None:
    try:
        return int(json.loads(reference)["run_id"])
    except (ValueError, TypeError, KeyError):
        return None
