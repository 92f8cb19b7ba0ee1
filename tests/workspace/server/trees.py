"""Files of the workspace's tree, and files of volumes.

`/api/2.0/workspace/...` [sdk workspace, WorkspaceAPI] has a tree of files and directories, contents in base64;
Rights on a directory [sdk iam, `directories`] hold for all below it; below /Shared everybody may write, and admins may
anywhere [doc security/auth/access-control]. What is in /Users is anybody's here.
`/api/2.0/fs/...` [sdk files, FilesAPI] has raw bytes below `/Volumes/CATALOG/SCHEMA/VOLUME`. Every volume exists.
"""

import base64
import email.utils
from email.parser import BytesParser
from typing import Any, Final
from urllib.parse import parse_qsl

from tests.workspace.server.calls import Answer, ApiError, Call, Json, denied, invalid, missing, page_of, route
from tests.workspace.server.people import is_admin
from tests.workspace.server.rights import allows

_TREE: Final = "/api/2.0/workspace"
_FS: Final = "/api/2.0/fs"
_MAX_BYTES: Final = 10_485_760  # of one imported file [sdk workspace, import_]
_MAX_PAGE: Final = 1_000


@route("POST", f"{_TREE}/import")
def import_file(call: Call) -> Json:
    """Write a file: 400 RESOURCE_ALREADY_EXISTS where it is there and `overwrite` is not true."""
    body = _form(call)
    path = _path(body.get("path"))
    _require(call, path, "CAN_EDIT")
    content = base64.b64decode(body.get("content") or "") if isinstance(body.get("content"), str) else body["content"]
    if len(content) > _MAX_BYTES:
        raise ApiError(400, "MAX_NOTEBOOK_SIZE_EXCEEDED", f"The file may have at most {_MAX_BYTES} bytes.")
    there = _node(call, path)
    if there is not None and there["object_type"] == "DIRECTORY":
        raise invalid(f"{path} is a directory.")
    if there is not None and str(body.get("overwrite", "false")).lower() != "true":
        raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Path ({path}) already exists.")
    parent = path.rpartition("/")[0]
    if parent and (_node(call, parent) or {}).get("object_type") != "DIRECTORY":
        raise missing(f"The parent folder ({parent}) does not exist.")
    if there is None:
        call.data.nodes[path] = _new(call, "FILE")
    call.data.nodes[path].update(content=content, modified_at=int(call.world.now() * 1000))
    return {}


@route("POST", f"{_TREE}/mkdirs")
def make_directories(call: Call) -> Json:
    """Make a directory with all above it; an existing directory is no error."""
    _require(call, _path(call.needed("path")), "CAN_EDIT")
    parts = _path(call.needed("path")).strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        path = "/" + "/".join(parts[:depth])
        if (_node(call, path) or {"object_type": "DIRECTORY"})["object_type"] != "DIRECTORY":
            raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Path ({path}) already exists, and is no directory.")
        made = call.data.nodes.setdefault(path, _new(call, "DIRECTORY"))
        call.data.acls.setdefault(f"directories/{made['object_id']}", {})
    return {}


@route("POST", f"{_TREE}/delete")
def delete(call: Call) -> Json:
    """Delete a file, or a directory: with something in it only where `recursive` is true."""
    path = _path(call.needed("path"))
    _require(call, path, "CAN_MANAGE")
    _found(call, path)
    inside = [each for each in call.data.nodes if each.startswith(f"{path}/")]
    if inside and not call.body.get("recursive"):
        raise ApiError(400, "DIRECTORY_NOT_EMPTY", f"Folder ({path}) is not empty.")
    for each in [path, *inside]:
        call.data.nodes.pop(each, None)
    return {}


@route("GET", f"{_TREE}/get-status")
def status(call: Call) -> Json:
    """Return what lies at a path, without its content."""
    path = _path(call.query.get("path"))
    _require(call, path, "CAN_READ")
    return _shown(path, _found(call, path))


@route("GET", f"{_TREE}/list")
def listed(call: Call) -> Json:
    """List a directory; nothing in it is no field at all."""
    path = _path(call.query.get("path"))
    _require(call, path, "CAN_READ")
    _found(call, path)
    prefix = path.rstrip("/") + "/"
    inside = [each for each in sorted(call.data.nodes) if each.startswith(prefix) and "/" not in each[len(prefix) :]]
    return {"objects": [_shown(each, call.data.nodes[each]) for each in inside]} if inside else {}


@route("GET", f"{_TREE}/export")
def export(call: Call) -> Json | Answer:
    """Return a file's content, in base64 or, with `direct_download`, as it is."""
    path = _path(call.query.get("path"))
    _require(call, path, "CAN_READ")
    node = _found(call, path)
    if node["object_type"] == "DIRECTORY":
        raise invalid(f"{path} is a directory: only files are exported here.")
    if call.says("direct_download"):
        return Answer(200, node["content"], {"Content-Type": "application/octet-stream"})
    return {"content": base64.b64encode(node["content"]).decode(), "file_type": path.rpartition(".")[2]}


def files_below(nodes: dict[str, Json], path: str) -> dict[str, bytes]:
    """Return all files below a directory of the tree, by their paths from there."""
    prefix = path.removeprefix("/Workspace").rstrip("/") + "/"
    return {
        each[len(prefix) :]: node["content"]
        for each, node in nodes.items()
        if each.startswith(prefix) and node["object_type"] == "FILE"
    }


@route("PUT", f"{_FS}/files/{{path*}}")
def write_volume_file(call: Call) -> Answer:
    """Write a file of a volume, with the directories above it; `overwrite=false` keeps what is there: 409."""
    path = _volume_path(call)
    if call.query.get("overwrite", "false") != "true" and call.data.files.get(path) is not None:
        raise ApiError(409, "ALREADY_EXISTS", f"The file {path} already exists.")
    call.data.files[path] = call.raw
    return Answer(204, b"")


@route("GET", f"{_FS}/files/{{path*}}")
@route("HEAD", f"{_FS}/files/{{path*}}")
def read_volume_file(call: Call) -> Answer:
    """Return a file of a volume, or its size and time alone."""
    content = call.data.files.get(path := _volume_path(call))
    if content is None:
        raise missing(f"The file {path} was not found.")
    stamp = email.utils.formatdate(usegmt=True)
    return Answer(200, content, {"Content-Type": "application/octet-stream", "Last-Modified": stamp})


@route("DELETE", f"{_FS}/files/{{path*}}")
def delete_volume_file(call: Call) -> Answer:
    """Delete a file of a volume."""
    path = _volume_path(call)
    if call.data.files.get(path) is None:
        raise missing(f"The file {path} was not found.")
    del call.data.files[path]
    return Answer(204, b"")


@route("PUT", f"{_FS}/directories/{{path*}}")
def make_volume_directory(call: Call) -> Answer:
    """Make a directory; an existing directory is no error [sdk files, create_directory]."""
    call.data.files.setdefault(_volume_path(call), None)
    return Answer(204, b"")


@route("GET", f"{_FS}/directories/{{path*}}")
def list_volume_directory(call: Call) -> Json:
    """List a directory of a volume, page by page."""
    path = _volume_path(call)
    inside: dict[str, Json] = {}
    for each, content in sorted(call.data.files.items()):
        if not each.startswith(f"{path}/"):
            continue
        name, _, deeper = each[len(path) + 1 :].partition("/")
        size = {} if deeper or content is None else {"file_size": len(content)}
        inside[name] = {"path": f"{path}/{name}", "name": name, "is_directory": not size, **size}
    if not inside:
        _require_directory(call, path)
    size_of_page = min(call.number("page_size", _MAX_PAGE) or _MAX_PAGE, _MAX_PAGE)
    shown, following, _ = page_of(list(inside.values()), size_of_page, call.query.get("page_token"))
    return {"contents": shown, **({"next_page_token": following} if following else {})}


@route("HEAD", f"{_FS}/directories/{{path*}}")
def see_volume_directory(call: Call) -> Answer:
    """Say whether a directory exists."""
    _require_directory(call, _volume_path(call))
    return Answer(200, b"")


@route("DELETE", f"{_FS}/directories/{{path*}}")
def delete_volume_directory(call: Call) -> Answer:
    """Delete a directory that is empty."""
    path = _volume_path(call)
    _require_directory(call, path)
    if any(each.startswith(f"{path}/") for each in call.data.files):
        raise ApiError(400, "DIRECTORY_IS_NOT_EMPTY", f"The directory {path} is not empty.")
    call.data.files.pop(path, None)
    return Answer(204, b"")


def _require_directory(call: Call, path: str) -> None:
    is_volume = len(path.strip("/").split("/")) == 4
    is_there = path in call.data.files and call.data.files[path] is None
    if not (is_volume or is_there or any(each.startswith(f"{path}/") for each in call.data.files)):
        raise missing(f"The directory {path} was not found.")


def _volume_path(call: Call) -> str:
    path = "/" + call.parts["path"].strip("/")
    if not path.startswith("/Volumes/") or len(path.strip("/").split("/")) < 4 or "/../" in f"{path}/":
        raise invalid(f"{path} is no path of a volume: /Volumes/CATALOG/SCHEMA/VOLUME/...")
    return path


def _form(call: Call) -> dict[str, Any]:
    """Return an import's fields: of JSON, or of a form, as the SDK's `upload` sends them [sdk mixins/workspace.py]."""
    kind = call.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return dict(parse_qsl(call.raw.decode())) if "urlencoded" in kind else call.body
    message = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + call.raw)
    fields: dict[str, Any] = {}
    for part in message.walk():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            fields[name] = payload if name == "content" else payload.decode()
    return fields


def _path(value: object) -> str:
    """Return a path of the tree; `/Workspace` before it is the same place."""
    if not isinstance(value, str) or not value.startswith("/") or "//" in value:
        raise invalid(f"Path ({value}) should start with '/'.")
    return value.removeprefix("/Workspace").rstrip("/") or "/"


def _node(call: Call, path: str) -> Json | None:
    return _root() if path in {"/", "/Users", "/Shared"} else call.data.nodes.get(path)


def _found(call: Call, path: str) -> Json:
    found = _node(call, path)
    if found is None:
        raise missing(f"Path ({path}) doesn't exist.")
    return found


def _require(call: Call, path: str, level: str) -> None:
    """Let only those go on who have a level on a place, or on a directory above it."""
    if is_admin(call.data, call.who) or f"{path}/".startswith(("/Shared/", "/Users/")):
        return
    parts = path.split("/")
    above = ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]
    numbers = [call.data.nodes[each]["object_id"] for each in above if each in call.data.nodes]
    if not any(allows(call.data, call.who, "directories", number, level) for number in numbers):
        raise denied(f"{call.who['name']} does not have {level} permissions on {path}.")


def _root() -> Json:
    return {"object_type": "DIRECTORY", "object_id": 1, "created_at": 0, "modified_at": 0, "content": b""}


def _new(call: Call, kind: str) -> Json:
    now = int(call.world.now() * 1000)
    number = call.world.next_number()
    return {"object_type": kind, "object_id": number, "created_at": now, "modified_at": now, "content": b""}


def _shown(path: str, node: Json) -> Json:
    size = {"size": len(node["content"])} if node["object_type"] == "FILE" else {}
    return {"path": path, **{key: value for key, value in node.items() if key != "content"}, **size}
