"""Derived streams as people define them: values, and the JSON of the control store. So far all are silver.

Made by the reader of files of derived streams; a driver compares them with what the table's log says that it was made
by.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from pipeline.base.names import GameKey, game_key

Mask: TypeAlias = Literal["hash", "drop"]

MASKS: Final[tuple[Mask, ...]] = get_args(Mask)
"""What becomes of a column: its SHA-256 as hexadecimal text, or nothing."""

EVENT_ID: Final = "_event_id"
"""The column of a game's table that tells events apart, where a definition names no other one."""


@dataclass(frozen=True, slots=True)
class SilverDefinition:
    """One silver table: the flat rows of one event type of a game."""

    name: str
    game: str  # its exact name
    type: str | None = None  # full name or last segment; None: the game's only type, or its first one
    within: int | None = None  # seconds of source time within which a second row of an id is left out; None: none is
    id: str = EVENT_ID  # the path of the column with the id
    mask: tuple[tuple[str, Mask], ...] = ()  # by the path of a column

    @property
    def game_key(self) -> GameKey:
        """The key of its game."""
        return game_key(self.game)

    @property
    def digest(self) -> str:
        """What decides about its rows; another digest needs another generation of its table."""
        return hashlib.sha256(dumps([replace(self, name="")]).encode()).hexdigest()


def dumps(definitions: Iterable[SilverDefinition]) -> str:
    """Return definitions as the JSON of the control store."""
    return json.dumps([asdict(each) for each in definitions], sort_keys=True)


def loads(text: str) -> tuple[SilverDefinition, ...]:
    """Return the definitions of such a JSON."""
    return tuple(_definition(tree) for tree in json.loads(text))


def _definition(tree: Mapping[str, Any]) -> SilverDefinition:
    return SilverDefinition(**{**tree, "mask": tuple((path, mask) for path, mask in tree["mask"])})
