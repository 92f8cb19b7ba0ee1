"""Callers of the stand-in of a workspace."""

from pathlib import Path

from tests.workspace.running import StandIn


def bearer(workspace: StandIn) -> dict[str, str]:
    return {"Authorization": f"Bearer {workspace.admin_token}"}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
