"""Rows as SQL that a workspace can run.

Identifiers are quoted with back-ticks, inner ones doubled. What SQL has no place for stands in a comment above SELECT.
"""

from collections.abc import Iterable

from grants.formats.rows import ReadRow, comment, in_order, uses
from grants.model import SELECT, Securable, folded


def quoted_name(name: str) -> str:
    """Return an identifier or principal in back-ticks, as Databricks SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def grant(privilege: str, securable: Securable, principal: str) -> str:
    """Return one GRANT statement with its semicolon."""
    path = ".".join(map(quoted_name, securable.path))
    words = privilege.replace("_", " ")
    return f"GRANT {words} ON {securable.type.upper()} {path} TO {quoted_name(principal)};"


def render_sql(rows: Iterable[ReadRow], schema: Securable) -> str:
    """Return the statements of rows whose tables lie in a schema: USE_* of everybody first, each once.

    Raises:
        Refused: rows contradict each other.
    """
    ordered = in_order(rows)
    names = {folded(row.principal): row.principal for row in ordered}
    lines = ["-- Read access to games, exported by turnout."]
    lines += [grant(privilege, outer, name) for outer, privilege in uses(schema).items() for name in names.values()]
    for row in ordered:
        lines.append(f"-- {comment(row)}")
        lines.append(grant(SELECT, Securable((*schema.path, row.key)), row.principal))
    return "\n".join(lines) + "\n"
