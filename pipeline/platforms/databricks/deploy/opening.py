"""Opens a target for a command: the bundle, the workspace, the journal, and the control store where it is reachable."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.apply import Deployment
from pipeline.platforms.databricks.deploy.build import build_app_source
from pipeline.platforms.databricks.deploy.bundle import Bundle, place_of, put
from pipeline.platforms.databricks.deploy.desired import Built, desired, group_of
from pipeline.platforms.databricks.deploy.groups import DeployedGroups, OpenGroups
from pipeline.platforms.databricks.deploy.journal import Journal
from pipeline.platforms.databricks.deploy.kinds.apps import Apps
from pipeline.platforms.databricks.deploy.kinds.boards import Alerts, Dashboards
from pipeline.platforms.databricks.deploy.kinds.catalog import ExternalLocations, Schemas
from pipeline.platforms.databricks.deploy.kinds.files import Files
from pipeline.platforms.databricks.deploy.kinds.folders import Folders
from pipeline.platforms.databricks.deploy.kinds.jobs import Jobs
from pipeline.platforms.databricks.deploy.kinds.kind import Kind, Scope
from pipeline.platforms.databricks.deploy.kinds.lakebase import Databases, Projects, Roles
from pipeline.platforms.databricks.deploy.kinds.secret_scopes import SecretScopes
from pipeline.platforms.databricks.deploy.kinds.store_roles import StoreRoles
from pipeline.platforms.databricks.deploy.rules import Parses, require_rules
from pipeline.platforms.databricks.workspace.client import open_workspace
from pipeline.settings.parsing import quoted
from pipeline.settings.storage import read_link

_ALL: Final[tuple[Kind, ...]] = (
    Folders(), Files(), SecretScopes(), Schemas(), ExternalLocations(), Projects(), Roles(), Databases(), Apps(),
    StoreRoles(), Jobs(), Alerts(), Dashboards(),
)  # fmt: skip
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in _ALL}
_STORE: Final = "TURNOUT_STORE__URL"
_SETTINGS: Final = frozenset(
    f"TURNOUT_{name}"
    for name in ("ENVIRONMENT", "STORE__URL", "ACCESS__CATALOG", "ACCESS__CATALOG_NAME", "ACCESS__SCHEMA_NAME")
)
_PATIENCE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Opened:
    """A target, and what a person should know of it before anything is done."""

    deployment: Deployment
    target: str
    places: Mapping[str, str]  # `environment`, `root` of the tables, `store`; empty where the bundle does not say it
    notes: tuple[str, ...]
    env_dir: Path
    environ: Mapping[str, str]
    group: str  # the first one
    open_groups: OpenGroups

    def ensure_group(self) -> str:
        """Make the first group in a control store that has none; return what was done, as a sentence."""
        groups, notes = _groups(self.open_groups, self.env_dir, self.environ, is_new=True)
        return notes[0] if groups is None else groups.ensure(self.group)


def open_deployment(
    env_dir: Path,
    folder: Path,
    target: str | None,
    given: Mapping[str, str],
    out: Path | None,
    open_groups: OpenGroups,
    parses: Parses | None = None,
) -> Opened:
    """Open a target; with `out` the wheel and the app are built into that folder first.

    The bundle's rules come before anything is sent; `parses` judges the commands of jobs. The environment and its
    control store are those that the bundle gives to the controller; `open_groups` opens that store.

    Raises:
        Refused: the bundle is wrong, a variable of this process or the environment's URL names another environment
            than the bundle, the wheel cannot be built, or the workspace refuses.
        Transient: the workspace does not answer.
    """
    built = None
    if out is not None:
        made = build_app_source(folder, out)
        files = tuple(sorted(made.folder / name for name in made.bytes_by_file))
        built = Built(files, made.wheel.path, made.wheel.version)
    given = _with_root(folder, target, given, read_link(env_dir))
    bundle, wanted = desired(folder, target, given, [], built)
    require_rules(bundle, wanted, parses)
    said = _environ(bundle)
    environ = {**os.environ, **said}
    groups, notes = _groups(open_groups, env_dir, environ)
    if _STORE in os.environ and _STORE not in said and _STORE in _given(bundle):
        unlike = (
            f"The control store of this shell may be another than that of target {bundle.target}: the bundle takes its "
            f"own from a secret, which turnout does not read. Check {_STORE}."
        )
        notes = (unlike, *notes)
    bundle, wanted = desired(folder, target, given, [] if groups is None else groups.names(), built)
    require_rules(bundle, wanted, parses)
    workspace = open_workspace(patience_seconds=_PATIENCE_SECONDS)
    journal = Journal.read(workspace, bundle.root_path, bundle.target, bundle.environment)
    if groups is not None and out is not None:
        notes = (*notes, *groups.require_writable())
    if groups is None:
        known = [group for address in journal.entries if (group := group_of(address)) is not None]
        bundle, wanted = desired(folder, target, given, known, built)
    scope = Scope(workspace, bundle.environment, bundle.root_path)
    deployment = Deployment(scope, KINDS, [each for each in wanted if each.kind in KINDS], journal, groups)
    places = {
        "environment": bundle.environment,
        "root": bundle.variables.get("root", ""),
        "store": said.get(_STORE, ""),
    }
    return Opened(deployment, bundle.target, places, notes, env_dir, environ, bundle.variables["group"], open_groups)


def _with_root(folder: Path, target: str | None, given: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the values with `root` among them, where the environment is at a URL.

    Raises:
        Refused: the bundle or a value names another URL.
    """
    if not url:
        return dict(given)
    stated = place_of(folder, target, given).root
    if stated and stated.rstrip("/") != url.rstrip("/"):
        raise Refused(
            f"The environment is at {url}, and `root` of the bundle's target is {quoted(stated)}. Name "
            "the target's environment with --env-dir, or the environment's target with --target."
        )
    return {**given, "root": stated or url}


def _environ(bundle: Bundle) -> dict[str, str]:
    """Return the settings that the bundle gives to the controller, as far as a person needs them.

    Raises:
        Refused: a variable of this process differs from one of them: it is of another environment.
    """
    given = _given(bundle)
    said = {name: value for name, value in given.items() if name in _SETTINGS and "{{" not in value}
    for name, value in sorted(said.items()):
        if os.environ.get(name, value) != value:
            raise Refused(
                f"The variable {name} of this shell differs from what target {bundle.target} of the bundle gives to "
                "the controller, so it is of another environment. Unset it, or name its target with --target."
            )
    return said


def _given(bundle: Bundle) -> dict[str, str]:
    """Return the variables that the bundle gives to the controller."""
    ids = {
        f"resources.{each.address}.id": KINDS[each.kind].label(each.definition)
        for each in bundle.resources
        if each.kind == Projects.name
    }
    controllers = [each for each in bundle.resources if each.address == "jobs.controller"]
    clusters = [each for found in controllers for each in put(found.definition, ids).get("job_clusters", [])]
    return {name: str(value) for each in clusters for name, value in _variables(each).items()}


def _variables(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = cluster.get("new_cluster", {}).get("spark_env_vars", {})
    return found


def _groups(
    open_groups: OpenGroups, env_dir: Path, environ: Mapping[str, str], *, is_new: bool = False
) -> tuple[DeployedGroups | None, tuple[str, ...]]:
    try:
        return open_groups(env_dir, environ, is_new=is_new), ()
    except (Refused, SQLAlchemyError) as error:
        reason = str(error).splitlines()[0]
        return None, (f"The control store is not read, so the groups are those of the last apply. {reason}",)
