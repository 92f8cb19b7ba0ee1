"""Lakebase: projects, branches, endpoints, roles, databases, credentials [sdk postgres; cli testserver/postgres.go].

A database credential belongs to whoever sent the request; its role has that name. Without a PostgreSQL behind it
(`--postgres`) all is kept in memory, and nobody can connect. An endpoint has no field for a port, and the real one is
5432: clients of the stand-in take it from PGPORT, which tasks and apps get, together with PGSSLMODE.
A new project has no database of its own here.
"""

import re
import secrets
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from tests.workspace.server import rights
from tests.workspace.server.calls import ApiError, Call, Json, invalid, page_of, route
from tests.workspace.server.database_server import DatabaseServer
from tests.workspace.server.state import World

_API: Final = "/api/2.0/postgres"
_COLLECTIONS: Final = {"branches": "branch", "endpoints": "endpoint", "roles": "role", "databases": "database"}
_PROJECT_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_ID: Final = re.compile(r"[a-z][a-z0-9-]{3,62}")
_SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)s")
_MOST_SECONDS: Final = 3_600
_RETENTION: Final = "604800s"
_PAGE: Final = 100


@route("POST", f"{_API}/projects")
def create_project(call: Call) -> Json:
    """Make a project with its branch `production`, that branch's endpoint `primary`, and its maker's role."""
    project_id = call.query.get("project_id", "")
    if not _PROJECT_ID.fullmatch(project_id):
        raise invalid(f"Field 'project_id' must have 1 to 63 of a-z, 0-9 and -, from a letter on, not {project_id!r}.")
    name = f"projects/{project_id}"
    if name in call.data.lakebase:
        raise ApiError(409, "ALREADY_EXISTS", "project with such id already exists in the workspace")
    spec = call.body.get("spec") or {}
    status = {
        "project_id": project_id, "owner": call.who["name"], "default_branch": f"{name}/branches/production",
        "history_retention_duration": _RETENTION, "enable_pg_native_login": False, "pg_version": 17, **spec,
    }  # fmt: skip
    project = _keep(call, "project", name, {"project_id": project_id, "uid": str(uuid.uuid4())}, status)
    rights.own(call.data, "database-projects", project_id, call.who)
    _make_branch(call, name, "production", is_first=True)
    _make_role(call, f"{name}/branches/production", "creator", {"postgres_role": call.who["name"]}, is_super=True)
    return _operation(call, project)


@route("POST", f"{_API}/credentials")
def credentials(call: Call) -> Json:
    """Give the caller a password for an endpoint, for at most an hour; it counts at logins only [sdk postgres]."""
    endpoint = call.needed("endpoint")
    if _live(call, endpoint)["kind"] != "endpoint":
        raise invalid(f"{endpoint} is no endpoint.")
    settings = call.world.settings
    seconds = settings.credential_seconds
    if (ttl := call.body.get("ttl")) is not None:
        found = _SECONDS.fullmatch(str(ttl))
        if found is None or not settings.least_credential_seconds <= float(found[1]) <= _MOST_SECONDS:
            raise invalid(f"ttl must be {settings.least_credential_seconds:.0f}s to {_MOST_SECONDS}s, not {ttl}.")
        seconds = min(seconds, float(found[1]))
    token = secrets.token_urlsafe(24)
    expires = call.world.now() + seconds
    call.world.alive.setdefault("credentials", {})[token] = (call.who["name"], expires)
    return {"token": token, "expire_time": _stamp(expires)}


@route("POST", f"{_API}/{{parent*}}/branches")
@route("POST", f"{_API}/{{parent*}}/endpoints")
@route("POST", f"{_API}/{{parent*}}/roles")
@route("POST", f"{_API}/{{parent*}}/databases")
def create(call: Call) -> Json:
    """Make something below a project or branch; `replace_existing` adopts what is there."""
    parent, collection = call.parts["parent"], call.path.rpartition("/")[2]
    kind = _COLLECTIONS[collection]
    _manage(call, _live(call, parent))
    made_id = call.query.get(f"{kind}_id", "")
    if not _ID.fullmatch(made_id):
        raise invalid(f"Field '{kind}_id' must have 4 to 63 of a-z, 0-9 and -, from a letter on, not {made_id!r}.")
    name, spec = f"{parent}/{collection}/{made_id}", call.body.get("spec") or {}
    if name in call.data.lakebase and not call.says("replace_existing"):
        # a doubled role or database is 400, not 409 [cli testserver/postgres.go]
        is_bad = kind in {"role", "database"}
        code = (400, "BAD_REQUEST") if is_bad else (409, "ALREADY_EXISTS")
        raise ApiError(*code, f"{kind} with such id already exists")
    if kind == "role":
        return _operation(call, _make_role(call, parent, made_id, spec))
    if kind == "database":
        return _operation(call, _make_database(call, parent, made_id, spec))
    if kind == "branch":
        return _operation(call, _make_branch(call, parent, made_id, is_first=False, spec=spec))
    return _operation(call, _make_endpoint(call, parent, made_id, is_first=False, spec=spec))


@route("POST", f"{_API}/{{name*}}/undelete")
def undelete(call: Call) -> Json:
    """Bring a softly deleted project back."""
    found = call.data.lakebase.get(call.parts["name"])
    if found is None or not found["deleted"]:
        raise _unknown("project")
    _manage(call, found)
    found["deleted"] = False
    return _operation(call, found)


@route("GET", f"{_API}/{{name*}}")
def read(call: Call) -> Json:
    """Return an operation, one thing, or a page of a collection."""
    name = call.parts["name"]
    if "/operations/" in name:
        if name not in call.data.operations:
            raise _unknown("operation")
        return _shown_operation(call.world, call.data.operations[name])
    parent, _, collection = name.rpartition("/")
    if name != "projects" and collection not in _COLLECTIONS:
        return _shown(_live(call, name))
    if parent:
        _live(call, parent)
    prefix = f"{name}/"
    rows = [
        each
        for key, each in sorted(call.data.lakebase.items())
        if key.startswith(prefix) and "/" not in key.removeprefix(prefix) and not each["deleted"]
    ]
    shown, following, _ = page_of(rows, call.number("page_size", _PAGE) or _PAGE, call.query.get("page_token"))
    return {
        **({collection: [_shown(each) for each in shown]} if shown else {}),
        **({"next_page_token": following} if following else {}),
    }


@route("PATCH", f"{_API}/{{name*}}")
def change(call: Call) -> Json:
    """Change fields of a spec that the mask names; of a role only attributes and memberships."""
    found = _live(call, call.parts["name"])
    _manage(call, found)
    mask = [each.strip() for each in call.query.get("update_mask", "").split(",") if each.strip()]
    if not mask:
        raise invalid("update_mask is required.")
    allowed = {"role": {"spec.attributes", "spec.membership_roles"}}.get(found["kind"])
    for each in mask:
        field = each.removeprefix("spec.")
        if not each.startswith("spec.") or (allowed is not None and each not in allowed):
            raise invalid(f"update_mask: {each} cannot be changed.")
        spec = call.body.get("spec") or {}
        if field in spec:  # a field that the mask names and the body lacks stays [cli testserver/postgres.go]
            found["status"][field] = spec[field]
    if found["kind"] == "role" and (server := server_of(call.world)) is not None:
        server.make_role(found["status"]["postgres_role"], found["status"].get("attributes") or {})
    return _operation(call, found)


@route("DELETE", f"{_API}/{{name*}}")
def delete(call: Call) -> Json:
    """Delete something with all below it; a project softly, unless `purge`."""
    found = _live(call, call.parts["name"])
    _manage(call, found)
    if found["first"]:
        kind = found["kind"]
        raise ApiError(
            400, "BAD_REQUEST", f"Cannot delete first {kind} '{found['name']}': it goes with its parent.",
            {"declarative_context": "MANAGED_BY_PARENT"},
        )  # fmt: skip
    if found["kind"] == "project" and not call.says("purge"):
        found["deleted"] = True
        return _operation(call, found, empty=True)
    inside = [key for key in call.data.lakebase if key == found["name"] or key.startswith(f"{found['name']}/")]
    gone = [call.data.lakebase.pop(key) for key in inside]
    if (server := server_of(call.world)) is not None:
        for each in sorted(gone, key=lambda one: one["kind"]):  # databases before roles
            if each["kind"] == "database":
                server.drop_database(each["status"]["postgres_database"])
            elif each["kind"] == "role":
                server.drop_role(each["status"]["postgres_role"])
    return _operation(call, found, empty=True)


def server_of(world: World) -> DatabaseServer | None:
    """Return the PostgreSQL behind all projects, connected at the first use; None where there is none."""
    if world.postgres is None:
        return None
    if "database server" not in world.alive:

        def accepts(role: str, password: str) -> bool:
            kept = world.alive.get("credentials", {}).get(password)
            return kept is not None and kept[0] == role and kept[1] > world.now()

        made = DatabaseServer(world.postgres, accepts)
        world.alive["database server"] = made
        world.closers.append(made.close)
    server: DatabaseServer = world.alive["database server"]
    return server


def variables(world: World) -> dict[str, str]:
    """Return the variables by which clients find the port that an endpoint does not say."""
    server = server_of(world)
    return {} if server is None else {"PGPORT": str(server.port), "PGSSLMODE": "prefer"}


def attach(call: Call, resource: Json, role: str) -> None:
    """Let an app's service principal into the database of its resource: a role with CONNECT and CREATE.

    Attaching a project takes CAN_MANAGE on it [doc databricks-apps/lakebase].
    """
    branch, database = _live(call, str(resource.get("branch"))), _live(call, str(resource.get("database")))
    _manage(call, branch)
    held = [each for each in call.data.lakebase.values() if each["kind"] == "role" and each["parent"] == branch["name"]]
    if not any(each["status"]["postgres_role"] == role for each in held):
        _make_role(call, branch["name"], f"app-{role[:8]}", {"postgres_role": role})
    if (server := server_of(call.world)) is not None:
        server.let_create(database["status"]["postgres_database"], role)


def connection(world: World, resource: Json) -> dict[str, str]:
    """Return host and database of an app's resource as PG* variables, without user and password."""
    database = world.data.lakebase[resource["database"]]["status"]["postgres_database"]
    return {"PGHOST": "127.0.0.1", "PGPORT": "5432", "PGSSLMODE": "require", "PGDATABASE": database, **variables(world)}


def _make_branch(call: Call, parent: str, branch_id: str, *, is_first: bool, spec: Json | None = None) -> Json:
    name = f"{parent}/branches/{branch_id}"
    is_new = name not in call.data.lakebase
    status = {"branch_id": branch_id, "current_state": "READY", "default": is_first, **(spec or {})}
    made = _keep(call, "branch", name, {"branch_id": branch_id, "uid": f"br-{uuid.uuid4().hex[:12]}"}, status)
    made["first"] = made["first"] or is_first
    if is_new:
        _make_endpoint(call, name, "primary", is_first=True, spec={"endpoint_type": "ENDPOINT_TYPE_READ_WRITE"})
    return made


def _make_endpoint(call: Call, parent: str, endpoint_id: str, *, is_first: bool, spec: Json) -> Json:
    status = {
        "endpoint_id": endpoint_id, "current_state": "ACTIVE", "hosts": {"host": "127.0.0.1"},
        "autoscaling_limit_min_cu": 1, "autoscaling_limit_max_cu": 1, "suspend_timeout_duration": "86400s", **spec,
    }  # fmt: skip
    name = f"{parent}/endpoints/{endpoint_id}"
    made = _keep(call, "endpoint", name, {"endpoint_id": endpoint_id, "uid": f"ep-{uuid.uuid4().hex[:12]}"}, status)
    made["first"] = made["first"] or is_first
    return made


def _make_role(call: Call, parent: str, role_id: str, spec: Json, *, is_super: bool = False) -> Json:
    if _live(call, parent)["kind"] != "branch":
        raise invalid("A role belongs to a branch.")
    postgres_role = spec.get("postgres_role") or role_id
    members = ["DATABRICKS_SUPERUSER"] if is_super else spec.get("membership_roles") or []
    status = {
        "role_id": role_id, "auth_method": "LAKEBASE_OAUTH_V1", **spec,
        "postgres_role": postgres_role, "membership_roles": members,
    }  # fmt: skip
    if (server := server_of(call.world)) is not None:
        server.make_role(postgres_role, status.get("attributes") or {})
        if "DATABRICKS_SUPERUSER" in members:
            for each in ("pg_read_all_data", "pg_write_all_data"):
                server.join(postgres_role, each)
            server.make_role(postgres_role, {"createdb": True, "createrole": True})
    return _keep(call, "role", f"{parent}/roles/{role_id}", {"role_id": role_id}, status)


def _make_database(call: Call, parent: str, database_id: str, spec: Json) -> Json:
    if not spec.get("role"):
        raise invalid("Field 'role' is required, expected non-default value (not \"\")!")
    owner = _live(call, spec["role"])
    database = spec.get("postgres_database") or database_id
    name = f"{parent}/databases/{database_id}"
    if (server := server_of(call.world)) is not None and name not in call.data.lakebase:
        server.make_database(database, owner["status"]["postgres_role"])
    status = {"database_id": database_id, "postgres_database": database, "role": spec["role"]}
    return _keep(call, "database", name, {"database_id": database_id}, status)


def _keep(call: Call, kind: str, name: str, fields: Json, status: Json) -> Json:
    now, before = _stamp(call.world.now()), call.data.lakebase.get(name)
    if before is not None:
        before["status"].update(status)
        before["update_time"] = now
        return before
    parent = "/".join(name.split("/")[:-2])
    call.data.lakebase[name] = {
        "kind": kind, "name": name, "parent": parent, "first": False, "deleted": False,
        "create_time": now, "update_time": now, "fields": fields, "status": status,
    }  # fmt: skip
    return call.data.lakebase[name]


def _live(call: Call, name: str) -> Json:
    """Return something that is there, with all it lies in."""
    parts = name.split("/")
    kinds = {"projects": "project", **_COLLECTIONS}
    for end in range(2, len(parts) + 1, 2):
        found = call.data.lakebase.get("/".join(parts[:end]))
        if found is None or found["deleted"]:
            raise _unknown(kinds.get(parts[end - 2], "resource"))
    found = call.data.lakebase.get(name)
    if found is None:
        raise _unknown(kinds.get(parts[-2] if len(parts) > 1 else "", "resource"))
    return found


def _manage(call: Call, found: Json) -> None:
    rights.require(call, "database-projects", found["name"].split("/")[1], "CAN_MANAGE")


def _operation(call: Call, about: Json, *, empty: bool = False) -> Json:
    """Return a long-running operation: done at once, or `operation_seconds` later."""
    name = f"{about['name']}/operations/{uuid.uuid4()}"
    done_at = call.world.now() + call.world.settings.operation_seconds
    call.data.operations[name] = {"name": name, "done_at": done_at, "response": {} if empty else _shown(about)}
    return _shown_operation(call.world, call.data.operations[name])


def _shown_operation(world: World, operation: Json) -> Json:
    if world.now() < operation["done_at"]:
        return {"name": operation["name"], "done": False}
    return {"name": operation["name"], "done": True, "response": operation["response"]}


def _shown(each: Json) -> Json:
    """Return something as GET does: with `status`, without `spec`."""
    shown: dict[str, Any] = {key: each[key] for key in ("name", "create_time", "update_time", "status")}
    return {**shown, **each["fields"], **({"parent": each["parent"]} if each["parent"] else {})}


def _unknown(kind: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", f"{kind} id not found [TraceId: {uuid.uuid4()}]")


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
