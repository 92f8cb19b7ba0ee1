"""Spark's checkpoint files, read without dying of what a crash or a hand made of them."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline.data import query_log
from pipeline.data.maintenance.readers import Reader, readers
from pipeline.lake.storage.places import located

OFFSET = {"reservoirId": "bronze", "reservoirVersion": 7, "index": -1}
WHOLE = f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{json.dumps(OFFSET)}".encode()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(b"")
@example(b"v1")
@example(b"v1\n\n")
@example(b"v1\n{}\n[]")
@given(st.binary(max_size=60) | st.integers(0, len(WHOLE)).map(lambda end: WHOLE[:end]))
def test_a13_whatever_a_file_holds_it_is_read_or_found_damaged(tmp_path: Path, content: bytes) -> None:
    """A13 to A15: no content of a file is an exception, and a part of a file is never taken for the whole."""
    file = tmp_path / "0"
    file.write_bytes(content)
    reported = query_log.offset(located(file))
    assert (reported == OFFSET) == (content == WHOLE)
    assert query_log.lines(located(file)) is None or content.startswith(b"v")
    assert query_log.has_id(located(file)) in {True, False}


def test_a_query_and_its_batches_are_found(tmp_path: Path) -> None:
    """Spark's files are read back; its temporary and checksum files are no batches."""
    (tmp_path / "metadata").write_text('{"id":"1"}')
    for name in ("0", "10", "9", ".9.crc", "9.damaged"):
        (tmp_path / name).write_bytes(WHOLE)
    assert query_log.batches(located(tmp_path)) == [0, 9, 10]
    assert query_log.batches(located(tmp_path / "gone")) == []
    assert query_log.offset(located(tmp_path / "9")) == OFFSET
    assert query_log.offset(located(tmp_path / "gone")) is None
    assert query_log.has_id(located(tmp_path / "metadata"))
    assert not query_log.has_id(located(tmp_path / "gone"))


def test_a13_maintenance_waits_for_a_reader_whose_place_is_damaged(tmp_path: Path) -> None:
    """A13: it may still have to read anything, so nothing of bronze is taken from it; maintenance goes on."""
    for name, content in (("a", WHOLE), ("b", b""), ("c", WHOLE.replace(b"bronze", b"landing"))):
        for log in ("offsets", "commits"):
            folder = tmp_path / "demux" / name / "query" / log
            folder.mkdir(parents=True)
            (folder / "0").write_bytes(content if log == "offsets" else b"v1\n{}")
    found: dict[str, Reader] = {reader.name: reader for reader in readers(tmp_path, "bronze")}
    assert {name: reader.next_version for name, reader in found.items()} == {"demux/a/query": 7, "demux/b/query": None}


@pytest.mark.proves("G28")
def test_line_separators_in_an_offset_do_not_damage_it(tmp_path: Path) -> None:
    """Lines end at a line feed only: U+0085, U+2028 and U+2029 stand in JSON as they are."""
    separators = "a\u0085b\u2028c\u2029d"
    metadata = json.dumps({"batchWatermarkMs": 0, "conf": {"name": separators}}, ensure_ascii=False)
    planned = {**OFFSET, "topic": separators}
    (tmp_path / "0").write_text(f"v1\n{metadata}\n{json.dumps(planned, ensure_ascii=False)}", "utf-8")
    assert query_log.offset(located(tmp_path / "0")) == planned
