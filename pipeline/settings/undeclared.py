"""The settings of JSON that no schema declares: `[undeclared]`; pure."""

from dataclasses import dataclass
from typing import Annotated

from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Limits of JSON documents that no schema declares: see docs/schemas.md.

    They decide where rows land, so an event type keeps those with which its first registration began: a change holds
    for types that begin later. Documents of a declared JSON Schema have at most 1 MiB and 32 levels.
    """

    most_columns: Annotated[int, Range(100, 1000)] = 1000
    """Most columns of an event type. Beyond, a row lands whole, as text in the column `__other__`. Documents are read
    one by one where they have more than 6 times as many bytes."""

    most_variations: Annotated[int, Range(1, 10_000)] = 1000
    """Most variations of an event type. Beyond, a row that has something new lands whole, as text in `__other__`."""

    most_bytes: Annotated[int, Range(1, 1024 * 1024)] = 1024 * 1024
    """Most bytes of a document. Larger ones go to quarantine as `malformed_payload`."""

    most_levels: Annotated[int, Range(1, 32)] = 32
    """Most levels of objects and arrays in a document. Deeper ones go to quarantine as `malformed_payload`."""
