"""Guards runs of the stand-in: a task is a real process, tokens start one run, a cancel takes its time."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InternalError, InvalidParameterValue, InvalidState, NotFound
from databricks.sdk.service.compute import ClusterSpec
from databricks.sdk.service.jobs import (
    Continuous,
    JobCluster,
    JobParameterDefinition,
    JobRunAs,
    JobSettings,
    PauseStatus,
    PythonWheelTask,
    QueueSettings,
    Run,
    RunLifeCycleState,
    RunLifecycleStateV2State,
    RunResultState,
    Task,
    TaskDependency,
    TerminationCodeCode,
)
from databricks.sdk.service.workspace import AclPermission

from tests.workspace.core_world import is_alive
from tests.workspace.fixtures import client, ended, made, started, until, until_printed, wheel
from tests.workspace.running import StandIn


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A file for which tasks wait, until it is gone."""
    path = tmp_path / "held"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def state_of(run: Run) -> tuple[object, object, object]:
    assert run.state is not None
    assert run.status is not None
    details = run.status.termination_details
    return run.state.life_cycle_state, run.state.result_state, details.code if details else None


def test_a_wheel_task_is_a_process(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A task gets its parameters with the run's values in them, its cluster's variables, and its principal's token."""
    workspace.add_principal("driver")
    name = workspace.identity("driver").name
    admin.secrets.create_scope("standin")
    admin.secrets.put_secret("standin", "url", string_value="postgresql://")
    admin.secrets.put_acl("standin", name, permission=AclPermission.READ)
    cluster = ClusterSpec(
        spark_version="17.3.x-scala2.13", num_workers=0,
        spark_env_vars={"TURNOUT_PLAIN": "plain", "TURNOUT_STORE__URL": "{{secrets/standin/url}}"},
    )  # fmt: skip
    job_id = made(
        admin,
        wheel("0", "-", "{{job.id}}", "{{job.run_id}}", "{{job.parameters.start}}", "{{unknown}}", job_cluster_key="c"),
        job_clusters=[JobCluster("c", cluster)],
        parameters=[JobParameterDefinition("start", "none")],
        run_as=JobRunAs(service_principal_name=name),
    )
    run = ended(admin, run_id := started(admin, job_id, job_parameters={"start": "7"}))
    assert state_of(run) == (RunLifeCycleState.TERMINATED, RunResultState.SUCCESS, TerminationCodeCode.SUCCESS)
    log = workspace.log(run_id)
    assert f"['{job_id}', '{run_id}', '7', '{{{{unknown}}}}']" in log
    for part in ("'TURNOUT_PLAIN': 'plain'", "'postgresql://'", "'DATABRICKS_RUNTIME_VERSION': '17.3'", workspace.url):
        assert part in log
    token = log.partition("'DATABRICKS_TOKEN': '")[2].partition("'")[0]
    assert token.startswith("dapi")
    assert token != workspace.admin_token
    task = (run.tasks or [])[0]
    assert task.run_id is not None
    assert admin.jobs.get_run_output(task.run_id).logs == log
    with pytest.raises(InvalidParameterValue, match="multiple tasks"):
        admin.jobs.get_run_output(run_id)


def test_a_failed_task_fails_its_run(workspace: StandIn, admin: WorkspaceClient) -> None:
    """The run says INTERNAL_ERROR in the old form and RUN_EXECUTION_ERROR in the new; its task TERMINATED."""
    run = ended(admin, started(admin, made(admin, wheel("3"))))
    assert state_of(run) == (
        RunLifeCycleState.INTERNAL_ERROR,
        RunResultState.FAILED,
        TerminationCodeCode.RUN_EXECUTION_ERROR,
    )
    assert run.state is not None
    message = "Task driver failed with message: Workload failed, see run output for details."
    assert run.state.state_message == message
    task = (run.tasks or [])[0]
    assert task.state is not None
    assert task.run_id is not None
    assert task.state.life_cycle_state == RunLifeCycleState.TERMINATED
    assert admin.jobs.get_run_output(task.run_id).error


def test_a_secret_that_may_not_be_read_fails_the_run(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Without READ on the scope, the principal that a job runs as gets no variable: the run fails and says why."""
    workspace.add_principal("powerless")
    admin.secrets.create_scope("closed")
    admin.secrets.put_secret("closed", "key", string_value="hidden")
    cluster = ClusterSpec(spark_version="19.0.x", spark_env_vars={"X": "{{secrets/closed/key}}"})
    runner = JobRunAs(service_principal_name=workspace.identity("powerless").name)
    run = ended(admin, started(admin, made(admin, wheel("0", new_cluster=cluster), run_as=runner)))
    assert run.state is not None
    assert "does not have READ permission" in str(run.state.state_message)


def test_a_token_starts_one_run(admin: WorkspaceClient) -> None:
    """The same token is the same run, also when that has ended; of a deleted run it is an error."""
    job_id = made(admin, wheel("0"))
    first = started(admin, job_id, idempotency_token="start-1")
    ended(admin, first)
    assert started(admin, job_id, idempotency_token="start-1") == first
    assert started(admin, job_id, idempotency_token="start-2") != first
    admin.jobs.delete_run(first)
    with pytest.raises(InvalidParameterValue, match="was deleted"):
        started(admin, job_id, idempotency_token="start-1")
    with pytest.raises(NotFound, match=f"Run {first} does not exist"):
        admin.jobs.get_run(first)
    with pytest.raises(InvalidParameterValue, match="64 characters"):
        started(admin, job_id, idempotency_token="x" * 65)


def test_a_lost_answer_to_a_start_is_one_run(workspace: StandIn, admin: WorkspaceClient) -> None:
    """With a token, a second try after a lost answer finds the run that the first started."""
    job_id = made(admin, wheel("0"))
    workspace.fault("POST", "/run-now", 1, 500, when="after")
    with pytest.raises(InternalError):
        started(admin, job_id, idempotency_token="lost answer")
    run_id = started(admin, job_id, idempotency_token="lost answer")
    assert [each.run_id for each in admin.jobs.list_runs(job_id=job_id)] == [run_id]


def test_parameters_of_a_start_replace_the_task_s(workspace: StandIn, admin: WorkspaceClient) -> None:
    """`python_params` take the place of the task's, with the run's values in them; only ASCII passes."""
    job_id = made(admin, wheel("9"))
    run_id = started(admin, job_id, python_params=["0", "-", "{{job.run_id}}"])
    ended(admin, run_id)
    assert f"['{run_id}']" in workspace.log(run_id)
    with pytest.raises(InvalidParameterValue, match="ASCII"):
        started(admin, job_id, python_params=["é"])


def test_a_cancel_takes_its_time_and_sends_no_signal(workspace: StandIn, admin: WorkspaceClient, held: Path) -> None:
    """A cancelled run goes through TERMINATING, then its process is killed; it never hears of it."""
    workspace.settings(cancel_seconds=0.3)
    run_id = started(admin, made(admin, wheel("0", str(held))))
    pid = int(until_printed(workspace, run_id).split()[-1])
    with pytest.raises(InvalidState, match="active"):
        admin.jobs.delete_run(run_id)
    admin.jobs.cancel_run(run_id)
    until(lambda: state_of(admin.jobs.get_run(run_id))[0] == RunLifeCycleState.TERMINATING, "no TERMINATING")
    status = admin.jobs.get_run(run_id).status
    assert status is not None
    assert status.state == RunLifecycleStateV2State.TERMINATING
    assert is_alive(pid)
    run = ended(admin, run_id)
    assert state_of(run) == (
        RunLifeCycleState.TERMINATED,
        RunResultState.CANCELED,
        TerminationCodeCode.USER_CANCELED,
    )
    assert not is_alive(pid)
    assert "SIGTERM" not in workspace.log(run_id)
    admin.jobs.cancel_run(run_id)
    assert state_of(admin.jobs.get_run(run_id)) == state_of(run)


def test_one_run_too_many_is_skipped_or_queued(admin: WorkspaceClient, held: Path) -> None:
    """Without a queue the second run is SKIPPED; with it it waits, and begins when the first has ended."""
    job_id = made(admin, wheel("0", str(held)))
    first, skipped = started(admin, job_id), ended(admin, started(admin, job_id))
    assert state_of(skipped) == (
        RunLifeCycleState.SKIPPED,
        RunResultState.MAXIMUM_CONCURRENT_RUNS_REACHED,
        TerminationCodeCode.MAX_CONCURRENT_RUNS_EXCEEDED,
    )
    admin.jobs.update(job_id, new_settings=JobSettings(queue=QueueSettings(enabled=True)))
    queued = started(admin, job_id)
    waiting = admin.jobs.get_run(queued)
    assert waiting.status is not None
    assert waiting.status.queue_details is not None
    assert waiting.status.state == RunLifecycleStateV2State.QUEUED
    assert {each.run_id for each in admin.jobs.list_runs(job_id=job_id, active_only=True)} == {first, queued}
    held.unlink()
    assert state_of(ended(admin, queued))[1] == RunResultState.SUCCESS
    assert {each.run_id for each in admin.jobs.list_runs(job_id=job_id, completed_only=True)} == {
        first, skipped.run_id, queued,
    }  # fmt: skip


def test_all_runs_of_a_job_are_cancelled(admin: WorkspaceClient, held: Path) -> None:
    """`cancel-all` ends what is active of one job, and nothing of another."""
    several = made(admin, wheel("0", str(held)), max_concurrent_runs=3)
    other = started(admin, made(admin, wheel("0", str(held))))
    runs = [started(admin, several) for _ in range(3)]
    admin.jobs.cancel_all_runs(job_id=several)
    assert {state_of(ended(admin, each))[1] for each in runs} == {RunResultState.CANCELED}
    assert state_of(admin.jobs.get_run(other))[1] is None


def test_pages_of_runs(admin: WorkspaceClient) -> None:
    """Runs are listed newest first, page after page, each once."""
    job_id = made(admin, max_concurrent_runs=50)
    runs = [started(admin, job_id) for _ in range(8)]
    assert [each.run_id for each in admin.jobs.list_runs(job_id=job_id, limit=3)] == runs[::-1]
    with pytest.raises(InvalidParameterValue):
        list(admin.jobs.list_runs(job_id=job_id, limit=26))


def test_a_task_waits_for_others_and_is_tried_again(workspace: StandIn, admin: WorkspaceClient, tmp_path: Path) -> None:
    """A task with retries gets another attempt, tied to the first; a task after a failed one does not run."""
    job_id = made(
        admin, wheel("1", key="first", max_retries=1), wheel("0", key="next", depends_on=[TaskDependency("first")])
    )
    run = ended(admin, started(admin, job_id))
    first, following = run.tasks or []
    assert (first.attempt_number, state_of(run)[1]) == (1, RunResultState.FAILED)
    assert first.state is not None
    assert following.state is not None
    assert following.state.result_state == RunResultState.UPSTREAM_FAILED
    assert run.run_id is not None
    assert workspace.log(run.run_id).count("DATABRICKS_HOST") == 2


def test_a_repair_runs_failed_tasks_again(workspace: StandIn, admin: WorkspaceClient, held: Path) -> None:
    """A repair takes the job's settings of now, never a run in progress, and after the first it names the newest."""
    job_id = made(admin, wheel("0", key="good"), wheel("1", key="bad"))
    run_id = started(admin, job_id)
    assert state_of(ended(admin, run_id))[1] == RunResultState.FAILED
    first = admin.jobs.repair_run(run_id, rerun_all_failed_tasks=True).bind()
    assert first["run_id"] == run_id
    assert state_of(ended(admin, run_id))[1] == RunResultState.FAILED
    admin.jobs.update(job_id, new_settings=JobSettings(tasks=[wheel("0", str(held), key="bad")]))
    with pytest.raises(InvalidParameterValue, match="latest_repair_id"):
        admin.jobs.repair_run(run_id, rerun_tasks=["bad"])
    history = admin.jobs.get_run(run_id, include_history=True).repair_history or []
    latest = history[-1].id
    admin.jobs.repair_run(run_id, rerun_tasks=["bad"], latest_repair_id=latest)
    with pytest.raises(InvalidState, match="in progress"):
        admin.jobs.repair_run(run_id, rerun_tasks=["bad"], latest_repair_id=latest)
    held.unlink()
    assert state_of(ended(admin, run_id))[1] == RunResultState.SUCCESS
    assert workspace.log(run_id).count("DATABRICKS_HOST") == 4


def test_a_run_that_is_late_is_ended(admin: WorkspaceClient, held: Path) -> None:
    """`timeout_seconds` is the one setting that reaches a run which is active."""
    job_id = made(admin, wheel("0", str(held)))
    run_id = started(admin, job_id)
    admin.jobs.update(job_id, new_settings=JobSettings(timeout_seconds=1))
    assert state_of(ended(admin, run_id))[1] == RunResultState.TIMEDOUT


def active_runs(admin: WorkspaceClient, job_id: int) -> list[int]:
    return [each.run_id for each in admin.jobs.list_runs(job_id=job_id, active_only=True) if each.run_id]


def test_a_continuous_job_comes_back_until_it_is_paused(workspace: StandIn, admin: WorkspaceClient, held: Path) -> None:
    """A run begins by itself, and again after a cancel; PAUSED leaves the active run and stops the next."""
    job_id = made(admin, wheel("0", str(held)), continuous=Continuous(pause_status=PauseStatus.UNPAUSED))
    first = until(lambda: active_runs(admin, job_id), "no first run")[0]
    until_printed(workspace, first)
    admin.jobs.cancel_run(first)
    second = until(lambda: [each for each in active_runs(admin, job_id) if each != first], "no second run")[0]
    admin.jobs.update(job_id, new_settings=JobSettings(continuous=Continuous(pause_status=PauseStatus.PAUSED)))
    assert active_runs(admin, job_id) == [second]
    admin.jobs.cancel_run(second)
    ended(admin, second)
    ended(admin, started(admin, made(admin, wheel("0"))))  # far longer than the pause between two runs
    assert active_runs(admin, job_id) == []


def test_failures_of_a_continuous_job_back_off(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Each failure in a row doubles the wait; a start by hand resumes at once."""
    workspace.settings(backoff_seconds=0.1)
    job_id = made(admin, wheel("1"), continuous=Continuous(pause_status=PauseStatus.UNPAUSED))
    until(lambda: len(list(admin.jobs.list_runs(job_id=job_id))) >= 4, "no restarts")
    admin.jobs.update(job_id, new_settings=JobSettings(continuous=Continuous(pause_status=PauseStatus.PAUSED)))
    until(lambda: not active_runs(admin, job_id), "still active")
    runs = sorted(admin.jobs.list_runs(job_id=job_id), key=lambda each: each.run_id or 0)
    gaps = [(after.start_time or 0) - (before.end_time or 0) for before, after in pairwise(runs)]
    assert [gap >= least for gap, least in zip(gaps, (95, 195, 395), strict=False)] == [True] * 3
    assert ended(admin, started(admin, job_id)).state is not None


def test_a_deleted_job_leaves_its_runs(admin: WorkspaceClient, held: Path) -> None:
    """A job's active runs end with it, and can still be read."""
    job_id = made(admin, wheel("0", str(held)))
    run_id = started(admin, job_id)
    admin.jobs.delete(job_id)
    assert state_of(ended(admin, run_id))[1] == RunResultState.CANCELED


def test_turnout_runs_as_a_wheel(workspace: StandIn, admin: WorkspaceClient) -> None:
    """The wheel `turnout` is this checkout's command line."""
    module = PythonWheelTask("turnout", "turnout", parameters=["--help"])
    run_id = started(admin, made(admin, Task("help", python_wheel_task=module)))
    assert state_of(ended(admin, run_id))[1] == RunResultState.SUCCESS
    assert "Usage:" in workspace.log(run_id)


def test_a_run_may_call_the_workspace_as_its_principal(workspace: StandIn, admin: WorkspaceClient, held: Path) -> None:
    """The token of a task is that of `run_as`, and worth nothing when the task has ended."""
    workspace.add_principal("caller")
    runner = JobRunAs(service_principal_name=workspace.identity("caller").name)
    run_id = started(admin, made(admin, wheel("0", str(held)), run_as=runner))
    token = until_printed(workspace, run_id).partition("'DATABRICKS_TOKEN': '")[2].partition("'")[0]
    assert client(workspace, token).current_user.me().user_name == workspace.identity("caller").name
    held.unlink()
    ended(admin, run_id)
    with pytest.raises(Exception, match="Credential was not sent"):
        client(workspace, token).current_user.me()
