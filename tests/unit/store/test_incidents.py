"""Incidents in the control store: one process after the other keeps them, readers see how old they are."""

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, func, select, update
from sqlalchemy.exc import OperationalError

from listeners.sample import GameResult, Lane
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.evidence import _newest_schemas, read_evidence
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.facts.incidents import keep_look, read_incidents
from pipeline.health.incidents.causes import Acting, Action
from pipeline.health.incidents.evidence import OpenOperation
from pipeline.health.incidents.incidents import Incident
from pipeline.health.incidents.offers import DONE_SECONDS, acting_on
from pipeline.health.verdicts.status import StreamFacts
from pipeline.health.verdicts.watch import StreamReading, Watch
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import incident_looks, incidents
from pipeline.store.database.states import Cause, OperationState
from pipeline.store.incidents import KEPT_SECONDS, read_last_look
from pipeline.store.operations import Intent, change, submit
from pipeline.store.processes.drivers import heartbeat, record_commit, start_driver
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, write_needs, write_state
from pipeline.store.stream_control import StreamControl, record_failures, submit_control
from tests.browser.seed import Seeded, seed
from tests.unit.data.contracts.registering_world import KEY, from_a_registry, proto, registration
from tests.unit.health.incidents.incident_world import FINDING, OPEN
from tests.unit.store.reports_world import write_streams


def kept(engine: Engine, *wanted: Incident, now: float | None = None) -> tuple[Incident, ...]:
    return keep_look(engine, "controller", time.time() if now is None else now, lambda _before: wanted)


def test_an_operation_that_has_ended_since_the_look_is_not_under_way(engine: Engine) -> None:
    """A look is some seconds old: a reader who has just seen a replay succeed reads that, and not "is under way"."""
    retry = submit(engine, Intent("retry", ("game:x",), "ann", "seen"))
    open_one = OpenOperation(retry.operation_id, retry.kind, retry.actor, retry.requested_at)
    acting = replace(OPEN, finding=replace(FINDING, acting=acting_on(open_one)))
    kept(engine, acting, replace(OPEN, incident_id="i2"))
    assert read_incidents(engine)[0] == acting
    change(engine, retry, OperationState.SUCCEEDED, "done")
    over, other = read_incidents(engine)
    assert over.phase == "acting"
    said = f"retry {retry.operation_id[:8]} by ann is over (succeeded), and its effect is judged, for "
    assert str(over.progress(time.time())).startswith(said)
    assert other.finding == FINDING


def test_an_incident_is_read_as_it_was_kept(engine: Engine) -> None:
    """Nothing of an incident is lost between the process that keeps it and a reader."""
    bare = replace(
        OPEN, incident_id="i2", finding=replace(FINDING, action=None, runbook=None), group=None, outlook=None
    )
    action = Action("Retry…", "repairs", {"repair": "retry", "games": ("x", "y")})
    several = replace(bare, incident_id="i3", finding=replace(FINDING, action=action, advice="Free space"))
    acting = Acting("ann", "retry 0af30af3 by ann is under way", 5.0)
    several = replace(several, finding=replace(several.finding, acting=acting, past="Rows of {} were refused"))
    kept(engine, OPEN, bare, several)
    assert read_incidents(engine) == (OPEN, bare, several)
    look = read_last_look(engine)
    assert look is not None
    assert (look.kept_by, look.age_seconds < 5) == ("controller", True)


def test_ended_ones_are_listed_for_a_day_and_kept_for_a_month(engine: Engine) -> None:
    """The list is bounded, and so is the table."""
    now = time.time()
    assert read_last_look(engine) is None
    old = [replace(OPEN, incident_id=f"i{days}", ended_at=now - days * 86_400.0) for days in (0.5, 2, 40)]
    kept(engine, OPEN, *old)
    assert [each.incident_id for each in read_incidents(engine)] == ["i1", "i0.5"]
    assert [each.incident_id for each in read_incidents(engine, since=now - 5 * 86_400)] == ["i1", "i0.5", "i2"]
    kept(engine, replace(OPEN, ended_at=now))
    with engine.connect() as connection:
        assert set(connection.scalars(select(incidents.c.incident_id))) == {"i1", "i0.5", "i2"}
    assert KEPT_SECONDS == 30 * 86_400


def test_too_many_ended_ones_are_forgotten(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a fault that comes and goes only the newest ends are kept."""
    monkeypatch.setattr("pipeline.store.incidents.MOST_KEPT", 3)
    now = time.time()
    kept(engine, OPEN, *(replace(OPEN, incident_id=f"e{number}", ended_at=now - number) for number in range(1, 8)))
    kept(engine, replace(OPEN, ended_at=now))
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(incidents)) == 3


def test_processes_that_keep_them_at_one_moment_open_one(engine: Engine) -> None:
    """The second waits for the first and sees what it has written: a controller may begin while ingest judges."""
    kept(engine)
    together = threading.Barrier(4)

    def judge(before: Sequence[Incident]) -> tuple[Incident, ...]:
        return tuple(before) or (replace(OPEN, incident_id=threading.current_thread().name),)

    def keep() -> None:
        together.wait()
        keep_look(engine, "ingest", time.time(), judge)

    threads = [threading.Thread(target=keep, name=f"t{number}") for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(incidents)) == 1


def test_an_unreadable_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A store that cannot be read is no fleet without incidents."""
    empty = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    for read in (read_incidents, read_last_look):
        with pytest.raises(Refused, match=r"cannot be read: no such table.*Check the setting store\.url"):
            read(empty)


# --------------------------------------------------------------------------------------------------------- evidence


@pytest.fixture
def fleet_store(tmp_path: Path) -> Engine:
    """Return the store of three games in two groups, all well."""
    games = (Seeded("Chess", "a", {}), Seeded("Go", "a", {}), Seeded("Ludo", "b", {}))
    seed(tmp_path, games, now=time.time(), heartbeat_ages={"ingest": 1, "a": 1, "b": 1}, history=False)
    return open_store(Settings(), Paths(tmp_path))


CHESS, GO, LUDO = (str(game_key(name)) for name in ("Chess", "Go", "Ludo"))


def test_one_look_has_the_evidence_of_each_cause(fleet_store: Engine) -> None:
    """A look has failures, refused rows, needs, pauses, moves and limits, by game and group."""
    now = time.time()
    with fleet_store.begin() as connection:
        connection.execute(
            update(tables.streams).where(tables.streams.c.game_key == CHESS).values(
                refused=json.dumps({"quarantined_schema": 5}), commit_mean_seconds=0.5, rows_per_second=10.0,
                commits_per_second=0.2, bytes_per_second=100.0,
            )
        )  # fmt: skip
        connection.execute(update(tables.groups).where(tables.groups.c.name == "a").values(capacity_cores=2.0))
        connection.execute(
            tables.registrations.insert().values(
                game_key=CHESS,
                game="Chess",
                version=2,
                schema_id=1,
                created_at=now - 60,
                actor="ann",
                registration_id=99,
            )
        )
        connection.execute(
            tables.placements.insert().values(
                registration_id=99,
                names="{}",
                quarantined="score became a text",
                policies="{}",
                plan_hash="0" * 16,
                other_type=1,
            )
        )
        write_state(connection, RegistryHealth("main", "away", now, "no answer", now))
    record_failures(fleet_store, {GO: StreamControl(failures=2, failure_class="transient", evidence="OSError: full",
                                                    failed_at=now)})  # fmt: skip
    submit_control(fleet_store, LUDO, "bob", desired="paused")
    write_needs(fleet_store, [OpenNeed("main", b"\0\0\0\0\7", game_key("Ludo"), "Ludo", now - 9, 1, 0)])
    submit(fleet_store, Intent("move", (f"game:{GO}",), "ann", "full"))
    for seq in range(900, 930):
        record_commit(fleet_store, seq, 100, 0, None)
    look = read_evidence(fleet_store, read_fleet(fleet_store), 60.0)
    chess, go, ludo = (look.games[key] for key in (CHESS, GO, LUDO))
    assert (chess.refused, chess.commit_seconds, chess.game) == ({"quarantined_schema": 5}, 0.5, "Chess")
    assert chess.cores is not None
    assert chess.schema is not None
    assert (chess.schema.version, chess.schema.by, chess.schema.quarantined) == (2, "ann", "score became a text")
    assert chess.schema.other_type == "score became a text"
    assert go.failure is not None
    assert (go.failure.kind, go.failure.text, go.failure.in_a_row) == ("transient", "OSError: full", 2)
    assert go.operation is not None
    assert (go.operation.kind, go.operation.actor) == ("move", "ann")
    assert (go.operation.is_stuck, go.operation.is_planned) == (False, True)
    assert (ludo.paused_by, ludo.schema) == ("bob", None)
    assert ludo.need is not None
    assert (ludo.need.registry, ludo.need.schemas, ludo.need.state) == ("main", 1, "away")
    assert (look.groups["a"].capacity_cores, look.groups["b"].capacity_cores) == (2.0, None)
    assert (look.source.head_seq, look.source.rows_per_second is None) == (929, False)


def test_a_keeper_finds_keeps_and_ends_an_incident(fleet_store: Engine) -> None:
    """From the store's rows to an incident in the store and back: rows refused for their schema, then none."""
    keeper = IncidentKeeper(fleet_store, Settings(), "ingest")
    chess = tables.streams.c.game_key == CHESS

    def refuse(rows: str | None) -> None:
        with fleet_store.begin() as connection:
            connection.execute(update(tables.streams).where(chess).values(refused=rows))
            connection.execute(update(tables.drivers).values(heartbeat_at=time.time()))
            connection.execute(update(tables.streams).values(updated_at=time.time()))
        keeper.look()

    refuse(None)
    assert read_incidents(fleet_store) == ()
    refuse(json.dumps({"unknown_schema": 5000}))
    (found,) = read_incidents(fleet_store)
    assert (found.finding.cause, found.games, found.group, found.ended_at) == (Cause.SCHEMA, (CHESS,), "a", None)
    assert found.finding.title == "Rows of Chess refused for a schema that is not registered"
    IncidentKeeper(fleet_store, Settings(), "controller").look()  # who takes over goes on with it
    for _ in range(3):
        refuse(None)
    (ended,) = read_incidents(fleet_store)
    assert (ended.incident_id, ended.ended_at is not None) == (found.incident_id, True)
    with fleet_store.connect() as connection:
        assert connection.scalar(select(incident_looks.c.kept_by)) == "ingest"


def test_a_store_that_is_away_is_no_refusal_to_the_controller(fleet_store: Engine, tmp_path: Path) -> None:
    """The process that judges goes on when the store is back: it gets the store's own error, not one for people."""
    empty = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(OperationalError):
        IncidentKeeper(empty, Settings(), "controller").look()
    with pytest.raises(OperationalError):
        IncidentKeeper(empty, Settings(), "ingest").look(read_fleet(fleet_store))


def test_refused_rows_and_slow_commits_reach_the_store(fleet_store: Engine) -> None:
    """Refused rows of five minutes by reason, and commits of a minute, are in the stream's row; older ones are not."""
    start_driver(fleet_store, "group", "a", None)
    heartbeat(fleet_store, "group", "a", "running", None)
    watch, now = Watch("a"), time.time()
    facts = StreamFacts("running", True, None, 0, Lane.RUN, now - 999, 5.0, 1.0, 60.0, None)
    reading = {CHESS: StreamReading(facts, 1, 1, 0.0)}

    def result(at: float, rejects: dict[str, int], seconds: float) -> GameResult:
        return GameResult(CHESS, Lane.RUN, 1, 2, 9, rejects, 1, 1, at, seconds, (0,) * 14)

    watch.observe(now - 400, reading, [result(now - 400, {"tombstone": 9}, 9.0)])
    write_streams(
        fleet_store,
        watch.observe(
            now,
            reading,
            [
                result(now - 200, {"empty_payload": 2}, 5.0),
                result(now - 20, {"empty_payload": 1, "unknown_schema": 4}, 0.5),
                result(now - 5, {}, 1.5),
            ],
        ),
    )
    seen = read_evidence(fleet_store, read_fleet(fleet_store), 60.0).games[CHESS]
    assert seen.refused == {"empty_payload": 3, "unknown_schema": 4}
    assert seen.refused_at == {"empty_payload": now - 20, "unknown_schema": now - 20}
    assert seen.commit_seconds == 1.0


def test_a_look_knows_whether_a_controller_runs(fleet_store: Engine) -> None:
    """A group that the controller should start waits for nobody while none runs."""
    with fleet_store.begin() as connection:
        connection.execute(update(tables.groups).values(backend="local"))
    seen = read_evidence(fleet_store, read_fleet(fleet_store), 60.0).groups["a"]
    assert (seen.is_started_here, seen.is_given_up, seen.is_skewed, seen.no_controller) == (
        True, False, False, "no controller runs",
    )  # fmt: skip
    start_driver(fleet_store, "controller", "main", None)
    heartbeat(fleet_store, "controller", "main", "running", None)
    assert read_evidence(fleet_store, read_fleet(fleet_store), 60.0).groups["a"].no_controller is None


def test_a_look_knows_what_was_done_a_short_while_ago(fleet_store: Engine) -> None:
    """Operations that succeeded within ten minutes are evidence for each of their targets; older and failed are not."""
    games, group = (f"game:{CHESS}",), ("group:a",)
    for kind, targets, state in (
        ("retry", games, "succeeded"), ("replay", games, "failed"), ("restart", group, "succeeded"),
    ):  # fmt: skip
        change(fleet_store, submit(fleet_store, Intent(kind, targets, "ann", "why")), OperationState(state), "over")
    old = submit(fleet_store, Intent("replay", games, "ann", "why"))
    change(fleet_store, old, OperationState.SUCCEEDED, "over")
    with fleet_store.begin() as connection:
        own = tables.operations.c.operation_id == old.operation_id
        connection.execute(update(tables.operations).where(own).values(ended_at=time.time() - DONE_SECONDS - 5))
    seen = read_evidence(fleet_store, read_fleet(fleet_store), 60.0)
    assert [(each.kind, each.actor) for each in seen.games[CHESS].done] == [("retry", "ann")]
    assert [each.kind for each in seen.groups["a"].done] == ["restart"]


@pytest.mark.long
def test_a_look_at_a_thousand_games_is_cheap(tmp_path: Path) -> None:
    """Reading, judging and keeping takes less than 0.4 s of CPU, ten of them open one incident of a group each."""
    games = [Seeded(f"Game {number}", "abcdefghij"[number % 10], {}) for number in range(1_000)]
    ages = {"ingest": 1, **dict.fromkeys("abcdefghij", 1)}
    seed(tmp_path, games, now=time.time(), heartbeat_ages=ages, history=False)
    engine = open_store(Settings(), Paths(tmp_path))
    keeper = IncidentKeeper(engine, Settings(), "ingest")
    with engine.begin() as connection:
        connection.execute(
            update(tables.drivers).where(tables.drivers.c.kind == "group").values(heartbeat_at=time.time() - 999)
        )
    spent = []
    for _ in range(5):
        fleet, began = read_fleet(engine), time.process_time()
        keeper.look(fleet)
        spent.append(time.process_time() - began)
    sys.stdout.write(f"CPU of a look at 1,000 games: {min(spent) * 1000:.0f} ms\n")
    assert len([each for each in read_incidents(engine) if each.ended_at is None]) == 10
    assert min(spent) < 0.4


def test_an_incident_names_the_types_that_wait_now(engine: Engine) -> None:
    """A type that was confirmed as the new name waits no more; of several that do, each is named."""
    text = "message {} {{ string player = 1; }}"
    joined, left, entered = (proto(text.format(name)) for name in ("Joined", "Left", "Entered"))
    from_a_registry(engine, joined, left, entered)
    with engine.connect() as connection:
        why = _newest_schemas(connection, [KEY])[KEY].other_type
    assert why is not None
    assert why.startswith("acme.Entered, acme.Left wait. acme.Entered is another event type than acme.Joined")
    confirmed = registration(entered, continues="acme.Joined", actor="ann")
    LocalRegistry(engine).register_many([confirmed])
    with engine.connect() as connection:
        why = _newest_schemas(connection, [KEY])[KEY].other_type
    assert why is not None
    assert why.startswith("acme.Left is another event type")


@pytest.mark.proves("G268")
def test_access_that_is_over_and_still_there_is_an_incident(fleet_store: Engine) -> None:
    """Within ten minutes an incident names who holds which game beyond its end; a count has no names; both end."""
    now = time.time()
    row = {
        "principal": "ann@example.com",
        "reason": "n",
        "ticket": "",
        "table_id": "1",
        "principal_id": "",
        "operation_id": "o",
    }
    rows = [
        {**row, "game_key": CHESS, "expires_at": now - 320, "given_at": now - 900, "revoked_at": None},
        {**row, "game_key": GO, "expires_at": None, "given_at": now - 900, "revoked_at": now - 400},
        {**row, "game_key": LUDO, "expires_at": now - 60, "given_at": now - 900, "revoked_at": None},
    ]
    with fleet_store.begin() as connection:
        connection.execute(tables.entitlements.insert(), rows)
    keeper = IncidentKeeper(fleet_store, Settings(), "controller")
    for _ in range(2):
        (found,) = [each for each in keeper.look() if each.finding.cause == Cause.ACCESS]
    assert found.finding.title == "2 grants are over and not revoked"
    assert found.finding.evidence == (
        "ann@example.com on Go, over for 7 min",
        "ann@example.com on Chess, over for 5 min",
    )
    assert (found.games, found.ended_at, found.tone) == ((), None, "bad")
    assert read_controller_metrics(fleet_store, read_fleet(fleet_store)).overdue_access == 2
    with fleet_store.begin() as connection:
        connection.execute(update(tables.entitlements).values(ended_at=now))
    keeper.look()
    (ended,) = [each for each in read_incidents(fleet_store) if each.finding.cause == Cause.ACCESS]
    assert (ended.incident_id, ended.ended_at is None) == (found.incident_id, False)
    assert read_controller_metrics(fleet_store, read_fleet(fleet_store)).overdue_access == 0
