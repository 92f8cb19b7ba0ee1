"""What a bundle must be before anything is sent: looked at without a workspace, all problems at once.

`databricks bundle validate` needs a workspace, and neither it nor the JSON schema finds most of these. The types of
requests are those of databricks-sdk: what its dataclasses do not keep is no field. See
docs/decisions/0025-jobs-as-drivers.md.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines
from pipeline.platforms.databricks.deploy.bundle import FILE, Bundle, Resource, included, unresolved
from pipeline.platforms.databricks.deploy.kinds.kind import carries
from pipeline.platforms.databricks.deploy.secrets import plain_secrets
from pipeline.platforms.databricks.deploy.targets import problems_of_targets
from pipeline.platforms.databricks.workspace.jobs import ENVIRONMENT_TAG

Parses = Callable[[Sequence[str]], str | None]
"""Return why words are no command of turnout; None where they are."""

_PART_TAG: Final = "turnout_part"
_HOLD_DATA: Final = frozenset(
    {"schemas", "external_locations", "postgres_projects", "postgres_roles", "postgres_databases"}
)
_NAMED: Final = {  # kind → the field that has the environment or the target in it
    "jobs": "name", "apps": "name", "schemas": "name", "external_locations": "name", "secret_scopes": "name",
    "postgres_projects": "project_id", "alerts": "display_name", "dashboards": "display_name",
}  # fmt: skip
_MARKED: Final = {
    "apps": "description",
    "schemas": "comment",
    "external_locations": "comment",
    "alerts": "custom_description",
}
_OF_BUNDLE: Final = frozenset({"lifecycle", "permissions", "grants", "config"})  # beside a request's fields
_BAD_ROOT: Final = re.compile(r"(?:dbfs:)?/?(?:Volumes|dbfs)(?:/|$)|dbfs:", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$\{var\.([A-Za-z0-9_]+)\}")
_KEYS: Final = frozenset({"bundle", "include", "artifacts", "variables", "targets", "resources", "run_as"})
_KEYS_OF_TARGET: Final = frozenset({"default", "mode", "workspace", "variables", "run_as"})
_KEYS_OF_WORKSPACE: Final = frozenset({"host", "profile", "root_path"})
_WHO: Final = frozenset({"user_name", "group_name", "service_principal_name"})
_MOST_PROBLEMS: Final = 20


def require_rules(bundle: Bundle, wanted: Sequence[Resource], parses: Parses | None) -> None:
    """Look at a target's resources.

    Raises:
        Refused: something is wrong: all of it.
    """
    problems = [
        *bundle_problems(bundle.folder), *problems_of_targets(bundle), *target_problems(bundle, wanted, parses)
    ]  # fmt: skip
    if problems:
        lines = "\n".join(f"  - {each}" for each in first_lines(problems, _MOST_PROBLEMS))
        raise Refused(f"The bundle has {len(problems)} problem(s). Correct them, nothing was sent:\n{lines}")


def bundle_problems(folder: Path) -> list[str]:
    """Return what is wrong with the files of a bundle, whatever the target."""
    top = yaml.safe_load((folder / FILE).read_text("utf-8"))
    texts = {path.name: path.read_text("utf-8") for path in (folder / FILE, *included(folder, top))}
    problems = [*_unknown_keys(folder, top)]
    if "run_as" in top or any("run_as" in (each or {}) for each in top.get("targets", {}).values()):
        problems.append(f"{FILE}: run_as is refused beside an app; set it on each job")
    declared = set(top.get("variables") or {})
    used = {name for text in texts.values() for name in _VARIABLE.findall(text)}
    problems += [f"variable {name} is used and not declared" for name in sorted(used - declared)]
    problems += [f"variable {name} is declared and not used" for name in sorted(declared - used)]
    for name, target in top.get("targets", {}).items():
        if (target or {}).get("mode") == "development":
            problems.append(f"target {name}: mode development puts prefixes before names, by which jobs are found")
        unknown = sorted(set((target or {}).get("variables") or {}) - declared)
        problems += [f"target {name}: variable {each} is not declared" for each in unknown]
    for name, text in texts.items():
        lines = (line.partition("#")[0] for line in text.splitlines())
        if any("valueFrom" in line for line in lines):
            problems.append(f"{name}: valueFrom is ignored in a bundle; write value_from")
    return problems + _app_problems(folder, texts)


def _unknown_keys(folder: Path, top: Mapping[str, Any]) -> Iterator[str]:
    """Yield keys that nothing reads: what stands below them would be left out without a word, and then removed."""
    for key in sorted(map(str, top.keys() - _KEYS)):
        yield f"{FILE}: the key {key} is not known; known are {', '.join(sorted(_KEYS - {'run_as'}))}"
    for path in included(folder, top):
        for key in sorted(map(str, yaml.safe_load(path.read_text("utf-8")).keys() - {"resources"})):
            yield f"{path.name}: the key {key} is not known; an included file has resources alone"
    for pattern in top.get("include") or []:
        if not any(folder.glob(pattern)):
            yield f"{FILE}: include {pattern} names no file"
    for name, target in top.get("targets", {}).items():
        for key in sorted(map(str, (target or {}).keys() - _KEYS_OF_TARGET)):
            yield f"target {name}: the key {key} is not known; known are {', '.join(sorted(_KEYS_OF_TARGET))}"
        for key in sorted(map(str, ((target or {}).get("workspace") or {}).keys() - _KEYS_OF_WORKSPACE)):
            yield f"target {name}: the key workspace.{key} is not known"


def _app_problems(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Return what is wrong with app.yaml, where the checkout has one: its spelling is the other."""
    path = folder / "app.yaml"
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    problems = ["app.yaml: value_from is ignored there; write valueFrom"] if "value_from" in text else []
    names = {each["name"] for each in (yaml.safe_load(text) or {}).get("env", [])}
    said = "\n".join(texts.values())
    missing = sorted(name for name in names if f"name: {name}," not in said and f"name: {name}\n" not in said)
    return problems + [
        f"config.env of the app lacks {name}, which app.yaml has: it replaces the list" for name in missing
    ]


def target_problems(bundle: Bundle, wanted: Sequence[Resource], parses: Parses | None) -> list[str]:
    """Return what is wrong with the resources of a target."""
    problems = []
    known = {each.address for each in wanted}
    if _BAD_ROOT.match(bundle.variables.get("root", "")):
        problems.append("variable root: no volume or DBFS path can hold tables; give a URL such as s3://bucket/prefix")
    kinds = _judges().keys() | {"secret_scopes"}
    problems += [
        f"{each.address}: the kind {each.kind} is not known; known are {_names(kinds)}"
        for each in bundle.resources
        if each.kind not in kinds
    ]
    if not any(each.kind == "jobs" for each in bundle.resources):
        problems.append("it has no jobs: is a file of resources missing, or not included?")
    names = Counter((each.kind, str(each.definition.get(_NAMED.get(each.kind, ""), each.address))) for each in wanted)
    problems += [f"{count} {kind} have the name {name!r}" for (kind, name), count in names.items() if count > 1]
    for resource in wanted:
        if resource.kind in kinds:
            problems += [f"{resource.address}: {text}" for text in _of_resource(resource, bundle, known, parses)]
    return problems


def _names(kinds: Iterable[str]) -> str:
    return ", ".join(sorted(kinds))


def _of_resource(resource: Resource, bundle: Bundle, known: set[str], parses: Parses | None) -> list[str]:
    types, secrets = [*_of_types(resource)], plain_secrets(resource.definition)
    try:
        return [
            *_of_references(resource, known), *_of_names(resource, bundle), *_of_rights(resource), *types,
            *secrets, *(_of_job(resource, bundle, parses) if resource.kind == "jobs" else ()),
        ]  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError):  # a text for a mapping, a mapping for a list
        return types or ["a value of it has the wrong type: a list, a mapping or a text stands for another"]


def _of_references(resource: Resource, known: set[str]) -> Iterator[str]:
    for name in unresolved(resource.definition):
        parts = name.split(".")
        if parts[0] != "resources":
            yield f"${{{name}}} leads nowhere"
        elif ".".join(parts[1:3]) not in known:
            yield f"${{{name}}} names a resource that the bundle does not have"
    if resource.kind == "apps":
        env, resources = resource.definition.get("config", {}).get("env", []), resource.definition.get("resources", [])
        names = {each.get("name") for each in resources}
        for each in env:
            if "value_from" in each and each["value_from"] not in names:
                yield f"variable {each.get('name')} takes its value from {each['value_from']}, which is no resource"


def _of_names(resource: Resource, bundle: Bundle) -> Iterator[str]:
    field = _NAMED.get(resource.kind)
    name = str(resource.definition.get(field or "", ""))
    if field is not None and not any(_has_word(name, each) for each in (bundle.environment, bundle.target)):
        yield f"{field} {name!r} has neither the environment nor the target in it"
    marked = _MARKED.get(resource.kind)
    if marked is not None and not carries(resource.definition.get(marked), bundle.environment):
        yield f"{marked} lacks {ENVIRONMENT_TAG}={bundle.environment}, by which it is known as ours"
    tags = {each.get("key"): each.get("value") for each in resource.definition.get("custom_tags", [])}
    if resource.kind == "postgres_projects" and tags.get(ENVIRONMENT_TAG) != bundle.environment:
        yield f"custom_tags lack {ENVIRONMENT_TAG}: {bundle.environment}"
    if resource.kind in _HOLD_DATA and not resource.definition.get("lifecycle", {}).get("prevent_destroy"):
        yield "it holds data, so lifecycle.prevent_destroy must be true"
    owners = [each for each in resource.definition.get("permissions", []) if each.get("level") == "IS_OWNER"]
    if len(owners) > 1:
        yield f"permissions name {len(owners)} owners; a workspace takes one"


def _of_rights(resource: Resource) -> Iterator[str]:
    """Yield levels and privileges that nothing has, and entries that do not name one person, group or principal."""
    from databricks.sdk.service import catalog, iam, workspace

    levels = workspace.AclPermission if resource.kind == "secret_scopes" else iam.PermissionLevel
    for each in resource.definition.get("permissions", []):
        if each.get("level") not in {one.value for one in levels}:
            yield f"permissions have the level {each.get('level')}, which nothing knows"
        if len(each.keys() & _WHO) != 1 or each.keys() - _WHO - {"level"}:
            yield f"an entry of permissions must name one of {_names(_WHO)}"
    privileges = {one.value for one in catalog.Privilege}
    for each in resource.definition.get("grants", []):
        for name in each["privileges"]:
            if str(name).upper().replace(" ", "_") not in privileges:
                yield f"grants have the privilege {name}, which nothing knows"


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text) is not None


def _of_job(resource: Resource, bundle: Bundle, parses: Parses | None) -> Iterator[str]:
    job = resource.definition
    tags = job.get("tags", {})
    if tags.get(ENVIRONMENT_TAG) != bundle.environment or not tags.get(_PART_TAG):
        yield f"tags must have {ENVIRONMENT_TAG}: {bundle.environment} and a {_PART_TAG}"
    if job.get("max_concurrent_runs") != 1:
        yield "max_concurrent_runs must be 1: two drivers of one part stand in each other's way"
    if job.get("queue", {}).get("enabled", True) is not False:
        yield "queue.enabled must be false: a driver that starts hours later surprises everybody"
    if not job.get("run_as"):
        yield "run_as is missing; the bundle has none for all jobs"
    if not job.get("permissions"):
        yield "permissions are missing"
    for trigger in ("continuous", "schedule", "trigger"):
        if trigger in job and "pause_status" not in job[trigger]:
            yield f"{trigger}.pause_status is missing: a target's mode would decide"
    for task in job.get("tasks", []):
        yield from _of_task(task, parses)


def _of_task(task: Mapping[str, Any], parses: Parses | None) -> Iterator[str]:
    key = task.get("task_key")
    wheels = [str(each.get("whl", "")) for each in task.get("libraries", [])]
    if not any(each.endswith(".whl") for each in wheels):
        yield f"task {key}: libraries do not name the wheel"
    if task.get("max_retries", -1) != 0:
        yield f"task {key}: max_retries must be 0: the controller counts starts"
    wheel = task.get("python_wheel_task", {})
    if (wheel.get("package_name"), wheel.get("entry_point")) != ("turnout", "turnout"):
        yield f"task {key}: python_wheel_task must start turnout"
    elif parses is not None and (reason := parses([str(each) for each in wheel.get("parameters", [])])) is not None:
        yield f"task {key}: its parameters are no command of turnout: {reason}"


def _of_types(resource: Resource) -> Iterator[str]:
    """Compare a definition with the part that the SDK's dataclass of its request keeps."""
    judge = _judges().get(resource.kind)
    if judge is None:
        return
    beside = _OF_BUNDLE | {"file_path", "serialized_dashboard", "parent", "project_id", "role_id", "database_id"}
    beside |= {"embed_credentials", "dataset_catalog", "dataset_schema"}
    given = {key: value for key, value in resource.definition.items() if key not in beside}
    yield from lost(given, judge, "")
    if resource.kind == "apps":
        from databricks.sdk.service.apps import AppDeployment

        config = resource.definition.get("config", {})
        deployment = {"command": config.get("command"), "env_vars": config.get("env")}
        yield from lost({key: value for key, value in deployment.items() if value}, AppDeployment, "config")


def _judges() -> Mapping[str, Any]:
    from databricks.sdk.service import apps, catalog, dashboards, jobs, postgres, sql

    return {
        "jobs": jobs.JobSettings,
        "apps": apps.App,
        "schemas": catalog.SchemaInfo,
        "external_locations": catalog.ExternalLocationInfo,
        "postgres_projects": postgres.ProjectSpec,
        "postgres_roles": postgres.RoleRoleSpec,
        "postgres_databases": postgres.DatabaseDatabaseSpec,
        "alerts": sql.AlertV2,
        "dashboards": dashboards.Dashboard,
    }


def lost(given: Mapping[str, Any], judge: Any, path: str) -> Iterator[str]:
    """Yield what a dataclass of the SDK does not keep of a body: unknown fields, and values of enumerations."""
    try:
        kept = judge.from_dict(_plain(given)).as_dict()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"{path or 'it'} is not of the type {judge.__name__}: {error}"
        return
    for place in _missing(_plain(given), kept, path):
        yield f"{place} is no field of {judge.__name__}, or has a value that it does not know"


def _plain(value: Any) -> Any:
    """Return a value without what means nothing to the SDK."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _missing(given: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, each in given.items():
            below = f"{path}.{key}" if path else key
            if key in kept:
                yield from _missing(each, kept[key], below)
            elif each not in (None, "", [], {}):
                yield below
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _missing(one, other, f"{path}[{number}]")
    elif str(given) != str(kept):
        yield path
