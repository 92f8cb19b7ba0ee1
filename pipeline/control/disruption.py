"""How much an operation may disturb, which decides what a person must enter before it is submitted."""

from typing import Final, Literal

from pipeline.errors import Refused
from pipeline.names import is_said
from pipeline.repair.replay import KILLS_WORKER
from pipeline.store.operations import Intent

Level = Literal[1, 2, 3]
_GENTLE: Final = frozenset({"pause", "resume", "retry", "replay", "restore"})  # taken back at once, or only adds


def level(intent: Intent) -> Level:
    """Return 1 for what touches one game gently, 2 for one game, 3 for several games or more than games."""
    if len(intent.targets) != 1 or not intent.targets[0].startswith("game:"):
        return 3
    deadly = intent.parameters.get("refused_for") == KILLS_WORKER  # what reads such a row may die of it
    return 1 if intent.kind in _GENTLE and not deadly else 2


def require_reason(intent: Intent) -> None:
    """Go on only where an operation has a reason, or disturbs nobody.

    Raises:
        Refused: it has no reason and is above level 1.
    """
    if level(intent) > 1 and not is_said(intent.reason):
        raise Refused(f"Say why you {intent.kind}: --reason TEXT. It is kept in the audit log.")
