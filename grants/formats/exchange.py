"""Who reads what as a file: YAML (the policy's own format), SQL, Terraform.

Texts; files are the caller's. What a format has no place for stands in comments.
"""

from collections.abc import Iterable
from typing import Final, Literal, get_args

from grants.formats import exchange_sql, exchange_terraform, policy
from grants.formats.exchange_terraform import Direct
from grants.formats.expiry import spelled_until
from grants.formats.rows import ReadRow, in_order, quoted
from grants.model import EVERYONE, Securable, folded
from pipeline.base.errors import Refused
from pipeline.base.names import parted_table_key
from pipeline.base.yaml_nodes import MAX_BYTES

__all__ = ["FORMATS", "Format", "ReadRow", "render_rows", "render_yaml"]

Format = Literal["yaml", "sql", "terraform"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def render_rows(form: Format, rows: Iterable[ReadRow], schema: Securable, direct: Direct | None = None) -> str:
    """Return rows in a format; `schema` is the one that all tables of games lie in.

    `direct` is what the catalog was read to hold: Terraform needs it, or it would take other privileges away.

    Raises:
        Refused: rows contradict each other, or the format cannot carry them.
    """
    if form == "yaml":
        return render_yaml(rows)
    if form == "sql":
        return exchange_sql.render_sql(rows, schema)
    return exchange_terraform.render_terraform(rows, schema, direct)


def render_yaml(rows: Iterable[ReadRow], max_days: int = policy.MAX_DAYS) -> str:
    """Return a policy of rows; what shares its terms and its games is one entry. Games stand there by their keys.

    Raises:
        Refused: rows contradict each other, or the policy would be longer than can be read.
    """
    ordered = in_order(rows)
    everyone = any(folded(row.principal) == EVERYONE for row in ordered)
    lines = [f"version: {policy.VERSION}", f"allow_everyone: {str(everyone).lower()}", f"max_days: {max_days}"]
    lines.append("grants:" if ordered else "grants: []")
    for principals, games in _shared(ordered):
        lines.append("  - principals:")
        for row in principals:
            kind = f"{row.kind}: " if row.kind is not None else ""
            lines.append(f"      - {kind}{quoted(row.principal)}")
        parts = [(row, parted_table_key(row.key)) for row in games]
        by_game = [f"      - {quoted(row.key)} # {quoted(row.game)}" for row, part in parts if part is None]
        derived = [f"      - {quoted(part[1])} # {quoted(row.game)}" for row, part in parts if part is not None]
        lines += ["    games:", *by_game] if by_game else []
        lines += ["    derived:", *derived] if derived else []
        terms = games[0]
        if terms.until is not None:
            lines.append(f"    until: {spelled_until(terms.until)}")
        lines.append(f"    reason: {quoted(terms.reason)}")
        if terms.ticket is not None:
            lines.append(f"    ticket: {quoted(terms.ticket)}")
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MAX_BYTES:
        problem = f"The policy would have {len(text.encode()):,} bytes; the limit is {MAX_BYTES:,}"
        raise Refused(f"{problem}; export fewer games or principals, or SQL or Terraform.")
    return text


def _shared(rows: Iterable[ReadRow]) -> list[tuple[list[ReadRow], list[ReadRow]]]:
    """Return (a row per principal, a row per game) of each entry: all of the ones read all of the others."""
    by_terms: dict[tuple[int | None, str, str | None, str], list[ReadRow]] = {}
    for row in rows:
        by_terms.setdefault((row.until, row.reason, row.ticket, row.principal), []).append(row)
    entries: dict[tuple[int | None, str, str | None, tuple[str, ...]], tuple[list[ReadRow], list[ReadRow]]] = {}
    for (until, reason, ticket, _), games in by_terms.items():
        keys = tuple(row.key for row in games)
        entries.setdefault((until, reason, ticket, keys), ([], games))[0].append(games[0])
    return list(entries.values())
