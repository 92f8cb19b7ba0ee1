"""The groups of an environment that is deployed to a workspace, as `turnout deploy` reads, makes and restarts them."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Engine

from listeners.process_kinds import CONTROLLER, GROUP, ONLY
from pipeline.base.actor import current_user
from pipeline.base.texts import join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.facts.placing import placing_by
from pipeline.health.kinds.controller import judge_controller
from pipeline.platforms.local.catalog_checks import require_writable
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.assignments import read_assignments
from pipeline.store.backends import backend_kind
from pipeline.store.database.engine import open_store, require_store
from pipeline.store.games import known_games
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.processes.runs import open_runs, submit_stop


class StoredGroups:
    """The groups of a control store; see `pipeline.platforms.databricks.deploy.groups.Groups`."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine) -> None:
        """Read and ask in this store."""
        self._settings, self._paths, self._engine = settings, paths, engine

    def names(self) -> list[str]:
        """See `Groups`."""
        return sorted(name for name, group in read_groups(self._engine).items() if backend_kind(group.backend).is_job)

    def require_writable(self) -> list[str]:
        """See `Groups`."""
        return require_writable(self._settings, self._paths, sorted(map(str, known_games(self._engine))))

    def ensure(self, name: str) -> str:
        """See `Groups`."""
        if known := read_groups(self._engine):
            return f"The control store has the groups {join_limited(sorted(known))}."
        actor, reason = current_user(), "turnout deploy apply"
        gate.permit(self._settings, self._engine, actor, DirectAct.CREATE_GROUP, reason)
        create(self._engine, Group(name, "databricks"), actor, reason, placing_by(self._settings))
        return f"Made the group {name}, whose driver the controller starts as a job."

    def disturbed(self, group: str) -> str:
        """See `Groups`."""
        games = sum(each.group == group for each in read_assignments(self._engine).values())
        return f"its {games} streams stand still until its cluster and driver have started, some minutes"

    def restart(self, group: str) -> int | None:
        """See `Groups`."""
        run = open_runs(self._engine).get(group)
        if run is None or not backend_kind(run.backend).is_job:
            return None
        submit_stop(self._engine, run.run_id)
        return run.run_id

    def controller(self) -> object | None:
        """See `Groups`."""
        facts = read_drivers(self._engine, self._settings.metrics)
        driver, is_alive = facts.drivers.get((CONTROLLER, ONLY)), judge_controller(facts).state == "running"
        return (driver.process, driver.started_at) if driver is not None and is_alive else None

    def runs_again(self, group: str, run_id: int | None) -> bool:
        """See `Groups`."""
        registered = read_groups(self._engine).get(group)
        if registered is None or registered.desired == "stopped" or not backend_kind(registered.backend).is_job:
            return True
        facts = read_drivers(self._engine, self._settings.metrics)
        driver = facts.drivers.get((GROUP, group))
        is_later = driver is not None and driver.run_id is not None and driver.run_id > (run_id or 0)
        return is_later and facts.judge(GROUP, group).state == "running"


def open_groups(env_dir: Path, environ: Mapping[str, str], *, is_new: bool) -> StoredGroups:
    """See `OpenGroups` of `pipeline.platforms.databricks.deploy.groups`."""
    settings, paths = load(env_dir, environ)
    if not is_new:
        require_store(settings, paths)
    return StoredGroups(settings, paths, open_store(settings, paths))
