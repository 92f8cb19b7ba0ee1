"""Damaged pins stop nobody."""

from pathlib import Path

import pytest

from pipeline.data.pins import ChunkPin, Pinned, SetPin, pin, pin_set
from pipeline.lake.storage.places import located

DAMAGED = ["", "null", '{"version": 1, "hi', '{"version": 1}']


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_pin_is_written_anew(tmp_path: Path, content: str) -> None:
    """Law L6: a batch whose pin is damaged is repeated with today's set, and with that one from then on."""
    (tmp_path / "7").write_text(content)
    assert pin(located(tmp_path), 7, lambda: 3) == 3
    assert pin(located(tmp_path), 7, lambda: 4) == 3


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_pin_of_a_chunk_is_none(tmp_path: Path, content: str) -> None:
    """Law L7: a driver starts, and its streams are caught up from their tables."""
    file = tmp_path / "chunk.json"
    file.write_text(content)
    damaged = ChunkPin(file)
    assert damaged.find("chess", 0) is None
    damaged.write(SetPin(2, "mark"), 9, ["chess"])
    assert ChunkPin(file).find("chess", 0) == Pinned(2, 9, "mark")


def test_a_pin_names_one_schema_set(tmp_path: Path) -> None:
    """Law L5: a batch is repeated with the very set that it began with."""
    assert pin_set(located(tmp_path), 7, lambda: SetPin(3, "a mark")) == SetPin(3, "a mark")
    assert pin_set(located(tmp_path), 7, lambda: SetPin(3, "another")) == SetPin(3, "a mark")
