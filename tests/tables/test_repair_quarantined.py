"""Quarantine is read from its data files, whatever they hold and wherever they lie."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused
from pipeline.data.repair import quarantined
from pipeline.data.repair.quarantined import Selection, opened
from tests.tables.repair_world import CHESS, World, make_world


def refuse(world: World, first: int, count: int, raw: bytes = b"") -> None:
    """Append a file of refused rows of seq 1."""
    row = {"game_key": CHESS.key, "game": CHESS.name, "seq": 1, "reason": "malformed_payload", "raw": raw}
    world.quarantine([{**row, "pos": pos} for pos in range(first, first + count)])


def shown(world: World, rows: int = 100) -> list[tuple[int, int]]:
    with opened(world.paths, {}, Selection(), twins=True) as found:
        return [(row.pos, row.size) for row in found.rows(rows, 1)]


def test_large_rows_are_read_with_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest rows are shown though all of them are several times what may be held."""
    world, size = make_world(tmp_path), 100_000
    for first in range(0, 4_000, 1_000):
        refuse(world, first, 1_000, bytes(size))
    monkeypatch.setattr(quarantined, "_MEMORY_LIMIT", "128MB")
    assert shown(world, rows=10) == [(pos, size) for pos in range(3_999, 3_989, -1)]


def test_patterns_in_a_path_are_letters(tmp_path: Path) -> None:
    """A folder whose name would be a pattern is read, and none that it would match."""
    (tmp_path / "a").mkdir()
    refuse(make_world(tmp_path / "a"), 0, 2)
    folder = tmp_path / "[a]*"
    folder.mkdir()
    world = make_world(folder)
    refuse(world, 7, 1)
    assert shown(world) == [(7, 0)]


@pytest.mark.parametrize("others", [0, 1])
def test_a_column_that_a_file_lacks_is_null(others: int, tmp_path: Path) -> None:
    """A file of delta-rs or of a hand need not have all columns, also where it is the only one."""
    world = make_world(tmp_path)
    if others:
        refuse(world, 0, others, b"raw")
    row = {"game_key": CHESS.key, "game": CHESS.name, "seq": 1, "pos": 1, "reason": "malformed_payload"}
    world.append_quarantine(
        pa.Table.from_pylist([row]).cast(
            pa.schema(
                [
                    ("game_key", pa.string()),
                    ("game", pa.string()),
                    ("seq", pa.int64()),
                    ("pos", pa.int32()),
                    ("reason", pa.string()),
                ]
            )
        )
    )
    with opened(world.paths, {}, Selection(), twins=True) as found:
        assert found.totals() == (1 + others, 1)
        assert [row.detail for row in found.rows(1, 1)] == [None]


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """Law L5: rows that the table no longer has, but its files do, are not counted."""
    world = make_world(tmp_path)
    refuse(world, 0, 40)
    log = world.paths.quarantine / "_delta_log"
    (add,) = [
        action["add"]
        for commit in sorted(Path(log).glob("*.json"))
        for action in map(json.loads, commit.read_text("utf-8").splitlines())
        if "add" in action
    ]
    # Six rows, as Delta's protocol writes a vector within its log.
    vector = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
              "sizeInBytes": 44, "cardinality": 6}  # fmt: skip
    features = ["deletionVectors"]
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                      "writerFeatures": features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector}},
    ]  # fmt: skip
    number = len(list(Path(log).glob("*.json")))
    Path(log / f"{number:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions), "utf-8")
    with pytest.raises(Refused, match=r"^Quarantine uses deletion vectors"):
        shown(world)
    world.ingest()
    with pytest.raises(Refused, match=r"^quarantine uses deletion vectors"):
        world.verify()
