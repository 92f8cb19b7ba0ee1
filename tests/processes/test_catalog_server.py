"""Guards what the embedded catalog refuses: it is a real server, and whoever reaches its port must not rule it."""

import http.client
import json
import random
import sqlite3
import stat
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from grants.model import ALL_PRIVILEGES, BROWSE, EVERYONE, MANAGE, SELECT, USE_CATALOG, USE_SCHEMA
from grants.server.calls import MAX_BYTES
from grants.server.rights import find, standing
from grants.server.rows import EVERYONE_ID, open_rows
from grants.server.serving import _ROUTES
from tests.unit.grants.catalog_world import SCIM, UC, EmbeddedWorld, Server, fresh, let_read_raw, served, start

CREDENTIALS = "/api/2.0/unity-catalog/temporary-table-credentials"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("catalog") / "served") as running:
        yield running


@pytest.fixture
def world(server: Server) -> EmbeddedWorld:
    return EmbeddedWorld(server)


def raw(server: Server, method: str, path: str, headers: dict[str, str], body: bytes | Iterator[bytes] = b"") -> int:
    """Send a request with exactly these headers; return the status."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request(method, path, body, headers, encode_chunked="Transfer-Encoding" in headers)
        answer = connection.getresponse()
        reported = json.loads(answer.read())
        assert answer.status < 400 or {"error_code", "message"} == set(reported)
        return answer.status


# ------------------------------------------------------------------------------------------------------------ who calls


@pytest.mark.parametrize("kind", ["none", "unknown", "expired", "basic"])
def test_no_route_answers_who_has_no_valid_token(server: Server, world: EmbeddedWorld, kind: str) -> None:
    """Every route there is, and every path there is not, says 401 without a token, and with one unknown or expired."""
    expired = server.token_of(world.user(), 1)
    with closing(sqlite3.connect(server.folder / "catalog.db", timeout=10)) as rows, rows:
        rows.execute("UPDATE tokens SET expires_at = 1 WHERE expires_at IS NOT NULL")
    headers = {
        "none": {},
        "unknown": {"Authorization": f"Bearer {uuid.uuid4()}"},
        "expired": {"Authorization": f"Bearer {expired}"},
        "basic": {"Authorization": f"Basic {server.token}"},
    }[kind]
    names = {"{full_name}": "a.b.c", "{securable_type}": "table", "{kind}": "Users", "{id}": "1"}
    for method, pattern, _, _ in (*_ROUTES, ("GET", "/", None, 0), ("GET", "/.well-known/databricks-config", None, 0)):
        path = pattern
        for name, value in names.items():
            path = path.replace(name, value)
        assert raw(server, method, path, headers) == 401, (method, path)


def test_a_token_ends_with_its_principal(server: Server, world: EmbeddedWorld) -> None:
    """Somebody deactivated or deleted has no valid token any more; a group never gets one."""
    user, group = world.user(), world.group([])
    token = server.token_of(user)
    assert server.ok("GET", f"{SCIM}/Me", token=token)["userName"] == user
    off = {"Operations": [{"op": "replace", "path": "active", "value": False}]}
    server.ok("PATCH", f"{SCIM}/Users/{world.ids[user]}", off)
    assert server.call("GET", f"{SCIM}/Me", token=token).status_code == 401
    assert server.call("POST", "/turnout/tokens", {"principal": user, "seconds": 60}).status_code == 400
    server.ok("DELETE", f"{SCIM}/Users/{world.ids[user]}")
    assert server.call("GET", f"{SCIM}/Me", token=token).status_code == 401
    assert server.call("POST", "/turnout/tokens", {"principal": group, "seconds": 60}).status_code == 400
    for seconds in (0, -1, 3601, 1.5, True, "60", None):
        submitted = {"principal": world.user(), "seconds": seconds}
        assert server.call("POST", "/turnout/tokens", submitted).status_code == 400


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:{port}", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1.evil:{port}"]
)
def test_a_request_meant_for_another_host_is_refused(server: Server, host: str) -> None:
    """A page that points its own name at this machine gets nothing, even with a token (DNS rebinding)."""
    headers = {"Authorization": f"Bearer {server.token}", "Host": host.format(port=server.port)}
    assert raw(server, "GET", f"{SCIM}/Me", headers) == 400
    assert raw(server, "GET", f"{SCIM}/Me", {**headers, "Host": f"localhost:{server.port}"}) == 200


# -------------------------------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("reported", [True, False])
def test_an_endless_body_is_refused(server: Server, reported: bool) -> None:
    """A body above the limit is 413, by its announced length or while it is read, and the server goes on."""
    headers = {"Authorization": f"Bearer {server.token}"}
    if reported:
        assert raw(server, "POST", f"{UC}/catalogs", headers, b" " * (MAX_BYTES + 1)) == 413
    else:
        chunks = (b" " * 65_536 for _ in range(MAX_BYTES // 65_536 + 1))
        assert raw(server, "POST", f"{UC}/catalogs", {**headers, "Transfer-Encoding": "chunked"}, chunks) == 413
    assert raw(server, "GET", f"{SCIM}/Me", headers) == 200


def test_what_cannot_be_meant_is_refused(server: Server, world: EmbeddedWorld) -> None:
    """Wrong JSON, types, names and privileges are 400, other paths 404, and nothing of them is kept."""
    table = world.table()
    headers = {"Authorization": f"Bearer {server.token}"}
    for body in (
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"name": 1}',
        b'{"name": "a\\u0000b"}',
        b'{"name": "\\ud800"}',
    ):
        assert raw(server, "POST", f"{UC}/catalogs", headers, body) == 400, body[:20]
    for name in ("a/b", "a.b", "..", "a b", "ä", "", "x" * 5_000):
        assert server.call("POST", f"{UC}/catalogs", {"name": name}).status_code == 400, name
    path = f"{UC}/permissions/table/{table.securable.full_name}"
    user = world.user()
    for change in (
        {"principal": user, "add": [SELECT], "remove": ["select"]},
        {"principal": user, "add": ["READ_MINDS"]},
        {"principal": user, "add": [USE_CATALOG]},
        {"principal": user, "add": SELECT},
        {"principal": "", "add": [SELECT]},
        {"add": [SELECT]},
        "SELECT",
    ):
        refused = server.call("PATCH", path, {"changes": [change]})
        assert (refused.status_code, refused.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), change
    assert server.ok("GET", path) == {}
    for query in ("max_results=1", "max_results=149", "max_results=-1", "max_results=x", "page_token=zz"):
        assert server.call("GET", f"{path}?{query}").status_code == 400, query
    for other in ("/nothing", f"{UC}/permissions/table/a%2Fb", f"{UC}/permissions/table/../catalog/x", f"{path}/"):
        assert server.call("GET", other).status_code == 404, other
    assert server.call("GET", f"{UC}/permissions/volume/{table.securable.full_name}").status_code == 400


# ---------------------------------------------------------------------------------------------------- who may do what


def test_only_the_admin_rules_people_and_tokens(server: Server, world: EmbeddedWorld) -> None:
    """Another caller makes and lists no principals, joins no group, mints no token, makes no catalog."""
    user, group = world.user(), world.group([])
    token = server.token_of(user)
    join = {"Operations": [{"op": "add", "path": "members", "value": [{"value": world.ids[user]}]}]}
    for method, path, body in (
        ("GET", f"{SCIM}/Users", None),
        ("GET", f"{SCIM}/Users/{world.ids[user]}", None),
        ("POST", f"{SCIM}/Users", {"userName": "eve@example.com"}),
        ("PATCH", f"{SCIM}/Groups/{world.ids[group]}", join),
        ("DELETE", f"{SCIM}/Groups/{world.ids[group]}", None),
        ("POST", "/turnout/tokens", {"principal": user, "seconds": 60}),
        ("POST", f"{UC}/catalogs", {"name": fresh("mine")}),
    ):
        refused = server.call(method, path, body, token)
        assert (refused.status_code, refused.json()["error_code"]) == (403, "PERMISSION_DENIED"), path


def test_only_owners_and_managers_change_grants(server: Server, world: EmbeddedWorld) -> None:
    """PATCH is for the owner of a table or of what it lies in, and for MANAGE with both USE_*; a reader gets 403."""
    table = world.table()
    name, schema, catalog = (each.full_name for each in table.securable.chain())
    path, friend = f"{UC}/permissions/table/{name}", world.user()
    change = {"changes": [{"principal": friend, "add": [SELECT]}]}

    def status(user: str) -> int:
        return server.call("PATCH", path, change, server.token_of(user)).status_code

    reader = world.user()
    let_read_raw(server, table, reader)
    assert status(reader) == 403
    assert status(world.user()) == 403
    assert server.ok("GET", path)["privilege_assignments"] == [{"principal": reader, "privileges": [SELECT]}]
    for kind, full_name in (("tables", name), ("schemas", schema), ("catalogs", catalog)):
        owner = world.user()
        server.ok("PATCH", f"{UC}/{kind}/{full_name}", {"owner": owner})
        assert status(owner) == 200, kind
    manager = world.user()
    server.ok("PATCH", path, {"changes": [{"principal": manager, "add": [MANAGE]}]})
    assert status(manager) == 403  # without USE_*
    for kind, full_name, privilege in (("schema", schema, USE_SCHEMA), ("catalog", catalog, USE_CATALOG)):
        changes = [{"principal": manager, "add": [privilege]}]
        server.ok("PATCH", f"{UC}/permissions/{kind}/{full_name}", {"changes": changes})
    assert status(manager) == 200
    everything = world.user()
    let_read_raw(server, table, everything)
    server.ok("PATCH", path, {"changes": [{"principal": everything, "add": [ALL_PRIVILEGES]}]})
    assert status(everything) == 403  # which is not MANAGE


@pytest.mark.proves("G284")
def test_only_the_admin_changes_where_a_table_lies(server: Server, world: EmbeddedWorld) -> None:
    """Not even its owner: readers of a table would read another one. Id and grants stay, and nothing lies in two."""
    table, other, owner = world.table(), world.table(), world.user()
    server.ok("PATCH", f"{UC}/tables/{table.securable.full_name}", {"owner": owner})
    let_read_raw(server, table, world.user())
    granted = world.catalog.assignments(table.securable)
    place = f"{table.location}_moved"

    def status(was: str, to: str, token: str | None = None, table_id: str = table.table_id) -> int:
        body = {"table_id": table_id, "from": was, "to": to}
        return server.call("POST", "/turnout/relocations", body, token).status_code

    assert status(table.location, place, server.token_of(owner)) == 403
    assert status(other.location, place) == 400, "it does not lie there"
    assert status(table.location, other.location) == 400, "another table does"
    assert status(table.location, place, table_id=fresh("id")) == 404
    assert world.catalog.table(table.securable) == replace(table, owner=owner)
    assert [status(table.location, place) for _ in range(2)] == [200, 200], "as after a lost answer"
    assert world.catalog.table(table.securable) == replace(table, owner=owner, location=place)
    assert world.catalog.assignments(table.securable) == granted


def test_others_see_only_their_own_grants_and_what_they_may_see(server: Server, world: EmbeddedWorld) -> None:
    """A reader's list of grants has only their own; tables one has nothing on are not shown, with BROWSE they are."""
    table, reader, stranger = world.table(), world.user(), world.user()
    for each in (reader, world.user()):
        let_read_raw(server, table, each)
    path = f"{UC}/permissions/table/{table.securable.full_name}"
    seen = server.ok("GET", path, token=server.token_of(reader))
    assert seen == {"privilege_assignments": [{"principal": reader, "privileges": [SELECT]}]}
    assert server.ok("GET", path, token=server.token_of(stranger)) == {}
    catalog_name, schema_name, _ = table.securable.path
    lists = f"{UC}/tables?catalog_name={catalog_name}&schema_name={schema_name}"
    (listed,) = server.ok("GET", lists, token=server.token_of(reader))["tables"]
    assert listed["table_id"] == table.table_id
    for hidden in (lists, f"{UC}/tables/{table.securable.full_name}", f"{UC}/schemas/{catalog_name}.{schema_name}"):
        assert server.call("GET", hidden, token=server.token_of(stranger)).status_code == 403
    assert server.ok("GET", f"{UC}/catalogs", token=server.token_of(stranger)) == {}
    browse = {"changes": [{"principal": stranger, "add": [BROWSE]}]}
    server.ok("PATCH", f"{UC}/permissions/catalog/{catalog_name}", browse)
    assert server.ok("GET", lists, token=server.token_of(stranger))["tables"]
    submitted = {"table_id": table.table_id, "operation": "READ"}
    assert server.call("POST", CREDENTIALS, submitted, server.token_of(stranger)).status_code == 403


def test_credentials_say_what_is_missing_and_everyone_is_everyone(server: Server, world: EmbeddedWorld) -> None:
    """403 names each missing privilege; what `account users` has, everybody has; only READ is given."""
    table, user = world.table(), world.user()
    submitted = {"table_id": table.table_id, "operation": "READ"}
    refused = server.call("POST", CREDENTIALS, submitted, server.token_of(user))
    assert refused.status_code == 403
    assert all(each in refused.json()["message"] for each in (SELECT, USE_SCHEMA, USE_CATALOG))
    let_read_raw(server, table, EVERYONE)
    assert server.ok("POST", CREDENTIALS, submitted, server.token_of(user))["url"].endswith(table.securable.full_name)
    assert server.call("POST", CREDENTIALS, {**submitted, "operation": "READ_WRITE"}).status_code == 400
    assert server.call("POST", CREDENTIALS, {**submitted, "table_id": "x"}).status_code == 404


def test_pages_have_each_row_once(server: Server, world: EmbeddedWorld) -> None:
    """However small the pages are and however many empty ones are between them, each row comes once."""
    table, users = world.table(), [world.user() for _ in range(5)]
    path = f"{UC}/permissions/table/{table.securable.full_name}"
    for user in users:
        server.ok("PATCH", path, {"changes": [{"principal": user, "add": [SELECT]}]})
    server.trouble(page_rows=1, empty_pages=True)
    page, found, pages = server.ok("GET", path), list[str](), 1
    while token := page.get("next_page_token"):
        assert pages < 20
        page, pages = server.ok("GET", f"{path}?page_token={quote(token)}"), pages + 1
        found += [each["principal"] for each in page.get("privilege_assignments", [])]
    server.trouble()
    assert (sorted(users), 10) == (sorted(found), pages)


def test_effective_permissions_tell_where_they_come_from(server: Server, world: EmbeddedWorld) -> None:
    """What holds on a table by its schema is told with the schema's name; what is direct, without."""
    table, user = world.table(), world.user()
    schema = table.securable.parent
    assert schema is not None
    for kind, full_name in (("table", table.securable.full_name), ("schema", schema.full_name)):
        server.ok("PATCH", f"{UC}/permissions/{kind}/{full_name}", {"changes": [{"principal": user, "add": [SELECT]}]})
    reported = server.ok("GET", f"{UC}/effective-permissions/table/{table.securable.full_name}")
    source = {"inherited_from_type": "SCHEMA", "inherited_from_name": schema.full_name}
    expected = [{"privilege": SELECT}, {"privilege": SELECT, **source}]
    assert reported == {"privilege_assignments": [{"principal": user, "privileges": expected}]}


def test_random_worlds_are_enforced_as_a_plain_model_says() -> None:
    """Who may read, over random nested groups (circles too), owners and grants, is what set arithmetic says."""
    pick = random.Random(7)
    for _ in range(300):
        with closing(open_rows(Path(":memory:"))) as rows:
            rows.execute("BEGIN")
            people = [f"p{each}" for each in range(6)]
            for each in people:
                rows.execute("INSERT INTO principals VALUES (?, 'group', ?, ?, ?, 1, 0)", (each, each, each, each))
            edges = {(pick.choice(people), pick.choice(people)) for _ in range(pick.randrange(9))}
            rows.executemany("INSERT INTO members VALUES (?, ?)", edges)
            owners = {name: pick.choice(people) for name in ("c", "c.s", "c.s.t")}
            for name, parent in (("c", None), ("c.s", "c"), ("c.s.t", "c.s")):
                row = (name, name, parent, owners[name], name, "[]", 0.0)
                rows.execute("INSERT INTO securables VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            grants = {
                (
                    pick.choice(list(owners)),
                    pick.choice([*people, EVERYONE_ID]),
                    pick.choice([SELECT, USE_SCHEMA, USE_CATALOG, ALL_PRIVILEGES, MANAGE, "MODIFY", BROWSE]),
                )
                for _ in range(pick.randrange(12))
            }
            rows.executemany("INSERT INTO grants VALUES (?, ?, ?)", grants)
            rows.execute("COMMIT")
            table = find(rows, "table", "c.s.t")
            for each in people:
                found = rows.execute("SELECT * FROM principals WHERE id = ?", (each,)).fetchone()
                may = not standing(rows, found, table).unreadable()
                assert may == reads(each, edges, owners, grants), (each, edges, owners, grants)


def reads(who: str, edges: set[tuple[str, str]], owners: dict[str, str], grants: set[tuple[str, str, str]]) -> bool:
    """Say without any of the server's code whether somebody reads c.s.t."""
    selves = {who}
    while more := {group for group, member in edges if member in selves} - selves:
        selves |= more

    def has(privilege: str, names: tuple[str, ...], owned: str) -> bool:
        granted = {(name, right) for name, whom, right in grants if whom in selves | {EVERYONE_ID}}
        by_grant = any((name, right) in granted for name in names for right in (privilege, ALL_PRIVILEGES))
        return by_grant or owners[owned] in selves

    return (
        has(SELECT, ("c", "c.s", "c.s.t"), "c.s.t")
        and has(USE_SCHEMA, ("c", "c.s"), "c.s")
        and has(USE_CATALOG, ("c",), "c")
    )


# ---------------------------------------------------------------------------------------------------------- the process


def test_what_lies_in_the_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    """The folder is 0700 and its files 0600; no token stands in the database; SIGTERM ends the server with 0."""
    folder = tmp_path / "deep" / "catalog"
    with served(folder) as server:
        minted = server.token_of(EmbeddedWorld(server).user())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = sorted(folder.iterdir())
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        kept = b"".join(file.read_bytes() for file in files if file.name != "token")
        assert server.token.encode() not in kept
        assert minted.encode() not in kept
        assert server.stop() == 0


def test_a_removed_token_file_makes_a_new_token_and_ends_the_old(tmp_path: Path) -> None:
    """To remove the file and start again is how the token is changed: the one before is unknown from then on."""
    with served(tmp_path) as first:
        first.stop()
    (tmp_path / "token").unlink()
    with served(tmp_path) as second:
        assert second.token != first.token
        assert second.call("GET", f"{SCIM}/Me", token=first.token).status_code == 401
        assert second.call("GET", f"{SCIM}/Me").status_code == 200


def test_a_second_server_refuses_in_a_sentence(server: Server, tmp_path: Path) -> None:
    """A taken port, a folder served already and a broken file are told in one sentence; the first server goes on."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "catalog.db").write_text("no database at all, whatever its name says" * 100, "utf-8")
    for folder, port in ((tmp_path, server.port), (server.folder, 0), (tmp_path / "broken", 0)):
        second = start(folder, port)
        _, said = second.communicate(timeout=30)
        assert second.returncode == 1
        assert len(said.splitlines()) == 1, said
        assert said.startswith("turnout: ")
    assert server.call("GET", f"{SCIM}/Me").status_code == 200
