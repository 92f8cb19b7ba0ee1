"""Writes small files whole or not at all, also when the machine loses power half way."""

import os
import uuid
from pathlib import Path

from pipeline.failpoints import effect


def write_text(file: Path, text: str) -> None:
    """Replace a file's content in one step; a reader finds the old content or the new one, never a part."""
    with effect("make_folder"):
        file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}-{uuid.uuid4().hex}.draft")
    try:
        with effect("draft_file"), draft.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        with effect("publish_file"):
            draft.replace(file)
    finally:
        with effect("delete_draft"):
            draft.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut, too
    finally:
        os.close(folder)
