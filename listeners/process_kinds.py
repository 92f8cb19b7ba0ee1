"""Names of the kinds of processes, as labels of metrics and rows of the control store have them. Pure.

A plane that adds a kind keeps its name to itself: what a kind is stands in `pipeline.health.kinds` and
`pipeline.control.kinds`, which take further ones.
"""

from typing import Final

INGEST: Final = "ingest"
GROUP: Final = "group"
CONTROLLER: Final = "controller"
MAINTENANCE: Final = "maintenance"

ONLY: Final = "main"
"""The name of the process of a kind of which an environment has one."""


def described(kind: str, name: str) -> str:
    """Return what people call a process: `group NAME`, or the kind alone of which there is one."""
    return kind if name == ONLY and kind != GROUP else f"{kind} {name}"


def labels_of(kind: str, name: str) -> dict[str, str]:
    """Return the labels that tell a process's series from another one's."""
    return {"kind": kind, "cluster_group": name} if kind == GROUP else {"kind": kind}
