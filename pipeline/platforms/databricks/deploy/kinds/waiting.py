"""Waits until the workspace has ended something that it only began."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.base.errors import Transient

_FIRST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 5.0
_GROWTH: Final = 1.5

T = TypeVar("T")


def wait_until(look: Callable[[], T | None], seconds: float, said: str) -> T:
    """Look again and again, ever more seldom, until something is seen; return it.

    Raises:
        Transient: with `said`, where nothing was seen for `seconds`.
    """
    deadline, pause = time.monotonic() + seconds, _FIRST_SECONDS
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise Transient(said)
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_SECONDS)
    return seen
