"""Makes people and groups in the embedded catalog, where no identity provider brings them."""

from collections.abc import Mapping, Sequence
from typing import Any

from grants.catalogs.databricks import SCIM
from grants.catalogs.embedded import Embedded
from grants.catalogs.rest import Rest, text_of
from grants.model import folded


def add(catalog: Embedded, name: str, groups: Sequence[str]) -> None:
    """Make a user, and put them into groups, which are made where they are missing; twice is once.

    Raises:
        Refused: the name cannot be one.
        CatalogUnavailable: the catalog cannot be reached.
    """
    rest = catalog.rest
    user = _find(rest, "Users", "userName", name) or rest.write("POST", f"{SCIM}/Users", {"userName": name})
    for group in groups:
        in_catalog = _find(rest, "Groups", "displayName", group)
        in_catalog = in_catalog or rest.write("POST", f"{SCIM}/Groups", {"displayName": group})
        if any(each.get("value") == user["id"] for each in in_catalog.get("members") or ()):
            continue
        member = {"op": "add", "path": "members", "value": [{"value": user["id"]}]}
        rest.write("PATCH", f"{SCIM}/Groups/{text_of(in_catalog, 'id')}", {"Operations": [member]})


def _find(rest: Rest, kind: str, field: str, name: str) -> Mapping[str, Any] | None:
    return next(
        (each for each in rest.resources(f"{SCIM}/{kind}") if folded(str(each.get(field))) == folded(name)), None
    )
