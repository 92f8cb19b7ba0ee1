"""Guards what catalogs' clients send and understand, byte for byte, where the real server is not at hand."""

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from grants.catalog import CatalogUnavailable, Change, Denied, NotFound, Probe
from grants.catalogs.columns import described
from grants.catalogs.databricks import Databricks
from grants.catalogs.members import Members
from grants.catalogs.opening import open_catalog
from grants.catalogs.rate_limit import RateLimiter, limiter_for
from grants.catalogs.rest import Rest, path_of
from grants.catalogs.unity import SCIM as UNITY_SCIM
from grants.catalogs.unity import Unity
from grants.catalogs.unity_key import UnityKey
from grants.catalogs.warehouse import Warehouse, statements
from grants.model import SELECT, USE_CATALOG, USE_SCHEMA, GameTable, Principal, Securable
from pipeline.base.errors import Refused
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths
from tests.unit.grants.catalog_world import (
    SCIM,
    UC,
    FakeClock,
    Recorder,
    open_source_user,
    open_source_users,
    recorder,
)

TABLE = Securable(("main", "games", "chess"))
GAME = GameTable("chess", TABLE, "id-1", None)


@pytest.fixture
def stub() -> Iterator[Recorder]:
    with recorder() as recording:
        yield recording


def rest(stub: Recorder) -> Rest:
    return Rest(stub.url, "a-token", clock=FakeClock())


# ---------------------------------------------------------------------------------------------------------- any client

_BAIT = [
    *(
        "/",
        "?",
        "#",
        "%",
        "..",
        "%2F",
        "%2e",
        "\\",
        "`",
        "'",
        '"',
        ";",
        ":",
        "@",
        "&",
        "=",
        "+",
        " ",
        "\t",
        "\0",
        "\r\n",
        "é",
    ),
    *("☃", "\u202e", "catalog", "main", "permissions", "changes", "{", "}", "$", "*", "//", "../", "a", "b", "."),
]


def hostile_names(count: int) -> Iterator[str]:
    pick = random.Random(11)
    for _ in range(count):
        yield "".join(pick.choice(_BAIT) for _ in range(pick.randrange(1, 9)))


@pytest.mark.proves("G120")
def test_no_hostile_name_reaches_another_securable(stub: Recorder) -> None:
    """Of 2,000 names made to be misread, none changes where a grant goes, as principal or as part of a path (H)."""
    clients = (Databricks(rest(stub)), Unity(rest(stub), Members(None)))
    plain = rest(stub)
    for number, name in enumerate(hostile_names(2_000)):
        stub.submitted.clear()
        clients[number % 2].change(Change(TABLE, name, add=(SELECT,)))
        wanted = {"changes": [{"principal": name, "add": [SELECT]}]}
        assert stub.submitted == [("PATCH", f"{UC}/permissions/table/main.games.chess", wanted)]
        check_name_in_path(plain, stub, name, sent=number % 4 == 0)


def check_name_in_path(plain: Rest, stub: Recorder, name: str, *, sent: bool) -> None:
    """Check that a name is one part of a path, as it is made and as it is on the wire, or refused."""
    prefix, tail = f"{UC}/tables/", "/tail"
    if not name.strip("."):
        with pytest.raises(Refused):
            path_of(f"{UC}/tables", name, "tail")
        return
    path = path_of(f"{UC}/tables", name, "tail")
    if sent:
        stub.submitted.clear()
        plain.read(path)
        assert stub.paths() == [path]
    assert unquote(path.removeprefix(prefix).removesuffix(tail)) == name
    assert path.count("/") == f"{prefix}x{tail}".count("/")
    assert not set("?#\\ ") & set(path)


def test_statements_cannot_be_broken_out_of() -> None:
    """A hostile principal is one quoted name in SQL, or refused; what is no privilege is never written."""
    for name in hostile_names(2_000):
        try:
            (statement,) = statements(Change(TABLE, name, add=(SELECT, USE_SCHEMA)))
        except Refused:
            assert not name.isprintable()
            continue
        head = "GRANT SELECT, USE SCHEMA ON TABLE `main`.`games`.`chess` TO `"
        assert statement.startswith(head)
        assert statement.endswith("`")
        inside = statement[len(head) : -1]
        assert "`" not in inside.replace("``", "")
        assert inside.replace("``", "`") == name
    for privilege in ("SELECT, MODIFY", "SELECT ON", "select", "", "SELECT--", "SELECT\n"):
        with pytest.raises(Refused):
            statements(Change(TABLE, "ada", remove=(privilege,)))


def test_reads_keep_their_pace() -> None:
    """Whatever number of threads reads, no second has more than its ten requests, also if one is sent 100 ms late."""
    clock, taken, lock = FakeClock(), list[float](), threading.Lock()

    class Shared(FakeClock):
        """Threads that wait do so side by side: nobody's wait moves the clock on."""

        def sleep(self, seconds: float) -> None:
            with lock:
                taken.append(seconds)

    bucket = RateLimiter(10, Shared())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bucket.take(), range(40)))
    assert sorted(round(each, 6) for each in taken) == [round(number * 0.11, 6) for number in range(1, 40)]
    assert clock.slept == []


def test_clients_for_one_address_share_a_pace(stub: Recorder) -> None:
    """An operation that reads while a snapshot is taken reads in its turn, not beside it at up to as much again."""
    clients = [Rest(stub.url, "a-token", reads_per_second=20) for _ in range(3)]
    begun = time.monotonic()
    for number in range(12):
        clients[number % 3].read("/x")
    assert time.monotonic() - begun > 11 / 20
    assert limiter_for(stub.url, 20) is not limiter_for(f"{stub.url}0", 20)


def test_a_client_asks_only_what_it_is_told_to_and_where(stub: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """No probe of the host is sent, no proxy sees a token of this machine, and the environment's token is not used."""
    for name, value in {
        "HTTP_PROXY": "http://127.0.0.1:1",
        "http_proxy": "http://127.0.0.1:1",
        "DATABRICKS_TOKEN": "of-another-place",
        "DATABRICKS_CLIENT_ID": "app",
        "DATABRICKS_CLIENT_SECRET": "app-secret",
    }.items():
        monkeypatch.setenv(name, value)
    rest(stub).read("/x")
    assert stub.paths() == ["/x"]
    assert stub.headers[0]["Authorization"] == "Bearer a-token"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "host",
        "http://catalog.example.com",
        "https://me:canary@host",
        "http://[",
        "",
        "http://me:canary@[::1",
        "ftp://me:canary@host",
        "https://me:canary/word@host",
        "https://me:canary",
    ],
)
def test_an_address_that_would_give_the_token_away_is_refused(url: str) -> None:
    """Tokens go over https, or stay on this machine; a password in an address is not shown."""
    with pytest.raises(Refused) as refused:
        Rest(url, "a-token")
    assert "canary" not in str(refused.value)
    for token in ("", "a\nb", "ä"):
        with pytest.raises(Refused):
            Rest("https://host", token)


# ---------------------------------------------------------------------------------------------------------- Databricks


def scim(*found: dict[str, Any]) -> dict[str, Any]:
    return {"totalResults": len(found), "startIndex": 1, "Resources": list(found)}


def test_a_workspaces_directory_is_understood(stub: Recorder) -> None:
    """Users by address, services by application id, account groups by name; local groups are left out."""
    stub.answers |= {
        f"{SCIM}/Users": scim(
            {"id": "1", "userName": "Ada@x.com"}, {"id": "2", "userName": "b@x.com", "active": False}
        ),
        f"{SCIM}/ServicePrincipals": scim({"id": "3", "applicationId": "app-3", "displayName": "loader"}),
        f"{SCIM}/Groups": scim(
            {"id": "4", "displayName": "Analysts", "members": [{"value": "1"}, {"value": "3"}, {"value": "99"}]},
            {"id": "5", "displayName": "all", "members": [{"value": "4"}], "meta": {"resourceType": "Group"}},
            {
                "id": "6",
                "displayName": "local",
                "members": [{"value": "1"}],
                "meta": {"resourceType": "WorkspaceGroup"},
            },
        ),
    }
    directory = Databricks(rest(stub)).directory()
    assert directory.principals == {
        "account users": Principal("account users", "group"),
        "ada@x.com": Principal("Ada@x.com", "user", principal_id="1"),
        "b@x.com": Principal("b@x.com", "user", active=False, principal_id="2"),
        "app-3": Principal("app-3", "service_principal", principal_id="3"),
        "analysts": Principal("Analysts", "group", principal_id="4"),
        "all": Principal("all", "group", principal_id="5"),
    }
    assert directory.groups_of == {
        "ada@x.com": {"analysts"},
        "app-3": {"analysts"},
        "analysts": {"all"},
    }
    assert not directory.emulated_groups
    assert not directory.is_whole
    stub.answers[f"{SCIM}/ServicePrincipals"] = scim({"id": "3", "applicationId": "ADA@x.com"})
    doubled = Databricks(rest(stub)).directory()
    assert doubled.ambiguous == {"ada@x.com": ("ADA@x.com", "Ada@x.com")}
    assert doubled.principals.keys() == {"account users", "b@x.com", "analysts", "all"}
    assert doubled.doubtful == {"ada@x.com": {"analysts"}}


@pytest.mark.parametrize(
    ("mine", "shown", "hidden"),
    [
        ([], ["1"], {"empty"}),
        ([], None, {"team", "empty"}),
        ([{"value": "3"}], None, {"team", "empty"}),
        ([{"value": "3"}], ["1"], set()),
        ([{"value": "of the workspace alone"}], ["1"], {"empty"}),
    ],
)
@pytest.mark.proves("G264")
def test_groups_whose_members_are_not_shown_are_hidden(
    stub: Recorder, mine: list[dict[str, str]], shown: list[str] | None, hidden: set[str]
) -> None:
    """A group of the executor's own has a member: where it shows none, no group's members are known."""
    members = {} if shown is None else {"members": [{"value": each} for each in shown]}
    stub.answers |= {
        f"{SCIM}/Users": scim({"id": "1", "userName": "ada@x.com"}),
        f"{SCIM}/ServicePrincipals": scim(),
        f"{SCIM}/Groups": scim({"id": "3", "displayName": "team", **members}, {"id": "4", "displayName": "empty"}),
        f"{SCIM}/Me": {"userName": "robot", "groups": mine},
    }
    assert Databricks(rest(stub)).directory().hidden == hidden


@pytest.mark.parametrize(
    ("member", "hidden"),
    [
        ({"value": "9", "$ref": "Groups/9"}, {"analysts"}),
        ({"value": "9", "$ref": "https://x.test/api/2.0/preview/scim/v2/Groups/9", "type": "Group"}, {"analysts"}),
        ({"value": "9"}, {"analysts"}),
        ({"value": "9", "$ref": "Users/9"}, set()),
        ({"value": "9", "$ref": "https://x.test/api/2.0/preview/scim/v2/ServicePrincipals/9"}, set()),
        ({"value": "9", "type": "User"}, set()),
    ],
)
@pytest.mark.proves("G264")
def test_a_group_with_a_group_that_is_not_listed_is_hidden(
    stub: Recorder, member: dict[str, str], hidden: set[str]
) -> None:
    """A workspace does not list all groups of the account: members of a nested one may be in the group around it."""
    stub.answers |= {
        f"{SCIM}/Users": scim({"id": "1", "userName": "ada@x.com"}),
        f"{SCIM}/ServicePrincipals": scim({"id": "2", "applicationId": "robot"}),
        f"{SCIM}/Groups": scim(
            {"id": "3", "displayName": "bots", "members": [{"value": "2"}]},
            {"id": "4", "displayName": "analysts", "members": [{"value": "1"}, member]},
        ),
        f"{SCIM}/Me": {"userName": "robot", "groups": [{"value": "3"}]},
    }
    directory = Databricks(rest(stub)).directory()
    assert directory.hidden == hidden
    assert directory.groups_of["ada@x.com"] == {"analysts"}, "what is shown is known"


@pytest.mark.proves("G265")
def test_addresses_that_fold_to_one_are_ambiguous(stub: Recorder) -> None:
    """Names are compared without case, and `ß` folds to `ss`: two such people hinder nobody else."""
    people = [{"id": str(at), "userName": f"{name}@x.com"} for at, name in enumerate(("straße", "strasse", "bob"))]
    stub.answers |= {f"{SCIM}/Users": scim(*people), f"{SCIM}/Groups": scim(), f"{SCIM}/ServicePrincipals": scim()}
    directory = Databricks(rest(stub)).directory()
    assert directory.ambiguous == {"strasse@x.com": ("strasse@x.com", "straße@x.com")}
    assert directory.principals.keys() == {"account users", "bob@x.com"}


def test_a_list_that_is_cut_short_is_no_list(stub: Recorder) -> None:
    """SCIM lists that show fewer than they count, or do not count, are CatalogAway: somebody would be missing."""
    answers: tuple[dict[str, Any], ...] = ({"totalResults": 5, "Resources": []}, {"Resources": []}, {})
    stub.answers |= {f"{SCIM}/{kind}": scim() for kind in ("ServicePrincipals", "Groups")}
    for answer in answers:
        stub.answers[f"{SCIM}/Users"] = answer
        with pytest.raises(CatalogUnavailable):
            Databricks(rest(stub)).directory()


def test_filters_and_masks_are_seen(stub: Recorder) -> None:
    """A table with a row filter or masked columns says so; a table no game can have is left out."""
    columns = [{"name": "a", "mask": {"function_name": "f"}}, {"name": "b"}]
    stub.answers[f"{UC}/tables"] = {
        "tables": [
            {"name": "chess", "table_id": "1", "owner": "o", "row_filter": {"function_name": "f"}, "columns": columns},
            {"name": "go", "table_id": "2"},
            {"name": "no game's", "table_id": "3"},
        ]
    }
    schema = Securable(("main", "games"))
    assert Databricks(rest(stub)).tables(schema) == {
        "chess": GameTable("chess", TABLE, "1", "o", has_row_filter=True, masked_columns=("a",)),
        "go": GameTable("go", Securable(("main", "games", "go")), "2", None),
    }


def sql(stub: Recorder, state: str, code: str = "", message: str = "") -> None:
    stub.answers["/api/2.0/sql/statements"] = {
        "status": {"state": state, "error": {"error_code": code, "message": message}}
    }


def test_changes_and_probes_on_a_warehouse(stub: Recorder) -> None:
    """With a warehouse a change is SQL there, and a read is tried as the one principal there is a token of."""
    warehouse = Warehouse(rest(stub), "w1")
    catalog = Databricks(rest(stub), warehouse=warehouse, prober=("Probe@x.com", warehouse))
    sql(stub, "SUCCEEDED")
    catalog.change(Change(TABLE.chain().__next__(), "a`b", add=(SELECT,), remove=("BROWSE",)))
    assert [body["statement"] for _, _, body in stub.submitted] == [
        "GRANT SELECT ON TABLE `main`.`games`.`chess` TO `a``b`",
        "REVOKE BROWSE ON TABLE `main`.`games`.`chess` FROM `a``b`",
    ]
    assert {body["warehouse_id"] for _, _, body in stub.submitted} == {"w1"}
    assert catalog.probe("probe@x.com", GAME).reads is True
    assert stub.submitted[-1][2]["statement"] == "SELECT 1 FROM `main`.`games`.`chess` LIMIT 0"
    assert catalog.probe("other@x.com", GAME).reads is None
    for state, code, reads, meant in (
        ("FAILED", "PERMISSION_DENIED", False, Denied),
        ("FAILED", "[INSUFFICIENT_PERMISSIONS] no", False, Denied),
        ("FAILED", "PRINCIPAL_DOES_NOT_EXIST", None, NotFound),
        ("FAILED", "TABLE_OR_VIEW_NOT_FOUND", None, NotFound),
        ("FAILED", "PARSE_SYNTAX_ERROR", None, Refused),
        ("CANCELED", "", None, CatalogUnavailable),
    ):
        sql(stub, state, code, "the warehouse's words")
        assert catalog.probe("probe@x.com", GAME).reads is reads, code
        with pytest.raises(meant):
            catalog.change(Change(TABLE, "ada", add=(SELECT,)))


# ------------------------------------------------------------------------------------------------- open-source server


def test_an_open_source_server_is_spoken_to_in_its_spelling(stub: Recorder, tmp_path: Path) -> None:
    """Privileges go and come with spaces, users by e-mail, and groups from a file, told to be emulated."""
    (tmp_path / "members.yml").write_text("groups:\n  Analysts: [ada@x.com]\n  all: [analysts]\n  none:\n", "utf-8")
    catalog = Unity(rest(stub), Members(tmp_path / "members.yml"))
    catalog.change(Change(Securable(("main",)), "ada@x.com", add=(USE_CATALOG,), remove=("CREATE_SCHEMA",)))
    change = {"principal": "ada@x.com", "add": ["USE CATALOG"], "remove": ["CREATE SCHEMA"]}
    assert stub.submitted == [("PATCH", f"{UC}/permissions/catalog/main", {"changes": [change]})]
    granted = [{"principal": "ada@x.com", "privileges": ["USE SCHEMA", "SELECT", "SOMETHING NEW"]}]
    stub.answers |= {
        f"{UC}/permissions/schema/main.games": {"privilege_assignments": granted},
        **open_source_users(
            {"id": "1", "emails": [{"value": "x@x.com"}, {"value": "ada@x.com", "primary": True}]},
            {"id": "2", "emails": [{"value": "Analysts"}], "active": False},
        ),
    }
    assert catalog.executor == "admin"
    held = {"ada@x.com": {USE_SCHEMA, SELECT, "SOMETHING_NEW"}}
    assert catalog.assignments(Securable(("main", "games"))) == held
    directory = catalog.directory()
    assert directory.emulated_groups
    assert directory.principals["analysts"] == Principal("Analysts", "group", active=False, principal_id="2")
    assert directory.principals["ada@x.com"] == Principal("ada@x.com", "user", principal_id="1")
    assert directory.groups_of == {"ada@x.com": {"analysts"}, "analysts": {"all"}}
    assert catalog.probe("ada@x.com", GAME).reads is None


@pytest.mark.parametrize("text", ["groups: [a]", "a: b", "groups:\n  a: b\n  c: [1]", "{", "groups:\n  1: [a]", "- a"])
def test_a_wrong_file_of_members_is_refused(tmp_path: Path, text: str) -> None:
    """A file of members in another form is refused with its name, and never read as no groups."""
    (tmp_path / "members.yml").write_text(text, "utf-8")
    with pytest.raises(Refused, match=r"members\.yml"):
        Members(tmp_path / "members.yml").groups()


def test_all_users_are_read_though_each_page_counts_itself_alone(stub: Recorder) -> None:
    """An open-source server counts what is on the page as all there is: pages are read until one is empty."""
    names = [f"user{number}@x.com" for number in range(250)]
    stub.answers |= open_source_users(*map(open_source_user, names))
    assert set(Unity(rest(stub), Members(None)).directory().principals) == {*names, "admin"}
    stub.answers[f"{UNITY_SCIM}/Users"] = scim({"id": "1", "emails": [{"value": "a"}]})  # whatever page is asked for
    with pytest.raises(CatalogUnavailable, match="endlessly"):
        Unity(rest(stub), Members(None)).directory()


def test_a_server_that_does_not_look_at_tokens_is_refused(stub: Recorder) -> None:
    """Without authorization grants are accepted and not kept, and everybody reads: that is not shown as nobody."""
    stub.answers |= open_source_users(open_source_user("ada@x.com"))
    reported = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"], "status": "400", "detail": "No user found."}
    stub.answers[f"{UNITY_SCIM}/Me"] = lambda *_: (500, reported)
    for call in (
        lambda: Unity(rest(stub), Members(None)).directory(),
        lambda: Unity(rest(stub), Members(None)).executor,
    ):
        with pytest.raises(Refused, match=r"server\.authorization=enable"):
            call()


def test_users_that_cannot_be_told_apart_are_ambiguous(stub: Recorder) -> None:
    """Active users that differ in casing only hinder nobody else; one that was deleted stands aside for the other."""
    stub.answers |= open_source_users(*map(open_source_user, ("Ada@x.com", "ada@x.com", "b@x.com")))
    doubled = Unity(rest(stub), Members(None)).directory()
    assert doubled.ambiguous == {"ada@x.com": ("Ada@x.com", "ada@x.com")}
    assert doubled.principals.keys() == {"admin", "b@x.com"}
    left = open_source_user("Ada@x.com", active=False)
    stub.answers |= open_source_users(left, open_source_user("ada@x.com"))
    ada = Principal("ada@x.com", "user", principal_id="id of ada@x.com")
    assert Unity(rest(stub), Members(None)).directory().principals["ada@x.com"] == ada


def test_a_list_that_leaves_out_somebody_with_a_grant_is_refused(stub: Recorder) -> None:
    """The server leaves users that share a display name out of its list: who has a grant is not taken for gone."""
    stub.answers |= open_source_users(open_source_user("ada@x.com"))
    granted = [{"principal": name, "privileges": ["SELECT"]} for name in ("ada@x.com", "left.out@x.com")]
    stub.answers[f"{UC}/permissions/schema/main.games"] = {"privilege_assignments": granted}
    catalog = Unity(rest(stub), Members(None))
    catalog.assignments(Securable(("main", "games")))
    with pytest.raises(Refused, match=r"left\.out@x\.com.*display name"):
        catalog.directory()


@pytest.fixture
def keyed(stub: Recorder, tmp_path: Path) -> tuple[Unity, rsa.RSAPrivateKey, dict[str, tuple[int, dict[str, str]]]]:
    """Return a client with a server's key, that key, and who gets which answer from the table's credentials."""
    key = rsa.generate_private_key(65537, 2048)
    (tmp_path / "private_key.der").write_bytes(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "key_id.txt").write_text("key-1\n", "utf-8")
    (tmp_path / "members.yml").write_text("groups: {analysts: [ada@x.com], all: [analysts], x: [b]}", "utf-8")
    answers: dict[str, tuple[int, dict[str, str]]] = {}
    denied = 403, {"error_code": "PERMISSION_DENIED", "message": "Access denied."}

    def credentials(_: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        return answers.get(subject_of(headers["Authorization"]), answers.get("", denied))

    stub.answers |= open_source_users(*map(open_source_user, ("ada@x.com", "Analysts", "all", "x")))
    stub.answers[f"{UC}/temporary-table-credentials"] = credentials
    return Unity(rest(stub), Members(tmp_path / "members.yml"), UnityKey(tmp_path)), key, answers


Keyed = tuple[Unity, rsa.RSAPrivateKey, dict[str, tuple[int, dict[str, str]]]]


def tried(stub: Recorder) -> list[str]:
    """Return as whom a table was tried to be read."""
    headers = zip(stub.submitted, stub.headers, strict=True)
    return [subject_of(each["Authorization"]) for (_, path, _), each in headers if "credentials" in path]


def test_a_users_token_is_signed_with_the_servers_key(stub: Recorder, keyed: Keyed, tmp_path: Path) -> None:
    """With the server's key a read is tried as the user, then as each of their groups, by tokens of a minute."""
    catalog, key, answers = keyed
    signed, _, signature = UnityKey(tmp_path).token("ada@x.com").rpartition(".")
    key.public_key().verify(decoded(signature), signed.encode(), padding.PKCS1v15(), SHA512())
    assert catalog.probe("ADA@x.com", GAME).reads is False
    assert tried(stub) == ["ada@x.com", "Analysts", "all"], "in the server's casing: it tells names apart by it"
    submitted = ("POST", f"{UC}/temporary-table-credentials", {"table_id": "id-1", "operation": "READ"})
    assert [each for each in stub.submitted if each[0] == "POST"] == [submitted] * 3
    answers["Analysts"] = 200, {"url": "file:///t"}
    probe = catalog.probe("ada@x.com", GAME)
    assert (probe.reads, probe.stand_in) == (True, "Analysts"), "whom the server lets in is told"
    answers["ada@x.com"] = answers["Analysts"]
    assert (catalog.probe("ada@x.com", GAME).stand_in) == ""
    with pytest.raises(Refused):
        UnityKey(tmp_path / "nowhere")


def test_who_is_not_active_reads_by_no_group(stub: Recorder, keyed: Keyed) -> None:
    """Who was deleted is tried as themselves only: that a group of theirs reads is nothing to them."""
    catalog, _, answers = keyed
    stub.answers |= open_source_users(open_source_user("ada@x.com", active=False), open_source_user("Analysts"))
    answers["Analysts"] = 200, {"url": "file:///t"}
    assert catalog.probe("ada@x.com", GAME).reads is False
    assert catalog.probe("nobody@x.com", GAME).reads is False
    assert set(tried(stub)) == {"ada@x.com", "nobody@x.com"}


def test_a_key_of_another_server_tries_nothing(stub: Recorder, keyed: Keyed) -> None:
    """A token the server does not take proves nothing: the answer is not known, and never "cannot read"."""
    catalog, _, answers = keyed
    for status, code in ((401, "UNAUTHENTICATED"), (500, "INTERNAL")):  # the same id with another key; another id
        answers[""] = status, {"error_code": code, "message": "Invalid access token."}
        probe = catalog.probe("ada@x.com", GAME)
        assert probe.reads is None
        assert "UNITY_CATALOG_KEY_FOLDER" in probe.message
    stub.answers[f"{UNITY_SCIM}/Me"] = lambda *_: (500, {"error_code": "INTERNAL", "message": "down"})
    with pytest.raises(CatalogUnavailable):
        catalog.probe("ada@x.com", GAME)


def subject_of(authorization: str) -> str:
    """Return whose token it is; of a token that is not ours nobody's."""
    parts = authorization.removeprefix("Bearer ").split(".")
    return str(json.loads(decoded(parts[1]))["sub"]) if len(parts) == 3 else ""


def decoded(text: str) -> bytes:
    import base64

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# ------------------------------------------------------------------------------------------------------------- opening


def test_which_catalog_is_opened_and_what_is_missing_is_named(tmp_path: Path) -> None:
    """The setting says which client; what the environment lacks is named; an embedded one never started is away."""
    paths = Paths(tmp_path)
    with pytest.raises(CatalogUnavailable, match="never started"):
        open_catalog(Access(), paths, {})
    paths.catalog.mkdir()
    (paths.catalog / "token").write_text("t", "utf-8")
    assert open_catalog(Access(), paths, {}).kind == "embedded"
    with pytest.raises(Refused, match="UNITY_CATALOG_URL and UNITY_CATALOG_TOKEN"):
        open_catalog(Access(catalog="unity"), paths, {})
    with pytest.raises(Refused, match="DATABRICKS_TOKEN"):
        open_catalog(Access(catalog="databricks"), paths, {"DATABRICKS_HOST": "x"})
    named = {"UNITY_CATALOG_URL": "http://127.0.0.1:1", "UNITY_CATALOG_TOKEN": "t"}
    assert open_catalog(Access(catalog="unity"), paths, named).kind == "unity"
    workspace = {"DATABRICKS_HOST": "x.example.com", "DATABRICKS_TOKEN": "t", "DATABRICKS_PROBE_TOKEN": "p"}
    found = open_catalog(Access(catalog="databricks", probe_principal="p"), paths, workspace)
    assert found.kind == "databricks"
    assert found.probe("p", GAME) == Probe(None, "Granted, not probed: turnout has no token of this principal.")


def test_columns_are_described_as_the_api_wants_them() -> None:
    """Delta's types get SQL's names, also inside of others, and field names that look like types stay."""
    reported = described([("seq", "long"), ("s", "struct<long:long,b:array<integer>>"), ("d", "decimal(10,2)")])
    assert [(each["type_text"], each["type_name"], each["position"]) for each in reported] == [
        ("bigint", "LONG", 0),
        ("struct<long:bigint,b:array<int>>", "STRUCT", 1),
        ("decimal(10,2)", "DECIMAL", 2),
    ]
    with pytest.raises(Refused):
        described([("a", "")])
