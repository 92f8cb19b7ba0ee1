"""What is known of payloads: one schema, and the schemas of every game at one version of the registry.

Plain data, small and picklable: a pass pins a SchemaSet and sends parts of it to its tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.names import GameKey


@dataclass(frozen=True, slots=True)
class Schema:
    """One definition of a payload; equal definitions share one id, whichever games use them."""

    schema_id: int
    format: str  # protobuf
    message: str  # full name of the payload's message
    descriptor: bytes  # a canonical FileDescriptorSet, see `pipeline.contracts.messages`


@dataclass(frozen=True, slots=True)
class SchemaSet:
    """Which schemas each game may use, as of one registration."""

    version: int  # the highest registration id in the set; 0 is the empty set
    games: Mapping[GameKey, tuple[int, ...]]  # schema ids in the order of their registration
    schemas: Mapping[int, Schema]

    def of(self, key: GameKey) -> tuple[Schema, ...]:
        """Return a game's schemas in the order of their registration; none when the game is unknown."""
        return tuple(self.schemas[schema_id] for schema_id in self.games.get(key, ()))
