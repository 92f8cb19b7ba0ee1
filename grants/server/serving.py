"""The embedded catalog as a process: a folder, a port on this machine only, and its routes.

Run it in a process of its own; it ends at SIGTERM. `grants/catalogs/embedded.py` is its client.
"""

import fcntl
import logging
import os
import signal
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Final, TextIO

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from grants.server import permissions, scim, securables, tokens
from grants.server.calls import Handler, ServerState, broken, endpoint, no_such_endpoint
from grants.server.gate import Gate
from grants.server.rows import open_rows
from pipeline.base.errors import Refused
from pipeline.base.private_files import write_file
from pipeline.base.terminal import say

HOST: Final = "127.0.0.1"
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
PORT_FILE: Final = "port"
_SHUTDOWN_SECONDS: Final = 2


def routes(state: ServerState) -> ASGIApp:
    """Return what answers the requests of callers who are known."""
    app = Starlette(
        routes=[
            Route(path, endpoint(state, handler, status), methods=[verb]) for verb, path, handler, status in _ROUTES
        ],
        exception_handlers={HTTPException: no_such_endpoint, Exception: broken},
    )
    app.router.redirect_slashes = False
    return app


def application(state: ServerState) -> ASGIApp:
    """Return the catalog behind its gate."""
    return Gate(routes(state), state)


def serve(folder: Path, port: int, build: Callable[[ServerState], ASGIApp] = application) -> None:
    """Serve the catalog kept in `folder` until SIGTERM or Ctrl-C; port 0 takes a free one.

    It prints its address once it listens. The folder and all in it is for its owner only; the token of the metastore's
    admin lies there. `build` makes what answers.

    Raises:
        Refused: the port is taken, the folder cannot be written, or another process serves it already.
    """
    os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise Refused(f"{folder} cannot be the catalog's folder: {error}. Choose a writable one.") from error
    with _lock(folder), _listen(port) as listener, closing(_open(folder / "catalog.db")) as rows:
        token = tokens.keep_own_token(rows, folder / TOKEN_FILE)
        state = ServerState(rows, listener.getsockname()[1], token)
        write_file(folder / PORT_FILE, str(state.port))  # where clients in other terminals find it
        _run(build(state), listener, state.port)


_UC: Final = securables.PREFIX
_ROUTES: Final[tuple[tuple[str, str, Handler, int], ...]] = (
    ("GET", f"{_UC}/catalogs", securables.catalogs, 200),
    ("POST", f"{_UC}/catalogs", securables.make_catalog, 200),
    ("GET", f"{_UC}/catalogs/{{full_name}}", securables.catalog, 200),
    ("GET", f"{_UC}/schemas", securables.schemas, 200),
    ("POST", f"{_UC}/schemas", securables.make_schema, 200),
    ("GET", f"{_UC}/schemas/{{full_name}}", securables.schema, 200),
    ("GET", f"{_UC}/tables", securables.tables, 200),
    ("POST", f"{_UC}/tables", securables.make_table, 200),
    ("GET", f"{_UC}/tables/{{full_name}}", securables.table, 200),
    ("DELETE", f"{_UC}/tables/{{full_name}}", securables.drop_table, 200),
    ("GET", f"{_UC}/permissions/{{securable_type}}/{{full_name}}", permissions.assignments, 200),
    ("PATCH", f"{_UC}/permissions/{{securable_type}}/{{full_name}}", permissions.change, 200),
    ("GET", f"{_UC}/effective-permissions/{{securable_type}}/{{full_name}}", permissions.effective, 200),
    ("PATCH", f"{_UC}/catalogs/{{full_name}}", securables.give_catalog, 200),
    ("PATCH", f"{_UC}/schemas/{{full_name}}", securables.give_schema, 200),
    ("PATCH", f"{_UC}/tables/{{full_name}}", securables.give_table, 200),
    ("POST", "/api/2.0/unity-catalog/temporary-table-credentials", tokens.credentials, 200),
    ("GET", f"{scim.PREFIX}/Me", scim.me, 200),
    ("GET", f"{scim.PREFIX}/{{kind}}", scim.listed, 200),
    ("POST", f"{scim.PREFIX}/{{kind}}", scim.make, 201),
    ("GET", f"{scim.PREFIX}/{{kind}}/{{id}}", scim.one, 200),
    ("PATCH", f"{scim.PREFIX}/{{kind}}/{{id}}", scim.patch, 200),
    ("DELETE", f"{scim.PREFIX}/{{kind}}/{{id}}", scim.delete, 200),
    ("POST", "/turnout/tokens", tokens.mint, 200),
    ("POST", "/turnout/relocations", securables.relocate_table, 200),
)


def _lock(folder: Path) -> TextIO:
    """Return the open file that says that this process serves the folder."""
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Refused(f"Another process already serves the catalog in {folder}. Stop it, or use it.") from error
    return file


def _open(file: Path) -> sqlite3.Connection:
    try:
        return open_rows(file)
    except sqlite3.Error as error:
        raise Refused(f"{file} cannot be opened: {error}. Restore it, or remove it to start without grants.") from error


def _listen(port: int) -> socket.socket:
    # asyncio sends without delay only where the protocol is named; else each answer waits 40 ms for an acknowledgement
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise Refused(f"Port {port} is in use. Stop the process that listens there, or choose another port.") from error
    listener.listen(128)
    return listener


def _run(app: ASGIApp, listener: socket.socket, port: int) -> None:
    """Serve until a signal."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)

    def stop(_number: int, _frame: FrameType | None) -> None:
        """End a server that is still starting; a running one has a handler of its own, and raises them at its end."""
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    say(f"Catalog: http://{HOST}:{port}")
    server.run(sockets=[listener])
