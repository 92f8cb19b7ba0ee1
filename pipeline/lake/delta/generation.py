"""The current generation of a game's table, read from the table's own log (laws L3 and L12).

The control store's number only saves reads: a rebuild that was killed after its commit has not recorded it yet.
"""

from collections.abc import Callable
from typing import Final

from pipeline.base.names import GameKey, stream_app_id

RETIRED: Final = -1
"""The cursor of a generation that a rebuild replaced: no owner expects it, so a late commit conflicts."""

_MAX_GENERATION: Final = 1_000
"""The highest number of a generation that needs no proof; the search in the table begins below it."""


def newest(version_of: Callable[[str], int | None], environment: str, key: GameKey, known: int = 1) -> int:
    """Return the newest generation of a game's table, 1 where it has none yet.

    Args:
        version_of: the table's transaction version of an application id, None where it has none.
        environment: its name, part of the application ids.
        key: the game's key.
        known: the generation to begin at, such as the control store's; an older copy of the table may not have it.
    """

    def has(number: int) -> bool:
        return version_of(stream_app_id(environment, key, number)) is not None

    number = known if type(known) is int and 1 <= known <= _MAX_GENERATION else 1
    while has(number + 1):
        number += 1
    # Under a generation that the table lacks, it would look empty and be filled again.
    while number > 1 and not has(number):
        number -= 1
    return number
