"""Guards the rules of the bundle: the committed one breaks none, and each rule is found broken. No workspace."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pipeline.base.errors import Refused
from pipeline.cli.deploy import parse
from pipeline.platforms.databricks.deploy.bundle import Bundle, Resource
from pipeline.platforms.databricks.deploy.desired import Built, desired
from pipeline.platforms.databricks.deploy.monitoring import texts
from pipeline.platforms.databricks.deploy.rules import bundle_problems, require_rules, target_problems
from tests.checkout import ROOT
from tests.workspace.deploy_world import copy_bundle

VARIABLES: Final = {
    "root": "s3://bucket/prefix", "storage_credential": "c", "warehouse": "w", "notify": "a@example.com",
    "drivers": "0b6a6e0e-0001", "controller": "0b6a6e0e-0002",
}  # fmt: skip
TARGETS: Final = sorted(yaml.safe_load((ROOT / "databricks.yml").read_text("utf-8"))["targets"])


def wanted(folder: Path, target: str = "dev", **given: str) -> tuple[Bundle, list[Resource]]:
    built = Built((), Path("turnout-0.1.0-py3-none-any.whl"), "0.1.0+c0ffee")
    return desired(folder, target, {**VARIABLES, **given}, ["second"], built)


@pytest.mark.parametrize("target", TARGETS)
def test_the_committed_bundle_breaks_no_rule(target: str) -> None:
    """Each target of the bundle in the checkout follows all rules."""
    bundle, resources = wanted(ROOT, target)
    assert [*bundle_problems(ROOT), *target_problems(bundle, resources, parse)] == []


def test_the_generated_files_are_up_to_date() -> None:
    """resources/ has what `python -m pipeline.platforms.databricks.deploy.monitoring` makes of the objectives."""
    assert {path: (ROOT / path).read_text("utf-8") for path in texts()} == texts()


def _job(edit: Callable[[Any], object]) -> Callable[[Path], object]:
    return _in("jobs.yml", lambda tree: edit(tree["resources"]["jobs"]["ingest"]))


def _app(edit: Callable[[Any], object]) -> Callable[[Path], object]:
    return _in("app.yml", lambda tree: edit(tree["resources"]["apps"]["dashboard"]))


def _top(edit: Callable[[Any], object]) -> Callable[[Path], object]:
    return _in("../databricks.yml", edit)


def _in(file: str, edit: Callable[[Any], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> object:
        path = folder / "resources" / file
        tree = yaml.safe_load(path.read_text("utf-8"))
        edit(tree)
        return path.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")

    return change


def _wheel(job: Any) -> Any:
    return job["tasks"][0]["python_wheel_task"]


BROKEN: Final[dict[str, Callable[[Path], object]]] = {
    "jobs.ingest: tags must have": _job(lambda job: job["tags"].pop("turnout_env")),
    "and a turnout_part": _job(lambda job: job["tags"].pop("turnout_part")),
    "max_concurrent_runs must be 1": _job(lambda job: job.pop("max_concurrent_runs")),
    "queue.enabled must be false": _job(lambda job: job.pop("queue")),
    "run_as is missing": _job(lambda job: job.pop("run_as")),
    "permissions are missing": _job(lambda job: job.pop("permissions")),
    "permissions name 2 owners": _job(
        lambda job: job["permissions"].extend({"level": "IS_OWNER", "user_name": each} for each in "ab")
    ),
    "continuous.pause_status is missing": _job(lambda job: job["continuous"].clear()),
    "libraries do not name the wheel": _job(lambda job: job["tasks"][0].pop("libraries")),
    "max_retries must be 0": _job(lambda job: job["tasks"][0].update(max_retries=3)),
    "must start turnout": _job(lambda job: _wheel(job).update(entry_point="main")),
    "there is no command 'runn'": _job(lambda job: _wheel(job).update(parameters=["ingest", "runn"])),
    "'more' is one word too many": _job(lambda job: _wheel(job)["parameters"].append("more")),
    "Missing argument 'NAME'": _in(
        "jobs.yml", lambda tree: _wheel(tree["resources"]["jobs"]["group"]).update(parameters=["groups", "run"])
    ),
    "No such option": _job(lambda job: _wheel(job)["parameters"].append("--no-such")),
    "has neither the environment nor the target": _job(lambda job: job.update(name="turnout ingest")),
    "nam is no field of JobSettings": _job(lambda job: job.update(nam="x")),
    "node is no field": _job(lambda job: job["job_clusters"][0]["new_cluster"].update(node="x")),
    "AWS_SECRET_ACCESS_KEY has a secret in plain text": _job(
        lambda job: job["job_clusters"][0]["new_cluster"]["spark_env_vars"].update(AWS_SECRET_ACCESS_KEY="hidden")
    ),
    "TURNOUT_STORE__URL has a secret": _job(
        lambda job: job["job_clusters"][0]["new_cluster"]["spark_env_vars"].update(
            TURNOUT_STORE__URL="postgresql://user:password@host/store"
        )
    ),
    "${resources.postgres_projects.other.id} names a resource": _job(
        lambda job: job.update(description="${resources.postgres_projects.other.id}")
    ),
    "${bundle.nothing} leads nowhere": _job(lambda job: job.update(description="${bundle.nothing}")),
    "takes its value from gone, which is no resource": _app(
        lambda app: app["config"]["env"].append({"name": "X", "value_from": "gone"})
    ),
    "valueFrom is ignored": _app(lambda app: app["config"]["env"].append({"name": "X", "valueFrom": "s3-key"})),
    "variable PASSWORD has a secret in plain text": _app(
        lambda app: app["config"]["env"].append({"name": "PASSWORD", "value": "x"})
    ),
    "description lacks turnout_env=dev": _app(lambda app: app.update(description="turnout_env=dev2")),
    "compute_size is no field of App": _app(lambda app: app.update(compute_size="HUGE")),
    "prevent_destroy must be true": _in(
        "catalog.yml", lambda tree: tree["resources"]["schemas"]["games"].pop("lifecycle")
    ),
    "custom_tags lack turnout_env": _in(
        "store.yml", lambda tree: tree["resources"]["postgres_projects"]["store"].pop("custom_tags")
    ),
    "run_as is refused beside an app": _top(lambda top: top.update(run_as={"user_name": "x"})),
    "variable idle is declared and not used": _top(lambda top: top["variables"].update(idle={"default": "x"})),
    "databricks.yml: the key resorces is not known": _top(lambda top: top.update(resorces={})),
    "jobs.yml: the key resorces is not known": _in(
        "jobs.yml", lambda tree: tree.update(resorces=tree.pop("resources"))
    ),
    "it has no jobs": _in("jobs.yml", lambda tree: tree.pop("resources")),
    "include resource/*.yml names no file": _top(lambda top: top["include"].append("resource/*.yml")),
    "target dev: the key resources is not known": _top(lambda top: top["targets"]["dev"].update(resources={})),
    "the key workspace.root_pth is not known": _top(
        lambda top: top["targets"]["dev"]["workspace"].update(root_pth="x")
    ),
    "volumes.v: the kind volumes is not known": _in(
        "catalog.yml", lambda tree: tree["resources"].update(volumes={"v": {"name": "x"}})
    ),
    "store_roles.v: the kind store_roles is not known": _in(
        "catalog.yml", lambda tree: tree["resources"].update(store_roles={"v": {"name": "x"}})
    ),
    "apps.dashboard: a value of it has the wrong type": _app(lambda app: app["permissions"].append("CAN_USE")),
    "config is not of the type AppDeployment": _app(lambda app: app["config"].update(env={"a": "b"})),
    "2 jobs have the name": _job(lambda job: job.update(name="turnout ${var.environment} controller")),
    "the level CAN_VEIW, which nothing knows": _job(lambda job: job["permissions"][0].update(level="CAN_VEIW")),
    "an entry of permissions must name one of": _job(lambda job: job["permissions"][0].update(group_nam="x")),
    "the privilege WRITE_FLIES, which nothing knows": _in(
        "catalog.yml",
        lambda tree: tree["resources"]["external_locations"]["tables"]["grants"][0]["privileges"].append("WRITE_FLIES"),
    ),
    "mode development": _top(lambda top: top["targets"]["dev"].update(mode="development")),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_rule_is_found(tmp_path: Path, said: str) -> None:
    """Each rule that a bundle breaks is in the refusal, before anything is sent."""
    folder = copy_bundle(tmp_path)
    BROKEN[said](folder)
    bundle, resources = wanted(folder)
    with pytest.raises(Refused) as refused:
        require_rules(bundle, resources, parse)
    assert said in str(refused.value)


SECRETS: Final[dict[str, tuple[str, str]]] = {
    "spark_env_vars.OTEL_EXPORTER_OTLP_HEADERS": ("OTEL_EXPORTER_OTLP_HEADERS", "x-of-us=hidden"),
    "spark_env_vars.Otlp_Headers": ("Otlp_Headers", "x-of-us=hidden"),
    "spark_env_vars.PGPASS": ("PGPASS", "hidden"),
    "spark_env_vars.TURNOUT_SOURCE__KAFKA_OPTIONS": (
        "TURNOUT_SOURCE__KAFKA_OPTIONS", '{"sasl.jaas.config": "x password=\'hidden\'"}'
    ),
    "spark_env_vars.PLAIN": ("PLAIN", "Bearer hidden-value"),
    "spark_conf.spark.hadoop.fs.s3a.secret.key": ("spark.hadoop.fs.s3a.secret.key", "hidden"),
    "spark_conf.fs.azure.account.key.x.dfs.core.windows.net": ("fs.azure.account.key.x.dfs.core.windows.net", "hidden"),
    "spark_conf.kafka.sasl.jaas.config": ("kafka.sasl.jaas.config", "hidden"),
}  # fmt: skip


@pytest.mark.parametrize("place", SECRETS)
def test_a_secret_in_plain_text_is_found_by_its_whole_name(tmp_path: Path, place: str) -> None:
    """A free name that says secret, in any case and at any of its words, takes a reference alone; none is shown."""
    folder = copy_bundle(tmp_path)
    name, value = SECRETS[place]
    field = place.partition(".")[0]
    _job(lambda job: job["job_clusters"][0]["new_cluster"][field].update({name: value}))(folder)
    bundle, resources = wanted(folder)
    (problem,) = [each for each in target_problems(bundle, resources, parse) if each.startswith("jobs.ingest")]
    assert f"{place} has a secret in plain text" in problem
    assert "hidden" not in problem
    _job(lambda job: job["job_clusters"][0]["new_cluster"][field].update({name: "{{secrets/turnout-dev/x}}"}))(folder)
    bundle, resources = wanted(folder)
    assert [each for each in target_problems(bundle, resources, parse) if each.startswith("jobs.ingest")] == []


def test_a_secret_of_the_app_is_found(tmp_path: Path) -> None:
    """A variable of the app with headers takes its value from a secret."""
    folder = copy_bundle(tmp_path)
    variable = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "hidden"}
    _app(lambda app: app["config"]["env"].append(variable))(folder)
    bundle, resources = wanted(folder)
    (problem,) = target_problems(bundle, resources, parse)
    assert "OTEL_EXPORTER_OTLP_HEADERS has a secret in plain text; use value_from" in problem


WRONG_TYPES: Final[dict[str, Callable[[Path], object]]] = {
    "jobs.ingest in jobs.yml of the bundle must have keys, and is empty": _in(
        "jobs.yml", lambda tree: tree["resources"]["jobs"].update(ingest=None)
    ),
    "resources in jobs.yml must have keys, and is a list": _in("jobs.yml", lambda tree: tree.update(resources=["x"])),
    "jobs in jobs.yml must have keys, and is a text": _in("jobs.yml", lambda tree: tree["resources"].update(jobs="x")),
    "targets must have keys, and is a list": _top(lambda top: top.update(targets=["dev"])),
    "variables of target dev must have keys": _top(lambda top: top["targets"]["dev"].update(variables=["x"])),
    "variable environment of target dev in the bundle must be a text": _top(
        lambda top: top["targets"]["dev"].update(variables={"environment": {"default": "x"}})
    ),
    "include must be a list of texts": _top(lambda top: top.update(include="resources/*.yml")),
    "workspace.root_path is missing": _top(lambda top: top["targets"]["dev"].update(workspace=None)),
}


@pytest.mark.parametrize("said", WRONG_TYPES)
def test_a_wrong_type_is_a_sentence(tmp_path: Path, said: str) -> None:
    """A value of the wrong type in a file is a refusal that names it, never a traceback."""
    folder = copy_bundle(tmp_path)
    WRONG_TYPES[said](folder)

    def judge() -> None:
        bundle, resources = wanted(folder)
        require_rules(bundle, resources, parse)

    with pytest.raises(Refused) as refused:
        judge()
    assert said in str(refused.value)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """A refusal names every problem, so that a person corrects them in one go."""
    folder = copy_bundle(tmp_path)
    for each in ("run_as is missing", "queue.enabled must be false"):
        BROKEN[each](folder)
    bundle, resources = wanted(folder, root="/Volumes/main/games/tables")
    with pytest.raises(Refused, match="problem") as refused:
        require_rules(bundle, resources, None)
    for said in ("run_as is missing", "queue.enabled must be false", "no volume or DBFS path can hold tables"):
        assert said in str(refused.value)


def test_app_yaml_and_the_bundle_have_the_same_variables(tmp_path: Path) -> None:
    """A variable that app.yaml has and the bundle's list lacks would be lost, and app.yaml's spelling is valueFrom."""
    folder = copy_bundle(tmp_path)
    (folder / "app.yaml").write_text("env:\n  - {name: LOST, value_from: x}\n", "utf-8")
    assert [each.partition(",")[0] for each in bundle_problems(folder)] == [
        "app.yaml: value_from is ignored there; write valueFrom",
        "config.env of the app lacks LOST",
    ]


def test_every_command_of_the_document_is_one() -> None:
    """Law: docs/deploy/databricks.md names no command, option or argument that turnout does not have."""
    text = (ROOT / "docs" / "deploy" / "databricks.md").read_text("utf-8")
    named = re.findall(r"\./turnout ([a-z][^`\n]*)", text)
    assert len(named) > 10
    for words in named:
        given = shlex.split(words.replace("--var ...", "--var a=b"))
        if given != ["setup"]:
            assert parse(given) is None, words
