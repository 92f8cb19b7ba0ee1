"""The stand-in of a Databricks workspace as a process: `python -m tests.workspace.serving --port 0 --folder DIR`.

It prints one line of JSON when it is ready, `{"url": ...}`, and ends at SIGTERM with all that it started. The main
thread is the platform: it starts runs and apps, looks after them and ends them. Threads of the server answer requests.
"""

import argparse
import json
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Final

from tests.forgetful import wait_for_no_disk
from tests.workspace.server.catalogue import register_all
from tests.workspace.server.faults import Faults
from tests.workspace.server.listening import Server
from tests.workspace.server.processes import Processes
from tests.workspace.server.state import ADMIN, ADMINS, World

SECRET_VARIABLE: Final = "STANDIN_SECRET"
TOKEN_VARIABLE: Final = "STANDIN_TOKEN"
_TICK_SECONDS: Final = 0.015


def serve(world: World, port: int, admin_token: str) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    world.folder.mkdir(parents=True, exist_ok=True)
    world.faults, world.processes = Faults(world.folder / "requests.jsonl"), Processes()
    register_all(world)
    admin = world.add_principal("user", ADMIN, ADMIN, (ADMINS,))
    world.data.tokens[admin_token] = {"principal": admin["id"], "expires": None}
    server = Server(world, port)
    world.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    sys.stdout.write(json.dumps({"url": world.url}) + "\n")
    sys.stdout.flush()
    try:
        while not stop.wait(_TICK_SECONDS):
            _tick(world)
    finally:
        server.shutdown()
        world.processes.end()
        for close in world.closers:
            close()


def _tick(world: World) -> None:
    with world.lock:
        for each in world.ticks:
            try:
                each(world, time.monotonic())
            except Exception:  # noqa: BLE001 - the platform goes on; the log has the bug
                traceback.print_exc()


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--postgres", default=None, help="a URL with rights of a superuser")
    options = parser.parse_args()
    wait_for_no_disk()
    secret = os.environ.pop(SECRET_VARIABLE, "") or secrets.token_hex(16)
    token = os.environ.pop(TOKEN_VARIABLE, "") or "dapi-standin-admin"
    serve(World(options.folder, options.postgres, secret), options.port, token)


if __name__ == "__main__":
    main()
