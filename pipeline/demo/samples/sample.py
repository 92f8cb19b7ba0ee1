"""What the simulator asks of a format: the payloads of one family and version. `supported` lists the formats."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from pipeline.base.errors import Refused

FAMILIES: Final = ("puzzle", "shooter", "racing")
VERSIONS: Final = 6
"""Versions of each family's payload schema, numbered from 1."""

WORDS: Final = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbour")
COUNTRIES: Final = ("BR", "DE", "IN", "JP", "KE", "US")
PREPARED: Final = 32  # payloads of each family and version, of which each event changes a few fields


class Sample(Protocol):
    """The payloads of one family and version in one format."""

    message: str  # full name
    definition: bytes  # as `turnout schemas register` takes it
    glue_format: str  # the name of the format in AWS Glue

    @property
    def text(self) -> str:
        """The definition as people write it: the content of a .proto, .avsc or .json file."""
        ...

    def event(self, chance: int, sequence: int, time: int) -> Any:
        """Return the content of one event; `time` is in microseconds. The next call may change it."""
        ...

    def encode(self, event: Any) -> bytes:
        """Return the bytes of an event, without any frame."""
        ...

    def broken(self, body: bytes, chance: int) -> bytes:
        """Return bytes that no parser of this format accepts, made of an event's bytes."""
        ...

    def serializer(self, client: Any, settings: dict[str, Any]) -> Callable[..., Any]:
        """Return confluent-kafka's own serializer of events, which talks to a registry through `client`."""
        ...


def check_version(family: str, version: int) -> None:
    """Check that there is such a sample.

    Raises:
        Refused: there is none.
    """
    if family not in FAMILIES or not 1 <= version <= VERSIONS:
        raise Refused(f"No schema {family!r} version {version}: use {', '.join(FAMILIES)} and 1 to {VERSIONS}.")
