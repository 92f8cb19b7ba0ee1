"""What the schema ids of a game's rows mean, kept in a property of its table: the fingerprint of each schema by id.

So a table is not read as one with other ids, also where the control store and the folder of given ids were both lost. A
target of rows carries the fingerprints as metadata, and an open table has them without a request.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pipeline.base.errors import Refused

PROPERTY: Final = "turnout.schemas"

_DIGITS: Final = 16  # of a fingerprint: enough to tell apart what one game ever had


class OtherMeaning(Refused):
    """A table has rows of a schema id that means another schema now: no row lands before a person has looked."""


def with_meanings(target: pa.Schema, fingerprints: Mapping[int, str]) -> pa.Schema:
    """Return columns that carry what the ids of rows in them mean."""
    return target.with_metadata({PROPERTY: _rendered({each: mark[:_DIGITS] for each, mark in fingerprints.items()})})


def carried(target: pa.Schema) -> str:
    """Return what the ids of the target's rows mean, as the property's text; empty where it does not say."""
    found = (target.metadata or {}).get(PROPERTY.encode(), b"")
    return str(found, "ascii")


def joined(name: str, held: str, new: str) -> str:
    """Return what a table's property has to be before rows land in it.

    Args:
        name: of the table, for people.
        held: the property as it is, empty without one.
        new: what the rows carry.

    Raises:
        OtherMeaning: an id means two schemas.
    """
    before, now = _parsed(held), _parsed(new)
    for schema_id, mark in now.items():
        if before.get(schema_id, mark) != mark:
            raise OtherMeaning(
                f"{name}: its table has rows of schema {schema_id} with the fingerprint {before[schema_id]}, and the "
                f"control store has {mark} under this id, so it is an older copy. Restore its newest copy and the "
                f"folder registrations beside bronze, then retry."
            )
    return held if now.keys() <= before.keys() else _rendered({**before, **now})


def _rendered(marks: Mapping[int, str]) -> str:
    return " ".join(f"{schema_id}={mark}" for schema_id, mark in sorted(marks.items()))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Mapping[int, str]:
    pairs = (each.partition("=") for each in text.split())
    return {int(schema_id): mark for schema_id, _, mark in pairs if schema_id.isdigit()}
