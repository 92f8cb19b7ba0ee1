"""The fleet as it is read from the control store, judged by the store's clock and ordered worst first."""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, create_engine, delete, insert, select, text, update

from listeners.sample import Lane, StreamState, TypeRows
from listeners.status import Status
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.verdicts.judgement import StreamVerdict
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.checked_table import columns_of
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Intent, change, list_operations, submit
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, Process, expire_dead
from pipeline.store.reports import write_backlog
from pipeline.store.rows import NamedBacklog
from pipeline.store.schema_versions import read_schemas
from tests.browser.seed import Seeded, fleet_of_forty, seed
from tests.unit.store.reports_world import write_streams

NOW = 1_800_000_000.0
LATENCIES = (
    "latency_p50_seconds", "latency_p95_seconds", "latency_p99_seconds", "latency_p99_last_minute_seconds",
    "queue_seconds", "process_seconds", "commit_seconds", "upstream_seconds",
)  # fmt: skip


@pytest.mark.proves("G129")
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
    assert set(fleet.stranded_games) == {(row.game_key, "b") for row in dead}


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
    ranks = [Status(row.verdict.status).severity for row in fleet.rows]
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


def test_latencies_are_read_as_their_driver_reported_them(store: Engine) -> None:
    """Each of a stream's latencies and segments has its own column, and comes back as the same number or as None."""
    start_driver(store, "group", "a", None)
    heartbeat(store, "group", "a", "running", None)
    numbers = {name: float(at) for at, name in enumerate(LATENCIES, 1)}
    for values in (numbers, dict.fromkeys(LATENCIES)):
        write_streams(store, [replace(state_of(game_key("x")), **values)])
        live = read_fleet(store).rows[0].live
        assert {name: getattr(live, name) for name in LATENCIES} == values


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


def test_each_number_that_a_driver_reports_reaches_readers(engine: Engine) -> None:
    """A field of `StreamState` is a column of its table and comes back as it was written: no other place spells it."""
    seen = full_state()
    row = {"game_key": seen.game_key, "game": "x", "last_seq": 0, "discovered_at": 0.0}
    with engine.begin() as connection:
        connection.execute(insert(tables.games).values(row))
    write_streams(engine, [seen])
    reported = read_fleet(engine).rows[0].reported
    assert reported is not None
    assert replace(reported, updated_at=seen.updated_at) == seen


def test_a_column_is_made_of_each_field() -> None:
    """A number that is added to a state has its column at once: null where it may be None, JSON where it is a map."""

    @dataclass
    class Grown:
        spelled: str
        amount: int
        seconds: float | None
        word: str | None = None
        counts: Mapping[str, int] = field(default_factory=dict)

    made = [(each.name, str(each.type), each.nullable) for each in columns_of(Grown, besides={"spelled"})]
    assert made == [
        ("amount", "BIGINT", False), ("seconds", "FLOAT", True), ("word", "TEXT", True), ("counts", "TEXT", True),
    ]  # fmt: skip


# -------------------------------------------------------------------------------- what counts at once, what does not


@pytest.fixture
def store(tmp_path: Path) -> Engine:
    """Return the store of one game whose group's driver runs and has reported it just now."""
    seed(tmp_path, (Seeded("x", "a", {}),), now=time.time(), heartbeat_ages={"ingest": 0, "a": 0}, history=False)
    return open_store(Settings(), Paths(tmp_path))


def verdict(fleet: Fleet) -> StreamVerdict:
    return fleet.rows[0].verdict


def state_of(key: str, status: str = "RUNNING") -> StreamState:
    return StreamState(key, "a", Lane.RUN, status, 0.0, 1, None, 0.0, None, None, 0, 0, None, 0.0)


def full_state() -> StreamState:
    """Return a state in which each field has a value of its own, whichever fields there are."""
    said: dict[str, Any] = {
        "lane": Lane.RUN,
        "status": Status.LAGGING,
        "refused": {"bad": 3},
        "types": {"t.M": TypeRows(2, 1)},
        "refused_at": {"bad": 7.5},
    }
    for number, (name, hint) in enumerate(get_type_hints(StreamState).items(), start=1):
        (kind,) = {*(get_args(hint) if isinstance(hint, UnionType) else [hint])} - {NoneType}
        said[name] = said.get(name) or (f"{name} {number}" if kind is str else kind(number))
    return StreamState(**said)


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


@pytest.mark.proves("G133")
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
    assert (group.liveness.state, verdict(fleet).status) == ("unknown", "UNKNOWN")
    assert expire_dead(store) == []


@pytest.mark.proves("G46")
def test_a_new_run_does_not_show_its_predecessors_streams(store: Engine) -> None:
    """After a restart a stream starts until this very run has reported it, and then its own word counts again."""
    start_driver(store, "group", "a", None)
    heartbeat(store, "group", "a", "running", None)
    assert verdict(read_fleet(store)).status == "STARTING"
    assert "last report of the run before: RUNNING" in str(verdict(read_fleet(store)).reason)
    write_streams(store, [state_of(game_key("x"), "LAGGING")])
    assert verdict(read_fleet(store)) == StreamVerdict(Status.LAGGING, 0.0, None)


@pytest.mark.proves("G46")
def test_last_words_of_a_replaced_process_are_not_written(store: Engine) -> None:
    """A process that another one has replaced, here or in another container, writes neither beats nor streams."""
    start_driver(store, "group", "a", None)
    write_streams(store, [state_of(game_key("x"), "LAGGING")])
    for other in ({"pid": os.getpid() + 1}, {"pid": os.getpid(), "host": f"not {socket.gethostname()}"}):
        with store.begin() as connection:
            connection.execute(update(tables.drivers).where(tables.drivers.c.name == "a").values(other))
        heartbeat(store, "group", "a", "running", 7)
        write_streams(store, [state_of(game_key("x"), "FAILED")])
        with store.connect() as connection:
            assert connection.scalar(select(tables.streams.c.status)) == "LAGGING"
            of_group = select(tables.drivers.c.frontier_seq).where(tables.drivers.c.name == "a")
            assert connection.scalar(of_group) is None


@pytest.mark.proves("G134")
def test_heartbeats_have_the_stores_time_and_a_wrong_clock_is_named(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver an hour ahead beats at the store's time, says so, and its streams are unknown: their ages are wrong."""
    start_driver(store, "group", "a", None)
    write_streams(store, [state_of(game_key("x"))])
    ahead = time.time() + 3_600
    monkeypatch.setattr(time, "time", lambda: ahead)
    heartbeat(store, "group", "a", "running", None)
    fleet = read_fleet(store)
    driver, group = fleet.driver("group", "a"), fleet.state("group", "a")
    assert driver is not None
    assert group is not None
    assert abs(driver.heartbeat_at - fleet.read_at) < 60
    assert "s ahead of the control store's" in str(group.liveness.reason)
    assert (group.liveness.state, verdict(fleet).status) == ("unknown", "UNKNOWN")
    heartbeat(store, "group", "a", "running", None, "one\ntwo")
    driver = read_fleet(store).driver("group", "a")
    assert driver is not None
    assert str(driver.error).split("\n")[1:] == ["one", "two"], "what it reports itself stands below its clock"


def test_operations_are_part_of_the_judgement(store: Engine) -> None:
    """An open operation waits for a controller; one that needs a person is a problem whoever runs."""
    assert read_fleet(store).judgement.healthy
    submitted = submit(store, Intent("pause", ("game:x",), "ann"))
    assert (
        read_fleet(store).judgement.headline == "1 stream level with bronze; 1 operation waits and no controller runs"
    )
    start_driver(store, "controller", "main", None)
    heartbeat(store, "controller", "main", "running", None)
    assert read_fleet(store).judgement.healthy
    change(store, submitted, OperationState.NEEDS_HUMAN, "look")
    assert read_fleet(store).judgement.headline == "1 stream level with bronze; 1 operation needs a person"


def test_an_operation_whose_preview_was_edited_needs_a_person_everywhere(store: Engine) -> None:
    """The lists say so, therefore the headline, the exit code and the alert do too: there is one way to count."""
    start_driver(store, "controller", "main", None)
    heartbeat(store, "controller", "main", "running", None)
    submit(store, Intent("pause", ("game:x",), "ann"))
    with store.begin() as connection:
        connection.execute(text("UPDATE operations SET preview = '{}', preview_hash = 'x'"))
    (listed,) = list_operations(store, only_open=True)
    assert listed.state == "needs_human"
    judgement = read_fleet(store).judgement
    assert (judgement.healthy, judgement.headline) == (False, "1 stream level with bronze; 1 operation needs a person")
    assert read_controller_metrics(store, read_fleet(store)).open_operations["needs_human"] == 1


def test_the_command_says_what_waits_in_the_source(store: Engine, tmp_path: Path) -> None:
    """`turnout status` and its JSON have the backlog and each game's lag with it; unknown is null, never 0."""
    write = partial(write_backlog, store, limit_seconds=60.0)
    write(age_seconds=70.0, peak_seconds=70.0, rows=760_000, reason=None)
    sentence = "ingest is 70 s behind its source: 760,000 rows wait"
    for words in ([], ["--json"]):
        done = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path), *words])
        assert (done.exit_code, sentence in done.output) == (1, True)
        assert ("last report: RUNNING" in done.output) is bool(words), "no line for each of 1,000 games"
    shown = json.loads(done.output)
    assert shown["source"] == {
        "condition": "late", "text": sentence, "backlog_seconds": 70.0, "backlog_rows": 760_000,
        "sources": [], "through_time": None,
    }  # fmt: skip
    assert [(each["status"], each["lag_seconds"]) for each in shown["games"]] == [("LAGGING", 70.0)]
    assert read_controller_metrics(store, read_fleet(store)).source_rows == 760_000
    write(age_seconds=None, peak_seconds=70.0, rows=None, reason="the broker is away")
    done = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path), "--json"])
    shown = json.loads(done.output)
    assert (shown["source"]["backlog_seconds"], shown["games"][0]["lag_seconds"]) == (None, None)
    assert shown["headline"] == "What waits in the source is unknown: the broker is away; 1 stream level with bronze"
    assert read_controller_metrics(store, read_fleet(store)).source_age_seconds is None


def test_the_command_has_a_line_for_each_of_several_sources(store: Engine, tmp_path: Path) -> None:
    """Which source is away, and what waits in the others: a number is never a guess, and an unknown one never 0."""
    named = [NamedBacklog("games", 70.0, 12), NamedBacklog("partner", None, None, "the broker is away")]
    reason = "partner: the broker is away"
    write_backlog(
        store, age_seconds=None, peak_seconds=None, rows=None, limit_seconds=60.0, reason=reason, sources=named
    )
    done = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)])
    assert "source games: 12 rows wait, age of the oldest 70 s" in done.output
    assert (
        "source partner: an unknown number of rows wait, age of the oldest unknown (the broker is away)" in done.output
    )
    assert reason in done.output.splitlines()[0]
    shown = json.loads(CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path), "--json"]).output)
    assert shown["source"]["sources"] == [
        {"name": "games", "backlog_seconds": 70.0, "backlog_rows": 12, "reason": None},
        {"name": "partner", "backlog_seconds": None, "backlog_rows": None, "reason": "the broker is away"},
    ]
    assert read_controller_metrics(store, read_fleet(store)).sources == {"games": (70.0, 12), "partner": (None, None)}
    write_backlog(store, age_seconds=0.0, peak_seconds=0.0, rows=0, limit_seconds=60.0, reason=None)
    assert read_controller_metrics(store, read_fleet(store)).sources == {}, "the set of sources has changed"
