r"""Rows as Terraform's `databricks_grant` resources, and back.

Such a resource leaves other principals alone, but takes from its own principal, on its own securable, whatever it does
not name. So there is one per pair, and it names the privileges turnout does not give as well: those are *kept*.
"""

import re
import unicodedata
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from grants.formats.problems import Lines, Problems, shown
from grants.formats.rows import Row, comment, in_order, parse_comment, quoted
from grants.formats.statements import Statement, rows_of, uses
from grants.model import SELECT, Securable, folded
from pipeline.errors import Refused

Direct = Mapping[Securable, Mapping[str, frozenset[str]]]
"""Securable → principal → privileges, as `grants.model.Observed` has them."""

_SPACE: Final = re.compile(r"\s+", re.ASCII)
_COMMENT: Final = re.compile(r"(?:#|//)([^\r\n]*)")
_OPEN: Final = re.compile(r'resource\s+"databricks_grant"\s+"([A-Za-z_][\w-]*)"\s*\{', re.ASCII)
_STRING: Final = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_STRINGS: Final = rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*,?\s*)?\]"
_ATTRIBUTE: Final = re.compile(rf"([a-z_]+)\s*=\s*({_STRING}|{_STRINGS})", re.ASCII)
_REST: Final = re.compile(r"[^\n]*(?:\n|\Z)")
_PART: Final = re.compile(
    r"\\u(?P<short>[0-9A-Fa-f]{4})|\\U(?P<long>[0-9A-Fa-f]{8})|\\(?P<char>[nrt\"\\])|(?P<dollars>[$%]+)\{|(?P<bad>\\)"
)
_CHARS: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_ATTRIBUTES: Final = ("catalog", "schema", "table", "principal", "privileges")


def render_terraform(rows: Iterable[Row], schema: Securable, direct: Direct | None = None) -> str:
    """Return one resource for each securable and principal of rows whose tables lie in a schema.

    With `direct`, what the catalog was read to hold, the other privileges of those pairs are kept.

    Raises:
        Refused: rows contradict each other, or Terraform cannot spell a principal.
    """
    ordered = in_order(rows)
    names = {folded(row.principal): row.principal for row in ordered}
    for name in names.values():
        if unicodedata.normalize("NFC", name) != name:
            raise Refused(f"Terraform would turn {shown(name)} into another name (NFC); export it as SQL or YAML.")
    blocks = ["# Who may read which game, written by turnout; `turnout grants import` reads it back.\n"]
    for outer, privilege in uses(schema).items():
        for who, name in names.items():
            kept = _others(direct or {}, outer, who, privilege)
            note = f"# {comment(None, kept)}\n" if kept else ""
            blocks.append(note + _resource(outer, name, privilege, kept))
    for row in ordered:
        table = Securable((*schema.path, row.key))
        kept = _others(direct or {}, table, folded(row.principal), SELECT)
        blocks.append(f"# {comment(row, kept)}\n" + _resource(table, row.principal, SELECT, kept))
    return "\n".join(blocks)


def parse(text: str, schema: Securable, known_games: Mapping[str, str]) -> list[Row]:
    """Return the rows of such resources, sorted; `known_games` maps the keys of the inventory to names.

    Raises:
        Refused: naming everything that is not understood, each with its line.
    """
    problems = Problems("the Terraform file")
    rows = rows_of(_Reading(text, problems).statements(), schema, known_games, problems)
    problems.refuse()
    return rows


def _others(direct: Direct, securable: Securable, who: str, privilege: str) -> list[str]:
    granted = (privileges for name, privileges in direct.get(securable, {}).items() if folded(name) == who)
    return sorted({each for privileges in granted for each in privileges} - {privilege})


def _resource(securable: Securable, principal: str, privilege: str, kept: Iterable[str]) -> str:
    privileges = ", ".join(map(_string, [privilege, *kept]))
    return (
        f'resource "databricks_grant" "{_label(securable, principal)}" {{\n'
        f"  {securable.type:<10} = {_string(securable.full_name)}\n"
        f"  principal  = {_string(principal)}\n"
        f"  privileges = [{privileges}]\n"
        "}\n"
    )


def _label(securable: Securable, principal: str) -> str:
    """Return a resource's name: legal, readable, and another one for every other pair."""
    ascii_only = unicodedata.normalize("NFKD", principal).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", ascii_only).strip("_")[:40] or "principal"
    digest = b32encode(sha256("\0".join((*securable.path, principal)).encode()).digest()).decode().lower()[:12]
    return f"{securable.type}_{securable.path[-1]}_{slug}_{digest}"


def _string(text: str) -> str:
    r"""Return an HCL string: `${` and `%{` begin nothing, nor behind more of the same, where only \u is unambiguous."""
    return re.sub(
        r"([$%]+)\{",
        lambda match: "".join(f"\\u{ord(char):04x}" for char in match[1][:-1]) + match[1][-1] * 2 + "{",
        quoted(text),
    )


class _Reading:
    """Goes through a file from its beginning to its end."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._lines = Lines(text)
        self._position = 0
        self._labels: dict[str, int] = {}

    def statements(self) -> Iterator[Statement]:
        terms: tuple[int, dict[str, Any]] | None = None
        while self._position < len(self._text):
            line = self._lines.at(self._position)
            if self._take(_SPACE):
                continue
            if match := self._take(_COMMENT):
                read = parse_comment(match[1], line, self._problems)
                if read is not None:
                    self._unused(terms)
                    terms = (line, read)
                continue
            if match := self._take(_OPEN):
                statement = self._block(line, match[1], terms[1] if terms is not None else {})
                if statement is not None:
                    yield statement
            else:
                self._refuse_line(line)
            terms = None
        self._unused(terms)

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return match

    def _refuse_line(self, line: int) -> None:
        match = self._take(_REST)
        assert match is not None
        problem = f"{shown(match[0].strip())} is not understood"
        self._problems.add(line, f"{problem}; only databricks_grant resources with {', '.join(_ATTRIBUTES)} are read")

    def _unused(self, terms: tuple[int, object] | None) -> None:
        if terms is not None:
            self._problems.add(terms[0], "the terms of this comment belong to no resource")

    def _block(self, first: int, label: str, terms: Mapping[str, Any]) -> Statement | None:
        if label in self._labels:
            problem = f"the name {label} stands in line {self._labels[label]} already"
            self._problems.add(first, f"{problem}; Terraform wants another one")
        self._labels.setdefault(label, first)
        attributes: dict[str, tuple[str, ...] | str] = {}
        while True:
            line = self._lines.at(self._position)
            if self._take(_SPACE):
                continue
            if match := self._take(_COMMENT):
                if parse_comment(match[1], line, self._problems) is not None:
                    self._problems.add(line, "terms stand above a resource, not in it")
            elif self._text.startswith("}", self._position):
                self._position += 1
                return self._statement(first, attributes, terms)
            elif match := self._take(_ATTRIBUTE):
                self._attribute(line, match[1], match[2], attributes)
            else:
                if self._position == len(self._text):
                    self._problems.add(first, f"the resource {label} has no end")
                else:
                    self._refuse_line(line)
                if self._position == len(self._text):
                    return None

    def _attribute(self, line: int, name: str, value: str, attributes: dict[str, tuple[str, ...] | str]) -> None:
        if name not in _ATTRIBUTES:
            self._problems.add(line, f"{name} is not understood; there are {', '.join(_ATTRIBUTES)}")
        elif name in attributes:
            self._problems.add(line, f"{name} stands twice; keep one")
        elif value.startswith("[") != (name == "privileges"):
            self._problems.add(line, f"{name} must be {'a list of texts' if name == 'privileges' else 'one text'}")
        else:
            texts = tuple(self._unescaped(line, each[1:-1]) for each in re.findall(_STRING, value))
            attributes[name] = texts if name == "privileges" else texts[0]

    def _statement(
        self, line: int, attributes: Mapping[str, tuple[str, ...] | str], terms: Mapping[str, Any]
    ) -> Statement | None:
        named = [each for each in ("catalog", "schema", "table") if each in attributes]
        if len(named) != 1 or "principal" not in attributes or "privileges" not in attributes:
            self._problems.add(line, "a resource has principal, privileges and one of catalog, schema, table")
            return None
        try:
            securable = Securable(tuple(str(attributes[named[0]]).split(".")))
        except Refused as refused:
            self._problems.add(line, str(refused))
            return None
        if securable.type != named[0]:
            self._problems.add(line, f"{securable.full_name} is a {securable.type} by its name, not a {named[0]}")
            return None
        return Statement(line, securable, str(attributes["principal"]), tuple(attributes["privileges"]), terms)

    def _unescaped(self, line: int, raw: str) -> str:
        """Return what a string between its quotes says; anything that Terraform would compute is a problem."""

        def part(match: re.Match[str]) -> str:
            if code := match["short"] or match["long"]:
                if int(code, 16) <= 0x10FFFF:
                    return chr(int(code, 16))
            elif char := match["char"]:
                return _CHARS[char]
            elif (dollars := match["dollars"]) in {"$$", "%%"}:
                return dollars[0] + "{"
            self._problems.add(line, f"{shown(match[0])} is computed by Terraform or no text; write it out")
            return ""

        return _PART.sub(part, raw)
