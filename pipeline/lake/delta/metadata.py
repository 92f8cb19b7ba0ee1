"""The metadata of a table: its columns and properties, of which a commit says all or nothing.

A property of a plain table is set by an entry of ours. delta-rs would hold the interpreter's lock until storage has
answered, and with it every lease of the process.
"""

import time
from collections.abc import Mapping
from typing import Final

from pipeline.base.failpoints import effect
from pipeline.lake.delta.checkpoint import checkpoint_file, metadata_in, newest_checkpoint
from pipeline.lake.delta.log import Action, is_plain, publish_commit, read_commits, settle_commits
from pipeline.lake.delta.marks import ENGINE, marked
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_AT_ONCE = 16  # commits

EXPIRY: Final = "delta.setTransactionRetentionDuration"
"""The property that lets a log forget transactions, and with them cursors: rows would be written again."""

NEVER: Final = "interval 36500 days"
"""What maintenance sets it to."""


def newest_metadata(table: Location, version: int) -> Action | None:
    """Return a version's metadata as its log spells it, None where the log says it in a way that is not ours.

    A damaged commit raises as in `read_commits`.
    """
    last = newest_checkpoint(table, version)
    oldest = 0 if last is None else last + 1
    for end in range(version, oldest - 1, -_AT_ONCE):
        for actions in read_commits(table, range(end, max(end - _AT_ONCE, oldest - 1), -1)):
            if actions is None:
                return None
            found: Action | None = next((each["metaData"] for each in actions if "metaData" in each), None)
            if found is not None:
                return found
    return None if last is None else metadata_in(checkpoint_file(table, last))


def with_properties(metadata: Action, properties: Mapping[str, str]) -> Action:
    """Return metadata with other properties, and all else as it is."""
    return {**metadata, "configuration": {**(metadata.get("configuration") or {}), **properties}}


def set_properties(table: Location, properties: Mapping[str, str], note: str) -> None:
    """Set properties in a commit of their own, again behind other writers; `note` says what it does.

    A damaged log raises as in `open_table`, and so does a failed commit of a table that is not plain.
    """
    while True:
        opened = open_table(table)
        version = opened.version()
        metadata = newest_metadata(table, version) if is_plain(opened) else None
        if metadata is None:
            with effect("set_properties"):
                opened.alter.set_table_properties(
                    dict(properties), raise_if_not_exists=False, commit_properties=marked(note)
                )
            settle_commits(table, version)
            return
        now_ms = int(time.time() * 1000)
        info = {"timestamp": now_ms, "operation": "SET TBLPROPERTIES", "engineInfo": ENGINE, ENGINE: note}
        actions = [{"commitInfo": info}, {"metaData": with_properties(metadata, properties)}]
        if publish_commit(table, version + 1, actions):
            return
