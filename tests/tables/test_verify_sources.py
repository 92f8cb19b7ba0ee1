"""Bronze is compared with its source: records read twice or never are named, and so are uncomparable parts."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import update

from pipeline.base.names import bronze_app_id
from pipeline.cli.main import cli
from pipeline.data.ingest.sources.supported import open_source
from pipeline.data.ingest.sources.topic_probe import prober
from pipeline.data.verify import sources
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.held import HeldRecords
from pipeline.data.verify.report import as_dict, render_balance, run
from pipeline.data.verify.sources import PassedOffsets, Probe, SourcePeriod, Sources, observe
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import Settings
from pipeline.store import sources as store
from pipeline.store.database.tables import ingest_identities
from tests.tables.value_world import ValueWorld, value_world, wrapped

GAME = "Chess"
OLD, NEW = SourcePeriod("events", 0, "one"), SourcePeriod("events", 1, "two")


def known(*periods: SourcePeriod, mixed: frozenset[str] = frozenset()) -> Sources:
    return Sources(periods, mixed, None, "The broker does not answer.")


def check(world: ValueWorld, known: Sources) -> Balance:
    return verify(world.paths, world.environment, known=known)


@pytest.fixture
def world(tmp_path: Path) -> ValueWorld:
    made = value_world(tmp_path)
    made.names[GAME] = "chess_ygvn5asts6po"
    return made


def arrive(world: ValueWorld, count: int, offset: int | None = None) -> None:
    """Land `count` records; from this offset on, if one is given."""
    world.offset = world.offset if offset is None else offset
    world.arrive(*(wrapped(GAME, 1, b"x") for _ in range(count)))


@pytest.mark.parametrize(
    ("periods", "expected"),
    [((OLD,), 2), ((OLD, replace(NEW, identity="one")), 2), ((OLD, NEW), 0)],
    ids=["one source", "adopted", "made anew"],
)
@pytest.mark.proves("G160")
def test_a_record_that_was_read_twice_is_named(
    world: ValueWorld, periods: tuple[SourcePeriod, ...], expected: int
) -> None:
    """A topic's offset counts once, also after an adoption; a topic that was made anew has its own offsets."""
    arrive(world, 3)
    arrive(world, 3, offset=1)
    balance = check(world, known(*periods))
    assert balance.totals.source_duplicates == expected
    assert balance.ok == (expected == 0)
    named = [(each.seq, each.pos, each.detail) for each in balance.problems if each.kind == "source_duplicates"]
    if expected:
        assert named[0] == (2, 0, "record events/0/1 was read before, at seq 1, pos 1")


def test_a_landing_file_that_was_read_twice_is_named(world: ValueWorld) -> None:
    """A row of a landing file is known by the file and its number in it."""
    world.topic, world.partition = "part-1.parquet", None
    arrive(world, 2)
    arrive(world, 2, offset=0)
    balance = check(world, known(SourcePeriod("", 0, "table")))
    assert balance.totals.source_duplicates == 2
    assert "part-1.parquet/0 was read before" in render_balance(balance)


def test_topics_of_one_name_on_several_clusters_are_not_compared(world: ValueWorld) -> None:
    """If the cluster of a record is unknown, no record counts as doubled, and the report says so."""
    arrive(world, 2)
    arrive(world, 2, offset=0)
    balance = check(world, known(OLD, NEW, mixed=frozenset({"events"})))
    assert balance.totals.source_duplicates == 0
    assert "was read from several clusters" in as_dict(balance)["source_not_compared"][0]


def test_a_generation_without_rows_confuses_no_sources(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """A set of sources that changed opens generations that never read a row: the others' records are compared."""
    landing(1)
    for number in range(2):
        replaced = store.open_generation(world.engine, f"landing table /x/{number} (until generation 9 was replaced)")
        assert store.identity(world.engine, replaced) is None
    arrive(world, 2, offset=0)
    balance = check(world, landing(1))
    assert (balance.totals.source_duplicates, balance.lagging and balance.lagging.not_compared) == (2, ())


def test_without_a_look_at_the_source_nothing_is_said_of_it(world: ValueWorld) -> None:
    """Unknown is not zero: without sources there is no such key."""
    arrive(world, 1)
    assert "behind_source" not in as_dict(verify(world.paths, world.environment))
    balance = check(world, known(OLD))
    assert as_dict(balance)["behind_source"] is None
    assert "not compared: The broker does not answer." in render_balance(balance)


def test_brokers_that_are_away_prove_nothing(world: ValueWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown is not healthy: what `--source` could not compare is in the exit code, the last line and `complete`."""
    arrive(world, 1)
    balance = check(world, known(OLD))
    balance = replace(balance, totals=replace(balance.totals, pending=0))
    assert (run(balance), balance.complete) == (0, True)
    away = replace(balance, held=HeldRecords(0, 0, 0, (), ("The broker of topic 't' does not give its records.",)))
    assert (run(away), run(away, complete=True), away.complete) == (3, 3, False)
    assert "NOT COMPARED" in capsys.readouterr().out.splitlines()[-1]
    assert as_dict(away)["complete"] is False
    assert run(replace(balance, held=HeldRecords(0, 0, 0, (), (), by_file=True))) == 0
    assert "by file alone" in capsys.readouterr().out


def offsets(following: int, probe: Probe | None, *accepted: tuple[int, int, int]) -> Sources:
    return Sources(
        (OLD,),
        frozenset(),
        PassedOffsets("events", "kafka topic events at h:1", 0, {0: 0}, {0: following}, accepted, probe),
        None,
    )


def _probe(answer: bool | None) -> tuple[Probe, list[tuple[int, int, int]]]:
    submitted: list[tuple[int, int, int]] = []

    def probe(partition: int, first: int, last: int) -> bool | None:
        submitted.append((partition, first, last))
        return answer

    return probe, submitted


@pytest.mark.parametrize(("answer", "records"), [(True, 5), (False, 0), (None, None)])
@pytest.mark.proves("G160")
def test_offsets_that_ingest_has_passed_and_bronze_lacks(
    world: ValueWorld, answer: bool | None, records: int | None
) -> None:
    """Bronze put back from an older copy lacks records: at its end, or between two seqs once ingest went on.

    What the broker says has no records, as the markers of transactions, is not missing; what it cannot tell is said.
    """
    arrive(world, 3)
    arrive(world, 2, offset=6)
    probe, submitted = _probe(answer)
    balance = check(world, offsets(10, probe))
    assert submitted == [(0, 8, 9), (0, 3, 5)]
    assert balance.lagging is not None
    assert (balance.lagging.records, balance.ok) == (records, records != 5)
    assert bool(balance.lagging.not_compared) == (records is None)


def test_offsets_in_order_ask_nobody(world: ValueWorld) -> None:
    """Where bronze has all offsets that were passed the broker is not needed, and gaps that were accepted are fine."""
    arrive(world, 3)
    arrive(world, 2, offset=6)
    balance = check(world, offsets(8, None, (0, 3, 5)))
    assert as_dict(balance)["behind_source"] == 0
    balance = check(world, offsets(8, None))
    assert as_dict(balance)["behind_source"] is None
    assert "the broker cannot be queried" in render_balance(balance)


@pytest.mark.parametrize(("most", "said"), [(2, "2 of 3 checked"), (3, None)])
def test_holes_that_nobody_asked_about_are_told_of(
    world: ValueWorld, monkeypatch: pytest.MonkeyPatch, most: int, said: str | None
) -> None:
    """Law L1: with more holes in bronze than the broker is asked about, the output gives both numbers."""
    monkeypatch.setattr(sources, "_MAX_RANGES", most)
    for offset in (0, 2, 4, 7):
        arrive(world, 1, offset=offset)
    probe, submitted = _probe(False)
    balance = check(world, offsets(8, probe))
    assert submitted == [(0, 5, 6), (0, 1, 1), (0, 3, 3)][:most]
    assert balance.lagging is not None
    assert [said in each for each in balance.lagging.not_compared if said is not None] == [True] * (said is not None)
    assert (said or "") in render_balance(balance)


@pytest.fixture
def landing(world: ValueWorld) -> Callable[[int], Sources]:
    """A landing table of three commits with two rows each, of which bronze has the first; ingest is as far as given."""
    settings = Settings()
    for _ in range(3):
        rows = [wrapped(GAME, 1, b"x")] * 2
        table = pa.table({"key": pa.array([None] * 2, pa.binary()), "value": pa.array(rows, pa.binary())})
        write_deltalake(Path(world.paths.landing), table, mode="append")
    described = open_source(settings.source, located(Path())).description
    number = store.open_generation(world.engine, described)
    table_id = str(DeltaTable(world.paths.landing).metadata().id)
    start = json.dumps({"version": 0, "skip": []})
    store.record_identity(world.engine, store.Identity(number, table_id, None, "bronze", 0, start))
    world.topic, world.partition = DeltaTable(world.paths.landing, 0).file_uris()[0].rpartition("/")[2], None
    arrive(world, 2)

    def passed(version: int) -> Sources:
        query = world.paths.checkpoints / "ingest" / str(number) / "query"
        for log in ("offsets", "commits"):
            (query / log).mkdir(parents=True, exist_ok=True)
            reported = {"reservoirVersion": version, "index": -1, "isStartingVersion": False}
            (query / log / "0").write_text(f"v1\n{{}}\n{json.dumps(reported)}\n")
        return observe(settings, world.paths, world.engine)

    return passed


@pytest.mark.proves("G160")
def test_landing_files_that_ingest_has_passed_and_bronze_lacks(
    world: ValueWorld, landing: Callable[[int], Sources]
) -> None:
    """Bronze put back from an older copy lacks files of the landing table; files that wait to be read are no loss."""
    assert check(world, landing(1)).ok
    balance = check(world, landing(3))
    assert balance.lagging is not None
    assert (balance.lagging.records, balance.ok) == (4, False)
    assert "bronze lacks 2 of 2 rows" in render_balance(balance)
    shutil.rmtree(world.paths.landing)
    gone = check(world, landing(3))
    assert as_dict(gone)["behind_source"] is None
    assert "cannot be read" in render_balance(gone)


def _query(world: ValueWorld) -> Path:
    return world.paths.checkpoints / "ingest" / "1" / "query"


@pytest.mark.proves("G160")
def test_without_a_checkpoint_nothing_is_said_of_what_ingest_has_passed(
    world: ValueWorld, landing: Callable[[int], Sources]
) -> None:
    """Unknown is not zero: only the checkpoint has ingest's position, and ingest may have passed anything."""
    landing(3)
    shutil.rmtree(_query(world))
    balance = check(world, observe(Settings(), world.paths, world.engine))
    assert as_dict(balance)["behind_source"] is None
    assert "has no finished batch" in render_balance(balance)
    assert render_balance(balance).endswith("Bronze was not compared with its source: see above.")


@pytest.mark.proves("G160")
def test_an_empty_bronze_is_compared_too(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """Bronze put back from before its first row lacks everything."""
    sources = landing(3)
    shutil.rmtree(world.paths.bronze)
    CursorTable.create(world.paths.bronze, BRONZE, bronze_app_id(world.environment))
    balance = check(world, sources)
    assert (as_dict(balance)["behind_source"], balance.ok) == (6, False)


_OFFSET = '{"reservoirVersion": %s, "index": -1, "isStartingVersion": false}'


@pytest.mark.parametrize(
    ("offset", "start", "stats"),
    [
        (_OFFSET % '"3"', None, None),
        (_OFFSET % "null", None, None),
        ("{}", None, None),
        (None, "[]", None),
        (None, '{"version": "x", "skip": []}', None),
        (None, None, "[]"),
        (None, None, "nonsense"),
    ],
)
def test_what_a_checkpoint_or_a_log_says_in_another_form_stops_nothing(
    world: ValueWorld,
    landing: Callable[[int], Sources],
    offset: str | None,
    start: str | None,
    stats: str | None,
) -> None:
    """A damaged checkpoint, row or log entry is reported in one sentence, and all the rest is verified."""
    landing(3)
    if offset is not None:
        (_query(world) / "offsets" / "0").write_text(f"v1\n{{}}\n{offset}\n")
    if start is not None:
        with world.engine.begin() as connection:
            connection.execute(update(ingest_identities).values(start=start))
    if stats is not None:
        add = {"path": "a", "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True, "stats": stats}
        Path(world.paths.landing / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}) + "\n")
    balance = check(world, observe(Settings(), world.paths, world.engine))
    assert as_dict(balance)["behind_source"] is None
    assert "The source cannot be read: " in render_balance(balance)


def test_a_broker_that_cannot_even_be_asked_is_unknown() -> None:
    """Options that no client can be made with are no reason to verify nothing."""
    options = {"security.protocol": "SSL", "ssl.ca.location": "/there/is/none"}
    probe = prober(Source(kind="kafka", topic="t", bootstrap_servers="127.0.0.1:1", kafka_options=options))
    assert probe is not None
    assert probe(0, 0, 5) is None


def test_names_from_outside_are_escaped(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """A landing file's name cannot write to a terminal, begin a line or turn a text around."""
    hostile = "a\x1b]0;title\x07\u2028\u202e.parquet"
    landing(3)
    add = {
        "path": quote(hostile), "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True,
        "stats": '{"numRecords": 7}',
    }  # fmt: skip
    Path(world.paths.landing / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}) + "\n")
    world.topic, world.partition = hostile, None
    arrive(world, 1, offset=0)
    arrive(world, 1, offset=0)
    for options in ([], ["--json"]):
        found = CliRunner().invoke(cli, ["verify", *options, "--env-dir", str(world.paths.root)])
        assert (found.exit_code, "title" in found.stdout) == (1, True)
        assert all(each.isprintable() or each == "\n" for each in found.stdout)


def test_a_landing_table_made_anew_is_not_compared(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """Another table at its place does not tell what was in the first."""
    shutil.rmtree(world.paths.landing)
    write_deltalake(Path(world.paths.landing), pa.table({"value": pa.array([b"x"])}))
    balance = check(world, landing(3))
    assert as_dict(balance)["behind_source"] is None
    assert "not the one that ingest has been reading" in render_balance(balance)


def test_a_landing_file_of_which_bronze_has_a_part(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """Rows are counted, not files."""
    sources = landing(1)
    shutil.rmtree(world.paths.bronze)
    world.seq = 0
    arrive(world, 1, offset=1)
    balance = check(world, sources)
    assert balance.lagging is not None
    assert balance.lagging.records == 1


def test_the_command_looks_at_the_source(world: ValueWorld, landing: Callable[[int], Sources]) -> None:
    """`turnout verify --json` has the key and fails where bronze is behind."""
    landing(3)
    found = CliRunner().invoke(cli, ["verify", "--json", "--env-dir", str(world.paths.root)])
    reported = json.loads(found.stdout)
    assert (found.exit_code, reported["behind_source"], reported["ok"]) == (1, 4, False)


def test_a_cursor_above_bronzes_last_commit_counts_empty_commits(world: ValueWorld) -> None:
    """An adoption is a commit without rows: bronze's own cursor says how far it goes."""
    arrive(world, 1)
    bronze = DeltaTable(world.paths.bronze)
    assert bronze.transaction_version(bronze_app_id(world.environment)) == 1
    assert check(world, known(OLD)).totals.beyond_bronze == 0
