"""`python -m app.server`: serves the dashboard in this one process. `turnout dashboard` starts it, and app.yaml.

Streamlit's own command is not used: its options would come from the folder it is started in, and nothing would stand
before the pages. Who may reach them is decided in `app/gate.py`.
"""

import argparse
import ctypes
import gc
import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import streamlit
import uvicorn
from sqlalchemy.exc import SQLAlchemyError
from streamlit.starlette import App
from streamlit.web.bootstrap import load_config_options

from app.gate import Gate, Identity, LocalUser, platform
from app.runbooks.document import parse
from app.runbooks.shelf import texts
from app.runbooks.static import page as runbook_page
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.control.present import goes_on
from pipeline.settings.storage import machine_folder
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store, require_store

_HERE: Final = Path(__file__).parent
_LOOPBACK: Final = "127.0.0.1"
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - a Databricks App's own network, which only the proxy reaches
_STOP_SECONDS: Final = 5
_M_ARENA_MAX: Final = -8  # of mallopt: see malloc.h of glibc
_ARENAS: Final = 2
_ENV_DIR: Final = "TURNOUT_ENV_DIR"
_OF_PAGES: Final = ("app.fleet.glance", "app.fleet.listing", "app.game.panels", "app.components.group_cards")
"""What the pages load that takes long."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.server", description=__doc__)
    parser.add_argument("--env-dir", help=f"Folder of one environment, or its URL. {_ENV_DIR} sets it, too.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="Listen here on loopback, for the user who runs this.")
    where.add_argument("--databricks-app", action="store_true", help="Listen as a Databricks App.")
    given = parser.parse_args(arguments)
    try:
        env_dir = _environment(given.env_dir or os.environ.get(_ENV_DIR, ""))
        identity, host, port = _open(env_dir, given.port, os.environ)
    except Refused as refused:
        print(f"turnout: {refused}", file=sys.stderr)  # noqa: T201 - a command's voice
        return 2
    keep_memory_flat()
    sys.argv = [sys.argv[0], "--env-dir", str(env_dir.resolve())]  # which the pages read
    os.chdir(_HERE.parent)  # Streamlit looks for options in the working folder, too
    try:
        _serve(identity, host, port)
    except KeyboardInterrupt:
        return 0
    finally:
        gc.unfreeze()  # else DuckDB prints 30 lines about objects that were never collected
        if given.port is not None:
            _say_what_goes_on(env_dir)
    return 0


def keep_memory_flat() -> None:
    """Let Arrow use the allocator of the process, and all threads two heaps of it.

    Each refresh is drawn in a thread of its own, and Arrow's own allocator keeps what threads that have ended had: see
    docs/performance.md. The variables ARROW_DEFAULT_MEMORY_POOL and MALLOC_ARENA_MAX win. Arrow must not be loaded yet.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def _environment(named: str) -> Path:
    """Return the folder of an environment; for a URL this machine's folder of it.

    Raises:
        Refused: none is named, or the URL is of no storage that turnout knows.
    """
    if not named:
        raise Refused(f"No environment is named. Set {_ENV_DIR} to its folder or URL, such as s3://bucket/prod.")
    return machine_folder(named) if "://" in named else Path(named)


def _open(env_dir: Path, port: int | None, environ: Mapping[str, str]) -> tuple[Identity, str, int]:
    """Return how people are known here, and where to listen.

    Raises:
        Refused: the acting person cannot be known.
    """
    if port is None:
        known, its_port = platform(environ)
        return known, _EVERYWHERE, its_port
    file = Paths(env_dir.resolve()).dashboard_token
    try:
        token = file.read_text("utf-8").strip()
    except FileNotFoundError:
        token = ""
    if not token:
        raise Refused(f"{file} holds no token. Start the dashboard with `turnout dashboard`, which writes it.")
    return LocalUser(current_user(), token, port), _LOOPBACK, port


def _say_what_goes_on(env_dir: Path) -> None:
    """Name the environment's other processes: none of them ends with the dashboard."""
    try:
        settings, paths = load(env_dir)
        require_store(settings, paths)
        left = goes_on(open_store(settings, paths), paths)
    except (Refused, SQLAlchemyError):
        return  # the dashboard has ended; status says what is wrong
    if left is not None:
        print(f"The dashboard has ended. {left}", file=sys.stderr)  # noqa: T201 - a command's voice


def _serve(identity: Identity, host: str, port: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again once it has ended in order
    with (_HERE / "streamlit.toml").open("rb") as file:
        options = dict(_flat(tomllib.load(file)))
    load_config_options({**options, "server.address": host, "server.port": port})
    _load_pages()
    page = Path(streamlit.__file__).parent / "static" / "index.html"
    scripts = re.findall(r"<script>(.*?)</script>", page.read_text("utf-8"), re.DOTALL)
    config = uvicorn.Config(
        Gate(App(_HERE / "main.py"), identity, scripts, _runbooks()),
        host=host,
        port=port,
        ws="websockets-sansio",
        proxy_headers=False,  # else a client's X-Forwarded-For counted
        server_header=False,
        access_log=False,  # it has URLs, and the printed one has the token
        log_level="warning",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    uvicorn.Server(config).run()


def _load_pages() -> None:
    """Load what pages need before anybody opens one.

    Streamlit collects garbage after each refresh of each viewer; what is loaded by then is none, and is not looked at.
    """
    for module in _OF_PAGES:
        import_module(module)
    gc.collect()
    gc.freeze()


def _runbooks() -> dict[str, str]:
    """Return the runbooks that came with this code as HTML, by the names that alerts link."""
    return {name: runbook_page(parse(text), name) for name, text in texts().items()}


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


if __name__ == "__main__":
    sys.exit(main())
