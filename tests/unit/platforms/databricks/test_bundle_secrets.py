"""Guards that no difference between a bundle and its workspace shows a secret."""

from typing import Any, Final

import pytest

from pipeline.platforms.databricks.deploy.compare import changes

SECRET: Final = "wr0ng-Horse"
REFERENCE: Final = "{{secrets/turnout-dev/x}}"


def _variables(**values: Any) -> dict[str, Any]:
    return {"job_clusters": [{"job_cluster_key": "driver", "new_cluster": {"spark_env_vars": values}}]}


def _task(**fields: Any) -> dict[str, Any]:
    return {"tasks": [{"task_key": "driver", **fields}]}


HIDDEN: Final[dict[str, tuple[Any, Any]]] = {  # what should be, what is
    "in the place of a reference": (_variables(SETTING=REFERENCE), _variables(SETTING=SECRET)),
    "after a reference": (_variables(SETTING=REFERENCE), _variables(SETTING=f"{REFERENCE}{SECRET}")),
    "by its name": (_variables(), _variables(AWS_SECRET_ACCESS_KEY=SECRET)),
    "on both sides": (_variables(DB_PASSWORD=SECRET), _variables(DB_PASSWORD=f"{SECRET}2")),
    "by its look": (_variables(NOTE="x"), _variables(NOTE=f"https://user:{SECRET}@host/x")),
    "in a file of the cluster": ({"init": "x"}, {"init": f"password: {SECRET}"}),
    "in a conf": (
        {"spark_conf": {"spark.x": "1"}},
        {"spark_conf": {"spark.x": "1", "spark.hadoop.fs.s3a.secret.key": SECRET}},
    ),
    "in a whole part that was added": (
        {"job_clusters": []},
        {"job_clusters": [{"job_cluster_key": "more", "new_cluster": {"spark_env_vars": {"API_TOKEN": SECRET}}}]},
    ),
    "in a whole part that was removed": (
        {"tasks": [{"task_key": "more", "options": {"password": SECRET}}]},
        {"tasks": []},
    ),
    "in words after their option": (
        _task(python_wheel_task={"parameters": ["run"]}),
        _task(python_wheel_task={"parameters": ["run", "--db-password", SECRET, f"--token={SECRET}"]}),
    ),
    "in words in the place of a reference": (
        _task(python_wheel_task={"parameters": ["run", "--setting", REFERENCE]}),
        _task(python_wheel_task={"parameters": ["run", "--setting", SECRET]}),
    ),
    "of a parameter of a job": (
        {"parameters": []},
        {"parameters": [{"name": "password", "default": SECRET}]},
    ),
    "of a known parameter of a job": (
        {"parameters": [{"name": "password", "default": "x"}]},
        {"parameters": [{"name": "password", "default": SECRET}]},
    ),
    "of a token": (_variables(), _variables(SETTING=f"eyJhbGciOiJI.{SECRET}")),
    "of a tag": (
        {"custom_tags": [{"key": "a", "value": "b"}]},
        {"custom_tags": [{"key": "a", "value": "b"}, {"key": "db_password", "value": SECRET}]},
    ),
    "of a notebook": (_task(), _task(notebook_task={"base_parameters": {"apiKey": SECRET, "api_key": SECRET}})),
    "by its random look": (_variables(), _variables(SETTING=f"{SECRET}BhF8i/zQkLm27")),
}


@pytest.mark.proves("G282")
@pytest.mark.parametrize("how", HIDDEN)
def test_a_difference_shows_no_secret(how: str) -> None:
    """A value that may be a secret is `(hidden)` in the text of a difference, with the place at which it stands."""
    should_be, is_now = HIDDEN[how]
    for definition, state in ((should_be, is_now), (is_now, should_be)):
        said = "\n".join(map(str, changes(definition, state, {})))
        assert SECRET not in said
        assert "(hidden)" in said


@pytest.mark.parametrize(
    ("definition", "state", "said"),
    [
        (_variables(SETTING=REFERENCE), _variables(SETTING=SECRET), f"(hidden) → {REFERENCE}"),
        (_variables(A=REFERENCE), _variables(A="{{secrets/theirs/y}}"), f"{{{{secrets/theirs/y}}}} → {REFERENCE}"),
        ({"spark_conf": {"spark.x": "1"}}, {"spark_conf": {"spark.x": "2"}}, "spark_conf.spark.x: 2 → 1"),
        (
            {"resources": [{"name": "s3-key", "secret": {"key": "a", "permission": "READ"}}]},
            {"resources": [{"name": "s3-key", "secret": {"key": "b"}}]},
            "resources[s3-key].secret.key: b → a|resources[s3-key].secret.permission: (absent) → READ",
        ),
        (
            _task(depends_on=[{"task_key": "a"}]),
            _task(),
            "tasks[driver].depends_on: (absent) → [{'task_key': 'a'}]",
        ),
        (
            _task(python_wheel_task={"parameters": ["run", "main"]}),
            _task(python_wheel_task={"parameters": ["run", "--help"]}),
            "tasks[driver].python_wheel_task.parameters: ['run', '--help'] → ['run', 'main']",
        ),
        ({"max_concurrent_runs": 1}, {"max_concurrent_runs": 3}, "max_concurrent_runs: 3 → 1"),
    ],
)  # fmt: skip
def test_other_values_are_shown(definition: Any, state: Any, said: str) -> None:
    """Values without a sign of a secret, references, and fields of requests that are named key or secret are shown."""
    assert "|".join(map(str, changes(definition, state, {}))).endswith(said)
