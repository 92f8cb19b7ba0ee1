"""What a principal may do: privileges on a securable and above it, its own and through nested groups."""

import sqlite3
from dataclasses import dataclass

from grants.model import ALL_PRIVILEGES, BROWSE, MANAGE, SELECT, USE_CATALOG, USE_SCHEMA
from grants.server.calls import ApiError, Call, denied
from grants.server.rows import EVERYONE_ID

_NEVER_IMPLIED = frozenset({MANAGE, "EXTERNAL_USE_SCHEMA", "EXTERNAL_USE_LOCATION"})
_TYPES = ("catalog", "schema", "table")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a principal holds along a chain of securables, from the inside out."""

    chain: tuple[sqlite3.Row, ...]
    held: tuple[frozenset[str], ...]  # privileges granted directly on each
    owned: tuple[bool, ...]  # by oneself or one of one's groups
    admin: bool

    def holds(self, privilege: str, at: int = 0) -> bool:
        """Return whether a privilege is held at a place of the chain: there, or inherited from further out."""
        enough = {privilege} if privilege in _NEVER_IMPLIED else {privilege, ALL_PRIVILEGES}
        return any(enough & held for held in self.held[at:])

    def unusable(self) -> list[str]:
        """Return what is missing to get at the securable through what it lies in."""
        missing = []
        for at, securable in enumerate(self.chain[1:], 1):
            privilege = USE_SCHEMA if securable["parent_id"] else USE_CATALOG
            if not (self.holds(privilege, at) or self.owned[at]):
                missing.append(f"{privilege} on {type_of(securable)} {securable['full_name']!r}")
        return missing

    def unreadable(self) -> list[str]:
        """Return what is missing to read the table."""
        able = self.holds(SELECT) or self.owned[0]
        return [*([] if able else [f"SELECT on table {self.chain[0]['full_name']!r}"]), *self.unusable()]

    def administers(self) -> bool:
        """Return whether grants on the securable may be changed, and all of them seen."""
        return self.admin or any(self.owned) or (self.holds(MANAGE) and not self.unusable())

    def sees(self) -> bool:
        """Return whether the securable's own description may be seen."""
        something = any(self.held) and not self.unusable()
        return self.administers() or self.holds(BROWSE) or something


def standing(rows: sqlite3.Connection, principal: sqlite3.Row, securable: sqlite3.Row) -> Standing:
    """Return what a principal holds on a securable now."""
    selves = closure(rows, principal["id"])
    chain = chain_of(rows, securable)
    held = []
    for each in chain:
        grants = rows.execute("SELECT principal_id, privilege FROM grants WHERE securable_id = ?", (each["id"],))
        held.append(frozenset(privilege for principal_id, privilege in grants if principal_id in selves))
    owned = tuple(each["owner_id"] in selves for each in chain)
    return Standing(chain, tuple(held), owned, bool(principal["admin"]))


def closure(rows: sqlite3.Connection, principal_id: str) -> frozenset[str]:
    """Return the ids of a principal and of all groups it is in, also through groups, and of everyone."""
    parents = rows.execute(
        "WITH RECURSIVE inside (id) AS (SELECT ? UNION"
        " SELECT group_id FROM members JOIN inside ON members.member_id = inside.id) SELECT id FROM inside",
        (principal_id,),
    )
    return frozenset(row["id"] for row in parents) | {EVERYONE_ID}


def chain_of(rows: sqlite3.Connection, securable: sqlite3.Row) -> tuple[sqlite3.Row, ...]:
    """Return a securable and all it lies in, from the inside out."""
    chain = [securable]
    while chain[-1]["parent_id"]:
        parent = rows.execute("SELECT * FROM securables WHERE id = ?", (chain[-1]["parent_id"],))
        chain.append(parent.fetchone())
    return tuple(chain)


def type_of(securable: sqlite3.Row) -> str:
    """Return what a securable is, in lower case."""
    return _TYPES[securable["full_name"].count(".")]


def find(rows: sqlite3.Connection, securable_type: str, full_name: str) -> sqlite3.Row:
    """Return a securable by type and name, whatever their casing.

    Raises:
        ApiError: 400 for another type, 404 when there is none of that name.
    """
    kind = securable_type.lower()
    if kind not in _TYPES:
        raise ApiError(400, "INVALID_PARAMETER_VALUE", f"{securable_type!r} is not a known type of securable.")
    securable: sqlite3.Row | None
    securable = rows.execute("SELECT * FROM securables WHERE full_name = ?", (full_name.lower(),)).fetchone()
    if securable is None or type_of(securable) != kind:
        raise ApiError(404, f"{kind.upper()}_DOES_NOT_EXIST", f"{kind.capitalize()} {full_name!r} does not exist.")
    return securable


def require_sight(call: Call, securable: sqlite3.Row) -> None:
    """Require that the caller may see the securable."""
    if not standing(call.rows, call.caller, securable).sees():
        raise denied(f"{call.caller['name']} may not see {type_of(securable)} {securable['full_name']!r}.")


def require_administration(call: Call, securable: sqlite3.Row) -> None:
    """Require that the caller owns the securable or a parent, has MANAGE on it, or is the admin."""
    if not standing(call.rows, call.caller, securable).administers():
        raise denied(
            f"{call.caller['name']} owns neither {type_of(securable)} {securable['full_name']!r} nor a parent of it,"
            " and does not hold MANAGE on it."
        )
