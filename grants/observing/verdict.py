"""The verdict on one principal and one game: reads or not, by which grants, and as a sentence. Values only."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from grants.model import Securable

Standing = Literal["active", "inactive", "gone", "unknown"]
"""`unknown`: the directory does not list it and need not, could not be read, or has several of that name."""

OWNERSHIP: Final = "ownership"
"""What stands for a privilege that an owner has."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a principal has a privilege."""

    securable: Securable
    by: str  # the privilege that was granted, or OWNERSHIP
    groups: tuple[str, ...] = ()  # from the one the principal is directly in to the one that holds it; empty: itself

    @property
    def words(self) -> str:
        """The way as part of a sentence."""
        held = (
            f"ownership of {place(self.securable)}" if self.by == OWNERSHIP else f"{self.by} on {place(self.securable)}"
        )
        if not self.groups:
            return held
        return f"{held} by group {' in '.join(self.groups)}"


@dataclass(frozen=True, slots=True)
class RequiredPrivilege:
    """One of the three things that reading takes."""

    privilege: str  # SELECT, USE_SCHEMA or USE_CATALOG
    securable: Securable  # what it is needed on
    ways: tuple[Way, ...]  # the table's before the schema's before the catalog's, fewest groups first; empty: none seen
    unread: tuple[Securable, ...]  # where there might be another way: its grants or its owner were not reported

    @property
    def met(self) -> bool | None:
        """Whether it is there; None where that is not known."""
        if self.ways:
            return True
        return None if self.unread else False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A privilege with unknown effect."""

    securable: Securable
    holder: str
    privilege: str


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """Whether a principal reads a game's table, and why."""

    principal: str
    key: str
    standing: Standing
    needs: tuple[RequiredPrivilege, ...]
    granting: tuple[Way, ...]  # by which ways it could grant itself what it lacks
    could_grant_itself: bool | None  # None: something that would tell was not read
    unknown: tuple[Unknown, ...]  # privileges it holds, itself or by a group, that may mean more than is known
    has_row_filter: bool = False
    masked_columns: tuple[str, ...] = ()
    apart: bool = False  # the catalog knows no groups: it lets in a group's own user, not its members
    maybe_in: tuple[str, ...] = ()  # groups by which it may read: whether it is a member is not known

    @property
    def reads(self) -> bool | None:
        """Whether it reads; None where something that is needed to tell was not read."""
        if self.standing in {"inactive", "gone"}:
            return False
        reads = every(need.met for need in self.needs)
        is_open = (self.standing == "unknown" and reads is True) or (self.maybe_in and reads is False)
        return None if is_open else reads

    @property
    def badges(self) -> tuple[str, ...]:
        """Why a principal who reads may see less than is there."""
        masked = f"masked: {', '.join(self.masked_columns)}"
        return (*(["row filter"] if self.has_row_filter else []), *([masked] if self.masked_columns else []))

    @property
    def sentence(self) -> str:
        """All of it for a person."""
        return " ".join([_main(self), *_notes(self)])


def every(answers: Iterable[bool | None]) -> bool | None:
    """Return whether all are true: a false answer decides, else an unknown one."""
    known = True
    for each in answers:
        if each is False:
            return False
        known = known and each is not None
    return True if known else None


def best(verdicts: Sequence[AccessVerdict]) -> AccessVerdict:
    """Return the best of several verdicts on a cell: the first that reads, else the first that may.

    What any of them could grant itself, it could; what is unknown of any is unknown.
    """
    first_best = max(verdicts, key=lambda each: (each.reads is True, each.reads is None))  # of equals the first
    could = max(verdicts, key=lambda each: (each.could_grant_itself is True, each.could_grant_itself is None))
    return replace(
        first_best,
        granting=could.granting,
        could_grant_itself=could.could_grant_itself,
        unknown=tuple(dict.fromkeys(each for verdict in verdicts for each in verdict.unknown)),
    )


def place(securable: Securable) -> str:
    """Return a securable as sentences name it."""
    return f"{securable.type} {securable.full_name}"


def _main(verdict: AccessVerdict) -> str:
    who, key = verdict.principal, verdict.key
    if verdict.standing == "gone":
        return f"{who} does not read {key}: the directory does not know it."
    if verdict.standing == "inactive":
        return f"{who} does not read {key}: it is not active."
    if verdict.reads:
        return f"{who} reads {key}: {', '.join(need.ways[0].words for need in verdict.needs)}."
    if verdict.reads is None and verdict.standing == "unknown":
        return f"It is unknown whether {who} reads {key}: the directory does not tell who that is."
    if verdict.reads is None and verdict.maybe_in:
        groups = " and ".join(verdict.maybe_in)
        return f"It is unknown whether {who} reads {key}: the directory does not show whether it is in {groups}."
    if verdict.reads is None:
        unread = dict.fromkeys(place(each) for need in verdict.needs if need.met is None for each in need.unread)
        return f"It is unknown whether {who} reads {key}: grants and owner of {' and '.join(unread)} were not read."
    missing = [f"{need.privilege} on {place(need.securable)}" for need in verdict.needs if need.met is False]
    return f"{who} does not read {key}: it lacks {' and '.join(missing)}."


def _notes(verdict: AccessVerdict) -> Iterator[str]:
    groups = verdict.needs[0].ways[0].groups if verdict.apart and verdict.reads else ()
    if groups:
        yield f"The catalog does not know groups: it admits {groups[-1]}, and refuses {verdict.principal} by name."
    if verdict.could_grant_itself and not verdict.reads:
        yield f"It could grant itself access, by {verdict.granting[0].words}."
    if verdict.badges:
        yield f"The table hides some of its data ({'; '.join(verdict.badges)})."
    for each in verdict.unknown:
        yield f"{each.holder} holds {each.privilege} on {place(each.securable)}, whose effect is unknown here."
