"""The journal of a target: what `fleet` intends and has done, as files of the workspace that are each written once.

An intent stands there before the request, the id after it; so an apply that was killed is continued by the next one,
from whatever machine. Files are numbered, and the workspace refuses a number that is taken: of two applies at the same
time the second one ends.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pipeline.errors import Refused
from pipeline.failpoints import effect
from pipeline.workspace.client import Absent, AlreadyThere, Workspace

_FILE: Final = re.compile(r"(\d{6})\.json")

What = Literal["create", "made", "applied", "delete", "deleted"]


@dataclass(slots=True)
class Entry:
    """What is known of one resource."""

    kind: str
    label: str
    id: str | None = None  # None: it is being made, or was
    applied: Mapping[str, Any] | None = None  # the definition that it was last brought to
    is_going: bool = False  # its removal has begun


@dataclass(slots=True)
class Journal:
    """The journal as it was read, and the way to write on."""

    workspace: Workspace
    folder: str
    entries: dict[str, Entry] = field(default_factory=dict)  # by address
    _number: int = 0
    _is_new: bool = True

    @classmethod
    def read(cls, workspace: Workspace, folder: str) -> "Journal":
        """Return the journal of a target's folder; an empty one where there is none.

        Raises:
            Refused: we may not read there, or a file of it is none of ours.
            Transient: the workspace does not answer.
        """
        journal = cls(workspace, f"{folder}/journal")
        try:
            listed = workspace.get("/api/2.0/workspace/list", {"path": journal.folder})
        except Absent:
            return journal
        journal._is_new = False
        names = sorted(str(each["path"]).rpartition("/")[2] for each in listed.get("objects", []))
        for name in names:
            if (found := _FILE.fullmatch(name)) is not None:
                journal._take(_content(workspace, f"{journal.folder}/{name}"))
                journal._number = int(found[1])
        return journal

    def write(
        self,
        what: What,
        address: str,
        label: str,
        id: str | None = None,  # noqa: A002 - the word of the file
        applied: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one line, which is kept once this returns.

        Raises:
            Refused: another apply has written meanwhile.
            Transient: the workspace does not answer.
        """
        if self._is_new:
            self.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": self.folder})
            self._is_new = False
        record = {"what": what, "address": address, "label": label, "id": id, "applied": applied}
        content = base64.b64encode(json.dumps(record, sort_keys=True).encode()).decode()
        path = f"{self.folder}/{self._number + 1:06}.json"
        body = {"path": path, "format": "AUTO", "content": content, "overwrite": False}
        try:
            with effect("fleet_journal"):
                self.workspace.send("POST", "/api/2.0/workspace/import", body)
        except AlreadyThere:
            if _content(self.workspace, path) != record:  # else it is our own, whose answer was lost
                raise Refused(
                    "Another `turnout fleet` works on this target. Wait until it has ended, then run this again."
                ) from None
        self._number += 1
        self._take(record)

    def forget(self) -> None:
        """Delete the journal."""
        try:
            self.workspace.send("POST", "/api/2.0/workspace/delete", {"path": self.folder, "recursive": True})
        except Absent:
            return

    def _take(self, record: Mapping[str, Any]) -> None:
        address = str(record["address"])
        if record["what"] == "deleted":
            self.entries.pop(address, None)
            return
        entry = self.entries.setdefault(address, Entry(address.partition(".")[0], str(record["label"])))
        entry.label = str(record["label"])
        entry.id = record["id"] or entry.id
        entry.applied = record["applied"] or entry.applied
        entry.is_going = record["what"] == "delete"


def _content(workspace: Workspace, path: str) -> dict[str, Any]:
    exported = workspace.get("/api/2.0/workspace/export", {"path": path, "format": "AUTO"})
    try:
        found: dict[str, Any] = json.loads(base64.b64decode(exported["content"]))
        return found
    except (KeyError, ValueError) as error:
        raise Refused(
            f"{path} in the workspace is no journal of turnout. Move it away, then run this again."
        ) from error
