"""Finds the process behind a connection of this machine, so that a test can have it killed at a request of its own."""

import contextlib
import os
import signal
from pathlib import Path


def kill_peer(client_port: int, server_port: int) -> None:
    """Kill the process that sent a request over this connection on loopback, as [cli testserver/kill.go] does.

    Raises:
        LookupError: no process of ours has the connection.
    """
    inode = _inode(client_port, server_port)
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(str(each.readlink()) == f"socket:[{inode}]" for each in folder.iterdir()):
                os.kill(int(folder.parent.name), signal.SIGKILL)
                return
    raise LookupError(f"no process has the connection from port {client_port}")


def _inode(local: int, remote: int) -> str:
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if [int(fields[at].rpartition(":")[2], 16) for at in (1, 2)] == [local, remote]:
            return fields[9]
    raise LookupError(f"no connection from port {local}")
