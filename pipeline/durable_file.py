"""Writes small files atomically, even if the machine loses power."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from pipeline.failpoints import effect


def write_text(file: Path, text: str) -> None:
    """Replace a file's content in one step, and make its folder; see `replace`."""
    with effect("make_folder"):
        file.parent.mkdir(parents=True, exist_ok=True)
    replace(file, text.encode())


def replace(file: Path, content: bytes) -> None:
    """Replace a file's content in one step; a reader finds the old content or the new one, never a part."""
    with _drafted(file, content, drafted="draft_file") as draft, effect("publish_file"):
        draft.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut, too
    finally:
        os.close(folder)


def create(file: Path, content: bytes, *, drafted: str, published: str) -> bool:
    """Write a file into its folder unless the name exists, and return whether this call wrote it.

    Of concurrent calls one succeeds. The two names are those of its fail-points.
    """
    with _drafted(file, content, drafted) as draft:
        try:
            with effect(published):
                os.link(draft, file)  # atomic, and fails where the name exists
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _drafted(file: Path, content: bytes, drafted: str) -> Iterator[Path]:
    """Write the content to a file of another name; maintenance deletes the files of dead processes."""
    draft = file.with_name(f".{file.name}-{uuid.uuid4().hex}.tmp")
    try:
        with effect(drafted), draft.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())  # an empty file after a power cut would be worse than none
        yield draft
    finally:
        with effect("delete_draft"):
            draft.unlink(missing_ok=True)
