"""All that an on-call person may meet: forty games in many kinds of trouble, a group whose driver hangs, a catalog.

Drivers and a controller carry out what is asked.

Used by the tests and for a look by hand: `python -m tests.browser.oncall_world DIR`, until Ctrl-C.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Engine, update

from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.catalogs.rest import Rest
from pipeline.base.actor import current_user
from pipeline.base.names import game_key
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.incidents.incidents import Incident
from pipeline.settings.tree import Paths, load
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.processes.runs import active_drivers
from tests.browser.access_world import SCHEMA, Catalogued
from tests.browser.drivers import steered
from tests.browser.game_world import failing_game
from tests.browser.seed import Seeded, fleet_of_forty, heartbeats
from tests.unit.grants.catalog_world import register_own, served

T = TypeVar("T")

HUNG: Final = "c"
"""The group whose driver hangs."""

WORKING: Final = ("a", "b")
ANN, BOB, EVE = (f"{name}@example.com" for name in ("ann", "bob", "eve"))
ROOT: Final = "root@example.com"
"""Whom the page acts as."""

LATE: Final = "Harbor quest"
"""A game that stalled; its neighbours are well."""

WELL: Final = "Cinder quest"
"""A game of group a that is well."""

_OF_HUNG: Final = ("Kite arena", "Kite quest", "Kite racer")
_CATALOGUED: Final = ("Chess", WELL, LATE, "Gale quest")
_SILENT_SECONDS: Final = 30.0  # how long the hung driver has said nothing: too short for the controller to kill it
_SETTINGS: Final = f'[access]\nport = PORT\nrefresh_seconds = 5.0\n[access.identities]\n{current_user()} = "{ROOT}"\n'


@dataclass
class OnCall:
    """The environment, its store, its catalog."""

    catalogued: Catalogued
    hung: set[int] = field(default_factory=set)  # processes

    @property
    def folder(self) -> Path:
        return self.catalogued.folder

    @property
    def store(self) -> Engine:
        return self.catalogued.store

    def hang(self) -> None:
        """Let the driver of the third group hang, as a driver that waits for a disk for ever does."""
        driver = _wait_for_driver(self.store)
        os.kill(driver, signal.SIGSTOP)
        self.hung.add(driver)
        row = tables.drivers.c.name == HUNG
        reported = tables.streams.c.group_name == HUNG
        then = time.time() - _SILENT_SECONDS
        with self.store.begin() as connection:
            connection.execute(update(tables.drivers).where(row).values(heartbeat_at=then))
            connection.execute(update(tables.streams).where(reported).values(updated_at=then))

    def thaw(self) -> None:
        """Let it go on, so that it ends with its controller; by then it may have been killed."""
        for driver in self.hung:
            with suppress(ProcessLookupError):
                os.kill(driver, signal.SIGCONT)


@contextmanager
def on_call(folder: Path) -> Iterator[OnCall]:
    """Fill a folder, and run its controller, drivers and catalog while the block runs."""
    fleet = (*fleet_of_forty(), *(Seeded(name, HUNG, {}) for name in _OF_HUNG))
    failing_game(folder, time.time(), fleet, heartbeat_ages={"ingest": 0.0}).engine.dispose()
    with served(folder / "catalog") as server:
        (folder / "turnout.toml").write_text(_SETTINGS.replace("PORT", str(server.port)), "utf-8")
        settings, _ = load(folder, {})
        store = open_store(settings, Paths(folder))
        with store.begin() as connection:  # the controller starts its driver, and so may restart it
            connection.execute(update(tables.groups).where(tables.groups.c.name == HUNG).values(backend="local"))
        catalog = Embedded(Rest(server.url, server.token, shared_token=server.token))
        world = Catalogued(folder, settings, store, server, catalog)
        for name in _CATALOGUED:
            register_own(catalog, Paths(folder), SCHEMA, game_key(name))
        for name in (ANN, BOB, EVE, ROOT):
            add(catalog, name, [])
        with heartbeats(folder, ("ingest",)), steered(folder, WORKING, settings):
            made = OnCall(world)
            try:
                _wait_until_judged(store)  # a page that is drawn before shows no cause until it refreshes
                yield made
            finally:
                made.thaw()
                store.dispose()


def _wait_until_judged(store: Engine) -> None:
    def judged() -> Iterator[Incident]:
        return (each for each in read_incidents(store) if each.finding.title.startswith("Commits of Chess failed"))

    _waited_for(lambda: next(judged(), None), "the controller has not judged why Chess fails")


def _wait_for_driver(store: Engine) -> int:
    def running() -> int | None:
        driver = active_drivers(store).get(HUNG)
        return int(driver.process.pid) if driver is not None and driver.state == "running" else None

    return _waited_for(running, f"the controller has started no driver of group {HUNG}")


def _waited_for(found: Callable[[], T | None], otherwise: str) -> T:
    """Return what is found within a minute, else fail."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (seen := found()) is not None:
            return seen
        time.sleep(0.1)  # another process writes it
    raise AssertionError(otherwise)


if __name__ == "__main__":
    with on_call(Path(sys.argv[1])) as looked_at:
        looked_at.hang()
        threading.Event().wait()
