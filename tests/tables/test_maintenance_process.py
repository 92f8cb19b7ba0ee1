"""The maintenance process: alone, with heartbeats and recorded rounds; a round without work costs nothing."""

import json
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from pipeline.base.errors import Refused
from pipeline.control.backends.local import reference_of
from pipeline.control.kinds import Upkeep
from pipeline.data.maintenance import process, run
from pipeline.data.maintenance.unchanged import Unchanged
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.verdicts.upkeep import describe_round
from pipeline.lake.delta.data_files import write_file
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers
from pipeline.store.processes.leases import Lease, Process
from pipeline.store.processes.runs import adopt, end_run
from pipeline.store.reports import newest_rounds
from tests.tables.maintenance_world import CHESS, GO, SETTINGS, game_rows, game_table


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def store(paths: Paths) -> Engine:
    return open_store(SETTINGS, paths)


class Stops(threading.Event):
    """Stops after a number of waits, and takes no time for them."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.waits = after, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return len(self.waits) >= self.after


def maintain(paths: Paths, stop: threading.Event, settings: Settings = SETTINGS, *, once: bool = False) -> int:
    return process.maintain(settings, paths, stop, once=once, as_json_lines=True)


def test_it_goes_on_until_told_to_stop(paths: Paths, store: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --once rounds follow each other, each one line of JSON and a row in the store, until the stop event."""
    game_table(Path(paths.table(CHESS)), 5)
    stop = Stops(2)
    assert maintain(paths, stop) == 0
    assert stop.waits == [SETTINGS.maintenance.interval_minutes * 60] * 2
    rounds = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["tables"][0]["files_merged"] for each in rounds] == [5, 0]
    with store.connect() as connection:
        last, good = newest_rounds(connection)
    assert last is not None
    assert (last.ok, last.tables, last.files_before, last.files_after) == (1, 1, 1, 1)
    assert last == good
    assert read_drivers(store).judge("maintenance", "main").state == "stopped"


def test_a_round_that_fails_is_written_down_with_its_reason(paths: Paths, store: Engine) -> None:
    """A round succeeds only if no table failed; the last success stays known beside it."""
    game_table(Path(paths.table(CHESS)), 5)
    assert maintain(paths, threading.Event(), once=True) == 0
    game_table(Path(paths.table(GO)), 5)
    for file in Path(paths.table(GO)).glob("*.parquet"):
        file.write_bytes(b"no Parquet")
    assert maintain(paths, threading.Event(), once=True) == 1
    with store.connect() as connection:
        last, good = newest_rounds(connection)
    assert last is not None
    assert good is not None
    assert (last.ok, last.failed_tables, last.tables) == (0, 1, 2)
    assert f"tables/{GO}: " in str(last.error)
    assert good.ended_at < last.ended_at
    assert f"failed in 1 of 2 tables (tables/{GO}: " in describe_round(last, last.ended_at)


@pytest.mark.proves("G149")
def test_one_maintainer_at_a_time(paths: Paths, store: Engine) -> None:
    """A second one is refused with the process that holds the lease, whoever started it; the lease ends with it."""
    lease = Lease(store, "maintenance", "main", 30.0)
    lease.acquire()
    with pytest.raises(Refused, match="Another process drives maintenance: "):
        maintain(paths, threading.Event(), once=True)
    lease.release()
    assert maintain(paths, threading.Event(), once=True) == 0
    with pytest.raises(Refused, match="does not exist"):
        maintain(Paths(paths.root / "no"), threading.Event(), once=True)


@pytest.mark.proves("G150")
def test_beside_the_controllers_process_a_person_is_told_what_to_do(paths: Paths, store: Engine) -> None:
    """Whoever ended that one would only see it started again; once its run has ended it is as any other process."""
    Lease(store, "maintenance", "main", 30.0).acquire()
    run_id = adopt(store, Upkeep("local"), None, reference_of(Process.this()))
    assert run_id is not None
    with pytest.raises(Refused, match=r"The controller runs maintenance, as process .* maintenance\.backend to none"):
        maintain(paths, threading.Event(), once=True)
    end_run(store, run_id, "exit code 0", died=False)
    with pytest.raises(Refused, match="Another process drives maintenance: "):
        maintain(paths, threading.Event(), once=True)


def test_outside_its_hours_no_table_is_touched(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round waits between two tables for the hours to come, and goes on where it stood; --once does not wait."""
    for key in (CHESS, GO):
        game_table(Path(paths.table(key)), 5)
    clock = [3600.0 * 21]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    worked_on: list[float] = []

    def work_on(*_: Any) -> None:
        worked_on.append(clock[0] / 3600)
        clock[0] = 3600.0 * 6  # it takes the rest of the night

    monkeypatch.setattr(run, "_maintain", work_on)

    class Passes(Stops):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += 3600.0
            return super().wait(timeout)

    night = Settings(environment="test", maintenance=Maintenance(hours="22-6"))
    assert maintain(paths, Passes(6), night) == 0
    assert worked_on == [22.0]
    assert maintain(paths, Stops(1), night, once=True) == 0
    assert len(worked_on) > 1


def test_how_it_ended_by_an_error_is_told(paths: Paths, store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's final error is its last heartbeat, and is raised."""

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(process, "one_round", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        maintain(paths, threading.Event())
    with store.connect() as connection:
        assert connection.execute(select(drivers.c.state, drivers.c.error)).one() == (
            "failed",
            "OSError: the disk is gone",
        )


@pytest.mark.proves("G149")
def test_what_has_not_changed_is_not_opened(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round without work only checks for newer versions of tables; a changed table is maintained again."""
    tables = [game_table(Path(paths.table(f"game_{number}")), 1) for number in range(30)]
    opened: list[str] = []
    really = run._maintain

    def work_on(job: Any, *rest: Any) -> Any:
        opened.append(job.name)
        return really(job, *rest)

    monkeypatch.setattr(run, "_maintain", work_on)
    unchanged, now = Unchanged(), time.time()

    def look(at: float = now) -> tuple[set[str], int]:
        opened.clear()
        done = run.one_round(SETTINGS, paths, at, thorough=False, unchanged=unchanged)
        return {name for name in opened if name.startswith("tables/")}, sum(
            each.files_after or 0 for each in done.tables
        )

    assert len(look()[0]) == 30
    before = cpu_seconds()
    assert look() == (set(), 30), "it still knows how many files there are"
    assert cpu_seconds() - before < 0.5
    tables[3].commit([write_file(game_rows(2), paths.table("game_3"), ["_seq"])], 1, 2)
    assert look() == ({"tables/game_3"}, 31)
    assert look() == (set(), 31)
    assert len(look(now + 7 * 3600)[0]) == 30, "files and logs grow old without a commit"


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
