"""A storage that answers each request after a while, as a bucket does."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from pipeline.lake.storage.folder import Folder

_SECONDS: Final = 0.03


@dataclass(slots=True)
class SlowStorage:
    """Requests to a folder that turnout takes for a bucket."""

    asked: list[tuple[float, float]] = field(default_factory=list)  # begin and end of each request

    def one_after_another(self) -> int:
        """Return how many of the requests waited for each other: the most that do not overlap."""
        count, last = 0, 0.0
        for begin, end in sorted(self.asked, key=lambda each: each[1]):
            if begin >= last:
                count, last = count + 1, end
        return count


def slow_storage(patch: pytest.MonkeyPatch) -> SlowStorage:
    """Let turnout take folders for a bucket that answers a read or a HEAD after 30 ms, and note each."""
    made = SlowStorage()

    def slowed(answer: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*arguments: Any) -> Any:
            begin = time.monotonic()
            time.sleep(_SECONDS)
            try:
                return answer(*arguments)
            finally:
                made.asked.append((begin, time.monotonic()))

        return answered

    for name in ("read", "entry"):
        patch.setattr(Folder, name, slowed(getattr(Folder, name)))
    patch.setattr(Folder, "is_far", property(lambda _self: True))
    return made
