"""How many random examples a run tries: the ordinary one a share, the long part `examples` all."""

from typing import Any, Final

import hypothesis

ORDINARY: Final = "not long"
"""Marks of the ordinary run, as `turnout` gives them."""

_SHARE: Final = 4
_FEWEST: Final = 5


def fewer_examples(function: Any) -> None:
    """Let a test with random examples try a quarter of them, and not fewer than five."""
    name = "_hypothesis_internal_use_settings"  # where a test keeps its own, and Hypothesis looks when it runs
    if given := getattr(function, name, None):
        wanted = max(given.max_examples // _SHARE, min(given.max_examples, _FEWEST))
        setattr(function, name, hypothesis.settings(given, max_examples=wanted))
