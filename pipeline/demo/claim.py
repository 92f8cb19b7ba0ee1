"""Claims what a demo needs alone: the environment's folder, and ports, which move where another process has them."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from listeners.process_kinds import CONTROLLER, GROUP, INGEST
from pipeline.base import private_files
from pipeline.base.errors import Refused
from pipeline.control.present import DEMO, Present, noted, present, without_lease
from pipeline.demo.server_process import claimed, free_ports
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.processes.leases import expire_dead

LIVE: Final = frozenset({CONTROLLER, INGEST})
"""Kinds of processes that a live demo starts, and that run once in an environment; drivers of groups it takes over."""

BOUNDED: Final = LIVE | {GROUP}
"""The same of a demo with --once."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Settings with ports that were free a moment ago, the variables that hand them on, a line about each moved one."""

    settings: Settings
    environ: dict[str, str]
    lines: tuple[str, ...]


@contextmanager
def own_folder(settings: Settings, paths: Paths, kinds: Collection[str]) -> Iterator[None]:
    """Keep an environment for one demo while the block runs.

    `kinds` are the processes that nobody else may run in it.

    Raises:
        Refused: another demo, or a process of these kinds, runs there; the sentence names it.
    """
    try:
        private_files.make_folder(paths.root)
    except OSError as error:
        raise Refused(f"{paths.root} cannot be used: {error.strerror}. Name another folder with --env-dir.") from error
    with ExitStack() as held:
        try:
            held.enter_context(claimed(paths.root, DEMO))
        except Refused as refused:
            demos = [str(each) for each in without_lease(paths) if each.kind == DEMO]
            raise _in_use(paths, f"the {demos[0]}" if demos else "another demo") from refused
        if others := [each for each in _drivers(settings, paths) if each.kind in kinds]:
            names = ", ".join(f"{each} on {each.process.host}" for each in others)
            raise _in_use(paths, names)
        held.enter_context(noted(paths, DEMO))
        yield


def _drivers(settings: Settings, paths: Paths) -> list[Present]:
    if not settings.store.url and not paths.control_db.exists():
        return []  # a demo whose tables are in a bucket makes its store later
    engine = open_store(settings, paths)
    expire_dead(engine)
    return present(engine, paths)


def _in_use(paths: Paths, others: str) -> Refused:
    return Refused(
        f"{paths.root} is in use by {others}. Stop it with `turnout stop --env-dir {paths.root}`, or name another "
        "folder with --env-dir."
    )


def free(settings: Settings) -> Ports:
    """Return the settings with another port for the dashboard or the embedded catalog where theirs is in use."""
    environ, lines = {}, []
    dashboard = _free(settings.dashboard.port)
    if dashboard != settings.dashboard.port:
        environ["TURNOUT_DASHBOARD__PORT"] = str(dashboard)
        lines.append(f"port {settings.dashboard.port} is in use: the dashboard takes {dashboard}")
    catalog = _free(settings.access.port) if settings.access.catalog == "embedded" else settings.access.port
    if catalog != settings.access.port:
        environ["TURNOUT_ACCESS__PORT"] = str(catalog)
        lines.append(f"port {settings.access.port} is in use: the embedded catalog takes {catalog}")
    moved = replace(
        settings,
        dashboard=replace(settings.dashboard, port=dashboard),
        access=replace(settings.access, port=catalog),
    )
    return Ports(moved, environ, tuple(lines))


def _free(port: int) -> int:
    try:
        return free_ports(port)[0]
    except Refused:
        return free_ports(None)[0]
