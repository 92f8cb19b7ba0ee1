"""The journal of a target: intents and what was done, as files of the workspace that are each written once.

An intent stands there before the request, the id after it; so an apply that was killed is continued by the next one,
from whatever machine. Files are numbered, and the workspace refuses a number that is taken: of two applies at the same
time the second one ends. From time to time one file has all that is known; those before it stay for a while, so that
an apply that read the journal long ago finds the numbers taken.
"""

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import effect
from pipeline.platforms.databricks.workspace.client import Absent, AlreadyThere, Workspace

_FILE: Final = re.compile(r"(\d{6})\.json")

_MOST_FILES: Final = 60  # each is read at each opening, back to one that has all
_KEPT: Final = 500  # older ones are deleted
_STATE: Final = "state"
_OTHER: Final = (
    "Another `turnout deploy` works on this target, or has since the plan. Wait until it ends, then plan again."
)

What = Literal["create", "made", "applied", "delete", "deleted", "restart", "restarted"]


@dataclass(slots=True)
class JournalEntry:
    """What is known of one resource."""

    kind: str
    label: str
    id: str | None = None  # None: it is being made, or was
    applied: Mapping[str, Any] | None = None  # the definition that it was last brought to
    runs: Sequence[int] = ()  # of a job, from before a change, until a later one was seen to run
    number: int = 0  # of the file that first named it: in this order things were made; 0: by an older turnout


@dataclass(slots=True)
class Journal:
    """The journal as it was read, and the way to write on."""

    workspace: Workspace
    folder: str
    target: str  # of the bundle
    environment: str
    entries: dict[str, JournalEntry] = field(default_factory=dict)  # by address
    _number: int = 0
    _files: list[str] = field(default_factory=list)
    _unsettled: int = 0  # files since one that has all
    _is_new: bool = True
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)  # two applies may have the same to say

    @classmethod
    def read(cls, workspace: Workspace, folder: str, target: str, environment: str) -> "Journal":
        """Return the journal of a target's folder; an empty one where there is none.

        Raises:
            Refused: we may not read there, a file of it is none of ours, or it is the journal of another target or
                environment.
            Transient: the workspace does not answer.
        """
        journal = cls(workspace, f"{folder}/journal", target, environment)
        try:
            journal._files = journal._listed()
        except Absent:
            return journal
        journal._is_new = False
        records: list[tuple[str, dict[str, Any]]] = []
        for name in reversed(journal._files):
            try:
                records.append((name, _content(workspace, f"{journal.folder}/{name}")))
            except Absent:
                raise Transient("another `turnout deploy` has just worked on this target. Run this again") from None
            if records[-1][1]["what"] == _STATE:
                break
        journal._unsettled = len(records)
        for name, record in reversed(records):
            journal._require_own(record)
            journal._number = int(name.partition(".")[0])
            journal._take(record)
        return journal

    def write(
        self,
        what: What,
        address: str,
        label: str,
        id: str | None = None,  # noqa: A002 - the word of the file
        applied: Mapping[str, Any] | None = None,
        runs: Sequence[int] = (),
    ) -> None:
        """Write one line, which is kept once this returns.

        Raises:
            Refused: another apply has written meanwhile.
            Transient: the workspace does not answer.
        """
        self._write(
            {"what": what, "address": address, "label": label, "id": id, "applied": applied, "runs": list(runs)}
        )

    def require_newest(self) -> None:
        """Look whether nobody has written since this was read, as while a person looked at a plan.

        Raises:
            Refused: another apply has.
            Transient: the workspace does not answer.
        """
        try:
            listed = self._listed()
        except Absent:
            listed = []
        if listed[-1:] != self._files[-1:]:
            raise Refused(_OTHER)

    def settle(self) -> None:
        """Write all that is known into one file, and delete those long before it, where they have become many.

        Raises:
            Refused: another apply has written meanwhile.
            Transient: the workspace does not answer.
        """
        if self._unsettled <= _MOST_FILES:
            return
        entries = {address: asdict(each) for address, each in self.entries.items()}
        later = {  # older versions know no such fields
            key: {address: each.pop(name) for address, each in entries.items()}
            for key, name in (("runs", "runs"), ("numbers", "number"))
        }
        self._write({"what": _STATE, "entries": entries, **later})
        self._unsettled = 1
        old, self._files = self._files[:-_KEPT], self._files[-_KEPT:]
        for name in old:
            with suppress(Absent):
                self.workspace.send("POST", "/api/2.0/workspace/delete", {"path": f"{self.folder}/{name}"})

    def _write(self, said: Mapping[str, Any]) -> None:
        if self._is_new:
            self.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": self.folder})
            self._is_new = False
        record = {**said, "target": self.target, "environment": self.environment, "writer": self._writer}
        content = base64.b64encode(json.dumps(record, sort_keys=True).encode()).decode()
        name = f"{self._number + 1:06}.json"
        path = f"{self.folder}/{name}"
        body = {"path": path, "format": "AUTO", "content": content, "overwrite": False}
        try:
            with effect("deploy_journal"):
                self.workspace.send("POST", "/api/2.0/workspace/import", body)
        except AlreadyThere:
            if _content(self.workspace, path) != record:  # else it is our own, whose answer was lost
                raise Refused(_OTHER) from None
        self._number += 1
        self._unsettled += 1
        self._files.append(name)
        self._take(record)

    def forget(self) -> None:
        """Delete the journal."""
        try:
            self.workspace.send("POST", "/api/2.0/workspace/delete", {"path": self.folder, "recursive": True})
        except Absent:
            return

    def _listed(self) -> list[str]:
        """Return the names of the files, the oldest first."""
        listed = self.workspace.get("/api/2.0/workspace/list", {"path": self.folder})
        names = [str(each["path"]).rpartition("/")[2] for each in listed.get("objects", [])]
        return sorted(name for name in names if _FILE.fullmatch(name))

    def _require_own(self, record: Mapping[str, Any]) -> None:
        """Refuse a record of another target or environment; one of before has neither."""
        target, environment = record.get("target", self.target), record.get("environment", self.environment)
        if (target, environment) != (self.target, self.environment):
            raise Refused(
                f"The journal in {self.folder} is of target {target}, environment {environment}, not of target "
                f"{self.target}, environment {self.environment}. Give this target a root_path of its own in "
                "databricks.yml, or name the target that the journal belongs to."
            )

    def _take(self, record: Mapping[str, Any]) -> None:
        if record["what"] == _STATE:
            runs, numbers = record.get("runs", {}), record.get("numbers", {})
            self.entries = {
                address: JournalEntry(**each, runs=runs.get(address, ()), number=numbers.get(address, 0))
                for address, each in record["entries"].items()
            }
            return
        address = str(record["address"])
        if record["what"] == "deleted":
            self.entries.pop(address, None)
            return
        first = JournalEntry(address.partition(".")[0], str(record["label"]), number=self._number)
        entry = self.entries.setdefault(address, first)
        entry.label = str(record["label"])
        entry.id = record["id"] or entry.id
        entry.applied = record["applied"] or entry.applied
        if record["what"] in {"restart", "restarted"}:
            entry.runs = record["runs"]


def _content(workspace: Workspace, path: str) -> dict[str, Any]:
    exported = workspace.get("/api/2.0/workspace/export", {"path": path, "format": "AUTO"})
    try:
        found: dict[str, Any] = json.loads(base64.b64decode(exported["content"]))
        found["what"]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"{path} in the workspace is no journal of turnout. Move it away, then run this again."
        ) from error
    return found
