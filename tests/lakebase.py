"""Lakebase for tests: a real PostgreSQL whose passwords are tokens that end, and the few calls that give them."""

import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.postgres import Postgres

ENDPOINT = "projects/turnout-dev/branches/production/endpoints/primary"
LIFE_SECONDS = 2.0
_STORE = "TURNOUT_STORE__URL"
_PAT = "dapi-of-a-test"


@dataclass
class Lakebase:
    """One endpoint with one database, and the workspace around it."""

    postgres: Postgres
    database: str
    address: str = ""
    life_seconds: float = LIFE_SECONDS
    user: str = ""  # whose token the workspace gives, and as whom the caller is signed in
    fails: tuple[int, str, str] | None = None  # status, code and text of every further answer of the credential call
    credential: Any = None  # an answer in the place of a token's
    host: str = "127.0.0.1"
    schema: str = ""
    calls: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    _last: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    def url(self) -> str:
        """Return the store's URL, with endpoint and database."""
        return f"lakebase://{ENDPOINT}/{self.database}"

    def environ(self, user: str | None = None) -> dict[str, str]:
        """Return what an App or a job has in its environment, for one of the roles."""
        self.user = user or self.user
        return {
            "DATABRICKS_HOST": self.address,
            "DATABRICKS_TOKEN": _PAT,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.postgres.port),
            "PGUSER": self.user,
            "PGOPTIONS": f"-csearch_path={self.schema},pg_catalog",
        }

    def enter(self, patch: pytest.MonkeyPatch, user: str | None = None) -> str:
        """Put that into this process's environment, with the store's URL for other processes; return the URL."""
        for name, value in (self.environ(user) | {_STORE: self.url()}).items():
            patch.setenv(name, value)
        return self.url()

    def add_role(self, name: str = "") -> str:
        """Make a role that may log in with a token, and return its name."""
        role = name or self.postgres.new_name("principal")
        self.postgres.run(f'CREATE ROLE "{role}" LOGIN')
        return role

    def cut(self) -> None:
        """End every connection to the database but the test's own."""
        ours = f"datname = '{self.database}' AND usename <> 'turnout'"
        self.postgres.run(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {ours}")

    def revoke(self) -> None:
        """Let the server take no token that was given so far."""
        self.postgres.run(f"ALTER ROLE \"{self.user}\" PASSWORD 'another'")
        self._last.clear()

    def has_token(self, token: str | None = None) -> bool:
        """Return whether a token, the newest by default, lives."""
        newest, ends = self._last[self.user]
        return token in {None, newest} and datetime.now(UTC) < ends

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a request."""
        if path.startswith("/.well-known/"):  # what the SDK asks of any host
            return 404, {}
        self.calls.append(f"{method} {path}")
        if (method, path) == ("POST", "/api/2.0/postgres/credentials"):
            if self.fails is not None:
                status, code, message = self.fails
                return status, {"error_code": code, "message": message}
            return 200, self._token() if self.credential is None else self.credential
        if (method, path) == ("GET", f"/api/2.0/postgres/{ENDPOINT}"):
            return 200, {"name": ENDPOINT, "status": {"hosts": {"host": self.host} if self.host else {}}}
        if (method, path) == ("GET", "/api/2.0/preview/scim/v2/Me"):
            return 200, {"userName": self.user}
        return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such path"}

    def _token(self) -> dict[str, str]:
        """Return a token of the role, which the server takes until its end, at logins only; in its first half the same.

        A role of PostgreSQL has one password, and several processes of one role have a token each.
        """
        now = datetime.now(UTC)
        if (last := self._last.get(self.user)) is not None and (last[1] - now).total_seconds() > self.life_seconds / 2:
            return _answer(*last)
        token, ends = f"eyJ{secrets.token_hex(24)}", now + timedelta(seconds=self.life_seconds)
        self.postgres.run(f"ALTER ROLE \"{self.user}\" PASSWORD '{token}' VALID UNTIL '{ends.isoformat()}'")
        self.tokens.append(token)
        self._last[self.user] = token, ends
        return _answer(token, ends)


def _answer(token: str, ends: datetime) -> dict[str, str]:
    return {"token": token, "expire_time": ends.isoformat().replace("+00:00", "Z")}


def store_url(engine: Engine) -> str:
    """Return the `store.url` by which another engine or process opens the store of a test."""
    return os.environ.get(_STORE) or engine.url.render_as_string(hide_password=False)


class Answering:
    """The server of the calls; it answers for one endpoint after another."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres, self._now = postgres, Lakebase(postgres, "")
        self.database = postgres.new_name("lakebase")
        postgres.run(f"CREATE DATABASE {self.database}")
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True

    def endpoint(self) -> Lakebase:
        """Return a new endpoint: a role with an empty schema of its own."""
        made = Lakebase(self._postgres, self.database, f"http://127.0.0.1:{self.http.server_port}")
        made.user = made.add_role()
        made.schema = made.user
        self._postgres.run_in(self.database, f'CREATE SCHEMA "{made.schema}" AUTHORIZATION "{made.user}"')
        self._now = made
        return made

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(handler) -> None:  # noqa: N805
                handler._serve("GET")

            def do_POST(handler) -> None:  # noqa: N805
                handler._serve("POST")

            def _serve(handler, method: str) -> None:  # noqa: N805
                handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
                status, body = self._now.answer(method, handler.path.partition("?")[0])
                raw = json.dumps(body).encode()
                handler.send_response(status)
                handler.send_header("Content-Type", "application/json")
                handler.send_header("Content-Length", str(len(raw)))
                handler.end_headers()
                handler.wfile.write(raw)

            def log_message(handler, *_: object) -> None:  # noqa: N805
                pass

        return Handler


@contextmanager
def lakebase_on(postgres: Postgres) -> Iterator[Answering]:
    """Serve the calls of a workspace whose endpoints are schemas of one database."""
    made = Answering(postgres)
    thread = threading.Thread(target=made.http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()
