"""Permissions of jobs, apps and others that the Permissions API knows, as a bundle writes them.

A PUT without exactly one owner is refused ("The job must have exactly one owner.", databricks/cli#4466): the owner that
is there stays. What is inherited from above is not ours.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.platforms.databricks.workspace.client import Workspace

_WHO: Final = ("user_name", "group_name", "service_principal_name")
_OWNER: Final = "IS_OWNER"
ANY_PERSON: Final = "*"
"""Value of `maker` where the workspace does not show who made a thing: several people may have, one after the other."""


def read_permissions(workspace: Workspace, thing: str, maker: str = "") -> list[dict[str, str]]:
    """Return who has what directly on a thing, such as `jobs/7`, in the shape of a bundle.

    Without its owner, and without the right that the workspace gives the maker of an app, an alert or a dashboard.
    """
    return [each for each in _read(workspace, thing) if not _is_makers(each, maker)]


def bring_permissions(workspace: Workspace, thing: str, wanted: Sequence[Mapping[str, str]], maker: str = "") -> None:
    """Let exactly these have rights on a thing, beside its owner or maker and what is inherited."""
    kept = [each for each in _read(workspace, thing) if _is_makers(each, maker)]
    entries = {
        tuple(each.get(name) for name in _WHO): {
            **{name: each[name] for name in _WHO if name in each}, "permission_level": each["level"]
        }
        for each in (*kept, *wanted)
    }  # fmt: skip
    body = {"access_control_list": list(entries.values())}
    workspace.send("PUT", f"/api/2.0/permissions/{thing}", body)


def _is_makers(entry: Mapping[str, str], maker: str) -> bool:
    is_makers = maker in {entry.get(name) for name in _WHO} or (maker == ANY_PERSON and "group_name" not in entry)
    return entry["level"] == _OWNER or (bool(maker) and entry["level"] == "CAN_MANAGE" and is_makers)


def of_others(entries: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the entries of a definition without those that `ANY_PERSON` passes over."""
    return [each for each in entries if not _is_makers(each, ANY_PERSON)]


def _read(workspace: Workspace, thing: str) -> list[dict[str, str]]:
    found = workspace.get(f"/api/2.0/permissions/{thing}")
    direct = []
    for entry in found.get("access_control_list", []):
        who = {name: str(entry[name]) for name in _WHO if entry.get(name)}
        direct += [
            {"level": str(each["permission_level"]), **who}
            for each in entry.get("all_permissions", [])
            if not each.get("inherited")
        ]
    return sorted(direct, key=lambda each: (each["level"], *(each.get(name, "") for name in _WHO)))
