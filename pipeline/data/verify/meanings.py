"""Whether schema ids mean to the control store what they meant when they were given, and when rows landed.

An older copy of the store decodes bronze just as wrongly as it was written, so values alone prove nothing. Reads the
files beside bronze and the tables' properties with no code of the path that wrote them.
"""

import json
from collections.abc import Mapping
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.lake.storage.location import Location

PROPERTY: Final = "turnout.schemas"
MERGES: Final = "turnout.merges"
"""The property of merged columns, in the metadata of the column `_schema_id` of a table."""

_FOLDER: Final = "registrations"


def read_given(bronze: Location) -> dict[int, str]:
    """Return the fingerprint of each schema id that was given; none where an earlier turnout kept none.

    Raises:
        Refused: a file cannot be read.
    """
    folder, given = bronze.parent / _FOLDER, dict[int, str]()
    names = sorted(int(each.name) for each in folder.files() if each.name.isdecimal())
    for file in (folder / str(name) for name in names):
        try:
            for line in file.read_text().splitlines():
                kept = json.loads(line)
                given.setdefault(int(kept["id"]), str(kept["fingerprint"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refused(f"{file} cannot be read ({error}). Put it back from a backup.") from error
    return given


def doubtful(schemas: SchemaSet, key: GameKey, given: Mapping[int, str], noted: str) -> set[int]:
    """Return the ids of a game that mean another schema than was given, or than its table notes in its property."""
    in_table = dict(each.split("=", 1) for each in noted.split() if "=" in each)
    return {
        schema_id
        for schema_id in schemas.games.get(key, ())
        if (mark := schemas.fingerprints.get(schema_id)) is not None
        and (given.get(schema_id, mark) != mark or not mark.startswith(in_table.get(str(schema_id), "")))
    }
