"""How the dashboard is started on this machine: on loopback, with a URL that only the user who starts it gets."""

import os
import secrets
import socket
import sys
from typing import NoReturn

from pipeline.base import private_files
from pipeline.base.errors import Refused
from pipeline.base.terminal import say
from pipeline.control.present import note
from pipeline.settings.tree import Paths

HOST = "127.0.0.1"


def new_url(paths: Paths, port: int) -> str:
    """Write a new token for the next dashboard, and return the URL that has it: who opens it acts as this user.

    Raises:
        Refused: the environment's folder cannot be written.
    """
    token = secrets.token_urlsafe(32)
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        private_files.write_file(paths.dashboard_token, token)
    except OSError as error:
        raise Refused(
            f"{paths.dashboard_token} cannot be written: {error.strerror}. It holds the token of the dashboard's URL. "
            "Make the folder writable for this user."
        ) from error
    return f"http://{HOST}:{port}/?token={token}"


def command(paths: Paths, port: int) -> list[str]:
    """Return the command line of the dashboard's process; the working folder (-P) is no place to load it from."""
    return [sys.executable, "-P", "-m", "app.server", "--env-dir", str(paths.root), "--port", str(port)]


def serve(paths: Paths, port: int) -> NoReturn:
    """Become the dashboard's process, once its URL is printed: a signal reaches it, and no child is left behind.

    Raises:
        Refused: the port is taken, or the environment's folder cannot be written.
    """
    require_free_port(port, "dashboard.port")
    url = new_url(paths, port)
    note(paths, "dashboard", f"http://{HOST}:{port}")
    say(f"Dashboard: {url}")
    line = command(paths, port)
    os.execv(line[0], line)  # noqa: S606 - no shell


def require_free_port(port: int, setting: str) -> None:
    """Refuse a port in use, naming the setting that chooses it.

    Raises:
        Refused: the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise Refused(
                f"Port {port} is in use. Stop the process that listens there, or choose another with {setting}."
            ) from error
