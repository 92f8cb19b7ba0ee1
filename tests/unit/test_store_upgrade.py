"""An environment that commit f8ab23b made: its store, bronze, quarantine and two games' tables.

In it a move waits for the group that is to carry Chess, access to Chess was granted and requested, Go is paused, a run
of group a died with Chess in hand, and the last row of Go was not applied.
"""

import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine

from grants.applying import ledger, requests
from grants.applying.proposals import intents_of
from grants.observing import snapshot
from listeners.sample import Lane, StreamState
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.processes.backends import process_of
from pipeline.settings import Paths, Settings, load
from pipeline.store.drivers import write_streams
from pipeline.store.engine import open_store
from pipeline.store.games import carried, generations
from pipeline.store.groups import ended_runs, open_runs
from pipeline.store.leases import Lease
from pipeline.store.operations import list_operations, steps
from pipeline.store.stream_control import decided
from pipeline.streams.active_games import ActiveGames, read_leftover
from pipeline.verify.balance import verify
from tests.unit.leases_world import SECONDS, StoreClock, elsewhere

_ARCHIVE = Path(__file__).parent / "data" / "environment_of_f8ab23b.tar.gz"
_MADE_AT = 1_795_415_970.0  # by the store's clock, seconds after the move began to wait
CHESS, GO = "chess_ygvn5asts6po", "go_2j_t3q3mwms5g36"

_SAFELY: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(tmp_path, **_SAFELY)
    _, paths = load(tmp_path, {})
    with sqlite3.connect(paths.control_db) as store:
        store.executescript((tmp_path / "control.sql").read_text("utf-8"))
    store.close()
    return paths


@pytest.fixture
def upgraded(paths: Paths) -> Iterator[Engine]:
    store = open_store(Settings(), paths)
    yield store
    store.dispose()


def test_what_people_and_failures_decided_is_kept(upgraded: Engine) -> None:
    """An upgrade changes names only: nothing that was paused runs, and who holds a process finds it again."""
    assert {key: each.desired for key, each in decided(upgraded).items()} == {GO: "paused"}
    (died,) = ended_runs(upgraded, 0.0)["a"]
    assert (died.exit_message, died.active_games) == ("killed by SIGKILL", f'["{CHESS}"]')
    running = open_runs(upgraded)["b"]
    assert running.stop_requested_at is not None
    process = process_of(running.reference or "")
    assert process is not None
    assert (process.pid, process.pid_namespace) == (4194309, "112f7103-33d9-4328-b722-8f111266464d pid:[4026531836]")


def test_an_operation_that_was_open_ends(upgraded: Engine, paths: Paths) -> None:
    """A move that waited under its old step's name goes on where it was, and is done once."""
    clock = StoreClock(upgraded)
    clock.now = _MADE_AT
    world = ControlContext(Settings(), upgraded, paths)
    (move,) = list_operations(upgraded, only_open=True)
    tick(world, KINDS)
    assert [each.name for each in steps(upgraded, move.operation_id)] == ["assign", "release", "acquire"]
    clock.now += 3_600.0 + SECONDS  # the leases of then have run out; the move's time has not
    driver = Lease(upgraded, "group", "b", SECONDS, elsewhere(7))
    driver.acquire()
    assert CHESS in {each.game_key for each in carried(upgraded, driver)}
    write_streams(upgraded, [_state("b", clock.now)])
    for _ in range(3):
        tick(world, KINDS)
    journal = [(each.name, each.state) for each in steps(upgraded, move.operation_id)]
    assert journal[-2:] == [("acquire", "done"), ("verify", "done")]
    assert not list_operations(upgraded, only_open=True)


def test_access_is_kept_with_its_reasons(upgraded: Engine) -> None:
    """What was granted, requested, decided and read of the catalog is known under the new names."""
    (held,) = ledger.held(upgraded)
    assert (held.principal, held.game_key, held.expires_at, held.ticket) == (
        "ann@example.com",
        CHESS,
        1802327966.5969641,
        "T-1",
    )
    assert len(ledger.managed(upgraded).given) == 3
    (granted,) = (each for each in list_operations(upgraded) if each.kind == "access")
    assert [each.key for each in intents_of(granted.parameters["intents"])] == [CHESS]
    assert {each.state for each in ledger.items(upgraded, granted.operation_id)} == {"observed"}
    waiting, rejected = requests.list_requests(upgraded)
    assert [each.key for each in intents_of(waiting.intents)] == [CHESS]
    assert (rejected.state, rejected.decided_by, rejected.decision_reason) == (
        "rejected",
        "eve",
        "not before the audit",
    )
    assert snapshot.read(upgraded).observed is not None


def test_tables_are_complete(upgraded: Engine, paths: Paths) -> None:
    """Verify reads tables of then, and says of each row where it is: only the last one of Go is still to come."""
    balance = verify(paths, Settings().environment, generations(upgraded))
    assert (balance.ok, balance.complete) == (True, False)
    assert balance.totals.pending == 1


def test_what_a_driver_left_in_the_old_folder_is_read_once(paths: Paths) -> None:
    """A driver that died before the upgrade is asked what it had in hand; the next one forgets it."""
    group = paths.checkpoints / "demux" / "a"
    assert read_leftover(group) == [CHESS]
    ActiveGames(group, "shared")
    assert read_leftover(group) is None


def _state(group: str, now: float) -> StreamState:
    return StreamState(
        game_key=CHESS, group=group, lane=Lane.RUN, status="HEALTHY", status_since=0.0, cursor_seq=3,
        last_commit_at=None, backlog_age_seconds=None, rows_per_second=None, latency_p95_seconds=None,
        rows_total=0, rejects_total=0, last_error=None, updated_at=now,
    )  # fmt: skip
