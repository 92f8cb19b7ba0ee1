"""A control store in Lakebase, on a real PostgreSQL whose passwords are tokens that live two seconds."""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, QueuePool, delete, select, text
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.health.facts.placing import placing
from pipeline.platforms.databricks import lakebase as lakebase_store
from pipeline.platforms.databricks.workspace.client import Workspace
from pipeline.settings.tree import load
from pipeline.store.database.engine import DRIVER_CONNECTIONS, open_store, require_store, writing
from pipeline.store.database.tables import drivers, groups
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from tests.lakebase import ENDPOINT, Lakebase

Opening = Callable[..., Engine]
CREDENTIALS = "POST /api/2.0/postgres/credentials"


@pytest.fixture
def opened(lakebase: Lakebase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Opening]:
    """Open the endpoint's store as a role, by default its owner."""
    made: list[Engine] = []

    def open_it(user: str | None = None, connections: int = 5) -> Engine:
        url = lakebase.enter(monkeypatch, user)
        made.append(open_store(*load(tmp_path, {"TURNOUT_STORE__URL": url}), connections=connections))
        return made[-1]

    yield open_it
    for each in made:
        each.dispose()


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def log_in(store: Engine) -> None:
    """Use a new connection."""
    store.dispose()
    with store.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


# ------------------------------------------------------------------------------------------------------------- its URL


@pytest.mark.parametrize(
    ("url", "database"),
    [
        (f"lakebase://{ENDPOINT}/turnout", "turnout"),
        (f"lakebase://{ENDPOINT}/turnout/", "turnout"),
        (f"lakebase://{ENDPOINT}", "from_pg"),
        (ENDPOINT, "from_pg"),
        (f"{ENDPOINT}/turnout", "turnout"),
    ],
)
def test_an_endpoints_path_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, database: str) -> None:
    """An App's `valueFrom` gives the path alone and `PG*` the rest; the URL's own database wins."""
    monkeypatch.setattr(lakebase_store, "open_workspace", lambda **_: Workspace(None, "https://w"))
    settings, _paths = load(tmp_path, {"TURNOUT_STORE__URL": url})
    environ = {"PGHOST": "127.0.0.1", "PGUSER": "app-1", "PGDATABASE": "from_pg", "PGPORT": "6543"}
    made = lakebase_store.open_engine(settings.store.url, environ)
    assert str(made.url) == f"postgresql+psycopg://app-1@127.0.0.1:6543/{database}"


@pytest.mark.parametrize(
    ("url", "variables", "said"),
    [
        ("lakebase://turnout", {}, "store.url names no endpoint of Lakebase"),
        (f"lakebase://me:hunter2@host/{ENDPOINT}/d", {}, "without user and password"),
        ("lakebase:", {}, "store.url names no endpoint of Lakebase"),
        ("projects/p/branches/b", {}, "store.url names no endpoint of Lakebase"),
        (ENDPOINT, {}, f"names no database of {ENDPOINT}. Append /DATABASE to it, or set PGDATABASE"),
        (f"{ENDPOINT}/d", {"PGPORT": "five"}, "PGPORT: expected a port from 1 to 65535, got 'five'"),
        (f"{ENDPOINT}/d", {"PGHOST": "h.example", "PGSSLMODE": "prefer"}, "PGSSLMODE is 'prefer', by which the token"),
        (f"{ENDPOINT}/d", {"DATABRICKS_HOST": ""}, "No workspace can be reached"),
    ],
)
def test_each_missing_part_has_a_clear_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, variables: dict[str, str], said: str
) -> None:
    """Each part that is missing or wrong has its own sentence with what to do, and none repeats a password."""
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("PGDATABASE", "PGHOST", "PGPORT", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for opening in (open_store, require_store):
        with pytest.raises(Refused) as caught:
            opening(*load(tmp_path, {"TURNOUT_STORE__URL": url}))
        assert said in str(caught.value)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("host", "wanted", "mode"),
    [
        ("h.example", "", "require"),
        ("h.example", "verify-full", "verify-full"),
        ("10.0.0.1", "", "require"),
        ("127.0.0.1", "", "prefer"),
        ("localhost", "disable", "disable"),
        ("::1", "", "prefer"),
    ],
)
def test_a_token_leaves_the_machine_encrypted_only(host: str, wanted: str, mode: str) -> None:
    """A token is a password for an hour: TLS is required, but for a server of this machine."""
    assert lakebase_store._ssl_mode(host, wanted) == mode


def test_the_workspace_says_what_the_environment_does_not(
    lakebase: Lakebase, opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's laptop has no `PG*` variables: host and role are those of the endpoint and of who is signed in."""
    environ = lakebase.environ()
    monkeypatch.setattr(lakebase, "environ", lambda _user=None: environ | {"PGHOST": "", "PGUSER": ""})
    store = opened()
    assert (store.url.host, store.url.username) == ("127.0.0.1", lakebase.user)
    assert lakebase.calls == [f"GET /api/2.0/postgres/{ENDPOINT}", "GET /api/2.0/preview/scim/v2/Me", CREDENTIALS]
    lakebase.host = ""
    with pytest.raises(Refused, match=rf"{ENDPOINT} has no address yet. Wait until the endpoint"):
        opened()


class Unreachable:
    """The SDK's client before a workspace that drops connections."""

    def do(self, *_: object, **__: object) -> None:
        raise ConnectionError("reset by peer")


@pytest.mark.parametrize("variables", [{}, {"PGHOST": "127.0.0.1", "PGPORT": "9", "PGUSER": "app-1"}])
def test_a_workspace_that_is_away_at_the_start_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str]
) -> None:
    """A start that gets no address or no token ends with the reason, as before a database that is away."""
    monkeypatch.setattr(lakebase_store, "open_workspace", lambda **_: Workspace(Unreachable(), "https://w"))
    for name in ("PGHOST", "PGPORT", "PGUSER"):
        monkeypatch.setenv(name, variables.get(name, ""))
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": f"{ENDPOINT}/d"})
    with pytest.raises(Refused, match=r"cannot be opened: .*the workspace at https://w does not answer: reset"):
        open_store(settings, paths)
    require_store(settings, paths)  # which leaves the reason to the opening


def test_a_driver_takes_few_connections(opened: Opening) -> None:
    """Three hundred drivers share a server that may take 1,678: each keeps two, and has four at most."""
    sizes = []
    for connections in (DRIVER_CONNECTIONS, 5):
        pool = opened(connections=connections).pool
        assert isinstance(pool, QueuePool)
        sizes.append((pool.size(), pool._max_overflow, pool._recycle, pool._pre_ping))
    assert sizes == [(2, 2, 2_700, True), (5, 5, 2_700, True)]


# --------------------------------------------------------------------------------------------------- tokens that end


def test_a_store_outlives_its_tokens(lakebase: Lakebase, opened: Opening) -> None:
    """New connections work over several lives of a token, and requests follow the lives, not the connections."""
    store, logins = opened(), 0
    assert lakebase.life_seconds == 2.0
    while len(lakebase.tokens) < 3:
        log_in(store)
        logins += 1
    assert lakebase.calls.count(CREDENTIALS) == 3 < logins / 3
    until(lambda: not lakebase.has_token(lakebase.tokens[0]))
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        psycopg.connect(
            host="127.0.0.1", port=lakebase.postgres.port, dbname=lakebase.database, user=lakebase.user,
            password=lakebase.tokens[0],
        )  # fmt: skip


def test_a_workspace_that_fails_costs_nothing_while_the_token_lives(
    lakebase: Lakebase, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    """The old token serves until its end; then the store is away, in words without a token, until the next token."""
    caplog.set_level(logging.DEBUG)
    lakebase.life_seconds = 1.2
    store = opened()
    lakebase.fails = (403, "PERMISSION_DENIED", "no right on the project")
    while "could not renew the control store's token" not in caplog.text:
        log_in(store)
    with store.connect() as kept:
        until(lambda: not lakebase.has_token())
        with pytest.raises(OperationalError) as caught, store.connect():
            pass
        assert kept.scalar(text("SELECT 1")) == 1, "the end of a token ends no connection"
    assert "no token for the database: The workspace at" in str(caught.value)
    assert "does not permit this: no right on the project" in str(caught.value)
    with pytest.raises(Refused, match=r"The control store cannot be opened: no token for the database: .*no right on"):
        opened()
    lakebase.fails = None
    log_in(store)
    everything = caplog.text + "".join(traceback.format_exception(caught.value)) + repr(store) + str(store.url)
    assert len(lakebase.tokens) >= 2
    assert not [token for token in lakebase.tokens if token in everything]


def test_a_token_that_the_server_no_longer_takes_is_replaced(lakebase: Lakebase, opened: Opening) -> None:
    """A token that was revoked before its end costs one refused login, not a store that is away for an hour."""
    lakebase.life_seconds = 3.0
    store, begun = opened(), time.monotonic()
    lakebase.revoke()
    until(lambda: time.monotonic() - begun > 0.8)  # no longer new, and not due before 2.2 s
    log_in(store)
    assert lakebase.calls.count(CREDENTIALS) == 2


def test_a_role_that_does_not_exist_is_one_sentence(lakebase: Lakebase, opened: Opening) -> None:
    """An App without the resource has no role: its start says so, and the token is not asked for again and again."""
    lakebase.credential = {"token": "secret-of-a-stranger", "expire_time": "2999-01-01T00:00:00Z"}
    with pytest.raises(Refused, match=r"cannot be opened: .*authentication failed for user \"stranger\"") as caught:
        opened("stranger")
    assert lakebase.calls.count(CREDENTIALS) == 1
    assert "secret-of-a-stranger" not in "".join(traceback.format_exception(caught.value))


# ------------------------------------------------------------------------------------------------ connections that end


def test_connections_that_were_cut_between_two_calls_are_noticed_by_nobody(lakebase: Lakebase, opened: Opening) -> None:
    """Fail-over, the idle limit and three days end connections: the next call takes a new one."""
    store = opened()
    register_group(store, "a", placing())
    held = [store.connect() for _ in range(4)]
    for each in held:
        each.close()
    lakebase.cut()
    for name in "bcdef":
        register_group(store, name, placing())


def test_a_heartbeat_loop_goes_on_after_each_cut(
    lakebase: Lakebase, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that is cut in its middle says that the store is away; heartbeat and lease after it are written."""
    store = opened(connections=DRIVER_CONNECTIONS)
    settings = load(Path(), {"TURNOUT_STORE__LEASE_SECONDS": "1"})[0].store
    with leased(store, settings, "group", "a") as lease:
        assert lease is not None
        start_driver(store, "group", "a", None)
        for frontier in range(1, 4):
            with _locked(lakebase, "drivers"):
                beat = threading.Thread(target=_beat, args=(store, -frontier))
                beat.start()
                until(lambda: _waits_for_a_lock(lakebase))
                lakebase.cut()
                beat.join(10)
                assert not beat.is_alive()
            _beat(store, frontier)
            with store.connect() as connection:
                assert connection.scalar(select(drivers.c.frontier_seq)) == frontier
        assert caplog.text.count("this heartbeat is not recorded") == 3
        before = lease.read_holding()
        assert before is not None
        until(lambda: (now := lease.read_holding()) is not None and now.expires_at > before.expires_at)
        lease.check()


def test_a_transaction_that_was_cut_leaves_nothing(lakebase: Lakebase, opened: Opening) -> None:
    """A cut between two statements takes back the first; the caller gets the error of a store that is away."""
    store = opened()
    register_group(store, "a", placing())

    def remove_it() -> None:
        with writing(store) as connection:
            connection.execute(delete(groups))
            lakebase.cut()
            connection.execute(select(groups)).all()

    with pytest.raises(OperationalError):
        remove_it()
    with store.connect() as connection:
        assert connection.scalars(select(groups.c.name)).all() == ["a"]


def _beat(store: Engine, frontier: int) -> None:
    with tolerate_store_outage("this heartbeat is not recorded"):
        heartbeat(store, "group", "a", "running", frontier)


@contextmanager
def _locked(lakebase: Lakebase, table: str) -> Iterator[None]:
    """Keep everyone from a table, by a connection to it that no cut ends."""
    with psycopg.connect(_superuser(lakebase)) as connection:
        connection.execute(f'LOCK TABLE "{lakebase.schema}".{table} IN ACCESS EXCLUSIVE MODE'.encode())
        yield


def _waits_for_a_lock(lakebase: Lakebase) -> bool:
    with psycopg.connect(_superuser(lakebase)) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = %s"
        found = connection.execute(query, (lakebase.user,)).fetchone()
    return found is not None and found[0] > 0


def _superuser(lakebase: Lakebase) -> str:
    return f"postgresql://turnout@127.0.0.1:{lakebase.postgres.port}/{lakebase.database}"
