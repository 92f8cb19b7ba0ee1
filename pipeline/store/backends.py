"""Backends, the starters of drivers and maintenance, as settings and rows of the control store name them. Pure.

`pipeline.control.backends.starting` makes those that start something.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pipeline.base.names import Backend


@dataclass(frozen=True, slots=True)
class BackendKind:
    """One kind of backend: what may be said of processes that have it."""

    title: str  # the starter of a driver, for people
    starts: bool = True  # False: not turnout, but another tool or a person starts the process
    is_here: bool = False  # a run is a process of the controller's machine
    is_job: bool = False  # a run is of a job of a workspace, with a schedule of its own for maintenance
    can_have_master: bool = True  # a group may choose its Spark master


BACKENDS: Final[Mapping[Backend, BackendKind]] = MappingProxyType(
    {
        "none": BackendKind("not turnout", starts=False),
        "local": BackendKind("the controller", is_here=True),
        "databricks": BackendKind("the controller, as a job", is_job=True, can_have_master=False),
    }
)
_BY_NAME: Final = {str(name): kind for name, kind in BACKENDS.items()}


def backend_kind(name: str) -> BackendKind:
    """Return the kind of a backend; an unknown one is called by its name."""
    return _BY_NAME.get(name) or BackendKind(name)
