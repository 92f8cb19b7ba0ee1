"""What hands write into rows of operations."""

from collections.abc import Mapping
from typing import Final

# What a hand may write into an operation's row so that it is frozen: it stands still until a person ends it.
NONSENSE: Final[dict[str, Mapping[str, str]]] = {
    "a plan nobody was shown": {"preview": '{"g3": ["a", "b", 1], "g2": ["a", "b", 1]}'},
}
# What can be read and still cannot be done.
WRONG: Final[dict[str, Mapping[str, str]]] = {
    "an unknown kind": {"kind": "explode"},
    "another kind": {"kind": "retry"},
    "nothing asked": {"parameters": "{}"},
    "numbers for names": {"parameters": '{"assignments": 5, "games": 5}'},
}
