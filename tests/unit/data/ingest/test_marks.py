"""Marks of sources: what says that a topic is another one in the place of the one that was read."""

import json

import pytest

from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.evidence.marks import LastRecord, Mark, parse, replaced
from pipeline.lake.storage.places import located

READ = Mark("a", {0: 3, 1: 0}, {0: (0, 1000)}, {0: LastRecord(7, 1000, None, "x")})


@pytest.mark.parametrize(
    ("before", "now", "clause"),
    [
        (Mark("a", {0: 3}), Mark("a", {0: 4}), None),
        (Mark("a", {0: 3}), Mark("a", {0: 0}), None),  # an id is proof, and an epoch is none beside it
        (Mark("a", {0: 0}), Mark("b", {0: 0}), "its id is b, ingest has read a"),
        (Mark(None, {0: 3}), Mark(None, {0: 4}), None),
        (Mark(None, {0: 3}), Mark(None, {0: -1}), None),  # unknown
        (Mark(None, {0: 3}), Mark(None, {0: 0}), "no topic ids, but the leader epoch of partition 0 went back from 3"),
        (Mark("a", {0: 3}), Mark(None, {0: 0}), "no topic ids, but the leader epoch of partition 0 went back from 3"),
        (Mark(first={0: (0, 7)}), Mark(first={0: (0, 7)}), None),
        (Mark(first={0: (0, 7)}), Mark(first={0: (5, 9)}), None),  # retention
        (Mark(first={0: (0, 7)}), Mark(first={0: (0, 9)}), "its first record in partition 0, offset 0, has the time 9"),
        (Mark(None), Mark("b"), None),  # a broker that gives ids by now
    ],
)  # fmt: skip
@pytest.mark.proves("G15")
def test_another_topic_is_known_by_its_id_or_by_less(before: Mark, now: Mark, clause: str | None) -> None:
    """Law L1: another id is another topic; a broker without ids leaves epochs and times, said as such."""
    found = replaced(before, now)
    assert found is None if clause is None else clause in (found or "")


@pytest.mark.parametrize(
    ("there", "other"),
    [
        (LastRecord(7, 1000, None, "x"), False),
        (LastRecord(7, None, None, "x"), False),
        (LastRecord(7, 1001, None, "x"), True),
        (LastRecord(7, 1000, "", "x"), True),
        (LastRecord(7, 1000, None, None), True),
    ],
)
def test_a_record_is_another_by_time_key_or_bytes(there: LastRecord, other: bool) -> None:
    """Law L1: an offset names one record; another time, key or value there is another record."""
    assert READ.last[0].is_other(there) == other


def test_marks_are_kept_for_the_last_landed_batch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Law L1: marks of a batch that bronze lacks are not compared, and a damaged file leaves the batch before."""
    folder = located(str(tmp_path_factory.mktemp("marks")))
    kept = KeptMarks(folder)
    assert parse(json.loads(json.dumps(READ.as_dict()))) == READ
    assert kept.read(3) == {}
    for batch in (1, 2):
        kept.write(batch, {"t": Mark("a", {0: batch})})
    assert kept.read(None) == {}
    assert [kept.read(landed)["t"].epochs[0] for landed in (1, 2, 3)] == [1, 2, 2]
    (folder / "marks-0.json").put(b"{")
    assert kept.read(2)["t"].epochs == {0: 1}
