"""An environment with a catalog that is really served: games with tables, people and groups."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from grants.applying import own_tables
from grants.catalog import Change
from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.catalogs.rest import Rest
from grants.model import Securable
from grants.observing import snapshot
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from tests.browser.seed import Seeded, heartbeats, seed
from tests.unit.grants.catalog_world import SCIM, Server, register_own, served

SCHEMA = Securable(("turnout", "games"))


@dataclass
class Catalogued:
    """An environment, its store, and its catalog."""

    folder: Path
    settings: Settings
    store: Engine
    server: Server
    catalog: Embedded

    def look(self) -> None:
        """Take the snapshot that the pages show, as the controller does."""
        places = own_tables.places(self.store, Paths(self.folder))
        snapshot.keep(self.store, snapshot.observe(self.catalog, SCHEMA, time.time(), places))

    def grant(self, principal: str, name: str, *, add: Sequence[str] = ("SELECT",), remove: Sequence[str] = ()) -> None:
        """Change a grant on a game's table beside turnout."""
        where = Securable((*SCHEMA.path, game_key(name)))
        self.catalog.change(Change(where, principal, tuple(add), tuple(remove)))

    def use(self, principal: str) -> None:
        """Give what reading takes above the tables, beside turnout."""
        for where, privilege in zip(SCHEMA.chain(), ("USE_SCHEMA", "USE_CATALOG"), strict=True):
            self.catalog.change(Change(where, principal, (privilege,)))

    def delete(self, principal: str) -> None:
        """Delete a user from the directory."""
        (found,) = [
            each["id"] for each in self.catalog.rest.resources(f"{SCIM}/Users") if each["userName"] == principal
        ]
        self.catalog.rest.write("DELETE", f"{SCIM}/Users/{found}", {})

    def has_select(self, principal: str, name: str) -> bool:
        """Tell what the catalog itself says now."""
        there = self.catalog.assignments(Securable((*SCHEMA.path, game_key(name))))
        return "SELECT" in there.get(principal, ())


@contextmanager
def catalogued(
    folder: Path,
    games: Sequence[str],
    people: Mapping[str, Sequence[str]],
    settings: str = "",
    refresh_seconds: float = 30.0,
) -> Iterator[Catalogued]:
    """Seed an environment with running games, serve its catalog, register their tables, and make people with groups."""
    fleet = [Seeded(name, "a", {}) for name in games]
    seed(folder, fleet, now=time.time(), heartbeat_ages={"ingest": 0.0, "a": 0.0}, history=False)
    with heartbeats(folder, ("ingest", "a")), served(folder / "catalog") as server:
        access = f"[access]\nport = {server.port}\nrefresh_seconds = {refresh_seconds}\n"
        (folder / "turnout.toml").write_text(f"{access}{settings}", "utf-8")
        read, _ = load(folder, {})
        store = open_store(read, Paths(folder))
        catalog = Embedded(Rest(server.url, server.token, shared_token=server.token))
        for name in games:
            register_own(catalog, Paths(folder), SCHEMA, game_key(name))
        for name, groups in people.items():
            add(catalog, name, groups)
        try:
            yield Catalogued(folder, read, store, server, catalog)
        finally:
            store.dispose()
