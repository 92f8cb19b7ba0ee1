"""The last rows of a game: few and from few files, payloads for operators only, hostile bytes inert."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st

from app.game import rows
from app.game.rows import LastRows, last_rows
from app.game.sight import ACTION, LOOK_SECONDS
from app.gate import Person
from app.state import services
from app.state.services import Environment
from grants.observing import snapshot
from pipeline.api import payloads
from pipeline.api import rows as row_queries
from pipeline.api.rows import RowKind
from pipeline.base.errors import Refused
from pipeline.data.contracts.schemas import Writer
from pipeline.lake.delta import newest
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from pipeline.store.processes.leases import store_time
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.foreign_world import EIGHT, PROFILES, SEVEN, ForeignWorld, foreign
from tests.tables.repair_world import CHESS, GO, SECOND, World, broken, copied, early, good, make_world
from tests.unit.app.app_world import name_roles
from tests.unit.grants.grants_world import CATALOG, SCHEMA, catalog_snapshot, table_of

OPERATOR, VIEWER = Person("ann", by_platform=False), Person("bob", by_platform=False)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Chess has landed rows, two that no schema decodes yet, and another that never decodes."""
    made = make_world(tmp_path_factory.mktemp("rows"))
    made.ingest(good(1), early(2), broken(), good(3))
    made.ingest(early(4), good(5))
    made.split(through=1)
    made.split()
    return made


@pytest.fixture
def world(made_once: World, tmp_path: Path) -> Iterator[World]:
    world = copied(made_once, tmp_path)
    set_up(world, operators_see_values=True)
    st.cache_data.clear()
    st.cache_resource.clear()
    yield world
    world.engine.dispose()
    st.cache_data.clear()
    st.cache_resource.clear()


def set_up(world: World, **access: object) -> None:
    """Make ann an operator, and set what `[access]` says."""
    name_roles(world.paths.root, operators=[OPERATOR.name])
    with (world.paths.root / "turnout.toml").open("a") as settings:
        settings.write("\n[access]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in access.items()))


def catalog_seen(world: World, *readers: str, age_seconds: float = 0.0, **table: Any) -> None:
    """Keep what the controller saw in the catalog: the game's table, and who may read it."""
    key = str(CHESS.key)
    uses = {CATALOG: {who: {"USE_CATALOG"} for who in readers}, SCHEMA: {who: {"USE_SCHEMA"} for who in readers}}
    granted = {**uses, table_of(key): {who: {"SELECT"} for who in readers}}
    seen = catalog_snapshot(granted, keys=(key,), people=(OPERATOR.name, VIEWER.name))
    placed = {"location": world.paths.table(key).uri, **table}
    tables = {key: replace(seen.tables[key], **placed)}
    snapshot.keep(world.engine, replace(seen, tables=tables, read_at=store_time(world.engine) - age_seconds))


def environment(world: World) -> Environment:
    return services.open_environment(["--env-dir", str(world.paths.root)], {})


def read(world: World, kind: RowKind, limit: int = 20, actor: Person = OPERATOR) -> LastRows:
    st.cache_resource.clear()
    return last_rows(environment(world), str(CHESS.key), kind, limit, actor)


def refuse(world: World, seq: int, raw: bytes | None, reason: str = "malformed_payload", **more: Any) -> None:
    row = {"game_key": CHESS.key, "game": CHESS.name, "seq": seq, "pos": 0, "reason": reason, "raw": raw}
    world.quarantine([{**row, **more}])


def test_landed_rows_are_the_newest_with_their_values(world: World) -> None:
    """An operator sees what landed last, newest first, with the values of the game's own columns."""
    found = read(world, "landed")
    assert [(row.seq, row.pos) for row in found.rows] == [(2, 1), (1, 3), (1, 0)]
    assert [row.payload and row.payload.fields for row in found.rows] == [(("points", number),) for number in "531"]
    assert {row.reason for row in found.rows} == {None}
    assert [(row.seq, row.pos) for row in read(world, "landed", 2).rows] == [(2, 1), (1, 3)]


def test_refused_rows_decode_as_far_as_they_go(world: World) -> None:
    """A row whose schema came later shows its values, a broken one where it ends; bytes of both stand beside."""
    found = read(world, "refused")
    assert [(row.seq, row.pos, row.reason) for row in found.rows] == [
        (2, 0, "unknown_schema"), (1, 2, "malformed_payload"), (1, 1, "unknown_schema"),
    ]  # fmt: skip
    late, bad, _ = (row.payload for row in found.rows)
    assert late is not None
    assert (late.fields, late.stopped) == ((), "its schema is not registered")
    assert bad is not None
    assert (bad.fields, bad.begin) == ((), b"\xff\xff\xff\xff")
    assert "at byte 0" in (bad.stopped or "")
    world.register(message=SECOND)
    late = read(world, "refused").rows[0].payload
    assert late is not None
    assert (late.fields, late.stopped) == ((("points", "4"), ("player", "player 4")), None)


def test_a_refused_row_names_its_producer(world: World) -> None:
    """A row whose payload is damaged still tells who sent it, as far as its wrapper opens."""
    sent = Wrapper(game=CHESS.name, schema_id=1, payload=b"\xff" * 11, producer_id="studio 7").SerializeToString()
    refuse(world, 9, sent)
    (row,) = read(world, "refused", 1).rows
    assert row.payload is not None
    assert (row.payload.producer, row.payload.fields) == ("studio 7", ())
    refuse(world, 10, b"no wrapper")
    (row,) = read(world, "refused", 1).rows
    assert row.payload is not None
    assert row.payload.producer is None


@pytest.mark.proves("G207")
@pytest.mark.parametrize("kind", ["landed", "refused"])
def test_a_person_without_the_role_gets_no_payload(
    kind: RowKind, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the role the reader opens no payload, also where an operator has just read the same rows."""
    st.cache_resource.clear()
    seen = environment(world)
    full = last_rows(seen, str(CHESS.key), kind, 20, OPERATOR)
    monkeypatch.setattr(row_queries, "decode", None)  # nothing is decoded from here on
    bare = last_rows(seen, str(CHESS.key), kind, 20, VIEWER)
    assert full.sight.depth == "values"
    assert bare.sight.depth == "places"
    assert [replace(row, payload=None, detail=None) for row in full.rows] == list(bare.rows)
    assert all(row.payload is not None for row in full.rows)


def test_in_a_workspace_without_roles_nobody_sees_payloads(world: World) -> None:
    """Law of the gate: no roles let everybody on a laptop, and nobody whom a platform signed in."""
    (world.paths.root / "turnout.toml").write_text("")
    assert read(world, "landed", actor=VIEWER).sight.depth == "values"
    assert read(world, "landed", actor=Person("bob@example.com", by_platform=True)).sight.depth == "places"
    assert not looks(world)


def looks(world: World) -> list[tuple[str, dict[str, Any]]]:
    return [(each.actor, dict(each.detail)) for each in audit.entries(world.engine) if each.phase == "begun"]


@pytest.mark.proves("G272")
def test_landed_values_follow_the_viewers_own_select(world: World) -> None:
    """Where roles are set the catalog decides who sees values of landed rows, not the role."""
    set_up(world)
    catalog_seen(world, VIEWER.name)
    assert read(world, "landed", actor=VIEWER).rows[0].payload is not None
    hidden = read(world, "landed", actor=OPERATOR)
    assert {row.payload for row in hidden.rows} == {None}
    assert [(row.seq, row.pos) for row in hidden.rows] == [(2, 1), (1, 3), (1, 0)]
    assert read(world, "refused", actor=VIEWER).sight.depth == "places"


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {"age_seconds": 1_000.0},
        {"location": "file:///elsewhere"},
        {"location": ""},  # as of a view
        {"is_managed": True},
        {"has_row_filter": True},
        {"masked_columns": ("points",)},
    ],
)
@pytest.mark.proves("G272")
def test_landed_values_are_hidden_where_access_is_not_known(seen: dict[str, Any] | None, world: World) -> None:
    """No catalog, an old look, a table elsewhere or at no known place, and hidden columns show no value to a reader."""
    set_up(world)
    if seen is not None:
        catalog_seen(world, VIEWER.name, **seen)
    found = read(world, "landed", actor=VIEWER)
    assert {row.payload for row in found.rows} == {None}
    assert found.sight.why_not
    assert not looks(world)


@pytest.mark.proves("G272")
def test_operators_see_shapes_of_refused_rows(world: World) -> None:
    """Without the setting an operator sees which fields a refused row has, and none of their values or bytes."""
    set_up(world)
    catalog_seen(world, OPERATOR.name)
    world.register(message=SECOND)
    late, bad, _ = (row.payload for row in read(world, "refused").rows)
    assert late is not None
    assert (late.fields, late.stopped, late.begin) == ((("points", "…"), ("player", "…")), None, b"")
    assert bad is not None
    assert (bad.fields, bad.stopped, bad.begin) == ((), "no further field", b"")
    assert {row.detail for row in read(world, "refused").rows} == {None}
    assert not looks(world)


@pytest.mark.proves("G272")
def test_each_look_at_values_is_in_the_audit_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tab writes one entry for the rows of a game, again after a quarter of an hour, and none for what it hides."""
    tab: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", tab)
    for _ in range(2):
        assert read(world, "landed").sight.depth == "values"
    setting = {"rows": "landed", "by": "the setting access.operators_see_values"}
    assert looks(world) == [(OPERATOR.name, setting)]
    tab["looks"] = {look: at - LOOK_SECONDS for look, at in tab["looks"].items()}
    read(world, "landed")
    assert len(looks(world)) == 2
    catalog_seen(world, VIEWER.name)
    read(world, "landed", actor=VIEWER)
    read(world, "refused", actor=VIEWER)
    assert looks(world)[2:] == [(VIEWER.name, {"rows": "landed", "by": "SELECT in the catalog"})]
    assert {each.action for each in audit.entries(world.engine)} == {ACTION}


@pytest.mark.proves("G272")
def test_no_value_is_shown_that_the_audit_log_has_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log takes no entry the rows are refused."""
    monkeypatch.setattr(st, "session_state", {})
    with world.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE audit")
    with pytest.raises(Refused):
        read(world, "landed")


def test_a_place_is_one_row_and_says_that_it_landed_since(world: World) -> None:
    """Law L5: quarantine is a set, a copy is no further row; a row that a replay landed is marked."""
    refuse(world, 1, good(1).raw, "unknown_schema", pos=0)
    refuse(world, 1, good(1).raw, "quarantined_schema", pos=0)
    found = {(row.seq, row.pos): row for row in read(world, "refused").rows}
    assert len(found) == 4
    assert found[1, 0].landed_since is True
    assert found[1, 2].landed_since is False


@pytest.mark.proves("G207")
def test_a_row_that_killed_a_worker_is_not_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a row could kill the dashboard as well: only its bytes are shown."""
    monkeypatch.setattr(payloads, "open_wrappers", None)
    refuse(world, 9, b"deadly", "kills_worker")
    (row,) = read(world, "refused", 1).rows
    assert row.payload is not None
    assert (row.payload.fields, row.payload.begin) == ((), b"deadly")


def test_a_row_of_a_foreign_registry_decodes_with_the_schema_of_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze knows how a record is framed and who wrote it; one without a known writer is shown as bytes."""
    settings, paths = Settings(), Paths(tmp_path)
    world = ForeignWorld(paths, settings, open_store(settings, paths))
    world.writers, world.profiles = {("main", SEVEN): Writer(1)}, dict(PROFILES)
    assert world.register() == 1
    events = (foreign(5), foreign(6, EIGHT), foreign(7, payload=b"\xff"))
    world.ingest(*events)
    for pos, event in enumerate(events):
        refuse(world, 1, event.raw, "quarantined_schema", pos=pos)
    monkeypatch.setattr(rows, "_registry", lambda _: SimpleNamespace(snapshot=world.schemas))
    bad, unknown, good_one = (row.payload for row in read(world, "refused").rows)
    assert good_one is not None
    assert (good_one.fields, good_one.stopped, good_one.begin) == ((("points", "5"),), None, events[0].payload)
    assert unknown is not None
    assert (unknown.fields, unknown.stopped) == ((), "its schema is not known yet")
    assert unknown.begin == events[1].raw
    assert bad is not None
    assert (bad.fields, bad.begin) == ((), b"\xff")
    world.engine.dispose()


def test_a_large_record_is_cut(world: World) -> None:
    """Of a payload of a megabyte a page gets some characters; a larger record is not even opened."""
    world.register(message=SECOND)
    text = SECOND.payload(points=7, player="x" * 1_000_000)
    refuse(world, 8, replace(good(1), schema_id=2, payload=text).raw)
    refuse(world, 9, bytes(3_000_000))
    huge, large = (row.payload for row in read(world, "refused", 2).rows)
    assert huge is not None
    assert (huge.fields, len(huge.begin)) == ((), payloads.SHOWN_BYTES)
    assert "3000000 bytes" in (huge.stopped or "")
    assert large is not None
    assert (large.fields, large.stopped) == ((("points", "7"),), "only its first 16 KiB were decoded")


@pytest.mark.parametrize("raw", [None, b"", b"\xff" * 40, b"\x0a\x05Chess", good(1).raw[:-1], bytes(range(256))])
def test_whatever_a_row_holds_is_shown_as_bytes(raw: bytes | None, world: World) -> None:
    """A record that no wrapper is, a cut one and none at all are rows like others."""
    refuse(world, 9, raw, "malformed_wrapper")
    (row,) = read(world, "refused", 1).rows
    assert row.payload is not None
    assert row.payload.fields == ()
    assert row.payload.stopped
    assert (raw or b"").startswith(row.payload.begin)


def test_few_files_are_read_however_many_there_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files that may hold the newest rows are read, and never more than a bound, which is then said."""
    for seq in range(10, 40):
        refuse(world, seq, b"x")
    found = read(world, "refused", 3)
    assert ([row.seq for row in found.rows], found.files, found.complete) == ([39, 38, 37], 3, True)
    monkeypatch.setattr(newest, "MOST_FILES", 5)
    found = read(world, "refused", 20)
    assert (len(found.rows), found.files, found.complete) == (5, 5, False)
    world.quarantine([{"game_key": GO.key, "game": GO.name, "seq": 50 + n, "pos": 0, "reason": "x"} for n in range(9)])
    assert read(world, "refused", 3).files == 3, "a file of another game is left out by its bounds"


def test_a_game_that_nobody_knows_is_refused(world: World) -> None:
    """The key comes from the URL: it names a known game, and is no path."""
    for key in ("../../etc", "nobody_x1", ""):
        with pytest.raises(Refused, match="No such game"):
            last_rows(environment(world), key, "landed", 20, OPERATOR)


def test_without_a_table_there_are_no_rows(world: World) -> None:
    """A game of which nothing landed has an empty list; a damaged table is named in the refusal."""
    world.register(game=GO)
    found = last_rows(environment(world), str(GO.key), "landed", 20, OPERATOR)
    assert (found.rows, found.complete) == ((), True)
    for file in Path(world.paths.table(CHESS.key)).glob("*.parquet"):
        file.write_bytes(b"no parquet")
    with pytest.raises(Refused, match="cannot be read"):
        read(world, "landed")
