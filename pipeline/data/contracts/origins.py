"""What a schema was computed from that nobody declared: a range of bronze, or the choice of a person. Pure.

It is kept beside bronze with the schema's id and with its registration, so that a lost one is computed again, to the
same content.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pipeline.base.names import GameKey
from pipeline.data.contracts.formats.json.caps import Caps

Place: TypeAlias = tuple[int, int]
"""A row of bronze: seq and pos."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A range of bronze, and what else decided about the schema's columns."""

    game_key: GameKey
    first: Place  # the range begins with this row of the game,
    last: Place  # and ends with this one
    rows: int  # of the schema's event type in it
    previous: str  # the fingerprint of the schema that it continues; empty: it is the first of its type
    caps: Caps  # those with which its type began
    taken: tuple[str, ...] = ()  # names that its new columns left to others, in lower case and order
    choice: tuple[str, ...] = ()  # what a person chose, see `choices`; then there is no range

    def as_json(self) -> Mapping[str, Any]:
        """Return it for a line of a file."""
        made = {
            "game": self.game_key, "first": self.first, "last": self.last, "rows": self.rows,
            "previous": self.previous, "caps": asdict(self.caps), "taken": self.taken,
        }  # fmt: skip
        return made | {"choice": self.choice} if self.choice else made

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> "Origin":
        """Return the origin of a line.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is damaged.
        """
        (first_seq, first_pos), (last_seq, last_pos) = kept["first"], kept["last"]
        first, last = (int(first_seq), int(first_pos)), (int(last_seq), int(last_pos))
        taken = tuple(str(each) for each in kept["taken"])
        game_key, previous = GameKey(str(kept["game"])), str(kept["previous"])
        caps = Caps(**{name: int(most) for name, most in kept["caps"].items()})
        choice = tuple(str(each) for each in kept.get("choice", ()))
        return cls(game_key, first, last, int(kept["rows"]), previous, caps, taken, choice)
