"""Unity Catalog: our embedded catalog (`grants/server`) behind the workspace's sign-in, and what that does not have.

Catalogs, schemas, tables, their owners and grants are those of `grants/server`, which is a stand-in of ours with tests
of its own; people of the workspace are written into it before each request. External locations, volumes and
temporary credentials are here [sdk catalog].
"""

import os
import secrets
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from grants.model import folded
from grants.server import calls, permissions, securables
from grants.server import rights as catalog_rights
from grants.server.rows import EVERYONE_ID, EXECUTOR, open_rows
from tests.workspace.server.calls import ApiError, Call, Json, denied, invalid, missing, page_of, route
from tests.workspace.server.people import groups_of, is_admin
from tests.workspace.server.state import Data, World

_UC: Final = "/api/2.1/unity-catalog"
_TEMPORARY: Final = "/api/2.0/unity-catalog"
_LOCATION_TYPES: Final = frozenset({"external_location", "external-location", "volume"})
_NEVER_IMPLIED: Final = frozenset({"EXTERNAL_USE_LOCATION"})  # by ALL_PRIVILEGES, or by ownership [sdk catalog]
_PATH_NEEDS: Final = {
    "PATH_READ": ("READ_FILES",),
    "PATH_READ_WRITE": ("READ_FILES", "WRITE_FILES"),
    "PATH_CREATE_TABLE": ("CREATE_EXTERNAL_TABLE",),
}
_PAGE: Final = 100
T = TypeVar("T")


def embedded(call: Call, handler: calls.Handler, **path: str) -> Json:
    """Let the embedded catalog answer, as the same caller."""
    given = path or dict(call.parts)

    def act(rows: sqlite3.Connection) -> Json:
        state = calls.ServerState(rows, 0, "")
        row = rows.execute("SELECT * FROM principals WHERE id = ?", (call.who["id"],)).fetchone()
        return dict(handler(calls.Call(state, row, given, call.query, call.body if call.raw else {})))

    return in_catalog(call.world, act)


def in_catalog(world: World, act: Callable[[sqlite3.Connection], T]) -> T:
    """Do something in one transaction of the embedded catalog, in its one thread.

    Raises:
        ApiError: the catalog refuses it.
    """
    if "catalog" not in world.alive:
        world.alive["catalog thread"] = ThreadPoolExecutor(1)
        opened = world.alive["catalog thread"].submit(open_rows, world.folder / "catalog.db")
        world.alive["catalog"] = opened.result()
    rows: sqlite3.Connection = world.alive["catalog"]

    def transact() -> T:
        rows.execute("BEGIN IMMEDIATE")
        try:
            _write_people(rows, world.data)
            done = act(rows)
            rows.execute("COMMIT")
        except BaseException:
            rows.execute("ROLLBACK")
            raise
        return done

    done: T
    try:
        done = world.alive["catalog thread"].submit(transact).result()
    except calls.ApiError as error:
        raise ApiError(error.status, error.code, str(error)) from error
    return done


def _write_people(rows: sqlite3.Connection, data: Data) -> None:
    """Let the embedded catalog know exactly the workspace's people; admins of the workspace administer it."""
    kept = {EVERYONE_ID, *data.principals}
    gone = [
        row["id"]
        for row in rows.execute("SELECT id, name FROM principals")
        if row["id"] not in kept and row["name"] != EXECUTOR
    ]
    rows.executemany("DELETE FROM principals WHERE id = ?", [(each,) for each in gone])
    rows.executemany(
        "INSERT INTO principals VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " name = excluded.name, folded = excluded.folded, active = excluded.active, admin = excluded.admin",
        [
            (
                each["id"],
                each["kind"],
                each["name"],
                folded(each["name"]),
                each["display"],
                int(each["active"]),
                int(is_admin(data, each)),
            )
            for each in data.principals.values()
        ],
    )
    rows.execute("DELETE FROM members")
    pairs = [(each["id"], member) for each in data.principals.values() for member in each["members"]]
    rows.executemany(
        "INSERT OR IGNORE INTO members VALUES (?, ?)", [pair for pair in pairs if pair[1] in data.principals]
    )


def _forward(method: str, path: str, handler: calls.Handler) -> None:
    route(method, path)(lambda call: embedded(call, handler))


_forward("GET", f"{_UC}/catalogs", securables.catalogs)
_forward("POST", f"{_UC}/catalogs", securables.make_catalog)
_forward("GET", f"{_UC}/catalogs/{{full_name}}", securables.catalog)
_forward("PATCH", f"{_UC}/catalogs/{{full_name}}", securables.give_catalog)
_forward("GET", f"{_UC}/schemas", securables.schemas)
_forward("PATCH", f"{_UC}/tables/{{full_name}}", securables.give_table)
_forward("DELETE", f"{_UC}/tables/{{full_name}}", securables.drop_table)


@route("GET", f"{_UC}/tables")
def list_tables(call: Call) -> Json:
    """Return the tables of a schema, views among them."""
    answer = embedded(call, securables.tables)
    return {**answer, "tables": [_kind(call, each) for each in answer["tables"]]}


@route("GET", f"{_UC}/tables/{{full_name}}")
def read_table(call: Call) -> Json:
    """Return a table or view."""
    return _kind(call, embedded(call, securables.table))


def _kind(call: Call, table: Json) -> Json:
    is_view = table["full_name"] in call.data.views
    return {**table, "table_type": "VIEW", "storage_location": None} if is_view else table


@route("POST", f"{_UC}/schemas")
def make_schema(call: Call) -> Json:
    """Make a schema; its comment and properties are kept here, as the embedded catalog has none."""
    return _noted(call, embedded(call, securables.make_schema), is_new=True)


@route("GET", f"{_UC}/schemas/{{full_name}}")
def read_schema(call: Call) -> Json:
    """Return a schema."""
    shown = embedded(call, securables.schema)
    return {**shown, **call.data.notes.get(shown["schema_id"], {})}


@route("PATCH", f"{_UC}/schemas/{{full_name}}")
def change_schema(call: Call) -> Json:
    """Give a schema to another owner, or change its comment and properties."""
    if "owner" in call.body:
        return _noted(call, embedded(call, securables.give_schema))

    def act(inner: calls.Call) -> Json:
        catalog_rights.require_administration(inner, catalog_rights.find(inner.rows, "schema", inner.path["full_name"]))
        return {}

    embedded(call, act)
    return _noted(call, embedded(call, securables.schema))


def _noted(call: Call, shown: Json, *, is_new: bool = False) -> Json:
    given: Json = {key: call.body[key] for key in ("comment", "properties", "storage_root") if key in call.body}
    notes = call.data.notes[shown["schema_id"]] = {
        **({} if is_new else call.data.notes.get(shown["schema_id"], {})), **given
    }  # fmt: skip
    return {**shown, **notes}


@route("DELETE", f"{_UC}/catalogs/{{full_name}}")
@route("DELETE", f"{_UC}/schemas/{{full_name}}")
def drop(call: Call) -> Json:
    """Drop a catalog or a schema: with something in it only by `force`."""
    kind = "catalog" if "/catalogs/" in call.path else "schema"

    def act(inner: calls.Call) -> Json:
        found = catalog_rights.find(inner.rows, kind, inner.path["full_name"])
        catalog_rights.require_administration(inner, found)
        inside = inner.rows.execute("SELECT 1 FROM securables WHERE parent_id = ?", (found["id"],)).fetchone()
        if inside and not call.says("force"):
            raise invalid(f"{kind.capitalize()} {found['full_name']!r} is not empty. The {kind} has something in it.")
        inner.rows.execute("DELETE FROM securables WHERE id = ?", (found["id"],))
        return {}

    return embedded(call, act)


@route("POST", f"{_UC}/tables")
def make_table(call: Call) -> Json:
    """Make an external table known; it must lie below an external location [doc unity-catalog external tables].

    Where no location is known at all, the stand-in lets every place pass.
    """
    url = str(call.body.get("storage_location", ""))
    if call.data.locations:
        place = _location_of(call.data, url)
        if place is None:
            raise denied(f"No external location is a parent of {url}.")
        _require_privileges(call, place, ("CREATE_EXTERNAL_TABLE",))
    return embedded(call, securables.make_table)


@route("GET", f"{_UC}/permissions/{{securable_type}}/{{full_name}}")
def assignments(call: Call) -> Json:
    """Return the direct grants on a securable."""
    if call.parts["securable_type"].lower() in _LOCATION_TYPES:
        return _held(_place(call))
    return embedded(call, permissions.assignments)


@route("GET", f"{_UC}/effective-permissions/{{securable_type}}/{{full_name}}")
def effective(call: Call) -> Json:
    """Return what holds on a securable."""
    if call.parts["securable_type"].lower() in _LOCATION_TYPES:
        held = _held(_place(call)).get("privilege_assignments", [])
        return {
            "privilege_assignments": [
                {**each, "privileges": [{"privilege": privilege} for privilege in each["privileges"]]} for each in held
            ]
        }
    return embedded(call, permissions.effective)


@route("PATCH", f"{_UC}/permissions/{{securable_type}}/{{full_name}}")
def change(call: Call) -> Json:
    """Give and take privileges."""
    if call.parts["securable_type"].lower() not in _LOCATION_TYPES:
        return embedded(call, permissions.change)
    place = _place(call)
    _require_owner(call, place)
    for each in call.body.get("changes") or ():
        principal = str(each["principal"])
        if not any(one["name"] == principal for one in call.data.principals.values()):
            raise ApiError(404, "PRINCIPAL_DOES_NOT_EXIST", f"Could not find principal with name {principal}.")
        held = set(place["grants"].get(principal, ()))
        added = {str(one).replace(" ", "_") for one in each.get("add") or ()}
        place["grants"][principal] = sorted((held | added) - set(each.get("remove") or ()))
    return _held(place)


@route("GET", f"{_UC}/external-locations")
def list_locations(call: Call) -> Json:
    """List external locations."""
    return _listed(call, "external_location", "external_locations")


@route("POST", f"{_UC}/external-locations")
def make_location(call: Call) -> Json:
    """Make an external location: one place belongs to one of them; a trailing `/` is dropped."""
    if not is_admin(call.data, call.who):
        raise denied("User does not have CREATE EXTERNAL LOCATION on the metastore.")
    name, url = str(call.needed("name")).lower(), str(call.needed("url")).rstrip("/")
    credential = str(call.needed("credential_name"))
    if f"external_location/{name}" in call.data.locations:
        raise ApiError(400, "EXTERNAL_LOCATION_ALREADY_EXISTS", f"External Location '{name}' already exists")
    for each in call.data.locations.values():
        if each["kind"] == "external_location" and (_is_below(url, each["url"]) or _is_below(each["url"], url)):
            raise invalid(f"Input path url '{url}' overlaps with other external locations: {each['name']}.")
    fields = {"name": name, "url": url, "credential_name": credential, "read_only": bool(call.body.get("read_only"))}
    return _kept(call, "external_location", name, {**fields, "comment": call.body.get("comment")})


@route("GET", f"{_UC}/external-locations/{{full_name}}")
def read_location(call: Call) -> Json:
    """Return an external location."""
    return _shown(_named(call, "external_location"))


@route("PATCH", f"{_UC}/external-locations/{{full_name}}")
def change_location(call: Call) -> Json:
    """Change an external location."""
    place = _named(call, "external_location")
    _require_owner(call, place)
    place.update({key: call.body[key] for key in ("url", "owner", "comment", "read_only") if key in call.body})
    return _shown(place)


@route("DELETE", f"{_UC}/external-locations/{{full_name}}")
def drop_location(call: Call) -> Json:
    """Delete an external location."""
    place = _named(call, "external_location")
    _require_owner(call, place)
    del call.data.locations[f"external_location/{place['name']}"]
    return {}


@route("GET", f"{_UC}/volumes")
def list_volumes(call: Call) -> Json:
    """List the volumes of a schema."""
    prefix = f"{call.query.get('catalog_name')}.{call.query.get('schema_name')}."
    return _listed(call, "volume", "volumes", prefix)


@route("POST", f"{_UC}/volumes")
def make_volume(call: Call) -> Json:
    """Make a volume in a schema that exists."""
    schema = f"{call.needed('catalog_name')}.{call.needed('schema_name')}"
    embedded(call, securables.schema, full_name=schema)
    full_name = f"{schema}.{call.needed('name')}".lower()
    if f"volume/{full_name}" in call.data.locations:
        raise ApiError(400, "VOLUME_ALREADY_EXISTS", f"Volume '{full_name}' already exists")
    named = ("name", "catalog_name", "schema_name", "volume_type", "storage_location", "comment")
    fields = {key: call.body[key] for key in named if key in call.body}
    return _kept(call, "volume", full_name, {**fields, "full_name": full_name, "volume_id": str(uuid.uuid4())})


@route("GET", f"{_UC}/volumes/{{full_name}}")
def read_volume(call: Call) -> Json:
    """Return a volume."""
    return _shown(_named(call, "volume"))


@route("DELETE", f"{_UC}/volumes/{{full_name}}")
def drop_volume(call: Call) -> Json:
    """Delete a volume."""
    place = _named(call, "volume")
    _require_owner(call, place)
    del call.data.locations[f"volume/{place['full_name']}"]
    return {}


@route("POST", f"{_TEMPORARY}/temporary-table-credentials")
def table_credentials(call: Call) -> Json:
    """Vend credentials for a table: takes EXTERNAL USE SCHEMA, which nothing implies, and SELECT (and MODIFY)."""
    _require_external_access(call)
    table_id, operation = call.needed("table_id"), call.needed("operation")
    if operation not in {"READ", "READ_WRITE"}:
        raise invalid("operation must be READ or READ_WRITE.")

    def act(inner: calls.Call) -> Json:
        query = "SELECT * FROM securables WHERE id = ? AND location IS NOT NULL"
        found = inner.rows.execute(query, (table_id,)).fetchone()
        if found is None:
            raise ApiError(404, "TABLE_DOES_NOT_EXIST", f"Table with id {table_id!r} does not exist.")
        own = catalog_rights.standing(inner.rows, inner.caller, found)
        lacking = own.unreadable()
        if not own.holds("EXTERNAL_USE_SCHEMA", 1):
            lacking.append("EXTERNAL USE SCHEMA on the schema")
        if operation == "READ_WRITE" and not (own.holds("MODIFY") or own.owned[0]):
            lacking.append("MODIFY on the table")
        if lacking:
            raise denied(f"{call.who['name']} does not have {' and '.join(lacking)}.")
        return {"url": found["location"]}

    url = str(embedded(call, act)["url"])
    return vended(call.world, url)


@route("POST", f"{_TEMPORARY}/temporary-path-credentials")
def path_credentials(call: Call) -> Json:
    """Vend credentials for a path below an external location: takes EXTERNAL USE LOCATION, which nothing implies."""
    _require_external_access(call)
    url, operation = str(call.needed("url")), call.needed("operation")
    if operation not in _PATH_NEEDS:
        raise invalid(f"operation must be one of {', '.join(_PATH_NEEDS)}.")
    place = _location_of(call.data, url)
    if place is None:
        raise missing(f"No external location is a parent of {url}.")
    _require_privileges(call, place, ("EXTERNAL_USE_LOCATION", *_PATH_NEEDS[operation]))
    if place["read_only"] and operation != "PATH_READ":
        raise denied(f"External location {place['name']} is read-only.")
    answer = vended(call.world, url)
    return {"url": url, "expiration_time": answer["expiration_time"]} if call.body.get("dry_run") else answer


def vended(world: World, url: str) -> Json:
    """Return temporary credentials for a place: what a test set for its scheme, else invented or this machine's own."""
    scheme = urlsplit(url).scheme
    given: Json | None = world.alive.get("vended", {}).get(scheme)
    invented = secrets.token_hex(8)
    if given is None:
        given = {
            "s3": {
                "aws_temp_credentials": {
                    "access_key_id": os.environ.get("AWS_ACCESS_KEY_ID", f"ASIA{invented}"),
                    "secret_access_key": os.environ.get("AWS_SECRET_ACCESS_KEY", invented),
                    "session_token": os.environ.get("AWS_SESSION_TOKEN", f"session-{invented}"),
                }
            },
            "abfss": {"azure_user_delegation_sas": {"sas_token": f"sig={invented}"}},
            "gs": {"gcp_oauth_token": {"oauth_token": f"ya29.{invented}"}},
        }.get(scheme, {})
    return {"url": url, "expiration_time": int((world.now() + world.settings.vended_seconds) * 1000), **given}


def _require_external_access(call: Call) -> None:
    if not call.world.settings.external_access:
        raise denied("External access is not enabled on the metastore: set external_access_enabled.")


def _require_privileges(call: Call, place: Json, privileges: tuple[str, ...]) -> None:
    names = {call.who["name"], "account users", *(each["name"] for each in groups_of(call.data, call.who["id"]))}
    held = {privilege for name, those in place["grants"].items() if name in names for privilege in those}
    is_owner = place["owner"] in names
    lacking = [
        each
        for each in privileges
        if each not in held and (each in _NEVER_IMPLIED or not (is_owner or "ALL_PRIVILEGES" in held))
    ]
    if lacking:
        what = " and ".join(each.replace("_", " ") for each in lacking)
        raise denied(f"User does not have {what} on External Location '{place['name']}'.")


def _require_owner(call: Call, place: Json) -> None:
    names = {call.who["name"], *(each["name"] for each in groups_of(call.data, call.who["id"]))}
    if place["owner"] not in names and not is_admin(call.data, call.who):
        raise denied(f"User is not an owner of '{place['name']}'.")


def _location_of(data: Data, url: str) -> Json | None:
    return next(
        (
            each
            for each in data.locations.values()
            if each["kind"] == "external_location" and _is_below(url, each["url"])
        ),
        None,
    )


def _is_below(url: str, above: str) -> bool:
    return url.rstrip("/") == above or url.startswith(f"{above}/")


def _place(call: Call) -> Json:
    kind = call.parts["securable_type"].lower().replace("-", "_")
    return _named(call, kind)


def _named(call: Call, kind: str) -> Json:
    found = call.data.locations.get(f"{kind}/{call.parts['full_name'].lower()}")
    if found is None:
        spelled = "External Location" if kind == "external_location" else "Volume"
        raise ApiError(404, f"{kind.upper()}_DOES_NOT_EXIST", f"{spelled} '{call.parts['full_name']}' does not exist.")
    return found


def _kept(call: Call, kind: str, name: str, fields: dict[str, Any]) -> Json:
    now = int(call.world.now() * 1000)
    made = {"kind": kind, "grants": {}, "owner": call.who["name"], "created_at": now, "created_by": call.who["name"]}
    call.data.locations[f"{kind}/{name}"] = {**made, **fields}
    return _shown(call.data.locations[f"{kind}/{name}"])


def _shown(place: Json) -> Json:
    return {key: value for key, value in place.items() if key not in {"kind", "grants"} and value is not None}


def _listed(call: Call, kind: str, plural: str, prefix: str = "") -> Json:
    rows = [_shown(each) for key, each in sorted(call.data.locations.items()) if key.startswith(f"{kind}/{prefix}")]
    shown, following, _ = page_of(rows, call.number("max_results", _PAGE) or _PAGE, call.query.get("page_token"))
    return {**({plural: shown} if shown else {}), **({"next_page_token": following} if following else {})}


def _held(place: Json) -> Json:
    held = [{"principal": name, "privileges": those} for name, those in sorted(place["grants"].items()) if those]
    return {"privilege_assignments": held} if held else {}
