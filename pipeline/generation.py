"""Which generation of a game's table is the current one: the table's own log says it (laws L3 and L12).

The control store's number only saves a look: a rebuild that was killed after its commit has not told it yet.
"""

from collections.abc import Callable
from typing import Final

from pipeline.names import GameKey, stream_app_id

RETIRED: Final = -1
"""The cursor of a generation that a rebuild replaced: no owner expects it, so a late commit finds a conflict."""


def newest(version_of: Callable[[str], int | None], environment: str, key: GameKey, known: int = 1) -> int:
    """Return the newest generation of a game's table.

    Args:
        version_of: the table's transaction version of an application id, None where it has none.
        environment: its name, part of the application ids.
        key: the game's key.
        known: a generation that was told, by the control store for one; the newest is never below it.
    """
    number = known
    while version_of(stream_app_id(environment, key, number + 1)) is not None:
        number += 1
    return number
