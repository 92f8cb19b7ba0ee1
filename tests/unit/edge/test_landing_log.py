"""A landing table behind an edge: acknowledged is only what a commit has, with its file and rows."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.base import failpoints
from pipeline.base.errors import Refused
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.edge.logs import landing
from pipeline.edge.logs.landing import Landed, LandingLog
from pipeline.edge.logs.supported import log_of
from pipeline.edge.messages import MAX_REQUEST_BYTES
from pipeline.lake.delta.parquet import open_file
from pipeline.lake.storage.places import located
from pipeline.settings.tree import load

EFFECTS = ("write_data_file", "draft_commit", "publish_commit", "delete_draft")


class Reports:
    """The reports of batches, by their names."""

    def __init__(self) -> None:
        self._found: dict[str, Landed] = {}
        self._came = threading.Condition()

    def send(self, log: LandingLog, name: str, rows: int = 1) -> None:
        def done(landed: Landed) -> None:
            with self._came:
                self._found[name] = landed
                self._came.notify_all()

        log.send([b"Chess"] * rows, [f"{name}-{row}".encode() for row in range(rows)], done)

    def of(self, name: str) -> Landed:
        with self._came:
            assert self._came.wait_for(lambda: name in self._found, 20)
            return self._found[name]


@contextmanager
def opened(folder: Path) -> Iterator[LandingLog]:
    log = LandingLog(located(folder), own=True)
    try:
        yield log
    finally:
        assert log.close(20) == 0


def rows_at(folder: Path, landed: Landed) -> list[str]:
    """Return the values at the places that an answer names."""
    found: list[str] = []
    for (name, version), (first, last) in landed.offsets.items():
        files = [{*pa.table(DeltaTable(folder, each).get_add_actions())["path"].to_pylist()} for each in (version, 0)]
        assert name in files[0] - files[1]
        with open_file(located(folder / name)) as file:
            found += [each.decode() for each in file.read().column("value").to_pylist()[first : last + 1]]
    return found


def landed_values(folder: Path) -> Sequence[str]:
    values = DeltaTable(folder).to_pyarrow_table().column("value").to_pylist()
    return sorted(each.decode() for each in values)


def test_an_answer_names_the_file_and_the_rows(tmp_path: Path) -> None:
    """Batches that wait together become one commit, and each answer leads to its own rows."""
    reports = Reports()
    with opened(tmp_path / "landing") as log:
        reports.send(log, "first")
        reports.of("first")
        for number in range(5):
            reports.send(log, f"b{number}", number + 1)
        found = [reports.of(f"b{number}") for number in range(5)]
    names = {name for each in found for name in each.offsets}
    assert len(names) <= 2  # of commits: the first may come before the last batch
    for number, each in enumerate(found):
        assert each.why is None
        assert rows_at(tmp_path / "landing", each) == [f"b{number}-{row}" for row in range(number + 1)]
    assert LandingLog.record_bytes == MAX_REQUEST_BYTES
    table = DeltaTable(tmp_path / "landing")
    assert table.schema().to_arrow() == DeltaTable.create(tmp_path / "like", LANDING).schema().to_arrow()
    assert len(landed_values(tmp_path / "landing")) == 16


def test_commits_are_spaced_while_batches_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A steady stream of batches makes a file each quarter of a second, not one for each batch."""
    monkeypatch.setattr(landing, "COMMIT_SECONDS", 60.0)
    reports = Reports()
    log = LandingLog(located(tmp_path / "landing"), own=True)
    reports.send(log, "first")
    reports.of("first")
    for number in range(20):
        reports.send(log, f"b{number}")
    assert log.close(20) == 0
    assert {name for number in range(20) for name in reports.of(f"b{number}").offsets} == {*reports.of("b0").offsets}
    assert DeltaTable(tmp_path / "landing").version() == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_failure_at_any_effect_acknowledges_nothing_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    """A batch whose commit fails is unknown, never acknowledged, and the next one lands."""
    armed = [f"{when}_{name}"]

    def fail(point: str) -> None:
        if point in armed:
            armed.clear()
            raise OSError("the disk is full")

    monkeypatch.setattr(landing, "COMMIT_SECONDS", 0.0)
    reports = Reports()
    with opened(tmp_path / "landing") as log:
        reports.send(log, "first")
        reports.of("first")
        monkeypatch.setattr(failpoints, "on_hit", fail)
        reports.send(log, "second")
        second = reports.of("second")
        monkeypatch.setattr(failpoints, "on_hit", None)
        reports.send(log, "third")
        assert reports.of("third").why is None
    assert second.why == "the landing table could not be written"  # and no place within the storage
    assert not second.offsets
    found = landed_values(tmp_path / "landing")
    assert {"first-0", "third-0"} <= {*found} <= {"first-0", "second-0", "third-0"}
    assert len(found) == len({*found})


def test_only_a_landing_table_of_wrappers_is_written(tmp_path: Path) -> None:
    """Each table that an edge cannot write as ingest reads it is refused in a sentence, before it listens."""
    with pytest.raises(Refused, match="There is no landing table"):
        LandingLog(located(tmp_path / "typo"), own=False)
    assert not (tmp_path / "typo").exists()
    rows = LANDING.empty_table()
    write_deltalake(tmp_path / "parted", rows, partition_by=["key"])
    with pytest.raises(Refused, match="partitions or mapped columns"):
        LandingLog(located(tmp_path / "parted"), own=False)
    write_deltalake(tmp_path / "other", rows.rename_columns(["key", "payload"]))
    with pytest.raises(Refused, match="not a landing table"):
        LandingLog(located(tmp_path / "other"), own=False)
    settings, paths = load(tmp_path / "env", {"TURNOUT_SOURCE__PATH": str(tmp_path / "typo")})
    with pytest.raises(Refused, match="There is no landing table"):
        log_of(settings, paths)
