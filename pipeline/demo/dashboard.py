"""How the dashboard is started on this machine: Streamlit on loopback, with the environment it shows."""

import socket
import subprocess
import sys
from pathlib import Path

from pipeline.errors import Refused
from pipeline.settings import Paths

APP = Path(__file__).resolve().parents[2] / "app" / "main.py"
HOST = "127.0.0.1"


def command(paths: Paths, port: int) -> list[str]:
    """Return the command line of the dashboard's process."""
    return [
        *(sys.executable, "-m", "streamlit", "run", str(APP)),
        *("--server.port", str(port), "--server.address", HOST, "--server.headless", "true"),
        *("--server.fileWatcherType", "none", "--browser.gatherUsageStats", "false"),
        *("--", "--env-dir", str(paths.root)),
    ]


def serve(paths: Paths, port: int) -> int:
    """Run the dashboard until it is stopped; return its exit code.

    Raises:
        Refused: the port is taken.
    """
    require_free_port(port, "dashboard.port")
    print(f"Dashboard: http://{HOST}:{port}", flush=True)  # noqa: T201 - the address is this command's output
    try:
        return subprocess.run(command(paths, port), check=False, cwd=APP.parents[1]).returncode
    except KeyboardInterrupt:
        return 0


def require_free_port(port: int, setting: str) -> None:
    """Refuse a port somebody listens on, naming the setting that chooses it.

    Raises:
        Refused: the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise Refused(
                f"Port {port} is taken. Stop what listens there, or choose another with {setting}."
            ) from error
