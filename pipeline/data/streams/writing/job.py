"""The job of the tasks that split bronze: what they read, and which games they serve."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.data.contracts.schemas import SchemaSet
from pipeline.lake.delta.bronze import SLICE_BYTES
from pipeline.lake.storage.location import Location

READ: Final = (
    "game_key", "game", "schema_id", "seq", "pos", "prev_seq", "refused",
    "topic", "partition", "offset", "source_time", "raw", "profile", "registry", "writer",
)  # fmt: skip
"""The columns of bronze that a pass reads."""

Place: TypeAlias = tuple[int, int]
"""A row of bronze: its seq and pos."""


@dataclass(frozen=True, slots=True)
class SplitJob:
    """The games to split, their cursors and schemas: the same job on the same rows has the same result."""

    cursors: Mapping[str, int]
    schema_set: SchemaSet
    tables: Location  # below it each game's files are written, in a folder named by its key
    quarantine: Location | None = None  # where refused rows are written; None: they are returned, as Arrow IPC
    deadly: frozenset[Place] = frozenset()  # refused without decoding: each kills a worker
    # A trial: does a worker survive these rows, first to last? nothing is kept.
    trial: tuple[Place, Place] | None = None
    slice_bytes: int = SLICE_BYTES  # a task with more rows splits them one slice after the other
