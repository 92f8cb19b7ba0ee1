"""Every area of the stand-in: importing it registers its routes, and a `tick` moves it."""

from types import ModuleType
from typing import Final

from tests.workspace.server import (
    apps,
    jobs,
    lakebase,
    people,
    rights,
    running_apps,
    running_jobs,
    runs,
    secret_scopes,
    trees,
)
from tests.workspace.server.state import World

_AREAS: Final[tuple[ModuleType, ...]] = (
    apps,
    jobs,
    lakebase,
    people,
    rights,
    running_apps,
    running_jobs,
    runs,
    secret_scopes,
    trees,
)


def register_all(world: World) -> None:
    """Let each area that moves by itself have its share of the platform's time."""
    for each in _AREAS:
        if (tick := getattr(each, "tick", None)) is not None:
            world.ticks.append(tick)
