"""The type of an event: its message's or record's full name, without versions of its package. Pure.

`acme.v1.Joined`, `acme.v2.Joined` and `acme.v2beta1.Joined` are one type. Schemas of one type evolve; another type is
never a version of it. `docs/decisions/0028-event-types.md` says why.
"""

import re
from typing import Final, NamedTuple

_VERSION: Final = re.compile(r"v[1-9]\d*((p[1-9]\d*)?(alpha|beta)([1-9]\d*)?|test.*)?")
"""A segment of a package that is a version, as buf has it: v1, v2beta1, v1alpha, v1p1beta1, v1test."""


def event_type(full_name: str) -> str:
    """Return the type of a message or record; its own name, the last segment, is never a version."""
    *package, name = full_name.split(".")
    return ".".join([*(each for each in package if not _VERSION.fullmatch(each)), name])


class Numbering(NamedTuple):
    """Within what a field's id identifies it: one full name in protobuf, all records in Avro.

    A new package is where protobuf's numbers begin again; the names of Avro's fields mean the same in every schema.
    """

    format: str
    message: str = ""  # full name; empty in Avro

    def beside(self, other: "Numbering") -> str:
        """Return what people call it where another one is named, too."""
        return self.format if self.format != other.format else self.message
