"""Catalogs for tests: the embedded one really served by a process of its own, and those that the environment names."""

import http.server
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
import requests
import yaml
from deltalake import write_deltalake

from grants.catalog import Catalog
from grants.catalogs.databricks import Databricks
from grants.catalogs.embedded import Embedded
from grants.catalogs.members import Members
from grants.catalogs.rest import Rest
from grants.catalogs.unity import SCIM as UNITY_SCIM
from grants.catalogs.unity import Unity
from grants.catalogs.unity_key import UnityKey
from grants.model import SELECT, USE_CATALOG, USE_SCHEMA, GameTable, Securable
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import create
from pipeline.settings.tree import Paths
from tests.checkout import ROOT
from tests.unit.grants.catalog_faults import run_forked

SCIM = "/api/2.0/preview/scim/v2"
UC = "/api/2.1/unity-catalog"


class FakeClock:
    """A clock that waits for nobody, and remembers how long it was to wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


# ------------------------------------------------------------------------------------------------ the embedded server


class Server:
    """A process that serves the embedded catalog."""

    def __init__(self, folder: Path, port: int = 0, *, is_forked: bool = False, **troubles: Any) -> None:
        self.folder = folder
        self.process = _Forked(folder, port, troubles) if is_forked else _Program(folder, port, troubles)
        self.url = self.process.first_line.removeprefix("Catalog: ").strip()
        self.token = (folder / "token").read_text("utf-8")
        self._session = requests.Session()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def call(self, method: str, path: str, body: Any = None, token: str | None = None) -> requests.Response:
        """Send one request as it is; without a token as the metastore's admin."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return self._session.request(method, self.url + path, json=body, headers=headers, timeout=20)

    def ok(self, method: str, path: str, body: object = None, token: str | None = None) -> Any:
        answer = self.call(method, path, body, token)
        assert answer.ok, answer.text
        return answer.json()

    def trouble(self, **troubles: Any) -> None:
        """Make these troubles from now on, and no others."""
        self.ok("PUT", "/turnout/troubles", troubles)

    def make(self, kind: str, name: str, members: list[str] | None = None) -> str:
        """Make a user, group or service principal; return its id."""
        key = {"Users": "userName", "Groups": "displayName", "ServicePrincipals": "applicationId"}[kind]
        listed = {"members": [{"value": member} for member in members]} if members else {}
        return str(self.ok("POST", f"{SCIM}/{kind}", {key: name, **listed})["id"])

    def token_of(self, name: str, seconds: int = 60) -> str:
        return str(self.ok("POST", "/turnout/tokens", {"principal": name, "seconds": seconds})["token"])

    def kill(self) -> None:
        self._session.close()
        self.process.kill()

    def stop(self) -> int:
        """End it as a supervisor does; return its exit code."""
        return self.process.stop()


class _Program:
    """The server as a program of its own."""

    def __init__(self, folder: Path, port: int, troubles: Mapping[str, Any]) -> None:
        self._process = start(folder, port, **troubles)
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline()
        assert self.first_line.startswith("Catalog: "), self._process.communicate()[1]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> int:
        self._process.terminate()
        self._process.communicate(timeout=10)
        return self._process.returncode


class _Forked:
    """The server as a copy of a process that has imported it: a program imports for a quarter of a second each time."""

    def __init__(self, folder: Path, port: int, troubles: Mapping[str, Any]) -> None:
        reader, writer = _FORKING.Pipe(duplex=False)
        self._process = _FORKING.Process(target=run_forked, args=(writer, folder, port, troubles), daemon=True)
        with pytest.MonkeyPatch.context() as patch:
            # The copy would run the program of this process: the whole dashboard, where a test has drawn a page.
            patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
            self._process.start()
        writer.close()
        with reader, open(reader.fileno(), encoding="utf-8", closefd=False) as lines:
            self.first_line = lines.readline()
        assert self.first_line.startswith("Catalog: "), "the catalog ended"

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def stop(self) -> int:
        self._process.terminate()
        return self._ended()

    def _ended(self) -> int:
        self._process.join(10)
        code = self._process.exitcode
        assert code is not None
        return code


_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([run_forked.__module__])


def start(folder: Path, port: int, **troubles: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.grants.catalog_faults", str(folder), str(port), json.dumps(troubles)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@contextmanager
def served(folder: Path, port: int = 0, **troubles: Any) -> Iterator[Server]:
    server = Server(folder, port, is_forked=True, **troubles)
    try:
        yield server
    finally:
        server.kill()


def let_read_raw(server: Server, table: GameTable, principal: str) -> None:
    """Give somebody all that is needed to read a table."""
    for securable, privilege in zip(table.securable.chain(), (SELECT, USE_SCHEMA, USE_CATALOG), strict=True):
        changes = [{"principal": principal, "add": [privilege]}]
        server.ok("PATCH", f"{UC}/permissions/{securable.type}/{securable.full_name}", {"changes": changes})


# ------------------------------------------------------------------------------------- what the contract needs of each

_NUMBERS = itertools.count(1)
_RUN = uuid.uuid4().hex[:8]  # so that runs against one real server do not meet


def fresh(what: str) -> str:
    return f"{what}_{_RUN}_{next(_NUMBERS)}"


class World(Protocol):
    """A catalog, and what must be done beside it to test it."""

    @property
    def catalog(self) -> Catalog:
        """Return its client."""

    @property
    def location(self) -> str:
        """Return the address below which tables of tests lie."""

    @property
    def folds_case(self) -> bool:
        """Return whether names of principals are found whatever their casing."""

    def user(self, name: str | None = None) -> str:
        """Make a user that is new."""

    def group(self, members: list[str]) -> str:
        """Make a group that is new."""

    def table(self) -> GameTable:
        """Register a table that is new, in a schema that is new."""

    def drop(self, table: GameTable) -> None:
        """Take a table out of the catalog."""

    def delete(self, user: str) -> None:
        """Delete a user."""

    @property
    def takes_any_name(self) -> bool:
        """Return whether a user can be named anything."""

    @property
    def may_be_filled(self) -> bool:
        """Return whether hundreds of users and tables can be left there."""


def register(catalog: Catalog, catalog_name: str, location: str) -> GameTable:
    securable = Securable((catalog_name, fresh("schema"), fresh("game")))
    assert catalog.register(securable, f"{location}/{securable.full_name}", [("seq", "long")])
    schema = securable.parent
    assert schema is not None
    return catalog.tables(schema)[securable.path[-1]]


def register_own(catalog: Catalog, paths: Paths, schema: Securable, key: str) -> None:
    """Register a game's own table as the controller does; make an empty one where the game has none."""
    place = paths.table(key)
    if not exists(place):
        place.make()
        create(place, pa.schema([("seq", pa.int64())]))
    catalog.register(Securable((*schema.path, key)), place.uri, [("seq", "long")])


def register_other(catalog: Catalog, paths: Paths, schema: Securable, key: str) -> str:
    """Register a table with other people's rows under a game's name, as a person may by hand; return where it lies."""
    place = Path(paths.root) / "salaries"
    write_deltalake(place, pa.table({"salary": [100_000]}))
    catalog.register(Securable((*schema.path, key)), place.as_uri(), [("salary", "long")])
    return place.as_uri()


@dataclass
class EmbeddedWorld:
    server: Server
    ids: dict[str, str] = field(default_factory=dict)
    location = "file:///nowhere"
    folds_case = takes_any_name = may_be_filled = True

    @property
    def catalog(self) -> Embedded:
        return Embedded(Rest(self.server.url, self.server.token, shared_token=self.server.token))

    def impatient(self, **options: Any) -> Embedded:
        """Return a client that waits by a clock of its own, unless told otherwise."""
        token = self.server.token
        return Embedded(Rest(self.server.url, token, shared_token=token, **{"clock": FakeClock(), **options}))

    def user(self, name: str | None = None) -> str:
        name = name or f"{fresh('user')}@example.com"
        self.ids[name] = self.server.make("Users", name)
        return name

    def group(self, members: list[str]) -> str:
        name = fresh("group")
        self.ids[name] = self.server.make("Groups", name, [self.ids[member] for member in members])
        return name

    def table(self) -> GameTable:
        return register(self.catalog, fresh("catalog"), self.location)

    def drop(self, table: GameTable) -> None:
        self.server.ok("DELETE", f"{UC}/tables/{table.securable.full_name}")

    def delete(self, user: str) -> None:
        self.server.ok("DELETE", f"{SCIM}/Users/{self.ids[user]}")


class UnityWorld:
    """A server that UNITY_CATALOG_URL names, with its admin's token; UNITY_CATALOG_KEY_FOLDER is its `etc/conf`."""

    location = "file:///tmp/turnout_contract"
    folds_case = False
    takes_any_name = may_be_filled = True

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._file = folder / "members.yml"
        self._groups: dict[str, list[str]] = {}
        self._ids: dict[str, str] = {}
        self._token = environ["UNITY_CATALOG_TOKEN"]
        self._rest = Rest(environ["UNITY_CATALOG_URL"], self._token)
        key = environ.get("UNITY_CATALOG_KEY_FOLDER")
        self.catalog = Unity(self._rest, Members(self._file), UnityKey(Path(key)) if key else None)

    def user(self, name: str | None = None) -> str:
        name = name or f"{fresh('user')}@example.com"
        user = {"displayName": fresh("user"), "emails": [{"value": name, "primary": True}]}
        self._ids[name] = self._rest.write("POST", f"{UNITY_SCIM}/Users", user)["id"]
        return name

    def group(self, members: list[str]) -> str:
        name = self.user(fresh("group"))
        self._groups[name] = members
        self._file.write_text(yaml.safe_dump({"groups": self._groups}), "utf-8")
        return name

    def table(self) -> GameTable:
        return register(self.catalog, "turnout_contract", self.location)

    def drop(self, table: GameTable) -> None:
        self._delete(f"{UC}/tables/{table.securable.full_name}")

    def delete(self, user: str) -> None:
        self._delete(f"{UNITY_SCIM}/Users/{self._ids[user]}")

    def _delete(self, path: str) -> None:
        with requests.Session() as session:  # not by our client, which wants JSON: the answer is empty
            session.trust_env = False
            bearer = {"Authorization": f"Bearer {self._token}"}
            answer = session.delete(self._rest.url + path, headers=bearer, timeout=20)
        assert answer.ok, answer.text


class DatabricksWorld:
    """A workspace that DATABRICKS_HOST names; DATABRICKS_TOKEN is of its admin, who may make users and groups.

    DATABRICKS_TEST_CATALOG is a catalog to make schemas in, DATABRICKS_TEST_LOCATION an address external tables may lie
    at. Users and groups that tests make stay.
    """

    folds_case = True
    takes_any_name = may_be_filled = False

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._rest = Rest(environ["DATABRICKS_HOST"], environ["DATABRICKS_TOKEN"], reads_per_second=10)
        self._name, self.location = environ["DATABRICKS_TEST_CATALOG"], environ["DATABRICKS_TEST_LOCATION"]
        self._ids: dict[str, str] = {}
        self.catalog = Databricks(self._rest)

    def user(self, name: str | None = None) -> str:
        name = name or f"{fresh('user')}@example.com"
        self._ids[name] = self._rest.write("POST", f"{SCIM}/Users", {"userName": name})["id"]
        return name

    def group(self, members: list[str]) -> str:
        name = fresh("group")
        listed = [{"value": self._ids[member]} for member in members]
        self._ids[name] = self._rest.write("POST", f"{SCIM}/Groups", {"displayName": name, "members": listed})["id"]
        return name

    def table(self) -> GameTable:
        return register(self.catalog, self._name, self.location)

    def drop(self, table: GameTable) -> None:
        self._rest.write("DELETE", f"{UC}/tables/{table.securable.full_name}", {})

    def delete(self, user: str) -> None:
        self._rest.write("DELETE", f"{SCIM}/Users/{self._ids[user]}", {})


NEEDED = {
    "unity": ("UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN"),
    "databricks": ("DATABRICKS_HOST", "DATABRICKS_TOKEN", "DATABRICKS_TEST_CATALOG", "DATABRICKS_TEST_LOCATION"),
}


# ----------------------------------------------------------------------------------------------- a server that records


@dataclass
class Recorder:
    """An HTTP server that keeps what it was asked, raw, and answers as it is told."""

    url: str = ""
    submitted: list[tuple[str, str, Any]] = field(default_factory=list)  # method, path as on the wire, body
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)  # path without query → JSON, or what makes it of a request
    status: int = 200
    extra: dict[str, str] = field(default_factory=dict)  # headers of every answer

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.submitted]


Answer = Callable[[str, Mapping[str, str]], tuple[int, Any]]


def open_source_users(*users: Mapping[str, Any]) -> dict[str, Answer]:
    """Answer about users as an open-source server 0.6.0 was seen to: `answers` of a recorder.

    It knows the path only for who asks for SCIM's own media type, and counts as all what is on the page.
    """

    def as_scim(path: str, headers: Mapping[str, str], found: Callable[[dict[str, int]], Any]) -> tuple[int, Any]:
        if headers["Accept"] != "application/scim+json":
            return 500, {"error_code": "INTERNAL", "message": "Couldn't unwrap service."}
        return 200, found({name: int(value) for name, value in parse_qsl(urlsplit(path).query)})

    def page(submitted: dict[str, int]) -> dict[str, Any]:
        start = submitted.get("startIndex", 1)
        shown = users[start - 1 :][: submitted.get("count", 50)]
        return {"totalResults": len(shown), "itemsPerPage": len(shown), "startIndex": start, "Resources": list(shown)}

    users = (open_source_user("admin"), *users)
    return {
        f"{UNITY_SCIM}/Users": lambda path, headers: as_scim(path, headers, page),
        f"{UNITY_SCIM}/Me": lambda path, headers: as_scim(path, headers, lambda _: open_source_user("admin")),
    }


def open_source_user(email: str, *, active: bool = True) -> dict[str, Any]:
    """Return a user as an open-source server shows one."""
    named = {"id": f"id of {email}", "userName": email, "displayName": email, "active": active}
    return {**named, "emails": [{"value": email, "primary": True}], "photos": [{"value": ""}]}


@contextmanager
def recorder(answers: Mapping[str, Any] | None = None) -> Iterator[Recorder]:
    kept = Recorder(answers=dict(answers or {}))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # an answer goes out at once, not its head first

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept.submitted.append((self.command, self.path, json.loads(body) if body else None))
            kept.headers.append(dict(self.headers))
            status, reported = kept.status, kept.answers.get(self.path.partition("?")[0], {})
            if callable(reported):
                status, reported = reported(self.path, self.headers)
            answer = json.dumps(reported).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **kept.extra}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PATCH = do_GET  # noqa: N815 - http.server finds them by these names

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        kept.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
