"""The marks of the last batches, beside the checkpoint: two files in turn, so that a killed write leaves the other.

Correctness needs neither: without them bronze's own rows tell the last records, and the control store the ids.
"""

import json
import logging
from collections.abc import Mapping

from pipeline.base.failpoints import effect
from pipeline.data.ingest.evidence import marks
from pipeline.data.ingest.evidence.marks import Mark
from pipeline.lake.storage.location import Location

_log = logging.getLogger("turnout")


class KeptMarks:
    """The marks of one ingest generation's batches, by the description of each source."""

    def __init__(self, folder: Location) -> None:
        """Keep them in this folder."""
        self._folder = folder

    def read(self, landed: int | None) -> Mapping[str, Mark]:
        """Return the marks of the last kept batch up to the last landed one; nothing where none is readable."""
        if landed is None:
            return {}
        found = [each for slot in (0, 1) if (each := self._slot(slot)) is not None and each[0] <= landed]
        return max(found, key=lambda each: each[0])[1] if found else {}

    def write(self, batch_id: int, of: Mapping[str, Mark]) -> None:
        """Keep the marks of a batch, before bronze has it."""
        body = {"batch": batch_id, "of": {described: mark.as_dict() for described, mark in sorted(of.items())}}
        with effect("make_folder"):
            self._folder.make()
        self._file(batch_id).put(json.dumps(body).encode())

    def _file(self, batch_id: int) -> Location:
        return self._folder / f"marks-{batch_id % 2}.json"

    def _slot(self, slot: int) -> tuple[int, Mapping[str, Mark]] | None:
        file = self._file(slot)
        try:
            body = json.loads(file.read())
            return int(body["batch"]), {name: marks.parse(each) for name, each in body["of"].items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s cannot be used (%s): last records are read from bronze", file, error)
            return None
