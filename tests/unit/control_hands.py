"""What hands write into rows of operations."""

from collections.abc import Mapping
from typing import Final

# What a hand may write into an operation's row so that it makes no sense: it stands still until a person ends it.
NONSENSE: Final[dict[str, Mapping[str, str]]] = {
    "no JSON": {"parameters": "{not json"},
    "JSON without an end": {"parameters": "[" * 100_000},
    "a list for an object": {"preview": '["g1"]'},
    "targets that are no names": {"targets": '[{"game": "g1"}]'},
    "a state that is none": {"state": "bogus"},
    "a plan nobody was shown": {"preview": '{"g3": ["a", "b", 1], "g2": ["a", "b", 1]}'},
    "a time that is none": {"requested_at": "yesterday"},
    "a version that is none": {"version": "second"},
}
# What can be read and still cannot be done.
WRONG: Final[dict[str, Mapping[str, str]]] = {
    "an unknown kind": {"kind": "explode"},
    "another kind": {"kind": "retry"},
    "nothing asked": {"parameters": "{}"},
    "numbers for names": {"parameters": '{"assignments": 5, "games": 5}'},
}
