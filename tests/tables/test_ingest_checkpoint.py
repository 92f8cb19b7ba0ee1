"""How far Spark's checkpoint of ingest says it is, what of its damage is mended, and what is refused."""

import json
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.data.ingest import checkpoint
from pipeline.data.ingest.bronze_progress import PLAN, plan_of
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located


def checkpoint_of(query: Path, planned: int, committed: int) -> Path:
    """Write Spark's logs as they are after batch `planned` was planned and batch `committed` was committed."""
    for folder, last in (("offsets", planned), ("commits", committed)):
        (query / folder).mkdir(parents=True)
        for number in range(last + 1):
            body = f'{{"batchWatermarkMs":0}}\n{{"t":{{"0":{10 * number}}}}}' if folder == "offsets" else "{}"
            (query / folder / str(number)).write_text(f"v1\n{body}")
    (query / "metadata").write_text('{"id":"1"}')
    return query


def passed(query: Path, landed_batch: int | None, quarantined: int | None = None) -> int | None:
    """Return the passed offset of partition 0, after mending."""
    state = LandedBatches(landed_batch, quarantined)
    checkpoint.mend(located(query), state)
    offset = checkpoint.passed_offset(located(query), state)
    return None if offset is None else int(offset["t"]["0"])


@pytest.mark.parametrize(
    ("planned", "committed", "landed_batch", "offset"),
    [
        (3, 3, 3, 30),
        (3, 2, 3, 30),
        (3, 2, 2, 20),
        (3, 3, 1, 30),
        (0, -1, None, None),
        (-1, -1, None, None),
        (0, -1, 0, 0),
    ],
)
def test_what_is_through_follows_from_commits_and_bronze(
    tmp_path: Path, planned: int, committed: int, landed_batch: int | None, offset: int | None
) -> None:
    """A batch is finished if Spark or bronze has it; a planned batch in neither is still to be read."""
    assert offset == passed(checkpoint_of(tmp_path, planned, committed), landed_batch)


def test_a_lost_or_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    """A9: bronze ahead of the checkpoint means that reading on would double rows or skip them, so it does not start."""
    with pytest.raises(Refused, match=r"the checkpoint .* is gone: .*twice.*turnout ingest adopt"):
        passed(tmp_path / "none", 2)
    with pytest.raises(Refused, match=r"ends at batch 3, but bronze has batch 5: it is an old copy.*adopt"):
        passed(checkpoint_of(tmp_path, 3, 3), 5)


@pytest.mark.parametrize(
    ("planned", "committed", "landed_batch", "lacks"),
    [(3, 3, 3, None), (3, 2, 3, None), (3, 2, 2, None), (3, 3, 2, 3), (3, 2, 1, 2), (3, -1, 0, 1), (3, 3, None, 0)],
)
def test_bronze_has_every_batch_before_the_last_planned_one(
    tmp_path: Path, planned: int, committed: int, landed_batch: int | None, lacks: int | None
) -> None:
    """Law L1: bronze may lack a planned batch, but not a batch that Spark counts as done."""
    query = tmp_path / "1" / "query"
    checkpoint.keep_bronze(located(query), "id")
    checkpoint_of(query, planned, committed)
    if lacks is None:
        checkpoint.require_bronze(located(query), LandedBatches(landed_batch, None), "id")
        return
    with pytest.raises(Refused, match=rf"older copy: .* lacks those from {lacks} on.*turnout ingest adopt"):
        checkpoint.require_bronze(located(query), LandedBatches(landed_batch, None), "id")


def test_batches_of_an_earlier_version_are_not_missed(tmp_path: Path) -> None:
    """An environment whose last batches had no rows, and so left no trace in bronze, is taken over as it is."""
    query = checkpoint_of(tmp_path / "1" / "query", 3, 3)
    checkpoint.require_bronze(located(query), LandedBatches(1, None), "id")
    checkpoint.keep_bronze(located(query), "id")
    checkpoint.require_bronze(located(query), LandedBatches(1, None), "id")
    (query / "commits" / "4").write_text("v1\n{}")
    with pytest.raises(Refused, match="lacks those from 4 on"):
        checkpoint.require_bronze(located(query), LandedBatches(3, None), "id")


def test_a_checkpoint_of_another_bronze_is_refused(tmp_path: Path) -> None:
    """Law L1: bronze's table id is compared with the one that the checkpoint was written for."""
    query = tmp_path / "1" / "query"
    checkpoint.keep_bronze(located(query), "old")
    with pytest.raises(Refused, match=r"belongs to another bronze: its table id is old, bronze has new"):
        checkpoint.require_bronze(located(query), LandedBatches(None, None), "new")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b"\xff", b'{"table_id":"id"}', b'{"table_id":"id","from_batch":"x"}']
)
def test_damage_to_what_was_kept_of_bronze_stops_nothing(tmp_path: Path, damage: bytes) -> None:
    """An unreadable record is written again, with the batches that are done by then."""
    query = checkpoint_of(tmp_path / "1" / "query", 3, 3)
    (query.parent / "bronze.json").write_bytes(damage)
    checkpoint.require_bronze(located(query), LandedBatches(3, None), "id")
    checkpoint.keep_bronze(located(query), "id")
    assert json.loads((query.parent / "bronze.json").read_text()) == {"table_id": "id", "from_batch": 4}


@pytest.mark.parametrize("damage", [b"", b"v1", b"v1\n{", b"\xff\xfe", b"v1\n{}"])
@pytest.mark.proves("G18")
def test_damaged_last_offsets_are_put_aside_only_if_nothing_came_of_them(tmp_path: Path, damage: bytes) -> None:
    """A13: unreadable offsets of a batch without a trace are planned anew; of any other batch the file is named."""
    for name, landed_batch, quarantined, committed in (("b", 3, 2, 2), ("q", 2, 3, 2), ("c", 2, 2, 3)):
        query = checkpoint_of(tmp_path / name, 3, committed)
        (query / "offsets" / "3").write_bytes(damage)
        with pytest.raises(Refused, match=r"offsets/3 is damaged.*turnout ingest adopt"):
            passed(query, landed_batch, quarantined)
        assert damage == (query / "offsets" / "3").read_bytes()
    query = checkpoint_of(tmp_path / "free", 3, 2)
    (query / "offsets" / "3").write_bytes(damage)
    assert passed(query, 2, 2) == 20
    assert damage == (query / "offsets" / "3.damaged").read_bytes()
    assert not (query / "offsets" / "3").exists()


@pytest.mark.parametrize("left", [".0.6b9f.tmp", "..0.6b9f.tmp.crc", "0"])
@pytest.mark.proves("D13")
def test_a_first_batch_that_a_full_disk_cut_short_is_planned_again(tmp_path: Path, left: str) -> None:
    """A13: Spark plans its first batch in an empty folder only: what was left in it kept ingest from ever starting."""
    query = checkpoint_of(tmp_path / "query", -1, -1)
    (query / "offsets" / left).write_bytes(b"")
    assert passed(query, None) is None
    assert not list((query / "offsets").iterdir())


def test_a_missing_offset_file_is_named(tmp_path: Path) -> None:
    """A13: Spark needs the batch before the last, too; the sentence names that very file."""
    query = checkpoint_of(tmp_path, 3, 3)
    (query / "offsets" / "2").unlink()
    with pytest.raises(Refused, match=r"offsets/2 is missing"):
        passed(query, 3)
    (query / "offsets" / "3").unlink()
    with pytest.raises(Refused, match=r"no offsets of its last batch, 3"):
        passed(query, 1)


def test_damaged_and_missing_commits_only_repeat_a_batch(tmp_path: Path) -> None:
    """A14, A16: a commit file that is empty is put aside; with or without three of them the position is the same."""
    query = checkpoint_of(tmp_path, 5, 5)
    (query / "commits" / "5").write_bytes(b"")
    assert passed(query, 5) == 50
    assert (query / "commits" / "5.damaged").exists()
    assert not (query / "commits" / "5").exists()
    for number in (3, 4):
        (query / "commits" / str(number)).unlink()
    assert passed(query, 5) == 50
    assert passed(query, 4) == 40


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"[1]"])
def test_the_query_id_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    """A15: nothing hangs on Spark's query id, so a missing or damaged one is replaced; a good one stays."""
    query = checkpoint_of(tmp_path, 1, 1)
    assert passed(query, 1) == 10
    assert (query / "metadata").read_text() == '{"id":"1"}'
    (query / ".metadata.crc").write_bytes(b"Hadoop's checksum of the old one")
    (query / "metadata").unlink()
    if damage is not None:
        (query / "metadata").write_bytes(damage)
    assert passed(query, 1) == 10
    assert json.loads((query / "metadata").read_text())["id"]
    assert not (query / ".metadata.crc").exists()


@pytest.mark.parametrize(
    "files", [(), ("metadata",), ("metadata", "offsets/0"), ("metadata", "offsets/0", "commits/0")]
)
def test_a_beginning_that_was_written_half_way_is_written_again(tmp_path: Path, files: tuple[str, ...]) -> None:
    """Killed between two files, the checkpoint of a query that is to begin behind everything is as good as none."""
    checkpoint.begin_behind(located(tmp_path), {"t": {"0": 7}})
    for file in {"metadata", "offsets/0", "commits/0"} - set(files):
        (tmp_path / file).unlink()
    assert passed(tmp_path, None) == (7 if "commits/0" in files else None)
    checkpoint.begin_behind(located(tmp_path), {"t": {"0": 7}})
    assert passed(tmp_path, None) == 7


@pytest.mark.parametrize("damage", [None, b"", b"v1"])
@pytest.mark.parametrize("committed", [2, 3])
@pytest.mark.proves("G251")
def test_offsets_of_the_last_batch_in_bronze_are_written_again(
    tmp_path: Path, damage: bytes | None, committed: int
) -> None:
    """A13: a power cut, or a hand, takes Spark's last file; bronze keeps what it held, and nobody is needed."""
    query = checkpoint_of(tmp_path, 3, committed)
    file = query / "offsets" / "3"
    kept = file.read_text()
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    state = LandedBatches(3, 3)
    checkpoint.mend(located(query), state, 1, {3: kept}.get)
    offset = checkpoint.passed_offset(located(query), state)
    assert offset is not None
    assert (offset["t"]["0"], file.read_text()) == (30, kept)


def test_offsets_that_bronze_has_are_those_of_its_newest_commit_of_the_generation(tmp_path: Path) -> None:
    """Law L1: the plan is found behind commits of others, and never that of another batch or generation."""
    bronze = CursorTable.create(located(tmp_path / "bronze"), BRONZE, "seqs")
    bronze.commit([], None, 1, {PLAN: "first"}, also={"ingest/1": 0})
    bronze.commit([], 1, 2, {PLAN: "second"}, also={"ingest/1": 1})
    bronze.commit([], 2, 3, {PLAN: "other"}, also={"ingest/2": 1})
    assert plan_of(bronze, "ingest/1", 1) == "second"
    assert plan_of(bronze, "ingest/1", 0) is None
    assert plan_of(bronze, "ingest/3", 0) is None


def test_a_beginning_that_a_power_cut_has_emptied_is_found_anew(tmp_path: Path) -> None:
    """Law L1: Spark dies of empty first offsets; before a row has landed, the settings name them again."""
    query = checkpoint_of(tmp_path, 0, -1)
    for number, text in enumerate(("", "0v1")):
        (query / "sources" / str(number)).mkdir(parents=True)
        (query / "sources" / str(number) / "0").write_text(text)
    passed(query, 0)
    assert (query / "sources" / "0" / "0").exists()
    passed(query, None)
    assert [each.read_text() for each in query.glob("sources/*/0")] == ["0v1"]
