"""Damaged pins stop nobody."""

from pathlib import Path

import pytest

from pipeline.pins import ChunkPin, pin
from pipeline.storage.places import located

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
    damaged.write(2, 9, ["chess"])
    assert ChunkPin(file).find("chess", 0) == (2, 9)
