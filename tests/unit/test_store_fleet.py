"""The fleet as it is read from the control store, judged by the store's clock and ordered worst first."""

import json
import os
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, create_engine, delete, insert, select, text, update

from listeners.sample import STATUSES, Lane, StreamState
from pipeline.cli.main import cli
from pipeline.cli.status import describe
from pipeline.errors import Refused
from pipeline.health.judgement import Verdict
from pipeline.names import game_key
from pipeline.settings import Paths, Settings
from pipeline.store import tables
from pipeline.store.assignments import read_assignments
from pipeline.store.drivers import beat, commits_since, last_commit, record_commit, start_driver, write_streams
from pipeline.store.engine import open_store
from pipeline.store.fleet import Fleet, read_fleet, read_schemas
from pipeline.store.games import record_seen
from pipeline.store.leases import Lease, Process, expire_dead
from pipeline.store.loads import read_loads
from pipeline.store.operation_kinds import OperationState
from pipeline.store.operations import Intent, ask, change, list_operations
from pipeline.store.oversight import read_oversight
from pipeline.store.row_types import mistyped_columns
from pipeline.store.source_backlog import write_backlog
from tests.browser.seed import Seeded, fleet_of_forty, seed

NOW = 1_800_000_000.0


def test_a_dead_driver_takes_its_numbers_with_it(tmp_path: Path) -> None:
    """When a group's driver is silent its games are unknown and their lag, rates and latency are no longer told."""
    seed(tmp_path, fleet_of_forty(), now=NOW, heartbeat_ages={"ingest": 1, "a": 1, "b": 50}, history=False)
    fleet = read_fleet(open_store(Settings(), Paths(tmp_path)), NOW)
    dead = [row for row in fleet.rows if row.group == "b"]
    assert len(dead) == 20
    assert {"UNKNOWN"} == {row.verdict.status for row in dead}
    assert {None} == {row.live for row in dead}
    assert all(row.reported is not None for row in dead)
    assert "UNKNOWN" not in {row.verdict.status for row in fleet.rows if row.group == "a"}


def test_rows_come_worst_first(tmp_path: Path) -> None:
    """The row that needs a person most is the first: by status, then by lag, unknown lag before known."""
    fleet_rows = (
        Seeded("calm", "a", {}),
        Seeded("late", "a", {"status": "LAGGING", "backlog_age_seconds": 70.0}),
        Seeded("later", "a", {"status": "LAGGING", "backlog_age_seconds": 700.0}),
        Seeded("blind", "a", {"status": "LAGGING", "backlog_age_seconds": None}),
        Seeded("broken", "a", {"status": "CRASH_LOOP"}),
        Seeded("lost", None, None),
    )
    seed(tmp_path, fleet_rows, now=NOW, history=False)
    fleet = read_fleet(open_store(Settings(), Paths(tmp_path)), NOW)
    assert [row.game for row in fleet.rows] == ["broken", "lost", "blind", "later", "late", "calm"]
    ranks = [STATUSES.index(row.verdict.status) for row in fleet.rows]
    assert sorted(ranks, reverse=True) == ranks


def test_a_group_without_a_driver_is_still_listed(tmp_path: Path) -> None:
    """A group that exists, runs or carries a game is listed, so that one that never started is seen."""
    seed(tmp_path, (Seeded("x", "c", {}),), now=NOW, heartbeat_ages={"ingest": 1, "a": 1}, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        connection.execute(delete(tables.groups))
    fleet = read_fleet(engine, NOW)
    assert fleet.groups == ("a", "c")
    assert fleet.driver("group", "c") is None
    assert fleet.newest_bronze_seq == 840
    assert fleet.registered_games == 1


def test_null_stays_unknown(tmp_path: Path) -> None:
    """A null in the store is None to readers, never 0."""
    seed(tmp_path, (Seeded("x", "a", {}),), now=NOW, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    nulls = dict.fromkeys(("last_commit_at", "backlog_age_seconds", "rows_per_second", "latency_p95_seconds"))
    with engine.begin() as connection:
        connection.execute(update(tables.streams).values(nulls))
    live = read_fleet(engine, NOW).rows[0].live
    assert live is not None
    assert (
        live.last_commit_at,
        live.backlog_age_seconds,
        live.rows_per_second,
        live.latency_p95_seconds,
    ) == (None,) * 4


def test_schemas_are_read_in_order_of_registration(tmp_path: Path) -> None:
    """A game's schemas come oldest first with what they mean; a game without any has none."""
    seed(tmp_path, (Seeded("x", "a", {}), Seeded("y", "a", {})), now=NOW, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    with engine.begin() as connection:
        key = game_key("x")
        connection.execute(
            tables.registrations.insert().values(game_key=key, game="x", version=2, schema_id=2, created_at=NOW)
        )
    found = read_schemas(engine, game_key("x"))
    assert [(version.version, version.schema_id, version.message) for version in found] == [
        (1, 1, "samples.v1.Event1"),
        (2, 2, "samples.v1.Event2"),
    ]
    assert read_schemas(engine, "nobody") == ()


def test_an_unreadable_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A store that cannot be read gives one sentence with what to do, not an empty fleet."""
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(Refused, match=r"cannot be read: no such table.*Check the setting store\.url"):
        read_fleet(engine, NOW)
    with pytest.raises(Refused, match="cannot be read"):
        read_schemas(engine, "x")


# -------------------------------------------------------------------------------- what counts at once, what does not


@pytest.fixture
def store(tmp_path: Path) -> Engine:
    """Return the store of one game whose group's driver runs and has reported it just now."""
    seed(tmp_path, (Seeded("x", "a", {}),), now=time.time(), heartbeat_ages={"ingest": 0, "a": 0}, history=False)
    return open_store(Settings(), Paths(tmp_path))


def verdict(fleet: Fleet) -> Verdict:
    return fleet.rows[0].verdict


def state_of(key: str, status: str = "RUNNING") -> StreamState:
    return StreamState(key, "a", Lane.RUN, status, 0.0, 1, None, 0.0, None, None, 0, 0, None, 0.0)


def hold(store: Engine, process: Process) -> None:
    """Take group a's lease for a process, and let the driver's row be of it."""
    Lease(store, "group", "a", 30.0, process).acquire()
    with store.begin() as connection:
        mine = tables.drivers.c.name == "a"
        connection.execute(update(tables.drivers).where(mine).values(pid=process.pid, host=process.host))


def test_the_end_of_a_process_on_record_is_read(store: Engine) -> None:
    """What the controller has written of a group's process is part of the judgement, and the newest run counts."""
    assert verdict(read_fleet(store)).status == "RUNNING"
    now = time.time()
    with store.begin() as connection:
        for said, started_at, ended_at in (
            ("exit code 9", now - 8_000, now - 7_900),
            ("exit code 3", now - 60, now - 1),
        ):
            row = {
                "group_name": "a",
                "reference": '{"host": "localhost", "pid": 4242}',
                "died": 1,
                "exit_message": said,
            }
            connection.execute(insert(tables.group_runs).values(started_at=started_at, ended_at=ended_at, **row))
        connection.execute(update(tables.drivers).values(heartbeat_at=now - 2))
    fleet = read_fleet(store)
    group = fleet.state("group", "a")
    assert group is not None
    assert (group.liveness.state, verdict(fleet).status) == ("dead", "UNKNOWN")
    assert "exit code 3" in str(verdict(fleet).reason)


def test_a_lease_of_a_process_that_has_ended_runs_out_at_the_controllers_look(store: Engine) -> None:
    """Only this machine can see that a holder has ended; it writes that down, and who lives keeps its lease."""
    gone = Process(**{**{name: getattr(Process.this(), name) for name in Process.__slots__}, "started": 1})
    assert gone.is_dead()
    hold(store, gone)
    Lease(store, "ingest", "main", 30.0).acquire()
    assert verdict(read_fleet(store)).status == "RUNNING", "nobody has looked yet"
    assert expire_dead(store) == [("group", "a")]
    fleet = read_fleet(store)
    group = fleet.state("group", "a")
    assert group is not None
    assert (group.liveness.state, verdict(fleet).status) == ("dead", "UNKNOWN")
    assert expire_dead(store) == []


def test_a_new_run_does_not_show_its_predecessors_streams(store: Engine) -> None:
    """After a restart a stream is unknown until this very run has reported it, and then its own word counts again."""
    start_driver(store, "group", "a", None)
    beat(store, "group", "a", "running", None)
    assert verdict(read_fleet(store)).status == "UNKNOWN"
    assert "last report of the run before: RUNNING" in str(verdict(read_fleet(store)).reason)
    write_streams(store, [state_of(game_key("x"), "LAGGING")])
    assert verdict(read_fleet(store)) == Verdict("LAGGING", 0.0, None)


def test_last_words_of_a_replaced_process_are_not_written(store: Engine) -> None:
    """A process that another one has replaced, here or in another container, writes neither beats nor streams."""
    start_driver(store, "group", "a", None)
    write_streams(store, [state_of(game_key("x"), "LAGGING")])
    for other in ({"pid": os.getpid() + 1}, {"pid": os.getpid(), "host": f"not {socket.gethostname()}"}):
        with store.begin() as connection:
            connection.execute(update(tables.drivers).where(tables.drivers.c.name == "a").values(other))
        beat(store, "group", "a", "running", 7)
        write_streams(store, [state_of(game_key("x"), "FAILED")])
        with store.connect() as connection:
            assert connection.scalar(select(tables.streams.c.status)) == "LAGGING"
            of_group = select(tables.drivers.c.frontier_seq).where(tables.drivers.c.name == "a")
            assert connection.scalar(of_group) is None


def test_heartbeats_have_the_stores_time_and_a_wrong_clock_is_named(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver an hour ahead beats at the store's time, says so, and its streams are unknown: their ages are wrong."""
    start_driver(store, "group", "a", None)
    write_streams(store, [state_of(game_key("x"))])
    ahead = time.time() + 3_600
    monkeypatch.setattr(time, "time", lambda: ahead)
    beat(store, "group", "a", "running", None)
    fleet = read_fleet(store)
    driver, group = fleet.driver("group", "a"), fleet.state("group", "a")
    assert driver is not None
    assert group is not None
    assert abs(driver.heartbeat_at - fleet.read_at) < 60
    assert "s ahead of the control store's" in str(group.liveness.reason)
    assert (group.liveness.state, verdict(fleet).status) == ("unknown", "UNKNOWN")
    beat(store, "group", "a", "running", None, "one\ntwo")
    driver = read_fleet(store).driver("group", "a")
    assert driver is not None
    assert str(driver.error).split("\n")[1:] == ["one", "two"], "what it reports itself stands below its clock"


NONSENSE = {
    "drivers SET heartbeat_at = 'purple'": "heartbeat_at 'purple'",
    "drivers SET started_at = x'00'": r"started_at b'\x00'",
    "drivers SET pid = 'purple'": "pid 'purple'",
    "drivers SET frontier_seq = 'purple'": "frontier_seq 'purple'",
    "drivers SET state = x'00'": r"state b'\x00'",
    "drivers SET heartbeat_at = 9e999": "heartbeat_at inf",
    "leases SET expires_at = 'purple'": "expires_at 'purple'",
    "leases SET since = 'purple'": "since 'purple'",
    "group_runs SET started_at = 'purple'": "started_at 'purple'",
    "group_runs SET ended_at = 'purple'": "ended_at 'purple'",
    "group_runs SET ended_at = 9e999": "ended_at inf",
}


@pytest.mark.parametrize(("edit", "named"), NONSENSE.items(), ids=NONSENSE)
def test_a_row_that_makes_no_sense_is_its_drivers_problem_and_the_rest_is_shown(
    store: Engine, edit: str, named: str
) -> None:
    """A hand wrote nonsense for one driver: the fleet is read, that driver is named, and the others are well."""
    hold(store, Process.this())
    table = edit.split(maxsplit=1)[0]
    run = {"group_name": "a", "started_at": time.time(), "died": 0}
    with store.begin() as connection:
        connection.execute(insert(tables.group_runs).values(run))
        whose = "group_name = 'a'" if table == "group_runs" else "name = 'a'"
        connection.execute(text(f"UPDATE {edit} WHERE {whose}"))
    with store.connect() as connection:
        beaten_at = connection.scalar(select(tables.drivers.c.heartbeat_at).where(tables.drivers.c.kind == "ingest"))
    assert beaten_at is not None
    fleet = read_fleet(store, beaten_at + 1)  # not now: on a starved machine the heartbeat may be old by now
    (problem,) = (each for each in fleet.judgement.problems if each.kind != "stream")
    assert (problem.kind, problem.name) == ("group", "a")
    assert named in problem.text
    assert verdict(fleet).status == "UNKNOWN"
    (ingest,) = (each for each in fleet.judgement.drivers if each.kind == "ingest")
    assert (ingest.liveness.state, ingest.is_problem) == ("running", False)
    driver = fleet.driver("group", "a")
    assert driver is not None
    assert (driver.heartbeat_age(fleet.read_at) is None) is (table == "drivers"), "nothing false is shown"
    assert read_loads(store, time.time()).groups["a"].name == "a", "the placement of games goes on"


@pytest.mark.parametrize(
    "column", ["games.game", "games.group_name", "games.retired_at", "games.last_seq", "games.epoch"]
)
def test_a_game_whose_row_cannot_be_read_is_left_out_and_named(store: Engine, column: str) -> None:
    """One value of a wrong type in its row hid the whole page; it is a problem, and all others are shown."""
    record_seen(store, {"g2": "Two"}, 1)
    table, _, name = column.partition(".")
    with store.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {name} = X'00FF' WHERE game_key = 'g2'"))
    fleet = read_fleet(store)
    assert [row.game for row in fleet.rows] == ["x"]
    assert fleet.judgement.headline == "1 stream healthy; 1 game left out, with an invalid row (g2)"
    (problem,) = fleet.judgement.problems
    assert (problem.kind, f"{name} b'\\x00\\xff'. Correct it" in problem.text) == ("stream", True)
    assert [each["name"] for each in describe(fleet.judgement)["problems"]] == ["g2"], "no list of games names it"
    assert read_assignments(store).keys() == {game_key("x")}
    assert [each.game_key for each in read_loads(store).games] == [game_key("x")]


@pytest.mark.parametrize("column", ["group_name", "updated_at", "backlog_age_seconds", "status", "rows_per_second"])
def test_what_was_reported_of_a_game_and_cannot_be_read_is_unknown(store: Engine, column: str) -> None:
    """The game is shown, as unknown and with the wrong value; its load counts as that of one without numbers."""
    with store.begin() as connection:
        connection.execute(text(f"UPDATE streams SET {column} = X'00FF'"))
    fleet = read_fleet(store)
    assert (verdict(fleet).status, fleet.judgement.healthy) == ("UNKNOWN", False)
    assert f"its row in table streams of the control store is invalid: {column} b'" in str(verdict(fleet).reason)
    assert read_assignments(store)[game_key("x")].reported_at is None
    assert [each.is_known for each in read_loads(store).games] == [False]


@pytest.mark.parametrize("value", ["9e999", "-9e999"])
def test_an_infinite_time_is_a_value_of_a_wrong_type(store: Engine, value: str) -> None:
    """No age can be told of it, so its row is named as any other that cannot be read; the numbers beside it count."""
    record_seen(store, {"g2": "Two"}, 1)
    with store.begin() as connection:
        connection.execute(text(f"UPDATE games SET retired_at = {value} WHERE game_key = 'g2'"))
        connection.execute(text(f"UPDATE streams SET last_commit_at = {value}"))
    fleet = read_fleet(store)
    assert [row.game for row in fleet.rows] == ["x"]
    assert f"last_commit_at {float(value)}. Correct it" in str(verdict(fleet).reason)
    assert f"retired_at {float(value)}. Correct it" in fleet.judgement.problems[-1].text
    columns = ["1 in column retired_at of table games", "1 in column last_commit_at of table streams"]
    assert sorted(mistyped_columns(store)) == sorted(columns)


def test_what_was_reported_under_a_key_that_no_game_has_and_cannot_be_read_is_named(store: Engine) -> None:
    """Its game is only known as one that was not reported: without a word about the row nobody would look for it."""
    with store.begin() as connection:
        connection.execute(text("UPDATE streams SET game_key = X'00FF'"))
    judgement = read_fleet(store).judgement
    (problem,) = judgement.problems
    assert (problem.kind, problem.name) == ("stream", "b'\\x00\\xff'")
    assert "table streams of the control store is invalid: game_key b'" in problem.text
    assert (
        judgement.headline == "1 stream healthy (1 starting); 1 invalid row of streams that no game has (b'\\x00\\xff')"
    )


@pytest.mark.parametrize("edited", ["seq = X'00FF'", "committed_at = 'purple'", "committed_at = 9e999"])
def test_a_bronze_commit_that_cannot_be_read_makes_no_age(store: Engine, edited: str) -> None:
    """Backlogs are as old as those beside it say, or unknown; a driver that reports on all of its streams goes on."""
    record_commit(store, 841, 1, 0, None)
    record_commit(store, 842, 1, 0, None)
    with store.begin() as connection:
        connection.execute(text(f"UPDATE bronze_commits SET {edited} WHERE seq = 842"))
    assert [seq for seq, _ in commits_since(store, 841)] == [841]
    assert last_commit(store) == 841


def test_a_schema_whose_time_is_spoilt_has_no_date(store: Engine) -> None:
    """The page of its game shows all of its schemas."""
    for value in ("'x'", "9e999", "X'00FF'"):
        with store.begin() as connection:
            connection.execute(text(f"UPDATE registrations SET created_at = {value}"))
        assert [version.created_at for version in read_schemas(store, game_key("x"))] == [None]


def test_operations_are_part_of_the_judgement(store: Engine) -> None:
    """An open operation waits for a controller; one that needs a person is a problem whoever runs."""
    assert read_fleet(store).judgement.healthy
    asked = ask(store, Intent("pause", ("game:x",), "ann"))
    assert read_fleet(store).judgement.headline == "1 stream healthy; 1 operation waits and no controller runs"
    start_driver(store, "controller", "main", None)
    beat(store, "controller", "main", "running", None)
    assert read_fleet(store).judgement.healthy
    change(store, asked, OperationState.NEEDS_HUMAN, "look")
    assert read_fleet(store).judgement.headline == "1 stream healthy; 1 operation needs a person"


@pytest.mark.parametrize(
    "edit", ["state = 'purple'", "preview = '{\"a\": 2}'", "requested_at = 9e999", "targets = '['"]
)
def test_an_operation_whose_row_makes_no_sense_needs_a_person_everywhere(store: Engine, edit: str) -> None:
    """The lists say so, therefore the headline, the exit code and the alert do too: there is one way to count."""
    start_driver(store, "controller", "main", None)
    beat(store, "controller", "main", "running", None)
    ask(store, Intent("pause", ("game:x",), "ann"))
    with store.begin() as connection:
        connection.execute(text(f"UPDATE operations SET {edit}"))
    (listed,) = list_operations(store, only_open=True)
    assert listed.state == "needs_human"
    judgement = read_fleet(store).judgement
    assert (judgement.healthy, judgement.headline) == (False, "1 stream healthy; 1 operation needs a person")
    assert read_oversight(store, read_fleet(store)).open_operations["needs_human"] == 1


def test_the_command_says_what_waits_in_the_source(store: Engine, tmp_path: Path) -> None:
    """`turnout status` and its JSON have the backlog and each game's lag with it; unknown is null, never 0."""
    write = partial(write_backlog, store, limit_seconds=60.0)
    write(age_seconds=70.0, peak_seconds=70.0, rows=760_000, reason=None)
    sentence = "ingest is 70 s behind its source: 760,000 rows wait"
    for words in ([], ["--json"]):
        done = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path), *words])
        assert (done.exit_code, sentence in done.output) == (1, True)
        assert ("last report: RUNNING" in done.output) is bool(words), "no line for each of 1,000 games"
    told = json.loads(done.output)
    assert told["source"] == {
        "condition": "late", "text": sentence, "backlog_seconds": 70.0, "backlog_rows": 760_000,
    }  # fmt: skip
    assert [(each["status"], each["lag_seconds"]) for each in told["games"]] == [("LAGGING", 70.0)]
    assert read_oversight(store, read_fleet(store)).source_rows == 760_000
    write(age_seconds=None, peak_seconds=70.0, rows=None, reason="the broker is away")
    done = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path), "--json"])
    told = json.loads(done.output)
    assert (told["source"]["backlog_seconds"], told["games"][0]["lag_seconds"]) == (None, None)
    assert told["headline"] == "1 stream level with bronze; what waits in the source is unknown: the broker is away"
    assert read_oversight(store, read_fleet(store)).source_age_seconds is None
