"""Drivers without Spark: they hold, let go and tell of games as a group's driver does between two passes.

Those of the groups that the controller starts are processes: `python -m tests.browser.drivers NAME DIR`.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine, insert, update

from pipeline.control import controller
from pipeline.control.backends.duties import Duty
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import streams
from pipeline.store.games import carried, let_go
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, leased
from pipeline.store.stream_control import StreamControl, decided

_TURN_SECONDS = 0.3


@contextmanager
def steered(folder: Path, groups: Sequence[str] = ("a", "b"), settings: Settings | None = None) -> Iterator[Engine]:
    """Run a controller and a driver per group over an environment, in threads of this process; yield its store."""
    settings, paths = settings or Settings(), Paths(folder)
    store = open_store(settings, paths)
    stop = threading.Event()
    with ExitStack() as stack:
        held = {name: stack.enter_context(leased(store, settings.store, "group", name)) for name in groups}
        drivers = {name: lease for name, lease in held.items() if lease is not None}
        for name in drivers:
            start_driver(store, "group", name, None)
        threads = [
            threading.Thread(target=_control, args=(settings, paths, stop), name="controller"),
            threading.Thread(target=_drive, args=(store, drivers, stop), name="drivers"),
        ]
        for thread in threads:
            thread.start()
        try:
            yield store
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    store.dispose()


def _control(settings: Settings, paths: Paths, stop: threading.Event) -> None:
    alone = replace(settings, maintenance=replace(settings.maintenance, backend="none"))
    controller.run(alone, paths, stop, stop_groups=True, driver=lambda group, run_id: _command(group, run_id, paths))


def _command(group: Duty, run_id: int, paths: Paths) -> list[str]:
    return [sys.executable, "-m", "tests.browser.drivers", group.name, str(paths.root), str(run_id)]


def _drive(store: Engine, drivers: dict[str, Lease], stop: threading.Event) -> None:
    mine: dict[str, set[str]] = {name: set() for name in drivers}
    while not stop.wait(_TURN_SECONDS):
        made = decided(store)
        for name, lease in drivers.items():
            wanted = {str(each.game_key) for each in carried(store, lease)}
            if leaving := mine[name] - wanted:
                let_go(store, lease, leaving)
            mine[name] = wanted
            heartbeat(store, "group", name, "running", 839)
            for key in wanted:
                _report(store, key, name, made.get(key, StreamControl()))


def _report(store: Engine, key: str, group: str, made: StreamControl) -> None:
    """Tell of a stream as before, but where it is now and how it is read; a new one runs."""
    if made.desired == "paused":
        lane, status = "PAUSED", "PAUSED"
    elif made.parked_at is not None:
        lane, status = "QUARANTINED", "FAILED"
    else:
        lane, status = "RUN", "RUNNING"
    values: dict[str, object] = {"group_name": group, "updated_at": time.time(), "lane": lane}
    with store.begin() as connection:
        last = connection.execute(streams.select().where(streams.c.game_key == key)).first()
        if last is None:
            values |= {"game_key": key, "status": "RUNNING", "status_since": time.time(), "cursor_seq": 839}
            values |= {"rows_total": 0, "rejects_total": 0}
            connection.execute(insert(streams).values(values))
            return
        if lane != last.lane:
            values |= {"status": status, "status_since": time.time()}
        connection.execute(update(streams).where(streams.c.game_key == key).values(values))


def _drive_alone(name: str, folder: Path, run_id: int) -> None:
    """Drive one group, as a process that the controller starts, until it is asked to end."""
    settings, stop = Settings(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    store = open_store(settings, Paths(folder))
    with leased(store, settings.store, "group", name, run_id) as lease:
        start_driver(store, "group", name, None, run_id)
        _drive(store, {name: lease} if lease is not None else {}, stop)
        heartbeat(store, "group", name, "stopped", None)
    store.dispose()


if __name__ == "__main__":
    _drive_alone(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
