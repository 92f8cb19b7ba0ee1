"""A foreign registry's answers about the schema of a writer.

Asked by threads of drivers only, never by a task (law L13).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from pipeline.base.errors import Refused, Transient
from pipeline.data.contracts.decoded import one_line

_T = TypeVar("_T")
_MOST_SUBJECT: Final = 1_000  # characters; names of Glue and Confluent are shorter


class Version(NamedTuple):
    """Where a schema stands in its registry: versions of one subject count 1, 2, … by age."""

    subject: str
    number: int


@dataclass(frozen=True, slots=True)
class Found:
    """The registry has the schema."""

    format: str  # a name in `pipeline.data.contracts.formats.supported`
    definition: bytes  # as that format takes it: a FileDescriptorSet with all imports, or a schema's JSON
    # Index path as on the wire → full name of the message. Without index paths the only key is empty.
    messages: Mapping[bytes, str]
    version: Version | None = field(default=None, compare=False)  # None: the registry does not tell it


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
            writer: the id as on the wire, see `pipeline.data.contracts.envelopes.framing`.
        """
        ...


def version_of(subject: Any, number: Any) -> Version | None:
    """Return a version as a registry tells it; None where it tells none."""
    if not isinstance(subject, str) or not 0 < len(subject) <= _MOST_SUBJECT or not subject.isprintable():
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
        return None
    return Version(subject, number)


def by_age(items: Iterable[_T], age: Callable[[_T], tuple[Hashable, int] | None]) -> list[_T]:
    """Return the items with those of one kind in the order of their age; all others keep their places.

    An older version that is registered after the one that widened it would be a narrowing, which tables refuse.

    Args:
        items: what is ordered.
        age: an item's kind, and its number there, which grows with each newer one; None where nobody knows it.
    """
    ordered = list(items)
    places: dict[Hashable, list[tuple[int, int]]] = {}
    for place, item in enumerate(ordered):
        if (known := age(item)) is not None:
            kind, number = known
            places.setdefault(kind, []).append((number, place))
    result = list(ordered)
    for own in places.values():
        for place, (_, came_from) in zip(sorted(each for _, each in own), sorted(own), strict=True):
            result[place] = ordered[came_from]
    return result


def settled(ask: Callable[[], Answer]) -> Answer:
    """Return what asking gives, where a schema that is refused is unusable, and an outage is away."""
    try:
        return ask()
    except Refused as refused:
        return Unusable(one_line(str(refused)))
    except Transient as outage:
        return Away(one_line(str(outage)))
