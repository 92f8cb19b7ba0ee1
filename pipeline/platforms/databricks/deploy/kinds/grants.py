"""Unity Catalog's grants on what a deployment makes, as a bundle writes them: a principal's privilege is one value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipeline.platforms.databricks.workspace.client import Workspace

_API: Final = "/api/2.1/unity-catalog/permissions"

READABLE: Final = ("BROWSE", "EXECUTE", "READ_VOLUME", "SELECT", "USE_SCHEMA")
"""Privileges that only let people read; `turnout grants` and the dashboard give them."""


def flat(grants: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return grants as a list of single privileges, spelled as the API does."""
    pairs = {
        (str(each["principal"]), str(privilege).upper().replace(" ", "_"))
        for each in grants
        for privilege in each.get("privileges", [])
    }
    return [
        {"key": f"{principal} {privilege}", "principal": principal, "privilege": privilege}
        for principal, privilege in sorted(pairs)
    ]


def read_grants(workspace: Workspace, thing: str) -> list[dict[str, str]]:
    """Return the direct grants on a thing, such as `schema/main.games`, as `flat` does.

    Unity Catalog lists what a deleted principal held under an empty name, which nobody can revoke from.
    """
    found = workspace.listed(f"{_API}/{thing}", "privilege_assignments", {"max_results": 0})
    return flat([each for each in found if each.get("principal")])


def bring_grants(
    workspace: Workspace, thing: str, wanted: Iterable[Mapping[str, Any]], left: Sequence[str] = ()
) -> None:
    """Let exactly these privileges hold, beside those in `left`, which others give."""
    should = {(each["principal"], each["privilege"]) for each in flat(wanted)}
    holds = {(each["principal"], each["privilege"]) for each in read_grants(workspace, thing)}
    add, remove = should - holds, {each for each in holds - should if each[1] not in left}
    changes = [
        {
            "principal": principal,
            "add": sorted(privilege for who, privilege in add if who == principal),
            "remove": sorted(privilege for who, privilege in remove if who == principal),
        }
        for principal in sorted({who for who, _ in add | remove})
    ]
    if changes:
        workspace.send("PATCH", f"{_API}/{thing}", {"changes": changes})
