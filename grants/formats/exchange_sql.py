r"""Rows as SQL that a workspace can run, and back.

Identifiers are quoted with back-ticks, inner ones doubled. What SQL has no place for stands in a comment above SELECT.
Only what is written here is read back: GRANT of what reading needs, and comments of whole lines.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from grants.formats.problems import Lines, Problems, shown
from grants.formats.rows import Row, comment, in_order, parse_comment
from grants.formats.statements import Statement, rows_of, uses
from grants.model import SELECT, Securable, folded, spelled
from pipeline.errors import Refused

_NAME: Final = r"(?:`[^`]*(?:``[^`]*)*`|\w+)"
_GRANT: Final = re.compile(
    rf"GRANT\s+(?P<privilege>USE\s+CATALOG|USE\s+SCHEMA|SELECT)\s+ON\s+(?P<type>CATALOG|SCHEMA|TABLE)\s+"
    rf"(?P<path>{_NAME}(?:\s*\.\s*{_NAME}){{0,2}})\s+TO\s+(?P<principal>{_NAME})\s*(?:;|\Z)",
    re.IGNORECASE | re.ASCII,
)
_SPACE: Final = re.compile(r"\s+", re.ASCII)
_COMMENT: Final = re.compile(r"--([^\r\n]*)")
_REST: Final = re.compile(r"[^;]*(?:;|\Z)")


def quoted_name(name: str) -> str:
    """Return an identifier or principal in back-ticks, as Databricks SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def grant(privilege: str, securable: Securable, principal: str) -> str:
    """Return one GRANT statement with its semicolon."""
    path = ".".join(map(quoted_name, securable.path))
    words = privilege.replace("_", " ")
    return f"GRANT {words} ON {securable.type.upper()} {path} TO {quoted_name(principal)};"


def render_sql(rows: Iterable[Row], schema: Securable) -> str:
    """Return the statements of rows whose tables lie in a schema: USE_* of everybody first, each once.

    Raises:
        Refused: rows contradict each other.
    """
    ordered = in_order(rows)
    names = {folded(row.principal): row.principal for row in ordered}
    lines = ["-- Who may read which game, written by turnout; `turnout grants import` reads it back."]
    lines += [grant(privilege, outer, name) for outer, privilege in uses(schema).items() for name in names.values()]
    for row in ordered:
        lines.append(f"-- {comment(row)}")
        lines.append(grant(SELECT, Securable((*schema.path, row.key)), row.principal))
    return "\n".join(lines) + "\n"


def parse(text: str, schema: Securable, known_games: Mapping[str, str]) -> list[Row]:
    """Return the rows of such statements, sorted; `known_games` maps the keys of the inventory to names.

    Raises:
        Refused: naming everything that is not understood, each with its line.
    """
    problems = Problems("the SQL")
    rows = rows_of(_statements(text, problems), schema, known_games, problems)
    problems.refuse()
    return rows


def _statements(text: str, problems: Problems) -> list[Statement]:
    statements, lines = [], Lines(text)
    position, terms, terms_line = 0, None, 0
    while position < len(text):
        line = lines.at(position)
        if match := _SPACE.match(text, position):
            pass
        elif match := _COMMENT.match(text, position):
            if match[1].endswith("\\"):
                problems.add(
                    line, "the comment ends with a backslash, which makes the next line part of it; take it away"
                )
            read = parse_comment(match[1], line, problems)
            if read is not None and terms is not None:
                problems.add(terms_line, "the terms of this comment belong to no statement")
            if read is not None:
                terms, terms_line = read, line
        elif match := _GRANT.match(text, position):
            statement = _statement(match, line, terms or {}, problems)
            statements += [statement] if statement is not None else []
            terms = None
        else:
            match = _REST.match(text, position)
            assert match is not None
            problem = f"{shown(' '.join(match[0].split()))} is not understood"
            problems.add(line, f"{problem}; only GRANT of USE CATALOG, USE SCHEMA and SELECT is read")
            terms = None
        position = match.end()
    if terms is not None:
        problems.add(terms_line, "the terms of this comment belong to no statement")
    return statements


def _statement(match: re.Match[str], line: int, terms: Mapping[str, Any], problems: Problems) -> Statement | None:
    path = tuple(map(_unquoted, re.findall(_NAME, match["path"], re.ASCII)))
    try:
        securable = Securable(path)
    except Refused as refused:
        problems.add(line, str(refused))
        return None
    if securable.type != match["type"].lower():
        problems.add(line, f"{securable.full_name} is a {securable.type} by its name, not a {match['type'].lower()}")
        return None
    principal = _unquoted(match["principal"])
    privilege = spelled(" ".join(match["privilege"].split()))
    return Statement(line, securable, principal, (privilege,), terms)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
