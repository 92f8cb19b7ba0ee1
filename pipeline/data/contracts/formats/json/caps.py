"""Limits of the documents of one event type that nobody declared. Pure."""

from dataclasses import dataclass
from typing import Final

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.model import MAX_DEPTH
from pipeline.settings.undeclared import Undeclared


@dataclass(frozen=True, slots=True)
class Caps:
    """What a superset takes at most. It keeps them from its first version on, since they decide where rows land.

    Documents with more bytes or levels are refused. Beyond the other two the superset closes: what it does not cover
    lands whole as text.
    """

    columns: int = 1000
    variations: int = 1000
    bytes: int = MAX_PAYLOAD_BYTES  # of one document
    depth: int = MAX_DEPTH  # of objects and arrays in each other


USUAL: Final = Caps()


def caps_of(given: Undeclared) -> Caps:
    """Return the caps with which a type's first superset begins by the settings."""
    return Caps(given.most_columns, given.most_variations, given.most_bytes, given.most_levels)
