"""Every area of the stand-in: importing it registers its routes, and a `tick` moves it."""

from types import ModuleType
from typing import Final

from tests.workspace.server import (
    apps,
    boards,
    jobs,
    lakebase,
    offers,
    people,
    rights,
    running_apps,
    running_jobs,
    runs,
    secret_scopes,
    statements,
    trees,
    unity,
)
from tests.workspace.server.state import World

_AREAS: Final[tuple[ModuleType, ...]] = (
    apps, boards, jobs, lakebase, offers, people, rights, running_apps, running_jobs, runs, secret_scopes, statements,
    trees, unity,
)  # fmt: skip


def register_all(world: World) -> None:
    """Let each area begin, and have its share of the platform's time where it moves by itself."""
    for each in _AREAS:
        if (begin := getattr(each, "begin", None)) is not None:
            begin(world)
        if (tick := getattr(each, "tick", None)) is not None:
            world.ticks.append(tick)
