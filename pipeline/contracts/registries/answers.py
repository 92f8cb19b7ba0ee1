"""A foreign registry's answers about the schema of a writer.

Asked by threads of drivers only, never by a task (law L13).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pipeline.contracts.decoded import one_line
from pipeline.errors import Refused, Transient


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


def settled(ask: Callable[[], Answer]) -> Answer:
    """Return what asking gives, where a schema that is refused is unusable, and an outage is away."""
    try:
        return ask()
    except Refused as refused:
        return Unusable(one_line(str(refused)))
    except Transient as outage:
        return Away(one_line(str(outage)))
