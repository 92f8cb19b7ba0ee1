"""Reads the files of Spark's checkpoint one by one; a damaged file is None, never an exception.

Used to judge a checkpoint before Spark reads it, as Spark itself dies of a damaged file.
"""

import json
from typing import Any

from pipeline.base.failpoints import effect
from pipeline.lake.storage.location import Location


def batches(folder: Location) -> list[int]:
    """Return the numbers of the batches in one of Spark's logs (`offsets`, `commits`), in order."""
    return sorted(int(file.name) for file in folder.files() if file.name.isdecimal())


def clear_drafts(folder: Location) -> None:
    """Delete the rest of an interrupted write, as on a full disk, from one of Spark's logs without a batch.

    Spark plans its first batch in an empty folder only.
    """
    if batches(folder):
        return
    for draft in list(folder.files()):
        if draft.name.startswith("."):
            with effect("delete_query"):
                (folder / draft.name).delete()


def lines(file: Location) -> list[dict[str, Any]] | None:
    """Return the lines below the version line of one of Spark's log files, None when it is damaged or missing."""
    try:
        version, *rest = file.read_text().split("\n")  # not at U+2028 and the like, which JSON has unescaped
        entries = [json.loads(line) for line in rest if line]
    except (FileNotFoundError, ValueError):  # also a file without lines, and bytes that are not text
        return None
    whole = version.startswith("v") and entries and all(isinstance(each, dict) for each in entries)
    return entries if whole else None


def offset(file: Location, streams: int = 1) -> dict[str, Any] | None:
    """Return the offset in a file of planned offsets, None when it cannot be read.

    Of several streams in one query it is `{"sources": [...]}`, in their order in the query; all have one.
    """
    entries = lines(file)
    if entries is None or len(entries) != 1 + streams:
        return None
    return entries[1] if streams == 1 else {"sources": entries[1:]}


def has_id(metadata: Location) -> bool:
    """Return whether the file holds a query's id, without which Spark does not start."""
    try:
        return bool(json.loads(metadata.read_text())["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
