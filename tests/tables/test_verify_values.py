"""The value check finds every changed value and accuses no table that the real decoder has written."""

import datetime as dt
import decimal
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.formats.protobuf.reference import ReferenceDecoder
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.verify import values
from pipeline.data.verify.balance import verify
from pipeline.data.verify.cells import differences, shown
from pipeline.data.verify.report import as_dict, render_balance
from pipeline.data.verify.values import Values, Wanted
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import SimulationPlan, Simulator, family, game_names
from pipeline.store.games import Game
from tests.tables.value_world import ValueWorld, value_world, wrapped
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.avro.definitions import avro
from tests.unit.data.contracts.formats.avro.definitions import decimal as decimals
from tests.unit.data.contracts.formats.protobuf.event_world import DECODER, EVENTS, WHOLE, event_of

NAME = "Käse ../ 🎮"
GAME = Game(game_key(NAME), NAME)
BENDING = parse_policies(["incompatible=side-column", "name=side-column", "value=add", "rename=add"])
NASTY: dict[str, Fields] = {
    "M": {
        "level": (1, "uint32"),
        "score": (2, "uint64"),
        "playerName": (3, "string"),
        "playername": (4, "string"),
        "ratio": (5, "float"),
        "kind": (6, "E"),
        "tags": (7, "map<string, Inner>"),
        "odds": (8, "repeated double"),
        "inner": (9, "Inner"),
        "took": (10, "repeated wkt:Duration"),
        "boxed": (11, "wkt:DoubleValue"),
        "at": (12, "wkt:Timestamp"),
        "by": (13, "map<int32, float>"),
        "any": (14, "wkt:Any"),
        "None": (15, "optional bool"),
        "blob": (17, "bytes"),
        "HasField": (18, "string"),
        "game_key": (19, "string"),
    },
    "Inner": {"deep": (1, "uint32"), "value": (2, "optional float"), "items": (3, "repeated bytes")},
}
LATER: dict[str, Fields] = {
    "M": {
        **{name: field for name, field in NASTY["M"].items() if name not in {"level", "kind"}},
        "level": (1, "string"),
        "sort": (6, "E"),
        "more": (16, "repeated Inner"),
    },
    "Inner": {"deep": (1, "uint64"), "value": (2, "optional float"), "items": (3, "repeated bytes")},
}
REFERENCE = ReferenceDecoder(WHOLE.message, WHOLE.definition, {})
ALIASED = {"E": {"ZERO": 0, "NULL": 0, "ONE": 1}}


def simulated(root: Path) -> ValueWorld:
    """Every family and version of the sample schemas, with every kind of bad event."""
    world = value_world(root)
    ids = {
        (game, version): world.add_schema(game, *payload_schema(family(game), version))
        for version in range(1, 7)
        for game in game_names(6, 1, hostile=True)
    }
    simulator = Simulator(SimulationPlan(games=6, versions=6, events=600, bad_share=0.1, skew=0, hostile=True), ids)
    for batch in simulator.batches(200):
        world.arrive(*(event.value for event in batch))
    world.split_all()
    return world


def nasty(root: Path) -> ValueWorld:
    """A game whose second schema has side columns and renamed fields, at several depths."""
    world = value_world(root)
    first = world.add_schema(NAME, "t.M", bundle(define(NASTY, ALIASED)), BENDING)
    second = world.add_schema(NAME, "t.M", bundle(define(LATER, ALIASED)), BENDING)
    one, two = world.make(first), world.make(second)
    filled = _filled(one(level=3, kind=1)).SerializeToString()
    world.arrive(
        wrapped(NAME, first, filled, event_time={"seconds": -5, "nanos": 7_000}, event_id="e", sequence=3),
        wrapped(NAME, first, _filled(one(level=2**32 - 1, kind=7)).SerializeToString()),
        wrapped(NAME, first, one(ratio=-0.0, odds=[0.0, -0.0, math.inf], level=1).SerializeToString()),
        wrapped(NAME, first, one(kind=0, level=1).SerializeToString() + b"\xa0\x06\x05"),
    )
    later = _filled(two(level="high", sort=1))
    later.more.add(deep=2**64 - 1)
    world.arrive(
        wrapped(NAME, second, later.SerializeToString()),
        wrapped(NAME, first, filled),
        wrapped(NAME, second, b"\x0a\x05cut"),
        wrapped(NAME, 77, filled),
        wrapped("No such game", first, filled),
    )
    world.split_all()
    return world


def _filled(message: Any) -> Any:
    message.score, message.playerName, message.playername = 2**64 - 1, "a\0b", "ü\u2028"
    message.ratio, message.blob = math.nan, b"\xff\0"
    message.tags["ü"].deep, message.tags[""].value = 7, math.nan
    message.tags["x"].items.extend([b"", b"\xff"])
    message.odds.extend([math.nan, -0.0, 1e308])
    message.inner.deep = 5
    message.took.add(seconds=-1, nanos=-5_000)
    message.took.add()
    message.boxed.value = math.nan
    message.at.seconds, message.at.nanos = -62_135_596_800, 999_000
    message.by[-1] = 0.1
    message.any.type_url = "x/y"
    setattr(message, "None", False)
    message.game_key = "another's"
    message.MergeFromString(b"\x92\x01\x01x")  # HasField, which no attribute reaches
    return message


@pytest.fixture(scope="module")
def nasty_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nasty(tmp_path_factory.mktemp("nasty")).paths.root


@pytest.fixture(scope="module")
def simulated_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("simulated")).paths.root


def copy_of(made: Path, root: Path) -> ValueWorld:
    """A world of its own, as the other one is: to make one takes longer."""
    shutil.copytree(made, root, dirs_exist_ok=True)
    return value_world(root)


def compared(world: ValueWorld, sample: int | None = None) -> Values:
    found = world.check(sample).values
    assert found is not None
    return found


@pytest.mark.proves("G161")
def test_sample_schemas_are_read_back_as_they_were_sent(tmp_path: Path, simulated_root: Path) -> None:
    """Every landed value of every sample schema is what an independent decoder makes of bronze."""
    balance = copy_of(simulated_root, tmp_path).check()
    assert balance.values is not None
    assert (balance.values.mismatches, balance.values.named, balance.ok) == (0, (), True)
    assert balance.values.rows == balance.totals.landed > 400
    assert balance.values.compared > 10 * balance.values.rows
    assert not balance.values.decodable
    assert sum(balance.values.undecodable.values()) == balance.totals.quarantined > 20


@pytest.mark.proves("G161")
def test_nasty_schemas_are_read_back_as_they_were_sent(tmp_path: Path, nasty_root: Path) -> None:
    """Side columns, new names, twins, unsigned numbers, NaN, -0.0, maps, aliases and unknown fields accuse nobody."""
    world = copy_of(nasty_root, tmp_path)
    found = compared(world)
    assert (found.named, found.rows) == ((), 6)
    assert {"level", "level__v2", "playername__f4", "kind", "sort"} <= world.contents(GAME)[0].keys()
    assert found.undecodable == {"malformed_payload": 1, "unknown_schema": 1, "unknown_game": 1}


FLIPS: dict[str, Callable[[Any], Any]] = {
    "_schema_id": lambda _: 99,
    "_event_time": lambda at: at + dt.timedelta(microseconds=1),
    "_event_id": lambda _: None,
    "_source_time": lambda at: at + dt.timedelta(microseconds=1),
    "level": lambda number: number - 1,
    "level__v2": lambda _: "made up",
    "score": lambda number: number - decimal.Decimal(1),
    "playerName": lambda text: text[:-1],
    "playername__f4": lambda text: text + " ",
    "ratio": lambda _: 0.0,
    "kind": lambda _: "ZERO",
    "tags": lambda entries: entries[1:],
    "odds": lambda numbers: [numbers[0], 0.0, *numbers[2:]],
    "inner": lambda member: member | {"deep": 6},
    "took": lambda numbers: numbers[::-1],
    "boxed": lambda _: None,
    "at": lambda at: at + dt.timedelta(microseconds=1),
    "by": lambda entries: [(entries[0][0], entries[0][1] * 2)],
    "any": lambda _: None,
    "None": lambda _: None,
    "blob": lambda content: content[1:],
    "HasField": lambda _: "y",
    "game_key": lambda _: "",
}


@pytest.mark.parametrize("column", FLIPS)
@pytest.mark.proves("G161")
def test_a_changed_value_of_each_type_is_found(tmp_path: Path, nasty_root: Path, column: str) -> None:
    """One changed value is found and named with its place, whatever the type of its column."""
    world = copy_of(nasty_root, tmp_path)
    world.alter(NAME, column, FLIPS[column], (1, 0))
    balance = world.check()
    assert balance.values is not None
    (found,) = balance.values.named
    assert (balance.values.mismatches, balance.ok) == (1, False)
    assert (GAME.key, NAME, 1, 0) == (found.game_key, found.game, found.seq, found.pos)
    assert (found.column or "").startswith(column)
    assert found.expected != found.found


@pytest.mark.proves("G161", "G241")
def test_the_text_of_a_long_decimal_is_read_back(tmp_path: Path) -> None:
    """A decimal that outgrows its column lands as text beside it, in the table of a shorter one, and is compared."""
    world = value_world(tmp_path)
    world.names[NAME] = GAME.key
    made = [Registration(NAME, "R", avro(sum=decimals(digits, 2)).definition, format="avro") for digits in (38, 64)]
    ids = [each.schema_id for each in world.registry.register_many(made)]
    short, long = b"\x02\x05", b"\x22" + (10**38).to_bytes(17, "big")
    world.arrive(wrapped(NAME, ids[0], short), wrapped(NAME, ids[0], long), wrapped(NAME, ids[1], long))
    world.arrive(wrapped(NAME, ids[1], short))
    world.split_all()
    text = f"1{'0' * 36}.00"
    landed = [(row["sum"], row["sum__text"]) for row in world.contents(GAME)]
    assert landed == [(decimal.Decimal("0.05"), None), (None, text), (decimal.Decimal("0.05"), None)]
    found = compared(world)
    assert (found.named, found.undecodable) == ((), {"malformed_payload": 1})
    world.alter(NAME, "sum__text", lambda _: f"{text}0", (1, 2))
    assert [each.column for each in compared(world).named] == ["sum__text"]


def test_a_column_that_a_file_lacks_is_found(tmp_path: Path, nasty_root: Path) -> None:
    """A column that is gone from a file is not taken for nulls that belong there."""
    world = copy_of(nasty_root, tmp_path)
    world.rewrite(NAME, (1, 0), lambda table: table.drop_columns(["score"]))
    assert {each.column for each in compared(world).named} == {"score"}


def test_a_row_that_does_not_decode_is_found(tmp_path: Path, nasty_root: Path) -> None:
    """A landed row of which bronze has bytes that no message is, is a mismatch of the whole row."""
    world = copy_of(nasty_root, tmp_path)
    world.damage_bronze((1, 0), lambda raw: wrapped(NAME, 1, b"\x0a\x05cut"))
    (found,) = compared(world).named
    assert (found.column, found.expected) == (None, "no row: malformed_payload")


@pytest.mark.proves("G161")
def test_wrong_statistics_of_a_file_hide_no_row(tmp_path: Path, nasty_root: Path) -> None:
    """The rows themselves decide the comparison, not the log's statistics of a file."""
    world = copy_of(nasty_root, tmp_path)
    before = compared(world)
    for file in Path(world.paths.table(GAME.key) / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
        for add in (action["add"] for action in actions if "add" in action):
            stats = json.loads(add["stats"])
            stats["minValues"]["_seq"], stats["maxValues"]["_seq"] = 900, 901
            add["stats"] = json.dumps(stats)
        file.write_text("\n".join(map(json.dumps, actions)) + "\n", "utf-8")
    after = compared(world)
    assert (after.rows, after.compared, after.mismatches) == (before.rows, before.compared, 0)


def _of_another_type(table: pa.Table) -> pa.Table:
    return table.set_column(table.schema.get_field_index("raw"), "raw", pa.array([1] * table.num_rows))


@pytest.mark.parametrize("name", ["bronze", "table"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, nasty_root: Path, name: str) -> None:
    """For any fault of a data file, verify names its table and claims no proof."""
    world = copy_of(nasty_root, tmp_path)
    folder = world.paths.bronze if name == "bronze" else world.paths.table(GAME.key)
    for uri in DeltaTable(folder).file_uris():
        file = Path(unquote(uri).removeprefix("file://"))
        raw = file.read_bytes()
        file.write_bytes(raw[:4] + b"\xff" * 60 + raw[64:])
    with pytest.raises(Refused, match="cannot be read"):
        world.check()


def test_a_column_of_bronze_with_another_type_is_one_sentence(tmp_path: Path, nasty_root: Path) -> None:
    """The value check reads what the places do not need, and says as much when it cannot."""
    world = copy_of(nasty_root, tmp_path)
    for uri in DeltaTable(world.paths.bronze).file_uris():
        file = unquote(uri).removeprefix("file://")
        pq.write_table(_of_another_type(pq.ParquetFile(file).read()), file)
    with pytest.raises(Refused, match="A data file cannot be read"):
        world.check()


def test_every_copy_of_a_doubled_row_is_compared(tmp_path: Path, nasty_root: Path) -> None:
    """Of a row that is in a table twice, the second copy's value is looked at, too."""
    world = copy_of(nasty_root, tmp_path)
    world.rewrite(NAME, (1, 0), lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    world.alter(NAME, "playerName", lambda _: "x", (1, 0), copy=1)
    found = compared(world)
    assert (found.mismatches, found.rows) == (1, 7)


def test_a_sample_is_the_same_rows_each_time_and_no_more_than_asked_for(tmp_path: Path, simulated_root: Path) -> None:
    """A sample has a bounded number of rows of each game, the same ones at each run, and says so."""
    world = copy_of(simulated_root, tmp_path)
    first, again = compared(world, 7), compared(world, 7)
    assert (first.rows, first.compared) == (again.rows, again.compared)
    assert first.rows == 7 * 6
    assert compared(world, 10_000).rows == compared(world).rows
    assert "at most 7 rows of each game" in render_balance(world.check(7))


def test_further_processes_find_the_same(tmp_path: Path, simulated_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are compared in processes of their own add up to what one process finds."""
    world = copy_of(simulated_root, tmp_path)
    alone = compared(world)
    monkeypatch.setattr(values, "_ALONE_ROWS", 0)
    monkeypatch.setattr(values, "_PART_ROWS", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    shared = compared(world)
    assert (alone.rows, alone.compared, alone.undecodable) == (shared.rows, shared.compared, shared.undecodable)


def test_quarantined_rows_that_would_decode_are_told(tmp_path: Path) -> None:
    """A refused row whose schema was registered later is reported as decodable, not as a mismatch."""
    world = value_world(tmp_path)
    first = world.add_schema(NAME, "t.M", bundle(define(NASTY, ALIASED)), BENDING)
    payload = world.make(first)(level=1).SerializeToString()
    world.arrive(wrapped(NAME, 2, payload), wrapped("Another", 1, payload), wrapped(NAME, 1, b"\xff"))
    world.split_all()
    assert compared(world).undecodable == {"malformed_payload": 1, "unknown_schema": 1, "unknown_game": 1}
    world.add_schema(NAME, "t.M", bundle(define({**NASTY, "M": {**NASTY["M"], "x": (30, "bool")}}, ALIASED)), BENDING)
    world.add_schema("Another", "t.M", bundle(define(NASTY, ALIASED)), BENDING)
    balance = world.check()
    assert balance.values is not None
    assert balance.values.decodable == {"unknown_schema": 1, "unknown_game": 1}
    assert balance.ok
    assert "1 would decode with today's schemas" in render_balance(balance)


def test_the_command_prints_the_promised_keys(tmp_path: Path, nasty_root: Path) -> None:
    """`turnout verify --values --json` has both keys, and exits with 1 when a value differs."""
    world = copy_of(nasty_root, tmp_path)
    arguments = ["verify", "--values", "--json", "--env-dir", str(tmp_path)]
    clean = CliRunner().invoke(cli, arguments)
    reported = json.loads(clean.stdout)
    assert (clean.exit_code, reported["value_mismatches"], reported["ok"]) == (0, 0, True)
    assert reported["values_compared"] > 100
    world.alter(NAME, "playerName", lambda _: "\x1b[2J" + "x" * 10_000, (1, 0))
    wrong = CliRunner().invoke(cli, arguments)
    reported = json.loads(wrong.stdout)
    assert (wrong.exit_code, reported["value_mismatches"], reported["ok"]) == (1, 1, False)
    (found,) = reported["value_problems"]
    assert {"game_key", "game", "seq", "pos", "column", "expected", "found"} == found.keys()
    assert len(found["found"]) <= 80
    assert "\x1b" not in CliRunner().invoke(cli, arguments[:2] + arguments[3:]).stdout


def test_a_schema_that_is_registered_meanwhile_accuses_nobody(tmp_path: Path, nasty_root: Path) -> None:
    """The schemas are read after the tables are pinned: a row that landed just before has its schema among them."""
    world = copy_of(nasty_root, tmp_path)
    none, every = SchemaSet(0, {}, {}), world.registry.snapshot()
    submitted: list[SchemaSet] = []

    def late() -> SchemaSet:
        assert world.paths.bronze.is_folder()
        submitted.append(every)
        return every

    balance = verify(world.paths, world.environment, wanted=Wanted(late))
    assert (balance.ok, submitted) == (True, [every])
    assert not verify(world.paths, world.environment, wanted=Wanted(none)).ok


def test_without_values_nothing_is_said_of_them(tmp_path: Path, nasty_root: Path) -> None:
    """A verification of places does not claim to have compared values."""
    world = copy_of(nasty_root, tmp_path)
    assert not {"values_compared", "value_mismatches"} & as_dict(world.verify()).keys()
    refused = CliRunner().invoke(cli, ["verify", "--sample", "3", "--env-dir", str(tmp_path)])
    assert "Add --values" in str(refused.exception)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4))
@pytest.mark.proves("G161")
def test_both_decoders_say_the_same(events: list[dict[str, Any]]) -> None:
    """Whatever a producer sends, the decoder of the passes and the one of the check say the same of it."""
    _compare([event_of(event).SerializeToString() for event in events])


EDITS = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "set"]), st.integers(0, 200), st.binary(min_size=1, max_size=3))
)


@settings(max_examples=150, deadline=None)
@given(EVENTS, EDITS.filter(bool))
def test_both_decoders_say_the_same_of_damaged_bytes(
    event: dict[str, Any], edits: list[tuple[str, int, bytes]]
) -> None:
    """Fields that come twice, in parts, with another wire type or cut off: both read the same, or both refuse."""
    payload = event_of(event).SerializeToString()
    for kind, at, content in edits:
        where = at % (len(payload) + 1)
        after = where if kind == "put" else where + len(content)
        payload = payload[:where] + (b"" if kind == "drop" else content) + payload[after:]
    _compare([payload])


def _compare(payloads: list[bytes]) -> None:
    decoded, (expected, refused) = DECODER.decode(pa.array(payloads, pa.binary())), REFERENCE.decode(payloads)
    assert [each.row for each in decoded.refused] == sorted(refused)
    assert [each.reason for each in decoded.refused] == [refused[row].reason for row in sorted(refused)]
    assert differences(expected, pa.Table.from_batches([decoded.batch]), 10) == (0, [])


@pytest.mark.parametrize("payload", ["text", "texts", "key", "value"])
def test_a_text_that_is_none_is_refused_by_the_reference(payload: str) -> None:
    """Proto2 gives bytes where a text is no UTF-8: one such row in quarantine must not stop the whole check."""
    fields: dict[str, Fields] = {
        "M": {"text": (1, "string"), "texts": (2, "repeated string"), "by": (3, "map<string, string>")}
    }
    decoder = ReferenceDecoder("t.M", canonical("t.M", bundle(define(fields, syntax="proto2"))), {})
    odd = {
        "text": b"\x0a\x01\xff",
        "texts": b"\x12\x01\xff",
        "key": b"\x1a\x03\x0a\x01\xff",
        "value": b"\x1a\x06\x0a\x01k\x12\x01\xff",
    }[payload]
    table, refused = decoder.decode([odd, b"\x0a\x01a"])
    assert (table.num_rows, refused[0].reason) == (1, "malformed_payload")


EXTREMES = (-62_135_596_801, -62_135_596_800, -1, 0, 1_000, 253_402_300_799, 253_402_300_800)


@given(st.sampled_from(EXTREMES), st.integers(-(2**31), 2**31 - 1))
def test_both_decoders_read_a_time_with_too_few_or_too_many_nanos_alike(seconds: int, nanos: int) -> None:
    """Nanos may be negative on the wire although they should not: the check must not accuse a table for its times."""
    _compare([event_of({"at": {"seconds": seconds, "nanos": nanos}}).SerializeToString()])


def test_a_wrapper_whose_nanos_are_negative_accuses_nobody(tmp_path: Path) -> None:
    """The time of an event is read by the same rule as the times in its payload."""
    world = value_world(tmp_path)
    schema_id = world.add_schema("Chess", "t.M", bundle(define({"M": {"n": (1, "int32")}})))
    spans = [(1_000, -500), (0, -1), (253_402_300_800, -1), (253_402_300_799, 999_999_999), (-62_135_596_800, -1)]
    times = [{"seconds": seconds, "nanos": nanos} for seconds, nanos in spans]
    world.arrive(*(wrapped("Chess", schema_id, b"\x08\x01", event_time=each) for each in times))
    world.split_all()
    values = world.check().values
    assert values is not None
    assert (values.rows, values.mismatches) == (len(times), 0)


def test_the_reference_reads_fields_that_are_called_like_methods() -> None:
    """A field may have the name of a method of Python's messages; it is read by its number."""
    fields: dict[str, Fields] = {
        "M": {"HasField": (1, "Inner"), "ByteSize": (2, "int32")},
        "Inner": {"SetInParent": (1, "string")},
    }
    decoder = ReferenceDecoder("t.M", canonical("t.M", bundle(define(fields))), {})
    table, refused = decoder.decode([b"\x0a\x03\x0a\x01x\x10\x05"])
    assert table.to_pylist() == [{"HasField": {"SetInParent": "x"}, "ByteSize": 5}]
    assert not refused


def test_the_reference_takes_the_last_of_a_key_and_of_a_oneof() -> None:
    """Of a map's key that comes twice, and of a field that comes twice, the last one counts."""
    decoder = ReferenceDecoder("t.M", canonical("t.M", bundle(define({"M": {"m": (1, "map<int32, int32>")}}))), {})
    table, _ = decoder.decode([b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x01\x10\x03"])
    assert table.to_pylist() == [{"m": [(1, 3)]}]


def test_the_reference_refuses_a_row_without_a_required_field() -> None:
    """A proto2 message without a required field belongs into quarantine, and stops nobody."""
    file = define({"M": {"a": (1, "int32"), "m": (2, "map<int32, int32>")}}, syntax="proto2")
    file.message_type[0].field[0].label = FieldDescriptorProto.LABEL_REQUIRED
    decoder = ReferenceDecoder("t.M", canonical("t.M", bundle(file)), {})
    table, refused = decoder.decode([b"\x08\x01", b"\x12\x04\x08\x01\x10\x02"])
    assert (table.num_rows, refused[1].reason) == (1, "malformed_payload")


def test_what_is_alike() -> None:
    """Two NaN are alike, 0.0 and -0.0 are not, maps are in any order, and a doubled key is one too many."""
    kind = pa.map_(pa.string(), pa.float64())
    want = pa.table({"m": pa.array([[("a", math.nan), ("b", 0.0)]] * 3, kind), "x": [math.nan, 0.0, 1.0]})
    have = pa.table(
        {
            "m": pa.array([[("b", 0.0), ("a", math.nan)], [("a", math.nan), ("b", -0.0)], [("a", math.nan)] * 2], kind),
            "x": [-math.nan, -0.0, 1.0],
        }
    )
    count, named = differences(want, have, 10)
    assert [(each.row, each.column) for each in named] == [(1, "m['b']"), (2, "m"), (1, "x")]
    assert count == 3


@pytest.mark.parametrize("nested", [False, True])
def test_a_member_that_the_expected_struct_lacks_is_compared(nested: bool) -> None:
    """A file may have members of later schemas: of a row of an earlier one they must be null."""
    short, long = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.string())])
    wanted: Any = {"a": 1}
    held: Any = {"a": 1, "b": "x"}
    null: Any = {"a": 1, "b": None}
    if nested:
        short, long, wanted, held, null = pa.list_(short), pa.list_(long), [wanted], [held], [null]
    want = pa.table({"s": pa.array([wanted] * 2, short)})
    have = pa.table({"s": pa.array([null, held], long)})
    count, (difference,) = differences(want, have, 10)
    assert (count, difference.row) == (1, 1)


def test_shown_values_are_short_and_harmless() -> None:
    """A value from outside can neither fill a report nor steer a terminal."""
    assert shown(None) == "null"
    assert len(shown(b"x" * 10**6)) <= 80
    assert shown("\x1b\u202e") == "'\\x1b\\u202e'"
