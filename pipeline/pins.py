"""The schema set of a micro-batch, pinned durably before its first write so that a replay classifies alike (law L5)."""

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

_KEPT: Final = 100  # Spark replays at most the last batch; the rest is kept to look at


def pin(folder: Path, batch_id: int, propose: Callable[[], int]) -> int:
    """Return the number pinned for a batch, pinning the proposed one when the batch is seen for the first time."""
    file = folder / f"{batch_id}"
    try:
        return int(file.read_text())
    except FileNotFoundError:
        pass
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{batch_id}-{uuid.uuid4().hex}"
    with draft.open("w") as handle:
        handle.write(str(propose()))
        handle.flush()
        os.fsync(handle.fileno())
    with contextlib.suppress(FileExistsError):  # another attempt pinned first: that one counts
        os.link(draft, file)
    draft.unlink()
    (folder / f"{batch_id - _KEPT}").unlink(missing_ok=True)
    return int(file.read_text())
