"""Schema sets with foreign writers and profiles: one sequence of numbers, and nothing changes under a number."""

import pickle
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline.base.names import game_key
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registry import LocalRegistry, number_of_profile
from pipeline.data.contracts.schemas import Writer
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, writing
from pipeline.store.writers import WriterRow, lock, write_writers
from tests.lakebase import store_url
from tests.unit.data.contracts.definition_world import bundle, define

SEVEN, EIGHT = b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08"
REFUSED = "The registry main has no such schema."
M = bundle(define({"M": {"a": (1, "int32")}}))
N = bundle(define({"M": {"b": (1, "string")}}))


def write(engine: Engine, *rows: WriterRow) -> None:
    with writing(engine) as connection:
        lock(connection)
        write_writers(connection, rows, 1.0)


def test_one_sequence_numbers_registrations_writers_and_profiles(engine: Engine) -> None:
    """Law L13: one number names all that a pass pins, so each new row of the three makes a set of its own."""
    registry = LocalRegistry(engine)
    assert registry.latest_version() == 0
    schema_id = registry.register("chess", "t.M", M).schema_id
    write(engine, WriterRow("main", SEVEN, schema_id, fingerprint="f"), WriterRow("main", EIGHT, refused=REFUSED))
    profile = SourceProfile(framing="confluent", registry="main", definition=b"\x00\xff", fields=(("game", "a.b"),))
    assert number_of_profile(engine, profile) == 4
    registry.register("go", "t.M", M)
    assert number_of_profile(engine, profile) == 4
    assert registry.latest_version() == 5
    schemas = registry.snapshot()
    assert schemas.version == 5
    assert schemas.profiles == {4: profile}
    assert schemas.writers == {("main", SEVEN): Writer(schema_id), ("main", EIGHT): Writer(refused=REFUSED)}
    assert set(schemas.games) == {game_key("chess"), game_key("go")}
    assert pickle.loads(pickle.dumps(schemas)) == schemas


def test_a_set_is_a_pure_function_of_its_version(engine: Engine) -> None:
    """Law L13: a set that was pinned is the same whatever was written later, and however it is read."""
    growing, seen = LocalRegistry(engine), []

    def step() -> None:
        seen.append(growing.snapshot())

    first = growing.register("chess", "t.M", M).schema_id
    step()
    write(engine, WriterRow("main", SEVEN, refused=REFUSED), WriterRow("main.2", SEVEN, indexed=True))
    step()
    write(engine, WriterRow("main", SEVEN, first, fingerprint="f"))
    step()
    growing.register("go", "t.M", N)
    growing.register("chess", "t.M", bundle(define({"M": {"a": (1, "int32"), "c": (3, "string")}})))
    step()
    assert [each.writers.get(("main", SEVEN)) for each in seen] == [
        None, Writer(refused=REFUSED), Writer(first), Writer(first),
    ]  # fmt: skip
    assert [each.version for each in seen] == [1, 3, 4, 6]
    for each in seen:
        assert LocalRegistry(engine).snapshot(each.version) == each
        assert growing.snapshot(each.version) == each
    assert growing.snapshot(2).writers == {("main", SEVEN): Writer(refused=REFUSED)}


def test_no_number_is_taken_twice(engine: Engine, tmp_path: Path) -> None:
    """Law L13: a registration and a writer that are written at once get two numbers, or a pinned set would grow."""
    environ = {"TURNOUT_STORE__URL": store_url(engine)}
    others = [open_store(*load(tmp_path / str(number), environ)) for number in range(2)]
    gate = threading.Barrier(2)

    def register() -> None:
        gate.wait()
        for number in range(10):
            LocalRegistry(others[0]).register(f"game {number}", "t.M", M)

    def answer() -> None:
        gate.wait()
        for number in range(10):
            write(others[1], WriterRow("main", bytes([0, 0, 0, 0, number]), refused=REFUSED))

    threads = [threading.Thread(target=each) for each in (register, answer)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for other in others:
        other.dispose()
    with engine.connect() as connection:
        query = "SELECT registration_id FROM registrations UNION ALL SELECT number FROM writers ORDER BY 1"
        assert [number for (number,) in connection.execute(text(query))] == list(range(1, 21))


def test_a_task_gets_only_what_decides_about_its_games(engine: Engine) -> None:
    """Law L13: a part of a set decides as the whole does, but for writers whose schema its games lack: they wait."""
    registry = LocalRegistry(engine)
    one, two = (registry.register(*each).schema_id for each in (("chess", "t.M", M), ("go", "t.M", N)))
    write(
        engine,
        WriterRow("main", SEVEN, one),
        WriterRow("main", EIGHT, two),
        WriterRow("main", b"\x00\x00\x00\x00\x09", indexed=True),
        WriterRow("main", b"\x00\x00\x00\x00\x0a", refused=REFUSED),
    )
    whole, key = registry.snapshot(), game_key("chess")
    part = whole.only([key, game_key("nobody")])
    assert part.version == whole.version
    assert part.of(key) == whole.of(key)
    assert set(part.games) == {key}
    assert set(part.schemas) == {one}
    assert whole.writers.keys() - part.writers.keys() == {("main", EIGHT)}


def test_many_writers_are_read_once_and_are_small(engine: Engine) -> None:
    """A set of many writers costs its task few bytes for each, and a newer set reads only what is new."""
    registry = LocalRegistry(engine)
    schema_id = registry.register("chess", "t.M", M).schema_id
    rows = [
        WriterRow("main", b"\x00" + number.to_bytes(4, "big"), schema_id, fingerprint="f") for number in range(5000)
    ]
    write(engine, *rows)
    before = registry.snapshot()
    write(engine, WriterRow("main", b"\x00\xff\xff\xff\xff", schema_id, fingerprint="f"))
    after = registry.snapshot()
    assert len(after.writers) == len(before.writers) + 1 == 5001
    assert len(pickle.dumps(after)) < 30 * 5001


def test_a_restored_older_copy_is_read_again_from_its_beginning(engine: Engine) -> None:
    """A number that an older copy of the store gives away again means what that copy says."""
    registry = LocalRegistry(engine)
    registry.register("chess", "t.M", M)
    write(engine, WriterRow("main", SEVEN, refused=REFUSED), WriterRow("main", EIGHT, refused=REFUSED))
    assert len(registry.snapshot().writers) == 2
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM writers"))
    assert registry.snapshot().writers == {}
    write(engine, *(WriterRow("main.2", bytes([0, 0, 0, 0, number]), refused=REFUSED) for number in range(3)))
    assert {registry for registry, _ in registry.snapshot().writers} == {"main.2"}


@pytest.mark.parametrize("wrong", ["NULL, NULL, 0", "1, 'why', 0", "1, NULL, 1", "NULL, 'why', 1", "1, 'why', 2"])
def test_a_writer_means_one_thing(engine: Engine, wrong: str) -> None:
    """A row that says two things, or nothing, would be read as whatever its reader asks first."""
    LocalRegistry(engine).register("chess", "t.M", M)
    query = "INSERT INTO writers (number, registry, writer, schema_id, refused, indexed, created_at) VALUES "
    blob = "'\\x00'::bytea" if engine.dialect.name == "postgresql" else "X'00'"
    with engine.begin() as connection, pytest.raises(DBAPIError, match="ck_writers_indexed"):
        connection.exec_driver_sql(f"{query} (9, 'main', {blob}, {wrong}, 1.0)")
