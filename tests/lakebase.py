"""Lakebase for tests: a real PostgreSQL whose passwords are tokens that end, and the few calls that give them."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.postgres import Postgres

ENDPOINT = "projects/turnout-dev/branches/production/endpoints/primary"
LIFE_SECONDS = 2.0
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
    calls: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

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
        }

    def add_role(self, name: str = "") -> str:
        """Make a role that may log in with a token, and return its name."""
        role = name or self.postgres.new_name("principal")
        self.postgres.run(f'CREATE ROLE "{role}" LOGIN')
        return role

    def cut(self) -> None:
        """End every connection to the database."""
        self.postgres.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.database}'")

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a request."""
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
        """Return a new token of the role, which the server takes for its life: the life counts at login only."""
        token, ends = f"eyJ{secrets.token_hex(24)}", datetime.now(UTC) + timedelta(seconds=self.life_seconds)
        self.postgres.run(f"ALTER ROLE \"{self.user}\" PASSWORD '{token}' VALID UNTIL '{ends.isoformat()}'")
        self.tokens.append(token)
        return {"token": token, "expire_time": ends.isoformat().replace("+00:00", "Z")}


@contextmanager
def lakebase_on(postgres: Postgres) -> Iterator[Lakebase]:
    """Give a new endpoint with an empty database, and a workspace that serves it; drop its roles in the end."""
    made = Lakebase(postgres, postgres.new_name("lakebase"))
    made.user = made.add_role()
    postgres.run(
        f'CREATE DATABASE {made.database} OWNER "{made.user}"',
        f"ALTER DATABASE {made.database} SET search_path = public, pg_catalog",
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = made.answer(method, self.path.partition("?")[0])
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        postgres.run(f"DROP DATABASE {made.database} WITH (FORCE)")
