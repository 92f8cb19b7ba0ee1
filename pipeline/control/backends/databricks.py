"""The backend `databricks`: each duty is a run of a job of its own in a workspace, which the controller starts.

The jobs are made by the bundle or by `turnout deploy apply`: what a run's task does stands in its job, and the start
adds the run's id. No signal reaches a run, so it ends in order only by the word of the control store.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any, Final

from listeners.process_kinds import described
from pipeline.base.errors import Refused, Transient
from pipeline.control.backends.backend import Limits, RunState
from pipeline.control.backends.duties import Duty
from pipeline.platforms.databricks.workspace.client import Absent, Workspace
from pipeline.platforms.databricks.workspace.jobs import (
    START_SECONDS,
    STOP_SECONDS,
    JobRun,
    cancel_run,
    find_job,
    read_run,
    run_now,
)
from pipeline.store.processes.leases import Process

_AT_ONCE: Final = 8  # requests; a workspace takes 100 reads of runs a second
_LOOK_SECONDS: Final = 10.0  # all that one look waits for the workspace
_UNSEEN_SECONDS: Final = 60.0  # a first read may be older than the start


class Databricks:
    """Runs each duty as a run of its job; see `Backend`."""

    limits: Final = Limits(STOP_SECONDS, START_SECONDS, starts_at_once=20)
    starts_once: Final = True

    def __init__(self, environment: str, connect: Callable[[], Workspace]) -> None:
        """Find the jobs of an environment in the workspace that `connect` opens at the first use."""
        self._environment, self._connect = environment, connect
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="runs")
        self._asked: dict[str, Future[RunState]] = {}  # and not answered yet

    def start(self, duty: Duty, run_id: int, token: str) -> str:
        """Start a run of the duty's job; see `Backend`."""
        name = job_name(self._environment, duty.kind, duty.name)
        job = find_job(self._workspace, name, self._environment)
        if job is None:
            raise Refused(
                f"the workspace has no job {name!r} with the tag turnout_env={self._environment}. Make it with "
                f"`turnout deploy apply`, then restart {described(duty.kind, duty.name)}"
            )
        once = hashlib.sha256(f"{self._environment}\n{job.job_id}\n{token}".encode()).hexdigest()
        job_run = run_now(self._workspace, job.job_id, once, [*job.parameters, "--run-id", str(run_id)])
        reference = {"job_id": job.job_id, "run_id": job_run, "host": self._workspace.address, "at": time.time()}
        return json.dumps(reference, sort_keys=True)

    def observe(self, references: Collection[str]) -> Mapping[str, RunState]:
        """See `Backend`; asks for the runs side by side, and waits for all of them together.

        An answer that comes too late is that of the next call.
        """
        for reference in references:
            if reference not in self._asked:
                self._asked[reference] = self._pool.submit(self._observe, reference)
        wait([self._asked[reference] for reference in references], _LOOK_SECONDS)
        silent = RunState(is_alive=None, about=f"the workspace has not answered for {_LOOK_SECONDS:.0f} s")
        return {
            each: self._asked.pop(each).result() if self._asked[each].done() else silent for each in set(references)
        }

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
        noted = _noted(reference)
        if _run_of(reference) is None:
            return RunState(is_alive=None, about="no run of a job was noted for it", by_lease=True)
        try:
            host = self._workspace.address
            if noted.get("host", host) != host:
                return RunState(is_alive=None, about=f"its run is in the workspace at {noted['host']}, not at {host}")
            run = self._read(reference)
        except (Refused, Transient) as error:
            return RunState(is_alive=None, about=str(error).rstrip("."))
        if run is None and time.time() - float(noted.get("at", 0)) < _UNSEEN_SECONDS:
            return RunState(is_alive=None, about="the workspace does not show its run yet")
        if run is None:
            return RunState(is_alive=False, about="the workspace does not know its run any more")
        is_alive = None if run.is_over is None else not run.is_over
        return RunState(is_alive, run.ending, is_harmless=run.was_skipped)

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
        return int(_noted(reference)["run_id"])
    except (ValueError, TypeError, KeyError):
        return None


def _noted(reference: str) -> dict[str, Any]:
    try:
        found = json.loads(reference)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
