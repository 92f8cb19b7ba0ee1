"""Opens a target for a command: the bundle, the workspace, the journal, and the control store where it is reachable."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.fleet.apply import Fleet
from pipeline.fleet.build import build_app_source
from pipeline.fleet.bundle import Bundle, place_of, put
from pipeline.fleet.desired import Built, desired, group_of
from pipeline.fleet.journal import Journal
from pipeline.fleet.kinds.apps import Apps
from pipeline.fleet.kinds.boards import Alerts, Dashboards
from pipeline.fleet.kinds.catalog import ExternalLocations, Schemas
from pipeline.fleet.kinds.files import Files
from pipeline.fleet.kinds.folders import Folders
from pipeline.fleet.kinds.jobs import Jobs
from pipeline.fleet.kinds.kind import Kind, Scope
from pipeline.fleet.kinds.lakebase import Databases, Projects, Roles
from pipeline.fleet.kinds.secret_scopes import SecretScopes
from pipeline.fleet.kinds.store_roles import StoreRoles
from pipeline.fleet.rules import Parses, require_rules
from pipeline.settings.parsing import quoted
from pipeline.settings.storage import read_link
from pipeline.settings.tree import Paths, Settings, load
from pipeline.setup.catalog_checks import require_writable
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store, require_store
from pipeline.store.games import known_games
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.processes.liveness import read_drivers
from pipeline.store.processes.runs import open_runs, submit_stop
from pipeline.workspace.client import open_workspace

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

    fleet: Fleet
    target: str
    places: Mapping[str, str]  # `environment`, `root` of the tables, `store`; empty where the bundle does not say it
    notes: tuple[str, ...]
    env_dir: Path
    environ: Mapping[str, str]
    group: str  # the first one

    def ensure_group(self) -> str:
        """Make the first group in a control store that has none; return what was done, as a sentence."""
        groups, notes = _groups(self.env_dir, self.environ, is_new=True)
        return notes[0] if groups is None else groups.ensure(self.group)


class StoredGroups:
    """The groups of a control store; see `pipeline.fleet.restarts.Groups`."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine) -> None:
        """Read and ask in this store."""
        self._settings, self._paths, self._engine = settings, paths, engine

    def names(self) -> list[str]:
        """Return the groups whose drivers are jobs."""
        return sorted(name for name, group in read_groups(self._engine).items() if group.backend == "databricks")

    def require_writable(self) -> list[str]:
        """Return notes about the games' tables in the catalog.

        Raises:
            Refused: one of them is a table that turnout cannot write, such as a managed one.
        """
        return require_writable(self._settings, self._paths, sorted(map(str, known_games(self._engine))))

    def ensure(self, name: str) -> str:
        """Make a group whose driver is a job, where there is no group yet; return what was done."""
        if known := read_groups(self._engine):
            return f"The control store has the groups {join_limited(sorted(known))}."
        actor, reason = current_user(), "turnout fleet apply"
        gate.permit(self._settings, self._engine, actor, DirectAct.CREATE_GROUP, reason)
        create(self._engine, Group(name, "databricks"), actor, reason)
        return f"Made the group {name}, whose driver the controller starts as a job."

    def disturbed(self, group: str) -> str:
        """See `Groups`."""
        games = sum(each.group == group for each in read_assignments(self._engine).values())
        return f"its {games} streams stand still until its cluster and driver have started, some minutes"

    def restart(self, group: str) -> int | None:
        """See `Groups`."""
        run = open_runs(self._engine).get(group)
        if run is None or run.backend != "databricks":
            return None
        submit_stop(self._engine, run.run_id)
        return run.run_id

    def controller(self) -> object | None:
        """See `Groups`."""
        facts = read_drivers(self._engine, self._settings.metrics.heartbeat_seconds)
        driver = facts.drivers.get(("controller", "main"))
        is_alive = driver is not None and facts.judge("controller", "main").state == "running"
        return (driver.process, driver.started_at) if driver is not None and is_alive else None

    def runs_again(self, group: str, run_id: int | None) -> bool:
        """See `Groups`."""
        registered = read_groups(self._engine).get(group)
        if registered is None or registered.desired == "stopped" or registered.backend != "databricks":
            return True
        facts = read_drivers(self._engine, self._settings.metrics.heartbeat_seconds)
        driver = facts.drivers.get(("group", group))
        is_later = driver is not None and driver.run_id is not None and driver.run_id > (run_id or 0)
        return is_later and facts.judge("group", group).state == "running"


def open_fleet(
    env_dir: Path,
    folder: Path,
    target: str | None,
    given: Mapping[str, str],
    out: Path | None,
    parses: Parses | None = None,
) -> Opened:
    """Open a target; with `out` the wheel and the app are built into that folder first.

    The bundle's rules come before anything is sent; `parses` judges the commands of jobs. The environment and its
    control store are those that the bundle gives to the controller.

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
    groups, notes = _groups(env_dir, environ)
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
    fleet = Fleet(scope, KINDS, [each for each in wanted if each.kind in KINDS], journal, groups)
    places = {
        "environment": bundle.environment,
        "root": bundle.variables.get("root", ""),
        "store": said.get(_STORE, ""),
    }
    return Opened(fleet, bundle.target, places, notes, env_dir, environ, bundle.variables["group"])


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
    env_dir: Path, environ: Mapping[str, str], *, is_new: bool = False
) -> tuple[StoredGroups | None, tuple[str, ...]]:
    try:
        settings, paths = load(env_dir, environ)
        if not is_new:
            require_store(settings, paths)
        return StoredGroups(settings, paths, open_store(settings, paths)), ()
    except (Refused, SQLAlchemyError) as error:
        reason = str(error).splitlines()[0]
        return None, (f"The control store is not read, so the groups are those of the last apply. {reason}",)
