"""Finds what each kind of process says of itself: ours, and those that a plane beside control hands over."""

from functools import cache
from typing import Final

from pipeline.base import extensions
from pipeline.health.kinds.controller import CONTROLLER
from pipeline.health.kinds.groups import GROUPS
from pipeline.health.kinds.ingest import INGEST
from pipeline.health.kinds.maintenance import MAINTENANCE
from pipeline.health.verdicts.processes import ProcessKind, unregistered

_OWN: Final = (INGEST, CONTROLLER, MAINTENANCE, GROUPS)
"""The order is the one in which a judgement names processes."""


@cache
def registered() -> tuple[ProcessKind, ...]:
    """Return every kind of process, ours first."""
    return (*_OWN, *(each.kind for each in extensions.registered(extensions.PROCESSES)))


def find(name: str) -> ProcessKind:
    """Return a kind by its name; an unknown kind gets the general definition of `unregistered`."""
    return next((each for each in registered() if each.name == name), None) or unregistered(name)
