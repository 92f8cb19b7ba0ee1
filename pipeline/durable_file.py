"""Writes small files whole or not at all, also when the machine loses power half way."""

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
    replace(file, text)


def replace(file: Path, text: str) -> None:
    """Replace a file's content in one step; a reader finds the old content or the new one, never a part."""
    with _drafted(file, text.encode(), drafted="draft_file") as draft, effect("publish_file"):
        draft.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut, too
    finally:
        os.close(folder)


def create(file: Path, content: bytes, *, drafted: str, published: str) -> bool:
    """Write a file into its folder unless there is one of its name, and return whether this call wrote it.

    Of many who try, one has. The names are those of its two effects.
    """
    with _drafted(file, content, drafted) as draft:
        try:
            with effect(published):
                os.link(draft, file)  # atomic, and fails where there is one
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _drafted(file: Path, content: bytes, drafted: str) -> Iterator[Path]:
    """Give a file of another name with this content; maintenance deletes what a process that died has left of them."""
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
