"""Is the source still the one that was read, how far is it read, and what may be mended: without Spark or a broker."""

import json
import random
import re
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.data.ingest import bronze_progress, identity, parting
from pipeline.data.ingest.evidence.marks import LastRecord
from pipeline.data.ingest.identity import Commits, Gap, LandingObservation, Offsets, SourceRecord, TopicObservation
from pipeline.data.ingest.lineage import OwnRows
from pipeline.data.ingest.sources import landing_log
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.kafka import connection
from pipeline.lake.storage.places import located
from pipeline.settings.tree import load
from pipeline.store import sources
from pipeline.store.database.engine import open_store

# --------------------------------------------------------------------------------------------------- what is judged

PARTITIONS = st.integers(0, 3)
ENDS = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@given(
    ends=st.lists(ENDS, min_size=1, max_size=4),
    read=st.dictionaries(PARTITIONS, st.integers(0, 20), max_size=4),
)
@pytest.mark.proves("G16")
def test_gap_and_rest_are_all_there_was_to_read(ends: list[list[int]], read: dict[int, int]) -> None:
    """A25, A26: each unread offset is in a named gap or still read, never both; gaps have no existing offset."""
    seen = TopicObservation(
        "t", "id", {n: low for n, (low, _) in enumerate(ends)}, {n: high for n, (_, high) in enumerate(ends)}
    )
    read = {number: min(at, seen.latest[number]) for number, at in read.items() if number in seen.latest}
    problem = identity.judge_topic(SourceRecord("id", len(ends)), Offsets(read), seen)
    onward = Offsets(read) if problem is None else problem.onward
    assert isinstance(onward, Offsets)
    gaps = () if problem is None else problem.gaps
    for number, end in seen.latest.items():
        unread = set(range(read.get(number, 0), end))
        named = {at for gap in gaps if gap.partition == number for at in range(gap.first, (gap.last or 0) + 1)}
        rest = set(range(onward.next.get(number, 0), end))
        assert not named & rest
        assert unread == {at for at in named | rest if at < end}
        assert rest <= set(range(seen.earliest[number], end))
        assert not named & set(range(seen.earliest[number], end))


@pytest.mark.parametrize(
    ("known", "read", "reason", "words", "gaps"),
    [
        (SourceRecord("new", 2), {0: 5, 1: 7}, None, "", ()),
        (SourceRecord(None, None), {0: 5, 1: 7}, None, "", ()),
        (
            SourceRecord("old", 2), {0: 5, 1: 7}, "recreated",
            "deleted and recreated: its id is new, ingest has read old.*partition 0 offsets from 5 on; partition 1",
            (Gap(0, 5, None), Gap(1, 7, None), Gap(0, 0, 3), Gap(1, 0, 3)),
        ),
        (
            SourceRecord("new", 3), {0: 5, 1: 7, 2: 9}, "partitions",
            "had 3 partitions and now has 2: partition 2 vanished.*partition 2 offsets from 9 on", (Gap(2, 9, None),),
        ),
        (
            SourceRecord("new", 2), {0: 2, 1: 3}, "retention",
            "retention has removed partition 0 offsets 2 to 3; partition 1 offset 3", (Gap(0, 2, 3), Gap(1, 3, 3)),
        ),
        (
            SourceRecord("new", 2), {0: 5, 1: 25}, "truncated",
            "no longer has partition 1 offsets 10 to 24, which ingest has read", (Gap(1, 10, 24),),
        ),
    ],
)  # fmt: skip
def test_a_topic_that_changed_is_named_exactly(
    known: SourceRecord, read: dict[int, int], reason: str | None, words: str, gaps: tuple[Gap, ...]
) -> None:
    """A24, A25: the sentence names the topic, the partitions and both ends of what is missing."""
    seen = TopicObservation("events", "new", {0: 4, 1: 4}, {0: 10, 1: 10})
    problem = identity.judge_topic(known, Offsets(read), seen)
    if reason is None:
        assert problem is None
        return
    assert problem is not None
    assert (reason, gaps) == (problem.reason, problem.gaps)
    assert problem.sentence.startswith("The Kafka topic 'events'")
    assert re.search(words, problem.sentence), problem.sentence


@pytest.mark.parametrize(
    ("position", "seen", "reason", "words", "onward"),
    [
        (Commits(6), LandingObservation("L", "id", 0, 5), None, "", None),
        (Commits(None), LandingObservation("L", "id", 3, 5), None, "", None),
        (
            Commits(6), LandingObservation("L", "other", 0, 5), "recreated", "its id is other, ingest has read id",
            Commits(0),
        ),
        (Commits(6), LandingObservation("L", "other", 2, 5), "recreated", "commits from 6 on", Commits(None)),
        (
            Commits(8), LandingObservation("L", "id", 0, 5), "truncated", "ends at commit 5, but .* commits 6 to 7",
            Commits(6),
        ),
        (Commits(2), LandingObservation("L", "id", 4, 5), "retention", "unread commits: commits 2 to 3", Commits(4)),
        (
            Commits(2), LandingObservation("L", "id", 0, 5, {3: "(DELETE) removed 1 of its files"}), "rewritten",
            r"commit 3 \(DELETE\) removed 1 of its files\. To skip: commits 2 to 3", Commits(4),
        ),
        (
            Commits(None, frozenset("a")), LandingObservation("L", "id", 3, 5, replaced="a"), "rewritten",
            "a is no longer in it. To skip: commits 0 to 5", Commits(6),
        ),
        (
            Commits(2), LandingObservation("L", "id", 0, 5, {}, {2: "a.parquet"}), "retention",
            "commit 2 added a.parquet. To skip: commit 2", Commits(3),
        ),
    ],
)  # fmt: skip
def test_a_landing_table_that_changed_is_named_exactly(
    position: Commits, seen: LandingObservation, reason: str | None, words: str, onward: Commits | None
) -> None:
    """The sentence names the table, what happened, and the commits that would be left out."""
    problem = identity.judge_landing(SourceRecord("id"), position, seen)
    if reason is None:
        assert problem is None
        return
    assert problem is not None
    assert (reason, onward) == (problem.reason, problem.onward)
    assert problem.sentence.startswith("The landing table L ")
    assert re.search(words, problem.sentence), problem.sentence


@given(
    st.one_of(
        st.dictionaries(st.integers(0, 100), st.integers(0, 2**53)).map(Offsets),
        st.builds(Commits, st.none() | st.integers(0, 2**53), st.frozensets(st.text())),
    )
)
def test_a_position_is_read_back_as_it_was(position: Offsets | Commits) -> None:
    """The control store keeps exactly the position from which reading continues."""
    assert position == identity.parse(position.render())


def test_the_first_start_is_fixed_in_numbers() -> None:
    """`latest` and Spark's JSON become offsets at the first start, so a lost checkpoint cannot move the beginning."""
    seen = TopicObservation("t", "id", {0: 2, 1: 0}, {0: 9, 1: 4})
    assert [
        identity.first_offsets(setting, seen).next
        for setting in ("earliest", "latest", '{"t": {"0": -1, "1": 3}}', '{"t": {"0": -2, "1": 4}}')
    ] == [
        {0: 2, 1: 0}, {0: 9, 1: 4}, {0: 9, 1: 3}, {0: 2, 1: 4},
    ]  # fmt: skip
    committed = TopicObservation("t", "id", {0: 2, 1: 0}, {0: 9, 1: 4}, {0: 6, 1: 4})
    assert identity.first_offsets("latest", committed).next == {0: 6, 1: 4}
    assert identity.first_offsets('{"t": {"0": -1, "1": 3}}', committed).next == {0: 6, 1: 3}
    assert json.loads(
        identity.offsets_json(
            {"t": Offsets({0: 2})}, {"t": TopicObservation("t", "id", {0: 0, 1: 0, 2: 0}, {0: 9, 1: 9, 2: 9})}
        )
    ) == {"t": {"0": 2, "1": 0, "2": 0}}
    for wrong in ("soon", '{"u": {"0": 1}}', '{"t": [1]}'):
        with pytest.raises(Refused, match="expected earliest, latest, or JSON"):
            identity.first_offsets(wrong, seen)
    with pytest.raises(Refused, match="each of the 2 partitions of 't' and no other: correct partition 1"):
        identity.first_offsets('{"t": {"0": 1}}', seen)


# ----------------------------------------------------------------------------------------------- how a broker is asked

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\"b";'


@pytest.mark.parametrize(
    ("options", "reported", "unreported"),
    [
        ({}, {}, ()),
        ({"max.poll.records": "10", "kafka.fetch.min.bytes": "1"}, {}, ()),
        (
            {"security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS},
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": 'a"b',
            },
            (),
        ),
        ({"ssl.truststore.location": "t.jks", "ssl.truststore.password": "x"}, {}, ("ssl.truststore.location",)),
        ({"ssl.truststore.location": "t.jks", "ssl.ca.location": "ca.pem"}, {"ssl.ca.location": "ca.pem"}, ()),
        ({"ssl.truststore.location": "t", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "t"}, ()),
        ({"ssl.keystore.location": "k"}, {}, ("ssl.keystore.location",)),
        (
            {"ssl.keystore.location": "k", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "k", "ssl.keystore.password": "p"},
            (),
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}, ()),
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, {}, ("sasl.jaas.config",)),
        ({"sasl.login.callback.handler.class": "x"}, {}, ("sasl.login.callback.handler.class",)),
    ],
)
def test_options_are_translated_or_named(
    options: dict[str, str], reported: dict[str, str], unreported: tuple[str, ...]
) -> None:
    """A connection option is either translated for the other client or named as untranslatable."""
    assert connection.Connection(reported, unreported) == connection.translate(options)


# --------------------------------------------------------------------------------------------------- how far bronze is


@given(
    ends=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), min_size=1, max_size=4),
    read=st.dictionaries(PARTITIONS, st.integers(0, 9), max_size=4),
)
def test_an_open_transaction_is_named_exactly(ends: list[list[int]], read: dict[int, int]) -> None:
    """Law L1: what was read behind the end of what is committed is waited for, partition by partition, and no gap."""
    latest = {number: max(high, read.get(number, 0)) for number, (_, high) in enumerate(ends)}
    seen = TopicObservation("t", "id", dict.fromkeys(latest, 0), latest, {n: low for n, (low, _) in enumerate(ends)})
    position = Offsets({number: at for number, at in read.items() if number in latest})
    assert identity.judge_topic(SourceRecord("id", len(ends)), position, seen) is None
    hidden = identity.open_transactions(position, seen)
    behind = [number for number, at in sorted(position.next.items()) if at > ends[number][0]]
    assert [int(number) for number in re.findall(r"partition (\d+)", hidden or "")] == behind
    anyone = TopicObservation("t", "id", dict.fromkeys(latest, 0), latest)
    assert identity.open_transactions(position, anyone) is None


def bronze_of(folder: Path, commits: list[list[dict[str, Any]]], first_seq: int = 1) -> CursorTable:
    """Write bronze commits of rows that only have a source position, some of them in two files."""
    table = CursorTable.create(located(folder), BRONZE, "bronze")
    for seq, rows in enumerate(commits, first_seq):
        full = [{**dict.fromkeys(BRONZE.names), "seq": seq, "pos": pos, **row} for pos, row in enumerate(rows)]
        halves = [full[::2], full[1::2]]
        files = [write_file(pa.Table.from_pylist(half, BRONZE), located(folder), ["seq"]) for half in halves if half]
        table.commit(files, table.cursor, seq)
    return table


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_last_offsets_are_those_of_all_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reading the newest files until each partition was seen finds what reading everything finds, also compacted."""
    draw = random.Random(seed)
    ends = {0: 0, 1: 0, 2: 0}
    commits: list[list[dict[str, Any]]] = []
    for _ in range(draw.randint(1, 6)):
        rows: list[dict[str, Any]] = []
        for _ in range(draw.randint(1, 4)):
            number = draw.choice([0, 0, 0, 1, 2])
            rows.append({"topic": "t", "partition": number, "offset": ends[number]})
            ends[number] += draw.randint(1, 3)
        commits.append([*rows, {"topic": "other", "partition": 0, "offset": 999}, {"topic": "t", "offset": 5}])
    folder = tmp_path_factory.mktemp("bronze") / "bronze"
    bronze_of(folder, commits)
    if draw.random() < 0.3:
        DeltaTable(folder).optimize.compact()
    since = draw.randint(0, 2)
    rows_above = [row for rows in commits[since:] for row in rows if row["topic"] == "t" and "partition" in row]
    expected: dict[int, int] = {}
    for row in rows_above:
        expected[row["partition"]] = max(row["offset"], expected.get(row["partition"], -1))
    assert expected == bronze_progress.last_offsets(located(folder), "t", since, {0, 1, 2})


def test_the_last_offset_may_be_in_any_file_of_its_seq(tmp_path: Path) -> None:
    """One bronze commit has several files; the last offset of a partition may be in the last one that is read."""
    table = CursorTable.create(located(tmp_path), BRONZE, "bronze")
    rows = [
        {**dict.fromkeys(BRONZE.names), "seq": 1, "topic": "t", "partition": 0, "offset": offset}
        for offset in range(20)
    ]
    table.commit([write_file(pa.Table.from_pylist([row], BRONZE), located(tmp_path), ["seq"]) for row in rows], None, 1)
    assert bronze_progress.last_offsets(located(tmp_path), "t", 0, {0}) == {0: 19}


def test_no_more_of_bronze_is_read_than_must_be(tmp_path: Path) -> None:
    """The newest files of bronze are enough to find its position: old ones may be unreadable."""
    rows = [[{"topic": "t", "partition": number, "offset": seq} for number in (0, 1)] for seq in range(5)]
    bronze_of(tmp_path / "kafka", rows)
    files = [[{"topic": f"file-{seq}", "offset": 0}, {"topic": f"file-{seq}", "offset": 1}] for seq in range(5)]
    bronze_of(tmp_path / "landing", files)
    for table in (tmp_path / "kafka", tmp_path / "landing"):
        for action in pa.table(DeltaTable(table).get_add_actions(flatten=True)).to_pylist():
            if action["max.seq"] <= 3:
                (table / action["path"]).write_bytes(b"unreadable")
    assert bronze_progress.last_offsets(located(tmp_path / "kafka"), "t", 0, {0, 1}) == {0: 4, 1: 4}
    commits = {f"file-{number}": number for number in range(9)}
    assert bronze_progress.LastCommit(4, frozenset({"file-4"})) == bronze_progress.last_commit(
        located(tmp_path / "landing"), 0, commits
    )


def test_the_last_landing_commit_is_found_with_its_files(tmp_path: Path) -> None:
    """Of a landing commit that is in bronze in part, exactly the files that are there are told."""
    folder = tmp_path / "bronze"
    bronze_of(folder, [[{"topic": "a"}, {"topic": "b"}], [{"topic": "c"}], [{"topic": "k", "partition": 0}]])
    commits = {"a": 0, "b": 1, "c": 1, "d": 1}
    assert bronze_progress.LastCommit(1, frozenset({"b", "c"})) == bronze_progress.last_commit(
        located(folder), 0, commits
    )
    assert bronze_progress.LastCommit(1, frozenset({"c"})) == bronze_progress.last_commit(located(folder), 1, commits)
    assert bronze_progress.LastCommit(-1, frozenset({"a", "b", "c"})) == bronze_progress.last_commit(
        located(folder), 0, {}
    )
    assert bronze_progress.last_commit(located(folder), 2, commits) is None


@pytest.mark.parametrize("log_is_cut", [False, True])
@pytest.mark.proves("G11")
def test_a_landing_commit_is_looked_for_in_all_of_a_cut_micro_batch(tmp_path: Path, log_is_cut: bool) -> None:
    """Law L1: Spark reads the largest file first, so an older commit's file may come behind those of the newest one."""
    table = CursorTable.create(located(tmp_path), BRONZE, "bronze")
    for batch in ([["old"], ["old"]], [["big", "huge"], ["huge"], ["small"]]):
        first = (table.cursor or 0) + 1
        files = []
        for seq, topics in enumerate(batch, first):
            rows = [{**dict.fromkeys(BRONZE.names), "seq": seq, "pos": n, "topic": t} for n, t in enumerate(topics)]
            files.append(write_file(pa.Table.from_pylist(rows, BRONZE), located(tmp_path), ["seq"]))
        table.commit(files, table.cursor, first + len(batch) - 1)
    if log_is_cut:
        DeltaTable(tmp_path).create_checkpoint()
        for file in (tmp_path / "_delta_log").glob("*.json"):
            file.unlink()
    else:  # what was read long before the micro-batch is not looked at
        for action in pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist():
            if action["max.seq"] <= 2:
                (tmp_path / action["path"]).write_bytes(b"unreadable")
    commits = {"old": 0, "small": 1, "big": 2, "huge": 2}
    expected = bronze_progress.LastCommit(2, frozenset({"big", "huge"}))
    assert expected == bronze_progress.last_commit(located(tmp_path), 0, commits)


# --------------------------------------------------------------------------------------------- what a landing log tells


def land(path: Path, rows: int = 1) -> None:
    values = pa.table({"key": [None] * rows, "value": [b"x"] * rows}, schema=LANDING)
    write_deltalake(path, values, mode="append")


def test_compaction_is_no_change_and_a_deletion_is_one(tmp_path: Path) -> None:
    """A compacted landing table is read on; for a table that loses rows the error has commit, operation and files."""
    for _ in range(3):
        land(tmp_path)
    DeltaTable(tmp_path).optimize.compact()
    assert not landing_log.observe_landing(located(tmp_path), Commits(0)).changed
    DeltaTable(tmp_path).delete()
    land(tmp_path)
    seen = landing_log.observe_landing(located(tmp_path), Commits(0))
    assert seen.changed == {4: "(DELETE) removed 1 of its files"}
    assert not landing_log.observe_landing(located(tmp_path), Commits(5)).changed
    assert (seen.first, seen.last) == (0, 5)


def test_files_and_commits_that_are_gone_are_told(tmp_path: Path) -> None:
    """Unread data must exist: a vacuumed file and a cleaned log are both found beforehand."""
    for _ in range(4):
        land(tmp_path)
    files = landing_log.files_by_commit(located(tmp_path))
    (tmp_path / files[2][0]).unlink()
    assert {2: files[2][0]} == landing_log.observe_landing(located(tmp_path), Commits(1)).missing
    assert not landing_log.observe_landing(located(tmp_path), Commits(2, frozenset(files[2]))).missing
    DeltaTable(tmp_path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert landing_log.observe_landing(located(tmp_path), Commits(3)).first == 2
    read = frozenset(files[3])
    assert landing_log.observe_landing(located(tmp_path), Commits(None, read)).replaced is None
    DeltaTable(tmp_path).delete()
    assert landing_log.observe_landing(located(tmp_path), Commits(None, read)).replaced == files[3][0]


# ------------------------------------------------------------------------------------------------- what the store keeps


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_store(*load(tmp_path / "env", {}))


def test_a_replaced_generation_has_one_successor(engine: Engine) -> None:
    """Of two adoptions at once the second is refused whole, and gap and identity belong to the new generation."""
    assert tuple(sources.open_generation(engine, name) for name in ("a", "a", "b")) == (1, 1, 2)
    found = sources.Identity(0, "id", 2, "bronze", 7, None, "ann")
    gap = sources.AcceptedGap(0, "a", 1, 5, None, "recreated", "ann", 1.0)
    assert sources.replace_generation(engine, "a", 1, found, [gap]) == 3
    with pytest.raises(Refused, match="Another process adopted this source just now"):
        sources.replace_generation(engine, "a", 1, found, [gap])
    assert tuple(sources.generation(engine, name) for name in ("a", "b")) == (3, 2)
    assert [sources.AcceptedGap(3, "a", 1, 5, None, "recreated", "ann", 1.0)] == sources.accepted_gaps(engine)
    kept = sources.identity(engine, 3)
    assert kept == sources.Identity(3, "id", 2, "bronze", 7, None, "ann")
    assert sources.identity(engine, 1) is None


def test_an_identity_is_replaced_not_doubled(engine: Engine) -> None:
    """There is one truth per generation: what was seen last."""
    for partitions in (2, 3):
        sources.record_identity(engine, sources.Identity(1, "id", partitions, "bronze", 0, None))
    kept = sources.identity(engine, 1)
    assert kept is not None
    assert kept.partitions == 3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.proves("G16")
def test_the_place_where_a_log_parted_is_found_in_bronze(tmp_path: Path, seed: int) -> None:
    """Law L1: however bronze's files share the offsets, the first that differs is found, past records that are gone."""
    chance = random.Random(seed)
    parted = {0: chance.randrange(60), 1: 60}
    commits: list[list[dict[str, Any]]] = []
    offsets = {0: 0, 1: 0}
    while min(offsets.values()) < 60:
        rows = []
        for number, begun in list(offsets.items()):
            offsets[number] = begun + chance.randrange(8)
            rows += [{"topic": "t", "partition": number, "offset": at} for at in range(begun, offsets[number])]
        commits.append(rows)
    bronze_of(tmp_path, [each for each in commits if each])
    unknown = {at for at in range(60) if chance.random() < 0.3} - {parted[0]}

    class Log:
        """The source's log: other records than bronze's from the parting on, without those that compaction removed."""

        ends: ClassVar = {0: 64, 1: 64}
        asked = 0

        def __call__(self, number: int, offset: int) -> LastRecord | None:
            self.asked += 1
            there = next((at for at in range(offset, 64) if at not in unknown), None)
            return None if there is None else LastRecord(there, None, None, str(there >= parted[number]))

    def differs(_: LastRecord, found: LastRecord | None) -> bool:
        return found is None or found.value == str(True)

    last = {number: end - 1 for number, end in offsets.items()}
    log = Log()
    assert parting.walk(located(tmp_path), "t", OwnRows(0), {0: last[0]}, log, differs) == {0: parted[0]}
    assert log.asked < 60, "places are bisected"


def test_a_compacted_log_is_asked_for_few_records(tmp_path: Path) -> None:
    """Where compaction has left one record of 200, one question passes all that are gone."""
    bronze_of(tmp_path, [[{"topic": "t", "partition": 0, "offset": at} for at in range(20_000)]])
    asked: list[int] = []

    class Log:
        ends: ClassVar = {0: 20_000}

        def __call__(self, number: int, offset: int) -> LastRecord | None:
            asked.append(offset)
            there = min(-(-offset // 200) * 200, 19_999)
            return LastRecord(there, None, None, str(there >= 12_000))

    found = parting.walk(
        located(tmp_path), "t", OwnRows(0), {0: 19_999}, Log(), lambda _, each: each is None or each.value == "True"
    )
    assert found == {0: 12_000}
    assert len(asked) < 25, "one by one it were a hundred times as many"
