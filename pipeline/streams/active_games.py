"""Which games a driver has in hand, left in a file to be read after it has died: one of them may have killed it.

Nothing depends on it: a file that is torn or gone tells nothing.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class ActiveGames:
    """The games of one query's pass, or of the running chunk."""

    def __init__(self, checkpoint: Path, name: str) -> None:
        """Forget what an earlier process of this group left under this name."""
        self._file = _folder(checkpoint) / f"{name}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)

    @contextmanager
    def track(self, games: Sequence[str]) -> Iterator[None]:
        """Name these games while the block runs; a block that raises has killed nobody."""
        with contextlib.suppress(OSError):  # such as no space left: then nobody can tell
            self._file.write_text(json.dumps(list(games)), "utf-8")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)


def read_leftover(checkpoint: Path) -> list[str] | None:
    """Return the games that a driver which died had in hand, None where it left none."""
    keys: set[str] = set()
    for file in _folder(checkpoint).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # such as a file that was cut off
            keys.update(json.loads(file.read_text("utf-8")))
    return sorted(keys) or None


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "active_games"
