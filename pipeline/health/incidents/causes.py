"""Causes: the words, what is found of one, and its hysteresis. Pure.

`judging.py` judges; docs/causes.md has the rules. Foreign names and messages in texts are escaped and cut; pages escape
HTML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.store.database.states import Cause

AGREEING_LOOKS: Final = 2
"""Looks in a row that must agree on another cause before it counts; facts count at once."""

CLEARING_LOOKS: Final = 3
"""Looks in a row that must find no cause before one ends."""


@dataclass(frozen=True, slots=True)
class Action:
    """A link to a page with what is chosen there; never an act."""

    label: str  # "Restart stream…"
    page: str  # game | groups | schemas | repairs | operations | access | fleet
    query: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its evidence and the next action."""

    cause: Cause
    title: str  # a fact: "Rows of Chess refused since schema version 7"
    evidence: tuple[str, ...]  # with numbers
    excludes: tuple[str, ...]  # what it is not: "its 78 neighbours are well"
    action: Action | None
    runbook: str | None  # the name of a page in docs/runbooks
    pattern: str = "{}"  # the title, with {} for the games that it is about
    scope: str = ""  # what games with this cause share, such as "group b"; empty: only the cause
    is_fact: bool = False  # recorded, not inferred: it counts at the first look
    is_expected: bool = False  # such as a restart that just began: no incident yet
    advice: str | None = None  # what a person does outside turnout, and what follows; None: nothing

    def about(self, games: str) -> str:
        """Return the title of some games."""
        return self.pattern.replace("{}", games, 1)


@dataclass(frozen=True, slots=True)
class Settled:
    """A cause after hysteresis; None: there is no cause, as the game is well or recovers."""

    finding: Finding | None
    since: float
    pending: tuple[Cause, str] | None = None  # the cause and scope on which looks begin to agree
    agreeing: int = 0


def settle(previous: Settled | None, finding: Finding | None, now: float) -> Settled:
    """Return the settled cause after one more look.

    The same cause takes over the newest evidence. Another one counts after two looks in a row that agree on it, one
    that is recorded at once; that there is none counts after three. The first look of all begins without a cause.
    """
    held = previous or Settled(None, now)
    if key_of(finding) == key_of(held.finding):
        return Settled(finding, held.since)
    if finding is not None and finding.is_fact:
        return Settled(finding, now)
    key = key_of(finding)
    agreeing = held.agreeing + 1 if held.pending == key and held.agreeing else 1
    if agreeing >= (CLEARING_LOOKS if finding is None else AGREEING_LOOKS):
        return Settled(finding, now)
    return Settled(held.finding, held.since, key, agreeing)


def key_of(finding: Finding | None) -> tuple[Cause, str] | None:
    """Return what findings of one incident have in common."""
    return None if finding is None else (finding.cause, finding.scope)
