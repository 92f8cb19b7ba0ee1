"""The schema set of a pass or chunk, pinned durably before its first write: a replay classifies alike (law L5)."""

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pipeline.failpoints import effect

_KEPT: Final = 100  # Spark replays at most the last batch; the rest is kept to look at


def pin(folder: Path, batch_id: int, propose: Callable[[], int]) -> int:
    """Return the number pinned for a batch, pinning the proposed one when the batch is seen for the first time."""
    file = folder / f"{batch_id}"
    try:
        return int(file.read_text())
    except FileNotFoundError:
        pass
    with effect("make_folder"):
        folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{batch_id}-{uuid.uuid4().hex}"
    with effect("draft_pin"), draft.open("w") as handle:
        handle.write(str(propose()))
        handle.flush()
        os.fsync(handle.fileno())
    with contextlib.suppress(FileExistsError), effect("publish_pin"):  # another attempt pinned first: that one counts
        os.link(draft, file)
    with effect("delete_draft"):
        draft.unlink()
    with effect("delete_pin"):
        (folder / f"{batch_id - _KEPT}").unlink(missing_ok=True)
    return int(file.read_text())


class ChunkPin:
    """The schema set and the end of the catch-up chunk that is being applied, for its repetition after a crash."""

    def __init__(self, file: Path) -> None:
        """Read what an earlier process left; a chunk that ended leaves nothing."""
        self._file = file
        self.version, self.high = 0, 0
        self._games: frozenset[str] = frozenset()
        try:
            kept = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            return
        self.version, self.high, self._games = kept["version"], kept["high"], frozenset(kept["games"])

    def holds(self, game_key: str, complete_through: int) -> bool:
        """Tell whether the chunk was cut short for this game."""
        return game_key in self._games and complete_through < self.high

    def write(self, version: int, high: int, games: Sequence[str]) -> None:
        """Pin a chunk durably, before its first write."""
        self.version, self.high, self._games = version, high, frozenset(games)
        with effect("make_folder"):
            self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        with effect("draft_pin"), draft.open("w", encoding="utf-8") as handle:
            json.dump({"version": version, "high": high, "games": sorted(games)}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        with effect("publish_pin"):
            draft.replace(self._file)

    def clear(self) -> None:
        """Forget the chunk: it ended, and what failed in it may be judged anew."""
        self._games = frozenset()
        with effect("delete_pin"):
            self._file.unlink(missing_ok=True)
