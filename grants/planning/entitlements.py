"""What turnout keeps beside a catalog: who was given what to read, until when, and which assignments it made for that.

A catalog knows no expiry and not who made an assignment, so both are kept here. Values only; the store keeps them.
Values per cell are named tuples, which are made and compared much faster: there are tens of thousands.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from grants.catalog import Change
from grants.model import Securable, folded
from pipeline.base.errors import Refused

Cell = tuple[str, str]
"""A principal's folded name and a game key."""

NO_GAME: Final = ""
"""The key of an intent about no game: what turnout granted above the tables is revoked where it is no longer needed."""


@dataclass(frozen=True, slots=True)
class AccessIntent:
    """A requested change of one principal's access to one game.

    `read` with `until` gives it until then (Unix seconds) and leaves a permanent entitlement alone; not to `read` with
    `until` takes only a temporary one that ends then or before, which is how one expires; without it takes both.
    `adopt` makes an assignment that is there already ours; `revert` takes one that is not ours. To `follow` is to have
    the grant on a silver or gold table be as the game's grants are, without an entitlement. Of `NO_GAME` it is nothing
    but not to read.

    Raises:
        Refused: adopt without read, revert with it, follow with a time, no game with any of these, or a time that is
            none.
    """

    principal: str
    key: str
    read: bool
    until: float | None = None
    reason: str = ""
    ticket: str = ""
    adopt: bool = False
    revert: bool = False
    follow: bool = False

    def __post_init__(self) -> None:
        if self.until is not None and not math.isfinite(self.until):
            raise Refused(f"{self.until} is not a valid end of access of {self.principal} to {self.key}.")
        if (self.adopt and not self.read) or (self.revert and (self.read or self.until is not None)):
            raise Refused("Adopting grants, reverting revokes without an end time. Choose one of them.")
        if self.follow and (self.adopt or self.revert or self.until is not None):
            raise Refused("An intent that follows a game's grants has no terms of its own.")
        if self.key == NO_GAME and (self.read or self.revert or self.until is not None):
            raise Refused("Name the game to read or revert.")

    @property
    def cell(self) -> Cell:
        """The principal and the game."""
        return folded(self.principal), self.key


class Entitlement(NamedTuple):
    """The intent that a principal reads a game. A cell can have a permanent and a temporary one, each on its own."""

    principal: str
    key: str
    until: float | None  # Unix seconds; None: permanent
    table_id: str  # of the table it was given for
    principal_id: str = ""  # the directory's, of who was given it; empty: not known

    @property
    def permanent(self) -> bool:
        """Whether it has no end."""
        return self.until is None

    @property
    def cell(self) -> Cell:
        """The principal and the game."""
        return folded(self.principal), self.key

    def is_over(self, now: float) -> bool:
        """Return whether its time has come."""
        return self.until is not None and self.until <= now


class ManagedGrant(NamedTuple):
    """A direct assignment that is there because turnout made or adopted it; what is not given is never taken."""

    securable: Securable
    principal: str  # folded
    privilege: str


@dataclass(frozen=True, slots=True)
class ManagedAccess:
    """All that turnout keeps of access."""

    entitlements: frozenset[Entitlement] = frozenset()
    given: frozenset[ManagedGrant] = frozenset()

    def of(self, cell: Cell) -> frozenset[Entitlement]:
        """Return the entitlements of one cell."""
        return frozenset(each for each in self.entitlements if each.cell == cell)


NOTHING: Final = ManagedAccess()


def given_by(change: Change, privileges: Collection[str]) -> list[ManagedGrant]:
    """Return some privileges of a change, as what is given."""
    if not privileges:
        return []
    who = folded(change.principal)
    return [ManagedGrant(change.securable, who, each) for each in privileges]


def added_by(changes: Iterable[Change]) -> Iterator[ManagedGrant]:
    """Yield all that changes give, as what is given."""
    for change in changes:
        yield from given_by(change, change.add)


def taken_by(changes: Iterable[Change]) -> Iterator[ManagedGrant]:
    """Yield all that changes take, as what is given."""
    for change in changes:
        yield from given_by(change, change.remove)


def expired(entitlements: Iterable[Entitlement], now: float) -> tuple[AccessIntent, ...]:
    """Return the intents that end all entitlements that are over, one of each cell."""
    over = sorted((each for each in entitlements if each.is_over(now)), key=lambda each: (each.cell, each.until or 0.0))
    last = {each.cell: each for each in over}  # of what was revoked and what has expired, the later ends both
    return tuple(
        AccessIntent(each.principal, each.key, read=False, until=each.until, reason="expired") for each in last.values()
    )
