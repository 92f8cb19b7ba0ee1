"""Causes: the words, what is found of one, and its hysteresis. Pure.

`judging.py` judges; docs/causes.md has the rules. Foreign names and messages in texts are escaped and cut; pages escape
HTML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.store.database.states import Cause

AGREEING_LOOKS: Final = 2
"""Looks in a row that must agree on another cause before it counts; facts count at once."""

CLEARING_LOOKS: Final = 3
"""Looks in a row that must find no cause before one ends that was inferred."""

_COUNTED: Final = frozenset({Cause.SCHEMA, Cause.CONTRACT, Cause.POISON})
"""Causes whose facts are counts of rows since the last look: a look between two reports has none."""


@dataclass(frozen=True, slots=True)
class Action:
    """A link to a page with what is chosen there; never an act."""

    label: str  # "Restart stream…"
    page: str  # game | groups | schemas | repairs | operations | access | fleet
    query: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)

    @property
    def kind(self) -> str | None:
        """The kind of operation that is planned there; None: the page only shows something."""
        chosen = self.query.get(_CHOOSES.get(self.page, ""))
        return chosen if isinstance(chosen, str) else None


_CHOOSES: Final[Mapping[str, str]] = {"repairs": "repair", "groups": "do"}
"""The parameter of a page's link that names a kind of operation."""


@dataclass(frozen=True, slots=True)
class Acting:
    """Who works on the mend of a cause at this moment."""

    by: str  # a person's name, or `CONTROLLER_WORD`
    does: str  # as a clause: "the controller starts its driver again", "restart 0af30af3 by ann is under way"
    since: float  # Unix seconds


CONTROLLER_WORD: Final = "the controller"


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
    acting: Acting | None = None  # who is at its mend now; None: nobody, so a person has to
    past: str | None = None  # the title's pattern once it is over; None: it stands in the past tense already

    def about(self, games: str) -> str:
        """Return the title of some games."""
        return self.pattern.replace("{}", games, 1)

    def over(self, games: str, evidence: tuple[str, ...] = ()) -> "Finding":
        """Return it once the cause is over: no action, no advice, and a title in the past tense."""
        pattern = self.pattern if self.past is None else self.past
        is_named = self.past is not None or (games and pattern != "{}")
        title = pattern.replace("{}", games, 1) if is_named else self.title
        over = replace(self, title=title, pattern=pattern, past=None, evidence=evidence, excludes=())
        return replace(over, action=None, advice=None, acting=None)

    @property
    def ends_at_once(self) -> bool:
        """Whether it is over at the first look without it: it is recorded, or an operation or controller was at it."""
        is_known = self.cause == Cause.DRIVER_GONE or (self.is_fact and self.cause not in _COUNTED)
        return is_known or self.acting is not None  # a driver that beats again is not silent, however that was found


@dataclass(frozen=True, slots=True)
class Settled:
    """A cause after hysteresis; None: there is no cause, as the game is well or recovers."""

    finding: Finding | None
    since: float
    pending: tuple[Cause, str] | None = None  # the cause and scope on which looks begin to agree
    agreeing: int = 0


def settle(previous: Settled | None, finding: Finding | None, now: float, *, is_mended: bool = False) -> Settled:
    """Return the settled cause after one more look.

    The same cause takes over the newest evidence. Another one counts after two looks in a row that agree on it, one
    that is recorded at once; that there is none counts after three. A recorded cause, or one that its action has mended
    (`is_mended`), is over at once. The first look of all begins without a cause.
    """
    held = previous or Settled(None, now)
    if key_of(finding) == key_of(held.finding):
        return Settled(finding, held.since)
    if finding is not None and finding.is_fact:
        return Settled(finding, now)
    if held.finding is not None and (is_mended or held.finding.ends_at_once):
        held = Settled(None, now)
        if finding is None:
            return held
    key = key_of(finding)
    agreeing = held.agreeing + 1 if held.pending == key and held.agreeing else 1
    if agreeing >= (CLEARING_LOOKS if finding is None else AGREEING_LOOKS):
        return Settled(finding, now)
    return Settled(held.finding, held.since, key, agreeing)


def key_of(finding: Finding | None) -> tuple[Cause, str] | None:
    """Return what findings of one incident have in common."""
    return None if finding is None else (finding.cause, finding.scope)
