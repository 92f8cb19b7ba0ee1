"""Which checkpoints of a demux query Spark may go on from, and what becomes of the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.names import bronze_app_id
from pipeline.data.maintenance.rewrite import sorted_by_game
from pipeline.data.streams import checkpoint
from pipeline.data.streams.checkpoint import can_resume, reads_from
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import replace_files, table_files
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths
from tests.tables.maintenance_world import bronze_table

LAST = 3


@pytest.fixture
def bronze(tmp_path: Path) -> CursorTable:
    paths = Paths(tmp_path / "env")
    bronze_table(Path(paths.bronze), 6)
    table = CursorTable.open(paths.bronze, bronze_app_id("test"))
    assert table is not None
    return table


@pytest.fixture
def query(tmp_path: Path, bronze: CursorTable) -> Path:
    """A checkpoint as Spark leaves it after four batches, the last of which it has not committed yet."""
    folder = tmp_path / "a" / "query"
    for part in ("offsets", "commits", "pins"):
        (folder / part).mkdir(parents=True)
    for number in range(LAST + 1):
        offset = {"sourceVersion": 1, "reservoirId": bronze.table_id, "reservoirVersion": number + 2, "index": -1}
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}')
        (folder / "pins" / str(number)).write_text("1")
        if number < LAST:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "metadata").write_text('{"id":"6b9f"}')
    return folder


def another_table(query: Path) -> None:
    file = query / "offsets" / str(LAST)
    file.write_text(file.read_text().replace("reservoirId", "otherId"))


def two_sources(query: Path) -> None:
    file = query / "offsets" / str(LAST)
    file.write_text(file.read_text() + "\n" + file.read_text().splitlines()[-1])


def last_two_gone(query: Path) -> None:
    for number in (LAST - 1, LAST):
        (query / "offsets" / str(number)).unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "A9 no offsets": lambda query: shutil.rmtree(query / "offsets"),
    "A10 of another table": another_table,
    "A13 last offsets empty": lambda query: (query / "offsets" / "3").write_bytes(b""),
    "A13 last offsets garbled": lambda query: (query / "offsets" / "3").write_bytes(b"v1\n{\xff"),
    "A13 offsets before the last gone": lambda query: (query / "offsets" / "2").unlink(),
    "A13 last offsets gone": last_two_gone,
    "A14 last commit empty": lambda query: (query / "commits" / "2").write_bytes(b""),
    "A14 last commit garbled": lambda query: (query / "commits" / "2").write_bytes(b"v1\n}"),
    "A15 no metadata": lambda query: (query / "metadata").unlink(),
    "A15 metadata garbled": lambda query: (query / "metadata").write_text("{}"),
    "A17 two sources": two_sources,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.proves("A17")
def test_what_spark_would_die_of_is_dropped_with_its_pins(query: Path, bronze: CursorTable, damage: str) -> None:
    """A9, A10, A13 to A17, laws L5 and L7: Spark begins anew, and no pin of the old batch numbers is left for it."""
    DAMAGE[damage](query)
    assert not can_resume(query, bronze)
    assert list(query.parent.iterdir()) == []


@pytest.mark.proves("G236")
def test_a_checkpoint_whose_next_files_were_merged_is_dropped(query: Path, bronze: CursorTable, tmp_path: Path) -> None:
    """Maintenance goes by the driver that ran last, and an older checkpoint lies on the machine that one left."""
    old = [file for file in table_files(open_table(bronze.path)) if file.high["seq"] < 4]
    replace_files(bronze.path, old, sorted_by_game(bronze.path, BRONZE, old, 1_000_000), "OPTIMIZE")
    bronze.refresh()
    assert reads_from(located(query)) == 4
    assert can_resume(query, bronze), "it has passed what was merged"
    old = [file for file in table_files(open_table(bronze.path)) if file.high["seq"] == 5]
    replace_files(bronze.path, old, sorted_by_game(bronze.path, BRONZE, old, 1_000_000), "OPTIMIZE")
    bronze.refresh()
    assert not can_resume(query, bronze)


def test_what_spark_can_go_on_from_is_kept(query: Path, bronze: CursorTable) -> None:
    """A16: without its commit files Spark repeats one batch, which changes nothing; the pins are needed for that."""
    assert can_resume(query, bronze)
    for number in (1, 2):
        (query / "commits" / str(number)).unlink()
    assert can_resume(query, bronze)
    shutil.rmtree(query / "commits")
    assert can_resume(query, bronze)
    assert {file.name for file in (query / "pins").iterdir()} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("gone", [LAST, LAST + 1])
@pytest.mark.parametrize("committed", [True, False])
def test_a_place_that_the_log_no_longer_has_is_given_up(
    query: Path, bronze: CursorTable, *, committed: bool, gone: int
) -> None:
    """A21: Spark looks at the last batch again, also when it is committed; the commit before it shows where it is."""
    log = bronze.path / "_delta_log"
    if committed:
        (query / "commits" / str(LAST)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for version in range(LAST):
        Path(log / f"{version:020}.json").unlink()
    assert can_resume(query, bronze)
    Path(log / f"{gone:020}.json").unlink()
    assert not can_resume(query, bronze)


def test_a_query_that_is_far_behind_begins_at_the_newest_commit(
    query: Path, bronze: CursorTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L7: after an outage catch-up brings what was missed; a batch that was cut short is repeated first (L5)."""
    monkeypatch.setattr(checkpoint, "_FAR_COMMITS", bronze.version - LAST - 3)
    assert can_resume(query, bronze)
    (query / "commits" / str(LAST)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert not can_resume(query, bronze)


def test_a_place_behind_the_newest_commit_is_none_that_is_gone(query: Path, bronze: CursorTable) -> None:
    """A21: a reader that has read everything waits for a commit that nobody has written yet."""
    (query / "commits" / str(LAST)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    file = query / "offsets" / str(LAST)
    text = file.read_text().replace(f'"reservoirVersion": {LAST + 2}', f'"reservoirVersion": {bronze.version + 1}')
    file.write_text(text)
    assert f'"reservoirVersion": {bronze.version + 1}' in text
    assert can_resume(query, bronze)


def test_nothing_to_go_on_from_is_no_damage(query: Path, bronze: CursorTable, caplog: pytest.LogCaptureFixture) -> None:
    """A first start, and one after a drop that was cut short, begin without a word about damage."""
    (query / "pins").rename(query.parent / "query-dropped")
    for log in ("offsets", "commits"):
        shutil.rmtree(query / log)
        (query / log).mkdir()
    assert not can_resume(query, bronze)
    assert [path.name for path in query.parent.iterdir()] == ["query"]
    assert (query / "metadata").exists()  # of a driver that has just started
    shutil.rmtree(query)
    assert not can_resume(query, bronze)
    assert not caplog.records


@pytest.mark.proves("D13")
def test_a_first_batch_that_a_full_disk_cut_short_is_planned_again(query: Path, bronze: CursorTable) -> None:
    """Spark plans its first batch in an empty folder only: a draft left there kept the group from ever starting."""
    for part in ("offsets", "commits", "pins"):
        for file in (query / part).iterdir():
            file.unlink()
    (query / "offsets" / ".0.6b9f.tmp").write_bytes(b"")
    assert not can_resume(query, bronze)
    assert not list((query / "offsets").iterdir())
    assert (query / "metadata").exists()


@pytest.mark.proves("G59")
def test_an_id_that_a_power_cut_has_emptied_is_made_anew(query: Path, bronze: CursorTable) -> None:
    """Law L7: Spark dies of an empty id at each start, also before its first batch; a good one stays."""
    for part in ("offsets", "commits", "pins"):
        shutil.rmtree(query / part)
    assert not can_resume(query, bronze)
    assert (query / "metadata").read_text() == '{"id":"6b9f"}'
    (query / "metadata").write_bytes(b"")
    (query / ".metadata.crc").write_bytes(b"")
    assert not can_resume(query, bronze)
    assert not list(query.iterdir())
