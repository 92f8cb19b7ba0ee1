"""Who reads what as rows, and the structured comments that carry what a format has no place for.

Values only. `grants/formats/exchange.py` has the formats; all of them ask here, so that all refuse the same.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from grants.formats.expiry import spelled_until
from grants.model import USE_CATALOG, USE_SCHEMA, PrincipalKind, Securable, folded
from pipeline.base.errors import Refused
from pipeline.base.problems import shown

MARK: Final = "turnout:"
"""Begins a comment that holds the terms of the statement below it."""

_TERMS: Final = ("principal", "kind", "game", "until", "reason", "ticket")
KEPT: Final = "kept"
"""The term of privileges that stand in a file though turnout does not give them."""

_RISKY: Final = frozenset("`;$")  # tools that look for these do not know what a comment is


@dataclass(frozen=True, slots=True)
class ReadRow:
    """One principal may read one game.

    Raises:
        Refused: a text is empty or holds NUL or half a surrogate pair, the key can be no table's name, or `until` is
            outside of the calendar.
    """

    principal: str
    kind: PrincipalKind | None  # None: nobody said
    key: str  # the game key
    game: str  # its name
    until: int | None  # Unix seconds; None: for good
    reason: str
    ticket: str | None

    def __post_init__(self) -> None:
        Securable((self.key,))
        for what, text in (("principal", self.principal), ("reason", self.reason), ("ticket", self.ticket)):
            if text is not None and not text.strip():
                raise Refused(f"A grant of {shown(self.game)} has an empty {what}; give one.")
        for text in (self.principal, self.game, self.reason, self.ticket or ""):
            if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
                raise Refused(f"{shown(text)} contains a character that no file can carry; correct it at its source.")
        if self.until is not None:
            spelled_until(self.until)

    @property
    def order(self) -> tuple[str, str]:
        """What rows are sorted by, and what no two of a file have in common: the principal without case, the key."""
        return folded(self.principal), self.key


def in_order(rows: Iterable[ReadRow]) -> list[ReadRow]:
    """Return rows sorted, each once.

    Raises:
        Refused: two rows of one principal and game differ, or a principal is spelled in two ways or has two kinds.
    """
    by_cell: dict[tuple[str, str], ReadRow] = {}
    who: dict[str, ReadRow] = {}
    for row in rows:
        one, other = row, who.setdefault(folded(row.principal), row)
        if (one.principal, one.kind) != (other.principal, other.kind):
            both = f"{shown(one.principal)} ({one.kind}) and {shown(other.principal)} ({other.kind})"
            raise Refused(f"{both} are one principal; use one spelling and one kind.")
        if by_cell.setdefault(row.order, row) != row:
            raise Refused(f"{shown(row.game)} for {shown(row.principal)} appears twice with different terms; keep one.")
    return [by_cell[order] for order in sorted(by_cell)]


def uses(schema: Securable) -> dict[Securable, str]:
    """Return what reading a table of a schema needs beside SELECT, outermost first."""
    return {Securable(schema.path[:1]): USE_CATALOG, schema: USE_SCHEMA}


def quoted(text: str) -> str:
    r"""Return a text in double quotes as both YAML and HCL read it; what cannot be seen is written as \u or \U."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def comment(row: ReadRow | None, kept: Iterable[str] = ()) -> str:
    """Return the text of a structured comment, always one line: a row's terms, privileges that turnout only keeps."""
    terms: dict[str, Any] = {}
    if row is not None:
        until = None if row.until is None else spelled_until(row.until)
        values = (row.principal, row.kind, row.game, until, row.reason, row.ticket)
        terms = {name: value for name, value in zip(_TERMS, values, strict=True) if value is not None}
    if kept:
        terms[KEPT] = sorted(kept)
    text = json.dumps(terms, ensure_ascii=False)
    return f"{MARK} " + "".join(json.dumps(c)[1:-1] if not c.isprintable() else _hidden(c) for c in text)


def _hidden(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in _RISKY else char


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
