"""What the books say of a game's day: its sums, the record of its closing, and what changed closed days later. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pipeline.base.texts import in_utc

MICROS: Final = 1_000_000
PLACES: Final = 2**62
"""The sum of places is kept below this."""

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Sums:
    """How many rows of bronze of one day are in each class, or by how much these numbers changed."""

    refused: int = 0
    duplicate: int = 0
    late: int = 0
    accepted: int = 0
    places: int = 0  # a sum over the places of accepted rows: it tells which they are, where their number is the same

    def __add__(self, other: "Sums") -> "Sums":
        return self._with(other, 1)

    def __sub__(self, other: "Sums") -> "Sums":
        return self._with(other, -1)

    @property
    def rows(self) -> int:
        """All rows of the day."""
        return self.refused + self.duplicate + self.late + self.accepted

    def _with(self, other: "Sums", sign: int) -> "Sums":
        return Sums(
            self.refused + sign * other.refused, self.duplicate + sign * other.duplicate, self.late + sign * other.late,
            self.accepted + sign * other.accepted, (self.places + sign * other.places) % PLACES,
        )  # fmt: skip


NONE: Final = Sums()
"""No row, and no change."""


@dataclass(frozen=True, slots=True)
class DayEntry:
    """The change of an earlier closed day, as the day that closed next has it."""

    day: int  # the begin of the earlier day, microseconds since 1970
    revision: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class Reopened:
    """Who has opened a closed day again, so that it closes with another revision."""

    requested_by: str
    approved_by: str
    reason: str
    at: int  # when it was approved: microseconds since 1970, by the control store's clock

    @property
    def line(self) -> str:
        """Return it as a sentence; raw texts are in it."""
        return f"It was reopened by {self.requested_by}, approved by {self.approved_by}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Closing:
    """The record of one closed day. It never changes."""

    game_key: str
    game: str
    number: int  # of the game's closings, from 1
    day: int  # its begin, microseconds since 1970
    day_seconds: int
    revision: int  # from 1
    sums: Sums
    without_event_time: int  # rows that count on the day of their source time, or of their bronze commit
    clock_errors: int  # rows that count there since their event time is too far from it
    closing_seq: int  # rows above it are late
    seq: int  # the game's rows of bronze up to it were classified
    table_id: str  # the game's table that classified
    table_version: int
    silver: tuple[str, ...]  # the silver tables that told duplicates, as NAME@VERSION
    notes: tuple[str, ...]  # what the day says of itself, in sentences
    schema: str  # the columns of the closed rows as JSON, as Delta has them: the hash has their values in this order
    hash: str  # SHA-256 over the accepted rows
    keeps_rows: bool
    closed_at: int  # microseconds since 1970, by the control store's clock
    closed_by: str
    reason: str
    entries: tuple[DayEntry, ...] = field(default=())
    column_sums: tuple[tuple[str, str], ...] = ()  # of the accepted rows: columns with their sums in decimal digits
    reopened: Reopened | None = None  # of a revision above 1: who opened the one before again

    def to_json(self) -> str:
        """Return it as the commit with its rows keeps it."""
        return json.dumps(asdict(self), sort_keys=True)


def from_json(text: str) -> Closing:
    """Return the record that a commit keeps."""
    return from_tree(json.loads(text))


def from_tree(tree: Mapping[str, Any]) -> Closing:
    """Return a record of plain values."""
    entries = tuple(DayEntry(each["day"], each["revision"], Sums(**each["sums"])) for each in tree["entries"])
    texts = {name: tuple(tree[name]) for name in ("silver", "notes")}
    texts["column_sums"] = tuple((name, total) for name, total in tree.get("column_sums") or ())
    reopened = Reopened(**tree["reopened"]) if tree.get("reopened") else None
    return Closing(**{**tree, **texts, "sums": Sums(**tree["sums"]), "entries": entries, "reopened": reopened})


def newest_revisions(closings: Iterable[Closing]) -> dict[int, Closing]:
    """Return the closing in force of each closed day, by the day's begin."""
    found: dict[int, Closing] = {}
    for each in closings:
        if each.day not in found or found[each.day].revision < each.revision:
            found[each.day] = each
    return found


def said(closing: Closing, closings: Iterable[Closing]) -> Sums:
    """Return what the books say of a closed day: its sums, with all entries that refer to it."""
    total = closing.sums
    for each in closings:
        for entry in each.entries:
            if (entry.day, entry.revision) == (closing.day, closing.revision):
                total += entry.sums
    return total


def begin_of(moment: float, day_seconds: int) -> int:
    """Return the begin of the day of a moment (Unix seconds), in microseconds."""
    return int(moment // day_seconds) * day_seconds * MICROS


def label(day: int, day_seconds: int) -> str:
    """Return a day as people write it: `2026-11-29`, or its first second where it is shorter than 24 hours."""
    return in_utc(day / MICROS, "%Y-%m-%d" if day_seconds == _DAY else "%Y-%m-%dT%H:%M:%SZ")
