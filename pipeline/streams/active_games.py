"""The games that a driver is processing, kept in a file for after its death: one of them may have killed it.

Nothing depends on it; a torn or missing file is ignored.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class ActiveGames:
    """The games of one query's pass, or of the running chunk."""

    def __init__(self, checkpoint: Path, name: str) -> None:
        """Delete the file of an earlier process of this group."""
        self._file = _folder(checkpoint) / f"{name}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)

    @contextmanager
    def track(self, games: Sequence[str]) -> Iterator[None]:
        """Record these games while the block runs; a block that raises has not killed the driver."""
        with contextlib.suppress(OSError):  # such as a full disk: the games stay unknown
            self._file.write_text(json.dumps(list(games)), "utf-8")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)


def read_leftover(checkpoint: Path) -> list[str] | None:
    """Return the games that a dead driver was processing, None without a record."""
    keys: set[str] = set()
    for file in _folder(checkpoint).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # such as a truncated file
            keys.update(json.loads(file.read_text("utf-8")))
    return sorted(keys) or None


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "active_games"
