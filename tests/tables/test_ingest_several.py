"""Rows of several sources in one task: each by its profile, in one order of seqs and positions."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import game_key
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.ingest.identity import (
    Commits,
    LandingObservation,
    Observations,
    Offsets,
    Positions,
    SourceRecord,
    TopicObservation,
)
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.data.ingest.sources import topic_observation, union
from pipeline.data.ingest.sources.kind import SOURCE, as_they_come
from pipeline.data.ingest.sources.landing import Landing
from pipeline.data.ingest.sources.supported import open_source
from pipeline.data.ingest.sources.union import Union
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import Onboarding
from protos.turnout.v1.wrapper_pb2 import Wrapper

TOPIC = Source(kind="kafka", topic="t", bootstrap_servers="a:1")
PATTERN = Source(kind="kafka", topic_pattern="p-.*", bootstrap_servers="a:1")
GAME = game_key("Chess")


def records(
    topic: str, values: list[bytes], partition: int | None, headers: pa.DataType | None = None
) -> pa.RecordBatch:
    count = len(values)
    kind = headers or BRONZE.field("headers").type
    columns: dict[str, Any] = {
        "key": pa.array([b"Chess"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(list(range(count)) if partition is not None else [None] * count, pa.int64()),
        "source_time": pa.array([1_000_000 + at for at in range(count)], pa.timestamp("us", "UTC")),
        "headers": pa.array([[] for _ in range(count)], kind),
        "source_clock": pa.array(["broker"] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_one_task_lands_rows_of_several_sources(tmp_path: Path) -> None:
    """Laws L1, L2 and L13: one unbroken order of positions, each row by its source's profile and with its place."""
    spark_headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    wrapped = [Wrapper(game="Chess", schema_id=3, payload=b"x").SerializeToString()] * 2
    batches = [
        records("t", [b"\x00\x00\x00\x00\x07p"] * 3, 0, spark_headers).append_column(SOURCE, pa.array(["1"] * 3)),
        records("part-0.parquet", wrapped, None).append_column(SOURCE, pa.array(["0"] * 2)),
    ]
    job = IngestJob(
        seq=5, last_seqs={GAME: 2}, known={"Chess": GAME}, onboarding=Onboarding(), bronze=located(tmp_path / "bronze"),
        quarantine=located(tmp_path / "quarantine"), bronze_files=1,
        sources=(
            SourceJob(None, {"part-0.parquet": 5_000_000}, located(tmp_path / "landing"), "delta:id/"),
            SourceJob(
                NumberedProfile(4, SourceProfile(envelope="none", routing="key", framing="confluent", registry="main"))
            ),
        ),
    )  # fmt: skip
    rows_of = union._rows_of_each(iter(batches), (as_they_come, as_they_come))
    (report,) = [json.loads(each["report"][0].as_py()) for each in land(rows_of, job)]
    rows = [row for file in report["files"] for row in pq.read_table(tmp_path / "bronze" / file["path"]).to_pylist()]
    found = [
        (row["pos"], row["topic"], row["offset"], row["schema_id"], row["profile"], row["prev_seq"]) for row in rows
    ]
    assert found == [
        (0, "delta:id/part-0.parquet", 0, 3, None, 2), (1, "delta:id/part-0.parquet", 1, 3, None, 2),
        (2, "t", 0, None, 4, 2), (3, "t", 1, None, 4, 2), (4, "t", 2, None, 4, 2),
    ]  # fmt: skip
    assert report["needs"] == [[GAME, "Chess", "main", "0000000007", 5, 2]]
    assert report["oldest_of_each"] == [5.0, 1.0]
    assert report["rows"] == 5


def several(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Union:
    """Return a topic, a pattern that matches two, and a landing table, with brokers that answer."""
    monkeypatch.setattr(topic_observation, "observe_topic", lambda _: TopicObservation("t", "T", {0: 0}, {0: 5}))
    of = {name: TopicObservation(name, name.upper(), {0: 0}, {0: 9}) for name in ("p-a", "p-b")}
    monkeypatch.setattr(topic_observation, "observe_topics", lambda _: of)
    named = {"one": TOPIC, "many": PATTERN, "table": Source(path=str(folder / "table"))}
    monkeypatch.setattr(Landing, "observe", lambda self, _: LandingObservation(str(self.landing), "L", 0, 3))
    return Union({name: open_source(each, located(folder / "landing")) for name, each in named.items()})


def at(source: Union, **of: Any) -> Positions:
    names = {"t": "kafka topic t at a:1", "a": "kafka topic p-a at a:1", "b": "kafka topic p-b at a:1"}
    names["table"] = next(each.description for each in source.members if each.landing is not None)
    return Positions({names[name]: each for name, each in of.items()})


def test_each_source_has_its_part_of_the_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law L1: offsets belong to the streams by their order, whatever the names in the settings."""
    source = several(monkeypatch, tmp_path)
    place = at(source, t=Offsets({0: 4}), a=Offsets({0: 2}), b=Offsets({0: 3}), table=Commits(4))
    seen = source.observe(place)
    assert seen is not None
    written = source.offset_at(place, seen)
    assert source.passed(written) == place
    assert source.begin_behind(place, seen) == written, "commit 4 does not exist yet"
    assert source.begin_behind(at(source, t=Offsets({0: 4}), table=Commits(2)), seen) is None
    renamed = Union({f"x-{number}": each for number, each in enumerate(source.members[::-1])})
    assert (renamed.description, renamed.passed(written)) == (source.description, place)


def test_a_problem_has_the_name_of_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law L5: what one source has lost is named with both ends, and the others go on from their places."""
    source = several(monkeypatch, tmp_path)
    place = at(source, t=Offsets({0: 7}), a=Offsets({0: 2}), b=Offsets({0: 3}), table=Commits(2))
    seen = source.observe(place)
    assert seen is not None
    topic = "kafka topic t at a:1"
    problem = source.judge(SourceRecord(of={topic: SourceRecord("T", 1)}), place, seen)
    assert problem is not None
    assert problem.sentence.startswith("Source one: The Kafka topic 't' has lost records")
    assert [(gap.source, gap.partition, gap.first, gap.last) for gap in problem.gaps] == [(topic, 0, 5, 6)]
    onward = at(source, t=Offsets({0: 5}), a=Offsets({0: 2}), b=Offsets({0: 3}), table=Commits(2))
    assert problem.onward == onward
    gone = Observations({name: each for name, each in seen.of.items() if "p-b" not in name})  # type: ignore[union-attr]
    problem = source.judge(SourceRecord(), onward, gone)
    assert problem is not None
    assert problem.sentence.startswith("Source many: The Kafka topic 'p-b' is gone")
    assert problem.onward == at(source, t=Offsets({0: 5}), a=Offsets({0: 2}), table=Commits(2))


def test_one_topic_is_not_read_by_two_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law L1: a topic that a list and a pattern both name, or two addresses, would land twice: its id tells."""
    monkeypatch.setattr(topic_observation, "observe_topic", lambda _: TopicObservation("t", "T", {0: 0}, {0: 5}))
    elsewhere = Source(kind="kafka", topic="t", bootstrap_servers="b:1")
    source = Union({name: open_source(each, located(tmp_path)) for name, each in (("one", TOPIC), ("two", elsewhere))})
    with pytest.raises(Refused, match=r"Two sources read the same: kafka topic t at b:1 and kafka topic t at a:1"):
        source.observe(None)


def test_topics_of_one_name_at_two_clusters_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law L1: bronze could not tell their rows apart, and no position behind bronze would be known ever after."""

    def described(source: Source) -> TopicObservation:
        return TopicObservation("t", source.bootstrap_servers, {0: 0}, {0: 5})

    monkeypatch.setattr(topic_observation, "observe_topic", described)
    elsewhere = Source(kind="kafka", topic="t", bootstrap_servers="b:1")
    source = Union({name: open_source(each, located(tmp_path)) for name, each in (("one", TOPIC), ("two", elsewhere))})
    with pytest.raises(Refused, match=r"topics of one name.*: kafka topic t at b:1 and kafka topic t at a:1"):
        source.observe(None)


def test_a_source_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ingest waits as a whole, and its reason begins with the name in the settings."""
    source = several(monkeypatch, tmp_path)

    def away(_: Source) -> None:
        raise Transient("The Kafka broker at a:1 does not describe topic 't'.")

    monkeypatch.setattr(topic_observation, "observe_topic", away)
    with pytest.raises(Transient, match=r"^Source one: The Kafka broker at a:1"):
        source.observe(None)
    monkeypatch.setattr(topic_observation, "observe_topic", lambda _: None)
    with pytest.raises(Refused, match=r"Source one cannot be checked with its kafka_options"):
        source.observe(None)
