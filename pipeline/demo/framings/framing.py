"""How the simulator names a payload's schema: in the wrapper, or in a frame before the payload's bytes."""

from typing import Any, Final, NamedTuple, Protocol

from pipeline.demo.samples.sample import Sample

FRAMED: Final = 0
"""The wrapper's schema id where the payload has a frame of its own: no local schema has this id."""


class Framed(NamedTuple):
    """One payload with the name of its schema."""

    schema_id: int  # for the wrapper; FRAMED where `head` names the schema
    head: bytes  # the frame
    body: bytes  # the event's bytes


class Framing(Protocol):
    """Names the schema of each payload."""

    def introduce(self, version: int, sample: Sample) -> None:
        """Register a schema where this framing's ids come from. A family's versions are introduced in order.

        Raises:
            Transient: the registry does not answer.
            Refused: the registry does not take the schema.
        """
        ...

    def framed(self, game: str, version: int, sample: Sample, event: Any) -> Framed:
        """Return an event's bytes with the name of their schema, which is introduced."""
        ...

    def joined(self, framed: Framed) -> bytes:
        """Return the payload as it goes into the wrapper."""
        ...

    def unknown(self, game: str, framed: Framed, chance: int) -> Framed:
        """Return the payload under the name of a schema that the game does not have."""
        ...
