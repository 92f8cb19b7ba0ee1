"""Commits of other writers to a game's table: those that take rows stop the game, in an object store others, too.

The other writer is delta-rs as anybody runs it; for features that it cannot add, a commit as a workspace writes it.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from listeners.sample import Lane, StreamState
from pipeline.base import failpoints
from pipeline.cli.doctor import look_at_logs
from pipeline.data.maintenance import run as maintenance
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.lanes import failure_of
from pipeline.data.streams.roster import Roster
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.foreign import ForeignChange, foreign_commit
from pipeline.lake.delta.log import Action, commit_file, listed_commits, publish_commit, read_commit
from pipeline.lake.delta.marks import is_ours, marked
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.folder import Folder
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from pipeline.store.database.tables import stream_control
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import start_driver
from pipeline.store.stream_control import decided, submit_retry
from tests.game_streams import roster_of
from tests.storage.buckets import Proxy, bucket, proxied
from tests.storage.served import served
from tests.tables.repair_world import CHESS, GO, SECOND, World, copied, early, good, make_world
from tests.unit.store.reports_world import write_streams

Act = Callable[[DeltaTable], object]

_MERGED = Settings(maintenance=Maintenance(small_files=2, bronze_commits=2, bronze_age_minutes=0.0))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    return filled(make_world(tmp_path_factory.mktemp("template")))


@pytest.fixture
def near(template: World, tmp_path: Path) -> World:
    """An environment in a folder."""
    return copied(template, tmp_path)


@pytest.fixture
def far(near: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same, and turnout takes the folder for an object store."""
    monkeypatch.setattr(Folder, "is_far", property(lambda _self: True))
    return near


@pytest.fixture
def in_bucket(tmp_path: Path) -> Iterator[World]:
    with served(tmp_path / "server") as url:  # in a process: delta-rs holds the interpreter's lock while it restores
        yield filled(make_world(tmp_path, url))


def filled(world: World) -> World:
    """Two games with three commits each."""
    register_group(world.engine, "a", placing())
    world.register(GO)
    for number in range(1, 4):
        world.ingest(good(number), good(number, GO))
        world.split()
        world.split(GO)
    return world


def append(table: DeltaTable) -> None:
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")


HARMFUL: dict[str, tuple[Act, str]] = {
    "compaction": (lambda table: table.optimize.compact(), "OPTIMIZE by delta-rs.*removed 3 files and added 1 file"),
    "append": (append, "WRITE by delta-rs.*added 1 file"),
    "delete": (lambda table: table.delete("_seq = 1"), "DELETE by delta-rs.*removed 1 file"),
    "column": (
        lambda table: table.alter.add_columns([Field("mine", PrimitiveType("string"))]),
        "ADD COLUMN by delta-rs.*changed the schema",
    ),
    "feature": (
        lambda table: table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}),
        "SET TBLPROPERTIES by delta-rs.*changed the protocol",
    ),
}
HARMLESS: dict[str, Act] = {
    "property": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
    "comment": lambda table: table.alter.set_table_description("ours"),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
}


def table_of(world: World) -> DeltaTable:
    return open_table(world.paths.table(CHESS.key))


def versions(world: World) -> int:
    return table_of(world).version()


def test_each_commit_of_ours_has_our_mark(far: World) -> None:
    """A writer of ours that forgot its mark would park its own game: all kinds of commits of a life are recognised."""
    far.register(message=SECOND)
    far.ingest(early(4))
    far.split()
    seen = commits(far)
    maintenance.one_round(_MERGED, far.paths, time.time(), thorough=True)
    rebuild(far.paths, far.environment, far.engine, far.registry.snapshot, CHESS)
    far.ingest(good(5))
    far.split()
    seen += commits(far)
    assert [actions for actions in seen if not is_ours(actions)] == []
    operations = {actions[0]["commitInfo"]["operation"] for actions in seen}
    assert operations >= {"CREATE TABLE", "WRITE", "ADD COLUMN", "OPTIMIZE"}


def commits(world: World) -> list[list[Action]]:
    tables = (world.paths.table(CHESS.key), world.paths.bronze)
    read = (read_commit(table, version) for table in tables for version in listed_commits(table))
    return [actions for actions in read if actions]


@pytest.mark.proves("A30", "G237")
def test_a_game_in_a_bucket_stops_and_goes_on(in_bucket: World) -> None:
    """Law L5, on a real object store: a compaction stops the game, and after RESTORE each row is there once."""
    table_of(in_bucket).optimize.compact()
    in_bucket.ingest(good(4))
    with pytest.raises(ForeignChange, match=r"OPTIMIZE by delta-rs.*RESTORE TABLE delta.`s3://.*` TO VERSION AS OF 3"):
        in_bucket.split()
    table_of(in_bucket).restore(3)
    in_bucket.streams[CHESS.key].accept_foreign()
    in_bucket.split()
    assert in_bucket.rows() == [(number, 0) for number in range(1, 5)]
    looked = look_at_logs(in_bucket.paths)
    assert [(each.state, each.subject) for each in looked] == [("optional", f"table {CHESS.key}")] * 2
    assert ["OPTIMIZE" in looked[0].detail, "RESTORE" in looked[1].detail] == [True, True]


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", HARMFUL)
def test_a_change_of_another_writer_stops_the_game_in_a_bucket(far: World, name: str) -> None:
    """The next commit finds the other at its version: nothing lands, and the reason says who, what and how."""
    act, told = HARMFUL[name]
    far.stream(CHESS)
    act(table_of(far))
    before = versions(far)
    far.ingest(good(4))
    with pytest.raises(ForeignChange, match=told) as refused:
        far.split()
    assert f"version {before}, " in str(refused.value)
    assert str(refused.value).endswith(f"then run `turnout repair retry {CHESS.key}`.")
    assert ("RESTORE TABLE" in str(refused.value)) == (name != "feature")
    assert len(str(refused.value)) < 480, "the store cuts evidence"
    assert versions(far) == before


TAKES_ROWS: dict[str, tuple[Act, str]] = {
    "restore": (lambda table: table.restore(1), "RESTORE by delta-rs.*removed 2 files"),
    "delete": HARMFUL["delete"],
    "overwrite": (
        lambda table: write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="overwrite"),
        "WRITE by delta-rs.*removed 3 files and added 1 file",
    ),
    "update": (
        lambda table: table.update(updates={"_pos": "9"}, predicate="_seq = 1"),
        "UPDATE by delta-rs.*removed 1 file",
    ),
}


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", TAKES_ROWS)
@pytest.mark.parametrize("started", [True, False])
def test_in_a_folder_a_foreign_commit_that_takes_rows_parks_the_game(near: World, name: str, started: bool) -> None:
    """Law L5: a running driver parks the game, and so does a start; a rebuild and a retry bring all rows back."""
    act, told = TAKES_ROWS[name]
    roster = carried(near)
    act(table_of(near))
    near.ingest(good(4), good(4, GO))
    if started:
        fail(near, roster)
    else:
        roster = carried(near)
    evidence = decided(near.engine)[CHESS.key].evidence
    assert evidence is not None
    assert re.search(told, evidence)
    assert list(roster.for_pass(0)) == [GO.key]
    roster.end_pass()
    rebuild(near.paths, near.environment, near.engine, near.registry.snapshot, CHESS)
    retry(near, roster)
    near.split()
    near.split(GO)
    assert not parked(near)
    assert near.rows() == [(number, 0) for number in range(1, 5)]
    assert near.verify().ok


REARRANGED: dict[str, Act] = {
    "compaction": HARMFUL["compaction"][0],
    "z-order": lambda table: table.optimize.z_order(["_pos"]),
}


@pytest.mark.parametrize("name", [*REARRANGED, "append", "column", *HARMLESS])
def test_in_a_folder_other_foreign_commits_are_rebased_as_ever(
    near: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Law L4: in one file system another writer is no fault until it takes rows; a line names it."""
    near.stream(CHESS)
    write_file(pa.table({"a": [1]}), near.paths.table(CHESS.key))  # for VACUUM, which commits nothing in vain
    act = {**{each: act for each, (act, _) in HARMFUL.items()}, **HARMLESS, **REARRANGED}[name]
    act(table_of(near))
    before = versions(near)
    near.ingest(good(4))
    with caplog.at_level(logging.WARNING, "turnout"):
        near.split()
    assert (near.rows()[-1], versions(near)) == ((4, 0), before + 1)
    assert [each for each in caplog.records if "foreign commit" in each.getMessage()] != []
    carried(near)
    assert not parked(near)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_commit_that_changes_nothing_is_logged(far: World, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Properties, comments and VACUUM of another writer stop nothing; a line names each of them once."""
    far.stream(CHESS)
    write_file(pa.table({"a": [1]}), far.paths.table(CHESS.key))  # for VACUUM, which commits nothing in vain
    HARMLESS[name](table_of(far))
    with caplog.at_level(logging.WARNING, "turnout"):
        for number in (4, 5):
            far.ingest(good(number))
            far.split()
    lines = [each.getMessage() for each in caplog.records if "foreign commit" in each.getMessage()]
    assert len(lines) == (2 if name == "vacuum" else 1)
    assert all("by delta-rs" in line and str(CHESS.key) in line for line in lines)
    assert far.rows() == [(number, 0) for number in range(1, 6)]


@pytest.mark.proves("G237")
def test_a_driver_that_starts_finds_the_commits_of_others(far: World) -> None:
    """A change made while no driver ran is found at the opening, below maintenance's own commits, too."""
    table_of(far).optimize.compact()
    maintenance.one_round(_MERGED, far.paths, time.time(), thorough=True)
    table = CursorTable.open(far.paths.table(CHESS.key), far.stream(CHESS).app_id, guarded=True)
    assert table is not None
    with pytest.raises(ForeignChange, match="OPTIMIZE"):
        table.require_own()


@pytest.mark.proves("G237")
def test_a_table_with_a_feature_of_ours_is_guarded_as_well(far: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs commits to a table with local times, and would rebase: a foreign commit stops it, maintenance does not.

    A retry accepts what is there, and the next opening finds that. A foreign commit right behind ours is found, too.
    """
    path, app = located(f"{far.paths.tables}/local"), "turnout/test/local/1"
    columns = pa.schema([("_seq", pa.int64()), ("at", pa.timestamp("us"))])
    table = CursorTable.create(path, columns, app, guarded=True)
    assert not table.is_plain

    def commit(number: int) -> None:
        rows = pa.table({"_seq": [number], "at": [None]}, columns)
        table.commit([write_file(rows, path)], table.cursor, number)

    for number in (1, 2):
        commit(number)
    open_table(path).optimize.compact(commit_properties=marked("files merged"))
    commit(3)
    open_table(path).optimize.compact()
    with pytest.raises(ForeignChange, match="OPTIMIZE"):
        commit(4)
    assert table.cursor == 3
    table.accept_foreign()
    again = CursorTable.open(path, app, guarded=True)
    assert again is not None
    again.require_own()
    commit(4)
    write = DeltaTable.create_write_transaction

    def followed(*args: Any, **more: Any) -> None:
        write(*args, **more)
        open_table(path).delete("_seq = 1")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", followed)
        commit(5)
    with pytest.raises(ForeignChange, match="DELETE"):
        commit(6)
    assert sorted(open_table(path).to_pyarrow_table()["_seq"].to_pylist()) == [2, 3, 4, 5]


def test_a_table_that_rested_long_is_judged_by_its_commits(far: World) -> None:
    """A view that is too old for the log's names is read as a whole: who committed since then is still looked at."""
    table = far.stream(CHESS).table
    assert isinstance(table, CursorTable)
    table_of(far).optimize.compact()
    table._seen_at = 0.0
    far.ingest(good(4))
    with pytest.raises(ForeignChange, match="OPTIMIZE"):
        far.split()


@pytest.mark.parametrize("restored", [True, False])
def test_a_person_takes_a_change_back_or_accepts_it(far: World, restored: bool) -> None:
    """Law L5: after RESTORE, or after a decision to leave a compaction, the game goes on with each row once."""
    far.stream(CHESS)
    table_of(far).optimize.compact()
    far.ingest(good(4))
    with pytest.raises(ForeignChange):
        far.split()
    if restored:
        table_of(far).restore(versions(far) - 1)
    far.streams[CHESS.key].accept_foreign()
    far.split()
    assert far.rows() == [(number, 0) for number in range(1, 5)]
    far.split(GO)
    assert far.verify().ok


def carried(world: World) -> Roster:
    """The roster of a driver, whose streams the world splits."""
    made = roster_of(world.settings, world.paths, world.engine)
    world.streams = dict(made.streams)
    return made


def fail(world: World, roster: Roster) -> None:
    """Let the game's next commit fail, as a pass does."""
    with pytest.raises(ForeignChange) as refused:
        world.split()
    roster.settle({CHESS.key: failure_of(refused.value)}, [GO.key], 2)


@pytest.mark.proves("A30", "G237")
def test_the_game_is_parked_at_once_until_a_person_retries_it(far: World) -> None:
    """Law L6: it waits for a person after the first failure, others go on, and a retry accepts what is there then."""
    roster = carried(far)
    table_of(far).delete("_seq = 1")
    far.ingest(good(4), good(4, GO))
    fail(far, roster)
    far.split(GO)
    decision = decided(far.engine)[CHESS.key]
    assert decision.parked_at is not None
    assert decision.evidence is not None
    assert decision.evidence.startswith("ForeignChange: Another writer committed to the table: version 4, DELETE")
    roster.sync()
    assert list(roster.for_pass(0)) == [GO.key]
    roster.end_pass()
    table_of(far).restore(versions(far) - 1)
    submit_retry(far.engine, CHESS.key, "ann")
    roster.sync()
    far.split()
    assert far.rows() == [(number, 0) for number in range(1, 5)]


def test_a_driver_that_starts_parks_the_game(far: World) -> None:
    """A foreign change is reported before the game's next row, and the decision outlives the driver."""
    table_of(far).optimize.compact()
    carried(far)
    assert decided(far.engine)[CHESS.key].parked_at is not None
    again = carried(far)
    assert again.streams[CHESS.key].lane == "QUARANTINED"
    assert not again.streams[CHESS.key].unreadable
    submit_retry(far.engine, CHESS.key, "ann")
    again.sync()
    again.sync()
    assert CHESS.key not in decided(far.engine) or decided(far.engine)[CHESS.key].parked_at is None
    far.ingest(good(4))
    far.split()
    assert far.rows()[-1] == (4, 0)


def test_a_failure_that_the_store_missed_is_recorded_later(far: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away when the game is parked does not let it go on when it is back."""
    roster = carried(far)
    table_of(far).optimize.compact()
    far.ingest(good(4))

    def away(*_: object) -> None:
        raise OperationalError("", None, Exception("away"))

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.data.streams.roster.record_failures", away)
        with pytest.raises(OperationalError):
            fail(far, roster)
    assert CHESS.key not in decided(far.engine)
    roster.sync()
    assert decided(far.engine)[CHESS.key].parked_at is not None
    assert roster.streams[CHESS.key].lane == "QUARANTINED"


FEATURES: dict[str, tuple[list[str], list[str]]] = {
    "deletionVectors": (["deletionVectors"], ["deletionVectors"]),
    "clustering": ([], ["clustering", "domainMetadata"]),
    "rowTracking": ([], ["rowTracking", "domainMetadata"]),
    "columnMapping": (["columnMapping"], ["columnMapping"]),
    "v2Checkpoint": (["v2Checkpoint"], ["v2Checkpoint"]),
    "inCommitTimestamp": ([], ["inCommitTimestamp"]),
    "typeWidening": (["typeWidening"], ["typeWidening"]),
    "checkpointProtection": ([], ["checkpointProtection"]),
    "catalogManaged": (["catalogManaged"], ["catalogManaged", "inCommitTimestamp"]),
    "aFeatureOfTomorrow": (["aFeatureOfTomorrow"], ["aFeatureOfTomorrow"]),
}
"""Features of readers and of writers, by the one that a refusal must name."""


def add_feature(table: Location, name: str, version: int) -> None:
    """Commit a protocol as a workspace writes it (delta-io/delta PROTOCOL.md, "Protocol Evolution")."""
    readers, writers = FEATURES[name]
    protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, "writerFeatures": writers}
    info = {
        "timestamp": 1_795_822_273_355,
        "userName": "ann@example.com",
        "operation": "SET TBLPROPERTIES",
        "engineInfo": "Databricks-Runtime/18.0.x",
    }
    actions = [{"commitInfo": info}, {"protocol": {**protocol, **({"readerFeatures": readers} if readers else {})}}]
    commit_file(table, version).put("\n".join(map(json.dumps, actions)).encode())


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_of_a_workspace_parks_its_game_alone(far: World, name: str) -> None:
    """The refusal names the feature, who added it and how to drop it, while a driver runs or starts."""
    carried(far)
    add_feature(far.paths.table(CHESS.key), name, 4)
    told = (
        rf"SET TBLPROPERTIES by Databricks-Runtime/18\.0\.x as ann@example\.com at 2026-11-27 23:31:13 UTC, "
        rf"changed the protocol \(.*{name}.*\)\..*DROP FEATURE .*{name}"
    )
    far.ingest(good(4), good(4, GO))
    for _ in range(2):
        with pytest.raises(ForeignChange, match=told):
            far.split()
        with pytest.raises(ForeignChange, match=told):
            far.streams[CHESS.key].accept_foreign()
    roster = roster_of(far.settings, far.paths, far.engine)
    evidence = decided(far.engine)[CHESS.key].evidence
    assert evidence is not None
    assert name in evidence
    assert list(roster.for_pass(0)) == [GO.key]
    retry(far, roster)
    assert parked(far)


def parked(world: World) -> bool:
    decision = decided(world.engine).get(CHESS.key)
    return decision is not None and decision.parked_at is not None


def retry(world: World, roster: Roster) -> None:
    """Let a person retry the game, and its driver notice it."""
    submit_retry(world.engine, CHESS.key, "ann")
    roster.sync()


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", ["append", "delete", "column"])
def test_a_retry_accepts_what_the_table_has_then_and_nothing_later(far: World, name: str) -> None:
    """Law L6: the acceptance ends with the retry, so a change days later parks a game without new rows once more."""
    table_of(far).optimize.compact()
    roster = carried(far)
    retry(far, roster)
    roster.sync()
    assert not parked(far)
    HARMFUL[name][0](table_of(far))
    far.ingest(good(4), good(4, GO))
    before = versions(far)
    with pytest.raises(ForeignChange, match=HARMFUL[name][1]) as refused:
        far.split()
    assert "OPTIMIZE" not in str(refused.value)
    assert versions(far) == before
    roster.settle({CHESS.key: failure_of(refused.value)}, [], 2)
    retry(far, roster)
    far.split()
    assert far.rows()[-1] == (4, 0)


@pytest.mark.proves("G237")
def test_a_change_at_the_moment_of_a_retry_is_not_accepted(far: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acceptance takes the version after those it has read: who commits first there parks the game again."""
    table_of(far).optimize.compact()
    roster = carried(far)
    act = [lambda: table_of(far).delete("_seq = 1")]

    def first(*args: Any, **more: Any) -> bool:
        while act:
            act.pop()()
        return publish_commit(*args, **more)

    monkeypatch.setattr("pipeline.lake.delta.table.publish_commit", first)
    retry(far, roster)
    assert parked(far)
    assert "DELETE" in str(decided(far.engine)[CHESS.key].evidence)


@pytest.mark.proves("G237")
def test_an_accepted_change_parks_no_game_at_a_later_start(far: World) -> None:
    """Law L6: the table's log keeps the decision, so a driver that starts before the next row goes on."""
    table_of(far).optimize.compact()
    retry(far, carried(far))
    for _ in range(2):
        carried(far)
        assert not parked(far)
    far.ingest(good(4))
    far.split()
    assert far.rows() == [(number, 0) for number in range(1, 5)]
    table_of(far).delete("_seq = 1")
    carried(far)
    assert parked(far)


def test_a_retry_waits_for_storage(far: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L6: where storage is away at the retry, the driver accepts when it is back, and no other game waits."""
    table_of(far).optimize.compact()
    roster = carried(far)

    def away(*_: object, **_more: object) -> None:
        raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.lake.delta.table.publish_commit", away)
        retry(far, roster)
    assert decided(far.engine)[CHESS.key].evidence == "OSError: away"
    assert not parked(far)
    assert list(roster.for_pass(0)) == [GO.key]
    roster.end_pass()
    with far.engine.begin() as connection:
        connection.execute(update(stream_control).values(retry_at=0.0))
    roster.sync()
    far.ingest(good(4))
    far.split()
    assert far.rows()[-1] == (4, 0)


def commented_often(world: World, times: int) -> None:
    for number in range(times):
        table_of(world).alter.set_table_description(f"night {number}")


@pytest.mark.proves("G237")
@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("place", ["near", "far"])
def test_a_change_is_found_below_many_harmless_ones(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str, idle: bool
) -> None:
    """Law L6: a driver that has followed nothing for long looks back to the last commit that was judged."""
    world: World = request.getfixturevalue(place)
    held = world.stream(CHESS).table
    table_of(world).delete("_seq = 1")
    commented_often(world, 25)
    world.ingest(good(4))
    if idle:
        assert isinstance(held, CursorTable)
        monkeypatch.setattr(held, "_seen_at", 0.0)
    else:
        world.streams.clear()
        carried(world)
        assert parked(world)
    with pytest.raises(ForeignChange, match="DELETE"):
        world.split()
    assert world.rows() == [(2, 0), (3, 0)]


@pytest.mark.proves("G237")
def test_many_changes_are_taken_back_to_before_the_first(near: World) -> None:
    """Law L5: who runs the RESTORE of the reason has all rows again, however many commits others made."""
    before = versions(near)
    for number in range(25):
        table_of(near).delete(f"_seq = {number % 3 + 1}") if number < 3 else commented_often(near, 1)
    near.streams.clear()
    near.ingest(good(4))
    with pytest.raises(ForeignChange, match=rf"VERSION AS OF {before} "):
        near.split()
    near.streams.clear()
    table_of(near).restore(before)
    near.stream(CHESS).accept_foreign()
    near.split()
    assert near.rows() == [(number, 0) for number in range(1, 5)]


@pytest.mark.proves("G237")
def test_where_enough_is_found_no_further_commit_is_read(near: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that ends early knows no version to go back to, so the reason names the rebuild alone."""
    monkeypatch.setattr("pipeline.lake.delta.foreign._ENOUGH", 2)
    commented_often(near, 3)
    for number in range(1, 4):
        table_of(near).delete(f"_seq = {number}")
    near.streams.clear()
    with pytest.raises(
        ForeignChange, match=r"DELETE.*To take it back run `turnout repair rebuild .*RESTORE loses"
    ) as why:
        near.stream(CHESS).table.require_own()  # type: ignore[union-attr]
    assert "RESTORE TABLE" not in str(why.value)


@pytest.mark.proves("G151", "G237")
def test_a_replay_lands_nothing_on_another_writers_change(near: World) -> None:
    """Law L5: rows leave quarantine with a replay, so a RESTORE to before the change would lose them."""
    near.ingest(early(4))
    near.split()
    table_of(near).delete("_seq = 1")
    near.register(message=SECOND)
    (done,) = replay_all(near.paths, near.environment, near.registry.snapshot, near.known(), Selection(), dry_run=False)
    assert "DELETE" in str(done.error)
    assert near.refused() == [(4, 0)]
    assert near.rows() == [(2, 0), (3, 0)]


@pytest.mark.proves("G237")
@pytest.mark.parametrize("running", [False, True])
def test_no_restore_is_advised_below_rows_of_ours(near: World, running: bool) -> None:
    """Law L5: a RESTORE takes back all commits above, so where one of ours added rows only a rebuild brings all."""
    path = near.paths.table(CHESS.key)
    held = near.stream(CHESS)
    table_of(near).delete("_seq = 1")
    repair = CursorTable.open(path, f"turnout/test/{CHESS.key}/repair")
    assert repair is not None
    repair.commit([write_file(_row(9), path)], None, 1)
    near.ingest(good(4))
    if not running:
        near.streams.clear()
    with pytest.raises(ForeignChange, match=r"DELETE.*turnout repair rebuild") as why:
        near.split()
    assert "RESTORE TABLE" not in str(why.value)
    assert held.cursor == 3


def _row(seq: int) -> pa.Table:
    return pa.table({"_seq": pa.array([seq], pa.int64()), "_pos": pa.array([0], pa.int32())})


EXPIRY = {"delta.setTransactionRetentionDuration": "interval 7 days"}


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose last commits are eight days old, and reported."""
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.lake.delta.table.time.time", lambda: now() - 8 * 86_400)
        made = filled(make_world(tmp_path))
    report(made, 3)
    return made


def report(world: World, cursor: int) -> None:
    start_driver(world.engine, "group", "a", None)
    state = StreamState(
        game_key=CHESS.key, group="a", lane=Lane.RUN, status="RUNNING", status_since=0.0, cursor_seq=cursor,
        last_commit_at=None, backlog_age_seconds=None, rows_per_second=None, latency_p95_seconds=None,
        rows_total=0, rejects_total=0, last_error=None, updated_at=0.0,
    )  # fmt: skip
    write_streams(world.engine, [state])


@pytest.mark.proves("G148", "G237")
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("starts", [False, True])
def test_a_table_whose_cursor_may_expire_parks_its_game(aged: World, starts: bool, dropped: bool) -> None:
    """Law L3: without its cursor a table's rows land again: no row lands until the property has gone.

    Where a checkpoint of another writer has dropped the cursor meanwhile, only a rebuild knows what is in the table.
    """
    table_of(aged).alter.set_table_properties(EXPIRY)
    aged.ingest(good(4))
    if starts:
        aged.streams.clear()
    with pytest.raises(ForeignChange, match=r"setTransactionRetentionDuration.*UNSET TBLPROPERTIES"):
        aged.split()
    roster = carried(aged)
    assert "UNSET TBLPROPERTIES" in str(decided(aged.engine)[CHESS.key].evidence)
    retry(aged, roster)
    assert parked(aged)
    if dropped:
        table_of(aged).create_checkpoint()
    change_metadata(aged, lambda _, properties: properties.pop(next(iter(EXPIRY))))
    retry(aged, roster)
    assert parked(aged) == dropped
    if dropped:
        assert "has lost turnout's cursor, which was seq 3" in str(decided(aged.engine)[CHESS.key].evidence)
        retry(aged, roster)
        assert parked(aged)
        rebuild(aged.paths, aged.environment, aged.engine, aged.registry.snapshot, CHESS)
        retry(aged, roster)
        assert not parked(aged)
    stream = roster.streams[CHESS.key]
    aged.streams[CHESS.key] = stream
    aged.ingest(good(5))
    aged.split()
    assert aged.rows() == [(number, 0) for number in range(1, 6)]


@pytest.mark.proves("G148", "G237")
def test_a_running_driver_notices_that_its_cursor_is_gone(aged: World) -> None:
    """Law L3: the property was set and taken back while the driver rested, and a checkpoint lacks the cursor."""
    table_of(aged).alter.set_table_properties(EXPIRY)
    table_of(aged).create_checkpoint()
    change_metadata(aged, lambda _, properties: properties.pop(next(iter(EXPIRY))))
    aged.ingest(good(4))
    for _ in range(2):
        with pytest.raises(ForeignChange, match=r"lost turnout's cursor, which was seq 3.*turnout repair rebuild"):
            aged.split()
    assert aged.rows() == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("note", ["repair", "gap/1/through"])
def test_a_repair_hides_no_foreign_commit_from_a_driver_that_starts(far: World, note: str) -> None:
    """A repair has not judged the commits before its own: a driver that starts looks behind it."""
    path = far.paths.table(CHESS.key)
    app = far.stream(CHESS).app_id
    table_of(far).delete("_seq = 1")
    repair = CursorTable.open(path, app if note.startswith("gap") else f"turnout/test/{CHESS.key}/repair")
    assert repair is not None
    repair.commit([], repair.cursor, 9, also={f"turnout/test/{CHESS.key}/{note}": 9} if note != "repair" else None)
    table = CursorTable.open(path, app, guarded=True)
    assert table is not None
    with pytest.raises(ForeignChange, match="DELETE"):
        table.require_own()


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_parks_a_game_that_gets_a_new_column(far: World, name: str) -> None:
    """A new schema version changes no column of a table with a feature of another writer: the game is parked first."""
    roster = carried(far)
    add_feature(far.paths.table(CHESS.key), name, 4)
    far.register(message=SECOND)
    far.ingest(early(4))
    with pytest.raises(ForeignChange, match=rf"SET TBLPROPERTIES by Databricks.*DROP FEATURE .*{name}") as refused:
        far.split()
    roster.settle({CHESS.key: failure_of(refused.value)}, [], 2)
    assert parked(far)
    assert max(listed_commits(far.paths.table(CHESS.key))) == 4


@pytest.mark.proves("G237")
def test_mapped_columns_park_a_game_that_gets_a_new_column(far: World) -> None:
    """A protocol of before features, with metadata in the same commit, is refused before delta-rs fails over it."""
    carried(far)

    def mapped(schema: Any, properties: dict[str, str]) -> None:
        for number, field in enumerate(schema["fields"], 1):
            field["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        properties["delta.columnMapping.mode"] = "name"

    change_metadata(far, mapped, {"minReaderVersion": 2, "minWriterVersion": 5})
    far.register(message=SECOND)
    far.ingest(early(4))
    with pytest.raises(ForeignChange, match=r"DROP FEATURE .*columnMapping"):
        far.split()
    assert versions(far) == 4


@pytest.mark.proves("G237")
@pytest.mark.parametrize("name", ["delete", "column"])
def test_a_change_parks_a_game_that_gets_a_new_column(far: World, name: str) -> None:
    """No column of ours lands on top of a foreign commit that the driver could have read before."""
    carried(far)
    act, told = HARMFUL[name]
    act(table_of(far))
    far.register(message=SECOND)
    far.ingest(early(4))
    with pytest.raises(ForeignChange, match=told):
        far.split()
    assert versions(far) == 4


@pytest.mark.parametrize("name", HARMFUL)
def test_a_change_while_columns_are_added_parks_the_game(
    far: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No row lands where another writer commits between the judgement and the new column, whoever is first."""
    carried(far)
    far.register(message=SECOND)
    far.ingest(early(4))
    acts = [HARMFUL[name][0]]

    def on_hit(point: str) -> None:
        if point == "before_add_columns" and acts:
            acts.pop()(table_of(far))

    monkeypatch.setattr(failpoints, "on_hit", on_hit)
    with pytest.raises(ForeignChange, match=HARMFUL[name][1]):
        far.split()
    assert acts == []
    assert table_of(far).transaction_version(far.streams[CHESS.key].app_id) == 3


def change_metadata(
    world: World, change: Callable[[Any, dict[str, str]], object], protocol: Action | None = None
) -> None:
    """Commit a table's metadata as a workspace writes it, with `change` of its schema and properties."""
    table = table_of(world)
    held, schema = table.metadata(), json.loads(table.schema().to_json())
    properties = dict(held.configuration)
    change(schema, properties)
    metadata = {
        "id": str(held.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": held.partition_columns,
        "configuration": properties,
        "createdTime": 1,
    }
    info = {"operation": "CHANGE COLUMN", "engineInfo": "Databricks-Runtime/18.0.x"}
    actions: list[Action] = [{"commitInfo": info}, {"metaData": metadata}]
    actions += [] if protocol is None else [{"protocol": protocol}]
    path = world.paths.table(CHESS.key)
    commit_file(path, table.version() + 1).put("\n".join(map(json.dumps, actions)).encode())


def commented(schema: Any, _properties: dict[str, str]) -> None:
    schema["fields"][-1]["metadata"]["comment"] = "points of a player"


def required(schema: Any, _properties: dict[str, str]) -> None:
    schema["fields"][0]["nullable"] = False


def generated(schema: Any, _properties: dict[str, str]) -> None:
    schema["fields"][-1]["metadata"] |= {"comment": "x", "delta.generationExpression": "_seq"}


def test_a_comment_of_a_column_is_logged(far: World, caplog: pytest.LogCaptureFixture) -> None:
    """A comment in a column's metadata changes no row, so the game goes on and a line names it."""
    carried(far)
    change_metadata(far, commented)
    far.ingest(good(4))
    with caplog.at_level(logging.WARNING, "turnout"):
        far.split()
    assert far.rows()[-1] == (4, 0)
    assert [each.getMessage() for each in caplog.records if "CHANGE COLUMN" in each.getMessage()] != []


@pytest.mark.parametrize("change", [required, generated])
def test_other_changes_of_a_column_park_the_game(far: World, change: Callable[[Any, dict[str, str]], object]) -> None:
    """What a column requires or computes is part of the schema, with or without a comment."""
    carried(far)
    change_metadata(far, change)
    far.ingest(good(4))
    with pytest.raises(ForeignChange, match="changed the schema"):
        far.split()


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Proxy, str]]:
    with bucket() as url, proxied(os.environ["AWS_ENDPOINT_URL"]) as between:
        yield between, url


def test_a_commit_costs_no_further_request(counted: tuple[Proxy, str]) -> None:
    """Three requests for a commit, as for a table that nobody guards; an opening costs one more."""
    between, url = counted
    columns = pa.schema([("_seq", pa.int64())])
    seen = {}
    for guarded in (False, True):
        path = located(f"{url}/{guarded}")
        table = CursorTable.create(path, columns, "turnout/prod/a/1", 1000, guarded=guarded)
        files = [write_file(pa.table({"_seq": [number]}), path) for number in range(10)]
        table.commit(files[:1], None, 1)
        start = between.seen.total()
        for number, file in enumerate(files[1:], 2):
            table.commit([file], number - 1, number)
        committed = between.seen.total()
        CursorTable.open(path, "turnout/prod/a/1", guarded=guarded)
        seen[guarded] = (committed - start, between.seen.total() - committed)
    assert seen[True][0] == seen[False][0]
    assert seen[True][1] <= seen[False][1] + 1


@pytest.mark.parametrize(
    "info",
    [
        {"operation": "WRITE\n\x1b[2J" + "x" * 500, "engineInfo": 7, "userName": ["a"], "timestamp": "soon"},
        {"timestamp": 10**30},
        "text",
        {},
    ],
)
def test_the_words_of_another_writer_are_cut_and_on_one_line(info: object) -> None:
    """Texts of a foreign commit reach pages and logs: no control character, no long text, no exception."""
    found = foreign_commit(3, [{"commitInfo": info}, {"add": {"path": "x"}}], lambda: None)
    assert found is not None
    assert str(found).isprintable()
    assert len(str(found)) < 250
