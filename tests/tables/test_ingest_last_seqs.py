"""The snapshot of the heads: only a shortcut, so no damage of it stops ingest or bends a game's chain."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.ingest.last_seqs import read_last_seqs, write_snapshot
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located

APP = "turnout/test/bronze"
HEADS = {"a": 3, "b": 2}


def bronze(folder: Path) -> CursorTable:
    """Return bronze with game a in seqs 1 and 3, and game b in seq 2."""
    table = CursorTable.create(located(folder / "bronze"), BRONZE, APP)
    for seq, key in ((1, "a"), (2, "b"), (3, "a")):
        rows = pa.Table.from_pylist([{"game_key": key, "seq": seq, "pos": 0, "prev_seq": 0}], schema=BRONZE)
        table.commit([write_file(rows, table.path, ["seq", "game_key"])], table.cursor, seq)
    return table


def garble(text: str) -> str:
    return text[: len(text) // 2] + "\x00" + text[len(text) // 2 :]


DAMAGE: dict[str, Callable[[str], str | bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda text: text[:-9],
    "garbage": lambda _: b"\xff\xfe\x00garbage",
    "garbled": garble,
    "null": lambda _: "null",
    "list": lambda _: "[1, 2]",
    "number": lambda _: "7",
    "no keys": lambda _: "{}",
    "seq is text": lambda text: json.dumps({**json.loads(text), "seq": "many"}),
    "heads is a list": lambda text: json.dumps({**json.loads(text), "last_seqs": ["a"]}),
    "a head is null": lambda text: json.dumps({**json.loads(text), "last_seqs": {"a": None}}),
    "a head is wrong": lambda text: json.dumps({**json.loads(text), "last_seqs": {"a": 1, "b": 2}}),
    "deep": lambda _: "[" * 200_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.proves("G8")
def test_a_damaged_snapshot_is_read_anew_from_bronze(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Law L1: whatever the snapshot says, each game's head is the one that bronze has, and the log names the file."""
    table, file = bronze(tmp_path), tmp_path / "last_seqs.json"
    write_snapshot(table, HEADS, located(file))
    content = DAMAGE[damage](file.read_text())
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.WARNING, "turnout"):
        assert read_last_seqs(table, located(file)) == HEADS
    assert "last_seqs.json cannot be used" in caplog.text


@settings(max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
@pytest.mark.proves("G8")
def test_no_byte_of_the_snapshot_can_bend_the_chain(
    tmp_path_factory: pytest.TempPathFactory, place: float, byte: int, cut: bool
) -> None:
    """Law L1: with any byte changed, or cut anywhere, the heads are those of bronze."""
    folder = tmp_path_factory.mktemp("last_seqs")
    table, file = bronze(folder), folder / "last_seqs.json"
    write_snapshot(table, HEADS, located(file))
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    content[at:] = b"" if cut else bytes([byte]) + content[at + 1 :]
    file.write_bytes(content)
    assert read_last_seqs(table, located(file)) == HEADS


def test_a_whole_snapshot_is_used_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The shortcut is taken where it fits: what it says below its seq is not read again."""
    table, file = bronze(tmp_path), tmp_path / "last_seqs.json"
    write_snapshot(table, {**HEADS, "c": 1}, located(file))
    assert read_last_seqs(table, located(file)) == {**HEADS, "c": 1}
    assert not caplog.text
    assert [file.name] == [each.name for each in tmp_path.iterdir() if each.is_file()]


def test_a_snapshot_of_lost_seqs_is_not_used(tmp_path: Path) -> None:
    """Law L1: heads that were kept before an older bronze was put back are of rows that are no longer there."""
    table, file = bronze(tmp_path), tmp_path / "last_seqs.json"
    write_snapshot(table, {"a": 3, "b": 3}, located(file))
    table.commit([], 3, 9)
    assert read_last_seqs(table, located(file), [LostSeqs(2, 9)]) == HEADS
