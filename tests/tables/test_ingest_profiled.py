"""Records of sources with a profile: what a task makes of them, and how batches keep their profile."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED
from pipeline.data.contracts.profile import SourceProfile, dumps
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest import query
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.data.ingest.profiles import Profiles, configured
from pipeline.data.ingest.query import Ingest
from pipeline.lake.delta.bronze import BRONZE, FRAMED
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.registries import RegistrySettings
from pipeline.settings.tree import load
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import profiles
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.ingest_world import Killed, Rows, World, killing, template
from tests.tables.profiled_world import CHESS, GO, Record, batch_of, landed

__all__ = ["template"]  # a fixture

FRAMED_BY_KEY = SourceProfile(envelope="none", routing="key", framing="confluent", registry="main")
GLUE_BY_KEY = SourceProfile(envelope="none", routing="key", framing="glue", registry="main")
ID = b"\x00\x00\x00\x00\x07"
GUID = b"\x01" + bytes(range(16))
UUID = b"\x03" + bytes(range(16))


def test_rows_name_their_writer(tmp_path: Path) -> None:
    """Law L13: a row of bronze has all that decoding depends on: the profile's number, the registry and its id."""
    records: list[Record] = [
        (ID + b"\x06", b"Chess", []),
        (b"\x06", b"go", [("__value_schema_id", GUID)]),
        (b"{}", b"Chess", []),
        (None, b"Chess", []),
        (ID + b"\x06", b"strange", []),
        (ID + b"\x06", None, []),
    ]
    report, rows = landed(tmp_path, records, NumberedProfile(4, FRAMED_BY_KEY))
    found = [(row["game_key"], row["refused"], row["writer"]) for row in rows]
    assert found == [
        (CHESS, None, ID), (GO, None, GUID), (MALFORMED, "malformed_framing", None), (MALFORMED, "tombstone", None),
        (MALFORMED, "unknown_game", ID), (MALFORMED, "invalid_name", None),
    ]  # fmt: skip
    assert {(4, "main", None)} == {(row["profile"], row["registry"], row["schema_id"]) for row in rows}
    assert [value for value, _, _ in records] == [row["raw"] for row in rows]
    assert report["counts"] == {CHESS: 1, GO: 1, MALFORMED: 4}, "a refused row is a link of no game's chain"
    quarantine = pq.read_table(tmp_path / "quarantine" / report["quarantine"]["path"])
    assert quarantine.column("reason").to_pylist() == [refused for _, refused, _ in found if refused]


def test_a_task_reports_the_writers_that_games_need_once(tmp_path: Path) -> None:
    """Law L14: what no driver has noted yet is reported, in order; refused rows and unknown names need nothing."""
    records: list[Record] = [
        (ID + b"\x06", b"Chess", []), (ID + b"\x08", b"Chess", []), (ID, b"go", []),
        (b"\x00\x00\x00\x00\x09", b"go", []), (b"\x00\x00\x00\x00\x08", b"strange", []), (b"{}", b"go", []),
    ]  # fmt: skip
    report, _ = landed(tmp_path, records, NumberedProfile(4, FRAMED_BY_KEY, frozenset({(GO, ID)})))
    assert report["needs"] == [[CHESS, "Chess", "main", ID.hex(), 7, 0], [GO, "go", "main", "0000000009", 7, 3]]


def test_a_header_names_the_event_type(tmp_path: Path) -> None:
    """The first header of that name is the event type, also of documents without an envelope."""
    profile = SourceProfile(envelope="none", routing="key", framing="type", event_type="header:kind")
    records: list[Record] = [(b"{}", b"Chess", [("kind", b"Joined"), ("kind", b"x")]), (b"{}", b"Chess", [])]
    report, rows = landed(tmp_path, records, NumberedProfile(5, profile))
    assert [(row["writer"], row["registry"], row["refused"]) for row in rows] == [
        (b"Joined", None, None), (None, None, "malformed_framing"),
    ]  # fmt: skip
    assert report["needs"] == []


def test_turnouts_own_ids_need_nobody(tmp_path: Path) -> None:
    """A profile without a registry keeps the ids of turnout in their column."""
    value = Wrapper(game="ignored", schema_id=9, payload=b"\x08\x01").SerializeToString()
    profile = NumberedProfile(5, SourceProfile(routing="key"))
    report, (row,) = landed(tmp_path, [(value, b"Chess", [])], profile)
    assert tuple(row[name] for name in ("game_key", "game", "schema_id", "profile", "registry")) == (
        CHESS,
        "Chess",
        9,
        5,
        None,
    )
    assert report["needs"] == []


def test_turnouts_ids_stand_beside_a_registrys(tmp_path: Path) -> None:
    """Law L13: a row with turnout's own number names no registry and needs no answer; a framed neighbour does."""
    values = [Wrapper(game="Chess", schema_id=number, payload=ID + b"\x06").SerializeToString() for number in (9, 0)]
    profile = NumberedProfile(5, SourceProfile(framing="wrapper-or-confluent", registry="main"))
    report, rows = landed(tmp_path, [(value, None, []) for value in values], profile)
    assert [(row["schema_id"], row["registry"], row["writer"]) for row in rows] == [
        (9, None, b"\xff\0\0\0\x09"),
        (None, "main", ID),
    ]
    assert report["needs"] == [[CHESS, "Chess", "main", ID.hex(), 7, 1]]


def test_the_default_profile_costs_nothing(tmp_path: Path) -> None:
    """Files of turnout's own wrapper are what they were: they lack the columns, which readers take for null."""
    value = Wrapper(game="Chess", schema_id=9, payload=b"\x08\x01").SerializeToString()
    report, (row,) = landed(tmp_path, [(value, None, [])], None)
    assert [name for name in BRONZE.names if name not in FRAMED] == list(row)
    assert report["needs"] == []


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    *(st.binary(max_size=9).map(each.__add__) for each in (ID, GUID, UUID, b"\x03\x05")),
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["__value_schema_id", "game"]), st.none() | st.binary(max_size=20) | st.just(GUID)),
    max_size=2,
)
PROFILES = st.builds(
    SourceProfile,
    envelope=st.sampled_from(["wrapper", "none"]),
    routing=st.sampled_from(["topic", "key", "header:game", "game:Chess"]),
    framing=st.sampled_from(["confluent", "glue", "topic", "game"]),
    registry=st.just("main"),
)


@effort(max_examples=60, deadline=None)
@given(
    records=st.lists(st.tuples(VALUES, st.sampled_from([None, b"Chess", b"go", b"\xff", b""]), HEADERS), min_size=1),
    profile=PROFILES,
)
def test_any_record_is_one_row_and_refused_or_named(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], profile: SourceProfile
) -> None:
    """Laws L1 and L4: each record is one row of bronze, unchanged; a row of a game has a writer, or a reason."""
    report, rows = landed(tmp_path_factory.mktemp("any"), records, NumberedProfile(4, profile))
    assert [(value, key) for value, key, _ in records] == [(row["raw"], row["key"]) for row in rows]
    for row in rows:
        assert (row["game_key"] == MALFORMED) == (row["refused"] is not None)
        assert row["refused"] is not None or (row["writer"] and row["game"] in {"Chess", "go"})
    assert sum(row["refused"] is not None for row in rows) == sum(report["reasons"].values())


# ------------------------------------------------------------------------------------------------------------- numbers


@pytest.fixture
def world(template: Path, tmp_path: Path) -> World:
    return World(shutil.copytree(template, tmp_path / "env"))


def ingest_with(
    world: World, monkeypatch: pytest.MonkeyPatch, profile: SourceProfile | None, needs: list[Need]
) -> Ingest:
    monkeypatch.setattr(query, "configured", lambda *_: profile)
    spark: Any = None
    return Ingest(spark, world.settings, world.paths, world.engine, lambda _: None, needs.extend)


def rows_of(value: bytes, batch_id: int) -> Any:
    return Rows([batch_of([(value, b"Chess", [])], batch_id)])


def profiles_in(world: World) -> list[int | None]:
    """Return the profile of each row of bronze, by seq."""
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["seq", "profile"]).to_pylist()
    return [row["profile"] for row in sorted(rows, key=lambda row: int(row["seq"]))]


def test_a_batch_keeps_its_profile_and_the_next_one_gets_the_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws L1 and L13: a repeated batch opens its records as the attempt before; a change begins with the next one."""
    plain = Wrapper(game="Chess", schema_id=1, payload=b"").SerializeToString()
    values = {None: plain, FRAMED_BY_KEY: ID, GLUE_BY_KEY: b"\x03\x00" + bytes(16)}
    batch_id = 0
    for before, after in ((None, FRAMED_BY_KEY), (FRAMED_BY_KEY, GLUE_BY_KEY), (GLUE_BY_KEY, None)):
        ingest = ingest_with(world, monkeypatch, before, [])
        with monkeypatch.context() as patch:
            patch.setattr(query, "land", killing(None))
            with pytest.raises(Killed):
                ingest._batch(rows_of(values[before], batch_id), batch_id)
        ingest = ingest_with(world, monkeypatch, after, [])
        ingest._batch(rows_of(values[before], batch_id), batch_id)
        ingest._batch(rows_of(values[after], batch_id + 1), batch_id + 1)
        batch_id += 2
    first, second = (int(name.rpartition(".")[2]) for name in sorted(properties(world)))
    assert profiles_in(world) == [None, first, first, second, second, None]
    texts = properties(world)
    assert [dumps(FRAMED_BY_KEY), dumps(GLUE_BY_KEY)] == [texts[f"turnout.profile.{each}"] for each in (first, second)]


def properties(world: World) -> dict[str, str]:
    found = DeltaTable(world.paths.bronze).metadata().configuration
    return {name: text for name, text in found.items() if name.startswith("turnout.")}


def test_needs_are_handed_over_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L14: the driver asks for what its tasks report, and tells them what it has noted."""
    needs: list[Need] = []
    ingest = ingest_with(world, monkeypatch, FRAMED_BY_KEY, needs)
    for batch_id in range(2):
        ingest._batch(rows_of(ID, batch_id), batch_id)
    assert needs == [Need(CHESS, "Chess", "main", ID, 1, 0)]


def test_an_older_control_store_is_noticed(world: World) -> None:
    """Law L13: a number means one profile for ever, also where the store that gave it is an older copy."""
    bronze = CursorTable.create(world.paths.bronze, BRONZE, "bronze")
    number = Profiles(world.engine, bronze, FRAMED_BY_KEY).numbers[0]
    DeltaTable(world.paths.bronze).alter.set_table_properties(
        {f"turnout.profile.{number}": dumps(GLUE_BY_KEY)}, raise_if_not_exists=False
    )
    with pytest.raises(Refused, match=f"another profile with the number {number}"):
        Profiles(world.engine, bronze, FRAMED_BY_KEY)
    with pytest.raises(Refused, match=r"turnout\.profile\.99 is gone"):
        Profiles(world.engine, bronze, None).at(99)


@pytest.mark.proves("G261")
def test_an_older_store_gives_no_profile_a_number_that_bronze_has(world: World) -> None:
    """Law L13: after a restore of an older control store ingest goes on, with numbers above those of bronze."""
    bronze = CursorTable.create(world.paths.bronze, BRONZE, "bronze")
    number = Profiles(world.engine, bronze, FRAMED_BY_KEY).numbers[0]
    with writing(world.engine) as connection:
        connection.execute(delete(profiles))
    assert Profiles(world.engine, bronze, GLUE_BY_KEY).numbers[0] > number
    expected = {number: FRAMED_BY_KEY, number + 1: GLUE_BY_KEY}
    assert LocalRegistry(world.engine, world.paths.bronze).snapshot().profiles == expected


def test_bronze_means_the_same_without_the_control_store(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Law L1: whatever the store has lost or given away again, a row's profile is the one that bronze names."""
    bronze = CursorTable.create(world.paths.bronze, BRONZE, "bronze")
    running = LocalRegistry(world.engine, world.paths.bronze)
    assert running.snapshot().profiles == {}
    number = Profiles(world.engine, bronze, FRAMED_BY_KEY).numbers[0]
    expected = {number: FRAMED_BY_KEY}
    assert running.snapshot().profiles == expected
    with writing(world.engine) as connection:
        connection.execute(delete(profiles))
    fresh = LocalRegistry(world.engine, world.paths.bronze)
    assert (LocalRegistry(world.engine).snapshot().profiles, fresh.snapshot().profiles) == ({}, expected)
    running.look_in_bronze()
    assert running.snapshot().profiles == expected
    with writing(world.engine) as connection:
        values = {"fingerprint": "0" * 64, "definition": dumps(GLUE_BY_KEY), "created_at": 0.0}
        connection.execute(insert(profiles).values(number=number, **values))
    assert LocalRegistry(world.engine, world.paths.bronze).snapshot().profiles == expected
    more = {"turnout.profile.98": dumps(GLUE_BY_KEY), "turnout.profile.99": "{", "turnout.profile.x": "{"}
    DeltaTable(world.paths.bronze).alter.set_table_properties(more, raise_if_not_exists=False)
    running.look_in_bronze()
    assert running.snapshot().profiles == {**expected, 98: GLUE_BY_KEY}, "rows wait whose profile cannot be read"
    assert "turnout.profile.99" in caplog.text


def test_a_profile_has_its_registrys_generation(tmp_path: Path) -> None:
    """Law L13: ids of a registry that was made anew are other ids; a registry that is not set up is refused at once."""
    source = {"TURNOUT_SOURCE__ENVELOPE": "none", "TURNOUT_SOURCE__ROUTING": "key", "TURNOUT_SOURCE__FRAMING": "glue"}
    source["TURNOUT_SOURCE__REGISTRY"] = "main"
    environment, _ = load(tmp_path, source)
    with pytest.raises(Refused, match=r"Add \[registries\.main\]"):
        configured(environment)
    registries = {"main": RegistrySettings(kind="glue", region="eu-west-1", generation=2)}
    assert configured(replace(environment, registries=registries)) == replace(GLUE_BY_KEY, registry="main.2")
    assert configured(load(tmp_path, {})[0]) is None
