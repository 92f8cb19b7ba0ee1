"""Rows as Terraform's `databricks_grant` resources.

Such a resource leaves other principals alone, but takes from its own principal, on its own securable, whatever it does
not name. So there is one per pair, and it names the privileges turnout does not give as well: those are *kept*.
"""

import re
import unicodedata
from base64 import b32encode
from collections.abc import Iterable, Mapping
from hashlib import sha256

from grants.formats.rows import ReadRow, comment, in_order, quoted, uses
from grants.model import SELECT, Securable, folded
from pipeline.base.errors import Refused
from pipeline.base.problems import shown

Direct = Mapping[Securable, Mapping[str, frozenset[str]]]
"""Securable → principal → privileges, as `grants.model.Observed` has them."""


def render_terraform(rows: Iterable[ReadRow], schema: Securable, direct: Direct | None = None) -> str:
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
    blocks = ["# Read access to games, exported by turnout.\n"]
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
