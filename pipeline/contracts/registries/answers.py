"""What a registry of somebody else answers when it is asked for a writer's schema.

Asked by threads of drivers only, never by a task (law L13).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Found:
    """The registry has the schema."""

    format: str  # a name in `pipeline.contracts.formats.supported`
    definition: bytes  # as that format takes it: a FileDescriptorSet with all imports, or a schema's JSON
    # Index path as on the wire → full name of the message. Without index paths the only key is empty.
    messages: Mapping[bytes, str]


@dataclass(frozen=True, slots=True)
class Absent:
    """The registry itself said that it has no such schema."""

    detail: str  # one line


@dataclass(frozen=True, slots=True)
class Unusable:
    """The registry has it, but turnout cannot use it: its format, its size, references in a circle."""

    detail: str  # one line


@dataclass(frozen=True, slots=True)
class Away:
    """The registry did not answer, or with something else than an answer: nothing is known (law L14)."""

    detail: str  # one line


Answer: TypeAlias = Found | Absent | Unusable | Away


class SchemaResolver(Protocol):
    """A client of one registry. `tests/processes/test_resolvers.py` is the contract of all of them."""

    def resolve(self, writer: bytes) -> Answer:
        """Ask for the schema of a writer, once, within a bounded time; never raises.

        Args:
            writer: the id as on the wire, see `pipeline.contracts.envelopes.framing`.
        """
        ...
