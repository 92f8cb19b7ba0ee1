"""The profile of a source: how its records are routed and packed. Plain data, immutable, numbered by the control store.

Rows of bronze carry the number of their profile; null is the profile of turnout's own wrapper with turnout's own ids.
"""

from dataclasses import dataclass
from typing import Final

SCHEMA_ID_HEADER: Final = "__value_schema_id"
"""The header in which confluent-kafka 2.16 puts a schema's GUID."""


@dataclass(frozen=True, slots=True)
class SourceProfile:
    """How one source's records are routed, packed and framed."""

    envelope: str = "wrapper"  # wrapper, protobuf, avro or none
    # Where the game's name is: field (of the envelope), topic, key, header:NAME, or game:NAME for all records
    routing: str = "field"
    # Where the schema is named: wrapper (its field schema_id), confluent, glue, topic or game (one schema each)
    framing: str = "wrapper"
    registry: str | None = None  # the generation of the registry that gave the ids; None: turnout itself
    headers: tuple[str, ...] = (SCHEMA_ID_HEADER,)  # that may hold a schema's GUID; the first present one counts
    message: str | None = None  # protobuf payloads whose framing has no index path: the message's full name
    # Of an envelope that is not turnout's: its definition, message, and the paths of game, payload, schema_id,
    # event_time, event_id, producer_id and sequence in it (those it has), sorted by name
    definition: bytes = b""
    definition_message: str = ""
    fields: tuple[tuple[str, str], ...] = ()


WRAPPER: Final = SourceProfile()
"""The profile without a number."""
