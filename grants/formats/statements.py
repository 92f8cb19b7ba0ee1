"""What the statements of a file amount to: rows, or sentences with line numbers. Values only.

A file says exactly what its rows say, or it is refused: nothing in it is dropped, nothing is added.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grants.formats.expiry import parse_until
from grants.formats.problems import Problems, shown
from grants.formats.rows import KEPT, MARK, Row, in_order
from grants.model import SELECT, USE_CATALOG, USE_SCHEMA, PrincipalKind, Securable, folded, spelled
from pipeline.errors import Refused


@dataclass(frozen=True, slots=True)
class Statement:
    """These privileges on this securable for this principal."""

    line: int
    securable: Securable
    principal: str
    privileges: Sequence[str]
    terms: Mapping[str, Any] = field(default_factory=dict)  # of the comment above it; empty where there is none


def uses(schema: Securable) -> dict[Securable, str]:
    """Return what reading a table of a schema needs beside SELECT, outermost first."""
    return {Securable(schema.path[:1]): USE_CATALOG, schema: USE_SCHEMA}


def rows_of(
    statements: Iterable[Statement], schema: Securable, known_games: Mapping[str, str], problems: Problems
) -> list[Row]:
    """Return the rows that statements amount to, sorted; what says more, less or something else is a problem."""
    lines: dict[tuple[Securable, str], int] = {}
    rows: list[tuple[int, Row]] = []
    for each in statements:
        if not _understood(each, schema, problems):
            continue
        place = each.securable, folded(each.principal)
        if place in lines:
            problem = f"{each.securable.full_name} for {shown(each.principal)} stands in line {lines[place]} already"
            problems.add(each.line, f"{problem}; keep one")
            continue
        lines[place] = each.line
        row = _row(each, known_games, problems) if each.securable.parent == schema else None
        if row is not None:
            rows.append((each.line, row))
    _paired(lines, schema, problems)
    return _agreed(rows, problems)


def _understood(statement: Statement, schema: Securable, problems: Problems) -> bool:
    """Tell whether it is a statement turnout makes; where not that is a problem."""
    on = f"{statement.securable.type} {statement.securable.full_name}"
    is_table = statement.securable.parent == schema
    privilege = SELECT if is_table else uses(schema).get(statement.securable)
    if privilege is None:
        problems.add(statement.line, f"{on} is neither a game's table in {schema.full_name} nor what that lies in")
        return False
    kept = {spelled(each) for each in statement.terms.get(KEPT, [])}
    if sorted(map(spelled, statement.privileges)) != sorted({privilege, *kept}):
        given = ", ".join(statement.privileges) or "nothing"
        problems.add(statement.line, f"{shown(given)} on {on} is not what turnout gives there: {privilege} alone")
        return False
    if not is_table and statement.terms.keys() - {KEPT}:
        problems.add(statement.line, f"terms belong above SELECT on a table, not above {privilege}")
    return True


def _row(statement: Statement, known_games: Mapping[str, str], problems: Problems) -> Row | None:
    """Return the row of a SELECT; None where there is a problem."""
    terms, key = statement.terms, statement.securable.path[-1]
    if key not in known_games:
        problems.add(statement.line, f"there is no game with the key {key}")
        return None
    for name, value in (("principal", statement.principal), ("game", known_games[key])):
        if terms.get(name, value) != value:
            problem = f"the comment says {name} {shown(terms[name])} where the statement has {shown(value)}"
            problems.add(statement.line, f"{problem}; correct one of them")
            return None
    if "reason" not in terms:
        example = f"{MARK} {json.dumps({'reason': 'why'})}"
        problems.add(statement.line, f"it has no reason; give one in a comment above it, such as {example}")
        return None
    kind: PrincipalKind | None = terms.get("kind")
    try:
        until = parse_until(terms["until"]) if "until" in terms else None
        return Row(statement.principal, kind, key, known_games[key], until, terms["reason"], terms.get("ticket"))
    except Refused as refused:
        problems.add(statement.line, str(refused))
        return None


def _paired(lines: Mapping[tuple[Securable, str], int], schema: Securable, problems: Problems) -> None:
    """See that who gets SELECT gets what it needs, and the other way round."""
    readers = {who for securable, who in lines if securable.parent == schema}
    for (securable, who), line in lines.items():
        if securable.parent != schema and who not in readers:
            problems.add(line, f"{shown(who)} gets no SELECT in this file, so this gives nothing to read; leave it out")
        if securable.parent == schema:
            for outer, privilege in uses(schema).items():
                if (outer, who) not in lines:
                    problem = f"{shown(who)} gets no {privilege} on {outer.full_name} in this file, so could not read"
                    problems.add(line, f"{problem}; add it")


def _agreed(rows: Sequence[tuple[int, Row]], problems: Problems) -> list[Row]:
    """Return the rows sorted, where each principal is one thing, spelled one way."""
    first: dict[str, tuple[int, Row]] = {}
    agreed = []
    for line, row in rows:
        before, other = first.setdefault(folded(row.principal), (line, row))
        if (row.principal, row.kind) == (other.principal, other.kind):
            agreed.append(row)
        else:
            both = f"{shown(row.principal)} ({row.kind}) is {shown(other.principal)} ({other.kind}) in line {before}"
            problems.add(line, f"{both}; spell it one way, and say one kind")
    return in_order(agreed)
