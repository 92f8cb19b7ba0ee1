"""Grants: who has what on a securable, directly or inherited, and how it is given and taken."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from grants.model import KNOWN, USE_CATALOG, USE_SCHEMA, folded, spelled
from grants.server.calls import Call, as_list, as_text, invalid
from grants.server.paging import page
from grants.server.rights import chain_of, find, require_administration, standing, type_of
from grants.server.securables import principal_named

_ONLY_ON: Final = {
    USE_CATALOG: {"catalog"},
    USE_SCHEMA: {"catalog", "schema"},
    "CREATE_SCHEMA": {"catalog"},
    "CREATE_TABLE": {"catalog", "schema"},
}


def assignments(call: Call) -> Mapping[str, Any]:
    """Return the direct grants on a securable: all to those who may change them, to others their own."""
    return _as_json(call, inherited=False)


def effective(call: Call) -> Mapping[str, Any]:
    """Return likewise what holds on a securable by grants on it and on what it lies in."""
    return _as_json(call, inherited=True)


def change(call: Call) -> Mapping[str, Any]:
    """Give and take privileges, principal by principal; what came before a change that fails stays done."""
    securable = _found(call)
    require_administration(call, securable)
    for each in as_list(call.body.get("changes"), "changes", dict):
        add, remove = (
            _privileges(as_list(each.get(verb), verb, str), type_of(securable)) for verb in ("add", "remove")
        )
        if add & remove:
            raise invalid(f"Duplicate privileges to add and delete: {', '.join(sorted(add & remove))}.")
        principal = principal_named(call.rows, as_text(each.get("principal"), "principal"))
        _apply(call.rows, securable["id"], principal["id"], add, remove)
        call.commit()
    return assignments(call)


def _found(call: Call) -> sqlite3.Row:
    return find(call.rows, call.path["securable_type"], call.path["full_name"])


def _privileges(names: Iterable[str], securable_type: str) -> set[str]:
    privileges = {spelled(name) for name in names}
    for each in sorted(privileges):
        if each not in KNOWN:
            raise invalid(f"{each!r} is no privilege.")
        if securable_type not in _ONLY_ON.get(each, {securable_type}):
            raise invalid(f"Privilege {each} is not applicable to this entity: a {securable_type}.")
    return privileges


def _apply(rows: sqlite3.Connection, securable_id: str, principal_id: str, add: set[str], remove: set[str]) -> None:
    rows.executemany(
        "INSERT INTO grants VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(securable_id, principal_id, privilege) for privilege in sorted(add)],
    )
    rows.executemany(
        "DELETE FROM grants WHERE securable_id = ? AND principal_id = ? AND privilege = ?",
        [(securable_id, principal_id, privilege) for privilege in sorted(remove)],
    )


def _as_json(call: Call, *, inherited: bool) -> Mapping[str, Any]:
    """Return the grants that the caller may see, one entry per principal."""
    if 0 < call.number("max_results", 0) < 150:
        raise invalid("max_results must be 0, or 150 and more.")
    securable = _found(call)
    places = chain_of(call.rows, securable) if inherited else (securable,)
    everything = standing(call.rows, call.caller, securable).administers()
    held: dict[str, list[Any]] = {}
    for place in places:
        for principal_id, privilege in _held(call, place):
            if everything or principal_id == call.caller["id"]:
                source = {} if place is securable else _source(place)
                held.setdefault(principal_id, []).append({"privilege": privilege, **source} if inherited else privilege)
    names = {principal_id: _name(call.rows, principal_id) for principal_id in held}
    wanted = call.query.get("principal")
    keys = sorted(key for key in held if wanted is None or folded(names[key]) == folded(wanted))
    shown, more = page(call, keys)
    listed = [{"principal": names[key], "privileges": held[key]} for key in shown]
    return {**({"privilege_assignments": listed} if listed else {}), **more}


def _held(call: Call, securable: sqlite3.Row) -> list[tuple[str, str]]:
    """Return (principal id, privilege) of all grants on a securable."""
    query = "SELECT principal_id, privilege FROM grants WHERE securable_id = ? ORDER BY principal_id, privilege"
    return [(row["principal_id"], row["privilege"]) for row in call.rows.execute(query, (securable["id"],))]


def _source(place: sqlite3.Row) -> dict[str, str]:
    return {"inherited_from_type": type_of(place).upper(), "inherited_from_name": place["full_name"]}


def _name(rows: sqlite3.Connection, principal_id: str) -> str:
    """Return a principal's name; empty after its deletion."""
    row = rows.execute("SELECT name FROM principals WHERE id = ?", (principal_id,)).fetchone()
    return row["name"] if row else ""
