"""What should be in the workspace: the bundle, a job for each group, and built files in the place of local paths."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.bundle import Bundle, Resource, load_bundle
from pipeline.store.database.ownership import OWNER, USERS

_TEMPLATE: Final = ("jobs", "group")
_GROUP: Final = "group_"  # how the keys of its copies begin
_DATABASE: Final = "postgres_databases.store"
_APP: Final = "apps.dashboard"
_PRINCIPAL: Final = "service_principal_client_id"


@dataclass(frozen=True, slots=True)
class Built:
    """What `turnout deploy build` made."""

    files: tuple[Path, ...]
    wheel: Path
    version: str  # with the hash of the content


def desired(
    folder: Path, target: str | None, given: Mapping[str, str], groups: Iterable[str], built: Built | None
) -> tuple[Bundle, list[Resource]]:
    """Return the bundle, and everything that it wants for these groups.

    Without `built` files the local paths stay, as for a plan that only looks.

    Raises:
        Refused: see `load_bundle`.
    """
    bundle = load_bundle(folder, target, given)
    wanted = [each for each in bundle.resources if (each.kind, each.key) != _TEMPLATE]
    wanted = [_with_content(each, bundle.root_path) for each in wanted]
    wanted = [_folder(bundle), *wanted, *_store_roles(bundle)]
    names = sorted({bundle.variables.get("group", "main"), *groups})
    for name in names:
        of_group = load_bundle(folder, target, {**given, "group": name})
        wanted += [
            replace(each, key=f"{_GROUP}{name}") for each in of_group.resources if (each.kind, each.key) == _TEMPLATE
        ]
    if built is None:
        return bundle, wanted
    content = built.version.rpartition("+")[2]
    place = f"{bundle.root_path}/files/{content}"
    wanted = [replace(each, definition=_with_files(each.definition, place, built)) for each in wanted]
    files = [Resource("files", f"{content}/{path.name}", _file(path, place)) for path in built.files]
    return bundle, [wanted[0], *files, *wanted[1:]]


def group_of(address: str) -> str | None:
    """Return the group whose job has this address, None where it is another thing."""
    kind, _, key = address.partition(".")
    return key.removeprefix(_GROUP) if kind == _TEMPLATE[0] and key.startswith(_GROUP) else None


def _folder(bundle: Bundle) -> Resource:
    """Return the target's folder: only admins write there, and those who run what is in it read."""
    readers = [bundle.variables[each] for each in ("drivers", "controller") if each in bundle.variables]
    permissions = [{"level": "CAN_MANAGE", "group_name": bundle.variables.get("admins", "admins")}]
    permissions += [{"level": "CAN_READ", "service_principal_name": each} for each in dict.fromkeys(readers)]
    return Resource("folders", "root", {"path": bundle.root_path, "permissions": permissions})


def _file(path: Path, place: str) -> dict[str, str]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"path": f"{place}/{path.name}", "local": str(path), "sha256": digest}


def _with_content(resource: Resource, root_path: str) -> Resource:
    """Return a dashboard with the text of its file, in the target's folder; another resource as it is."""
    if resource.kind != "dashboards":
        return resource
    definition = {"parent_path": f"{root_path}/resources", **resource.definition}
    path = Path(definition.pop("file_path"))
    try:
        content = path.read_text("utf-8")
        json.loads(content)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}, which {resource.address} in the bundle names, is no JSON: {error}.") from error
    return replace(resource, definition={**definition, "serialized_dashboard": content})


def _store_roles(bundle: Bundle) -> list[Resource]:
    """Return who is a member of which role of the control store: see docs/deploy/lakebase.md."""
    there = {each.address: each.definition for each in bundle.resources}
    if _DATABASE not in there:
        return []
    users = [bundle.variables["drivers"], *([_reference(_APP, _PRINCIPAL)] if _APP in there else [])]
    definition = {
        "endpoint": f"{there[_DATABASE]['parent']}/endpoints/primary",
        "database": there[_DATABASE]["postgres_database"],
        "members": {OWNER: [bundle.variables["controller"]], USERS: users},
        "needs": [_reference(each, "id") for each in there if each == _DATABASE or each.startswith("postgres_roles.")],
    }
    return [Resource("store_roles", "members", definition)]


def _reference(address: str, field: str) -> str:
    return f"${{resources.{address}.{field}}}"


def _with_files(value: Any, place: str, built: Built) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(key, each, place, built) for key, each in value.items()}
    return [_with_files(each, place, built) for each in value] if isinstance(value, list) else value


def _replaced(key: str, value: Any, place: str, built: Built) -> Any:
    if key == "whl" and isinstance(value, str) and "*" in value:
        return f"{place}/{built.wheel.name}"
    if key == "source_code_path":
        return place
    return _with_files(value, place, built)
