"""A rebuild makes a table again whose Delta log is damaged, exactly once and whatever happens to the damaged part."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.base.errors import Refused
from pipeline.base.names import repair_app_id, stream_app_id
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext as Control
from pipeline.control.operations.executor import tick
from pipeline.data.maintenance.removals import since_last_look
from pipeline.data.repair import damaged_log
from pipeline.data.repair import rebuild as rebuilds
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import GenerationConflict, Rebuilt, rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.lake.delta import generation
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.store.games import generations, record_generation
from pipeline.store.operations import list_operations
from tests.tables.repair_world import CHESS, SECOND, Event, Message, World, broken, copied, early, good, make_world

Damage = Callable[[Path], None]
COMMITS = 13
_ALL = Selection()


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Chess has rows in many commits, two refused rows, and a checkpoint in the middle of its log."""
    made = make_world(tmp_path_factory.mktemp("damaged"))
    made.ingest(good(100), broken(), early(100))
    made.split()
    for number in range(1, COMMITS):
        made.ingest(good(number))
        made.split()
    return made


@pytest.fixture
def world(made_once: World, tmp_path: Path) -> World:
    return copied(made_once, tmp_path)


def folder(world: World) -> Path:
    return Path(world.paths.table(CHESS.key))


def run(world: World, replaces: int | None = None) -> Rebuilt:
    return rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS, replaces)


def log_files(path: Path, pattern: str) -> list[Path]:
    return sorted((path / "_delta_log").glob(pattern))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:30])


def without_checkpoints(path: Path) -> None:
    for file in log_files(path, "*checkpoint*"):
        file.unlink()


def cut_newest(path: Path) -> None:
    without_checkpoints(path)
    cut(log_files(path, "*.json")[-1])


def cut_middle(path: Path) -> None:
    without_checkpoints(path)
    cut(log_files(path, "*.json")[5])


def cut_first(path: Path) -> None:
    without_checkpoints(path)
    cut(log_files(path, "*.json")[0])


def lose_middle(path: Path) -> None:
    without_checkpoints(path)
    log_files(path, "*.json")[5].unlink()


def garble(path: Path) -> None:
    without_checkpoints(path)
    log_files(path, "*.json")[5].write_text('5\n{"txn":7}\n', "utf-8")


def cut_checkpoint(path: Path) -> None:
    for file in log_files(path, "*.checkpoint.parquet"):
        cut(file)


def flip_checkpoint(path: Path) -> None:
    """Damage a page, of which Arrow says OSError."""
    for file in log_files(path, "*.checkpoint.parquet"):
        flip(file, 200)


def lose_checkpoint(path: Path) -> None:
    """Readers are sent to a checkpoint that is gone, although all commits are there."""
    for file in log_files(path, "*.checkpoint.parquet"):
        file.unlink()


def lose_newest(path: Path) -> None:
    """As after a partial restore: readers are sent beyond the end of the log, and one commit is cut."""
    cut_middle(path)
    (path / "_delta_log" / "_last_checkpoint").write_text('{"version":21,"size":5}', "utf-8")


def empty_first(path: Path) -> None:
    """The remains of a commit after a power failure."""
    without_checkpoints(path)
    log_files(path, "*.json")[0].write_bytes(b"")


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at : at + 8] = bytes(each ^ 0x5A for each in content[at : at + 8])
    file.write_bytes(content)


DAMAGES = [cut_newest, cut_middle, cut_first, lose_middle, garble, cut_checkpoint]
DAMAGES += [flip_checkpoint, lose_checkpoint, lose_newest, empty_first]
FEW = (cut_first, flip_checkpoint, lose_newest)
FEW_OF_DAMAGES = [each if each in FEW else pytest.param(each, marks=pytest.mark.long) for each in DAMAGES]
"""One of each file of a log; the long part has all of them."""


@pytest.mark.parametrize("damage", FEW_OF_DAMAGES)
@pytest.mark.proves("G155")
def test_a_rebuild_replaces_a_table_whose_log_is_damaged(world: World, damage: Damage) -> None:
    """Laws L5 and L12: it has every row once, the next generation, its id, and goes on; no file of before is lost."""
    rows, before = world.contents(), DeltaTable(folder(world))
    kept = {file: file.read_bytes() for file in folder(world).glob("*.parquet")}
    damage(folder(world))
    with pytest.raises(DeltaError):
        DeltaTable(folder(world))
    log = {file: file.read_bytes() for file in log_files(folder(world), "*.json")}
    done = run(world)
    after = DeltaTable(folder(world))
    assert (done.generation, done.cursor, done.rows, done.refused) == (2, COMMITS, COMMITS, 2)
    assert world.contents() == rows
    assert after.version() > before.version()
    if damage not in {cut_first, empty_first}:
        assert (after.metadata().id, after.metadata().created_time) == (
            before.metadata().id,
            before.metadata().created_time,
        )
    assert generations(world.engine)[CHESS.key] == 2
    assert all(file.read_bytes() == content for file, content in [*kept.items(), *log.items()])
    world.streams.clear()
    world.checkpoint_interval = 3  # one comes while it goes on
    for number in range(COMMITS, COMMITS + 4):
        world.ingest(good(number))
        world.split()
    assert len(world.rows()) == COMMITS + 4
    assert world.verify().ok
    assert run(world).generation == 3
    assert world.verify().ok


def test_whatever_bytes_of_a_checkpoint_are_damaged_it_is_seen(world: World) -> None:
    """Law L6: a table that does not open is either intact on storage or replaceable by a rebuild."""
    *_, checkpoint = log_files(folder(world), "*.checkpoint.parquet")  # where the table is decides how many there are
    whole, shut = checkpoint.read_bytes(), 0
    for at in range(0, len(whole) - 8, 97):
        flip(checkpoint, at)
        with contextlib.suppress(DeltaError):
            open_table(located(folder(world)))
            checkpoint.write_bytes(whole)
            continue
        shut += 1
        assert damaged_log.read(located(folder(world)), CHESS.key, DeltaError("shut")).damage, at
        checkpoint.write_bytes(whole)
    assert shut > len(whole) / 97 / 2


def test_storage_that_refuses_a_part_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of storage is not damage: nothing is replaced."""
    cut_middle(folder(world))

    def out_of_order(*_arguments: object, **_options: object) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Location, "read", out_of_order)
    with pytest.raises(Refused, match="Input/output error"):
        run(world)


@pytest.mark.parametrize("damage", FEW_OF_DAMAGES)
@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.proves("G155")
def test_one_that_is_killed_before_its_checkpoint_is_ended_by_the_next(
    world: World, damage: Damage, mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L5: also where the damaged part is put back meanwhile, no old row stands beside a new one."""
    rows, backup = world.contents(), world.paths.root / "backup"
    shutil.copytree(folder(world) / "_delta_log", backup)
    damage(folder(world))

    def dying(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(damaged_log, "write_checkpoint", dying)
        with pytest.raises(KeyboardInterrupt):
            run(world, 1)
    if mended:
        shutil.copytree(backup, folder(world) / "_delta_log", dirs_exist_ok=True)
    found = sorted(each.name for each in log_files(folder(world), "*"))
    with pytest.raises(Refused, match="environment"):
        rebuild(world.paths, "wrong", world.engine, world.registry.snapshot, CHESS, 1)
    assert found == sorted(each.name for each in log_files(folder(world), "*")), "under another name nothing is written"
    with pytest.raises(GenerationConflict):
        run(world, 1)  # as the controller begins it again
    assert world.contents() == rows
    record_generation(world.engine, CHESS.key, 2)
    world.streams.clear()
    world.checkpoint_interval = 1  # at once: it meets what is left of the damage
    world.ingest(good(99))
    world.split()
    assert len(world.rows()) == len(rows) + 1
    assert world.verify().ok


@pytest.mark.parametrize("damage", FEW_OF_DAMAGES)
@pytest.mark.proves("G155")
def test_what_was_begun_on_the_table_of_before_adds_nothing(world: World, damage: Damage) -> None:
    """Laws L4 and L12: an owner and a repair that hold it in memory find another cursor and count of repairs."""
    world.ingest(good(COMMITS))
    world.split()  # by an owner that has its cursor in memory
    owner, cursor = world.stream(CHESS), world.seq
    late = write_file(DeltaTable(folder(world)).to_pyarrow_table().slice(0, 1), located(folder(world)), ["_seq"])
    app = repair_app_id(world.environment, CHESS.key)
    repairing = CursorTable.open(located(folder(world)), app)
    assert repairing is not None
    seen = repairing.cursor
    damage(folder(world))
    assert run(world).cursor == cursor
    assert owner.table is not None
    with pytest.raises(TableConflict):
        owner.table.commit([late], cursor, cursor + 1)
    assert owner.table.cursor == generation.RETIRED
    with pytest.raises((TableConflict, DeltaError)):  # what it has in memory may be read from the log only now
        repairing.commit([late], seen, (seen or 0) + 1)
    assert world.verify().ok


@pytest.mark.proves("G155")
def test_rows_that_a_stream_lands_meanwhile_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L12: a driver that has the table in memory goes on with it, and the rebuild reads on."""
    world.ingest(good(COMMITS))
    world.split()  # its cursor is in memory
    cut_middle(folder(world))
    monkeypatch.setattr(
        CursorTable, "_checkpoint_when_due", lambda _: None
    )  # due by the table's id; it meets the damage
    publish = damaged_log.publish

    def late(*arguments: object) -> bool:
        monkeypatch.setattr(damaged_log, "publish", publish)
        world.ingest(good(99))
        world.split()
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(damaged_log, "publish", late)
    done = run(world)
    assert (done.cursor, done.rows) == (COMMITS + 2, COMMITS + 2)
    assert world.verify().ok


def test_rows_of_a_schema_that_is_registered_meanwhile_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L15: also a table that nobody can open loses no row that its driver has landed with a newer schema."""
    world.register(message=SECOND)
    player = Message({"player": (2, "string")})  # no further column: the driver cannot add one to a damaged log
    world.ingest(early(COMMITS))
    world.split()  # its cursor is in memory
    cut_middle(folder(world))
    monkeypatch.setattr(CursorTable, "_checkpoint_when_due", lambda _: None)

    def meanwhile(_point: str) -> None:
        monkeypatch.setattr(rebuilds, "hit", lambda _point: None)
        world.ingest(Event(CHESS, world.register(message=player), player.payload(player="ann")))
        world.split()

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    done = run(world)
    assert (done.cursor, done.rows, done.refused) == (COMMITS + 2, COMMITS + 3, 1)
    assert world.contents()[-1]["player"] == "ann"
    assert world.verify().ok


@pytest.mark.proves("G155")
def test_a_switch_that_the_damage_hides_is_not_made_twice(world: World) -> None:
    """Law L12: the new generation is above all in the log and the control store, and retires them."""
    assert run(world).generation == 2
    cut_newest(folder(world))
    assert run(world, 1).generation == 3
    table = DeltaTable(folder(world))
    apps = [stream_app_id(world.environment, CHESS.key, number) for number in (1, 2, 3)]
    assert [table.transaction_version(app) for app in apps] == [generation.RETIRED, generation.RETIRED, COMMITS]
    assert world.verify().ok


def test_refused_rows_that_decode_now_land_and_leave_quarantine(world: World) -> None:
    """Law L5: such a rebuild and what follows it treat quarantine as any other does."""
    world.register(message=SECOND)
    cut_middle(folder(world))
    done = run(world)
    assert (done.rows, done.refused, done.removed) == (COMMITS + 1, 1, 1)
    assert world.verify().ok


def test_a_log_without_damage_is_not_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that storage does not give now, or that is no folder, is refused, and nothing is changed."""

    def out_of_order(*_arguments: object, **_options: object) -> str:
        raise OSError(5, "Input/output error")

    log = folder(world) / "_delta_log"
    hidden = log.with_name("hidden")
    with pytest.raises(Refused, match="cannot be opened: the storage is away"):
        damaged_log.read(located(folder(world)), CHESS.key, DeltaError("the storage is away"))
    cut_middle(folder(world))
    with monkeypatch.context() as patched:
        patched.setattr(Location, "read", out_of_order)
        with pytest.raises(Refused, match=r"cannot be opened: .*Input/output error"):
            damaged_log.read(located(folder(world)), CHESS.key, DeltaError("damaged"))
    log.rename(hidden)
    log.write_text("no log", "utf-8")
    with pytest.raises(Refused, match=r"cannot be opened|no table yet"):
        run(world)
    assert log.read_text("utf-8") == "no log"
    folder(world).rename(folder(world).with_suffix(".before"))
    folder(world).write_text("no table", "utf-8")
    with pytest.raises(Refused, match="Move it away"):
        run(world)


def test_a_table_with_features_is_not_replaced(world: World) -> None:
    """A table that only Spark can write does not pass for a plain one: the error names the damaged file."""
    without_checkpoints(folder(world))
    DeltaTable(folder(world)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    cut(log_files(folder(world), "*.json")[5])
    with pytest.raises(Refused, match=r"features .* Put 00000000000000000005\.json back"):
        run(world)


def test_maintenance_of_a_log_that_begins_anew_finds_no_damage(world: World) -> None:
    """Files that left the table before the damage count as having left now: they are kept for the retention."""
    cut_middle(folder(world))
    run(world)
    assert since_last_look(located(folder(world)), DeltaTable(folder(world))) is None


def test_the_command_replaces_it_and_the_operation_is_done(world: World) -> None:
    """Asked for as any other rebuild, it is planned, done and seen to be done."""
    cut_newest(folder(world))
    env_dir = os.fspath(world.paths.root)
    refused = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--env-dir", env_dir])
    assert f"`turnout repair rebuild {CHESS.key}`" in str(refused.exception)
    submitted = CliRunner().invoke(
        cli, ["repair", "rebuild", "Chess", "--reason", "r", "--no-wait", "--env-dir", env_dir]
    )
    assert submitted.exit_code == 0, submitted.output
    control = Control(world.settings, world.engine, world.paths)
    for _ in range(8):
        tick(control, KINDS)
        for begun in list(control.background_tasks._begun.values()):
            begun.exception()
    (done,) = list_operations(world.engine)
    assert done.state == "succeeded", done.outcome
    assert len(world.rows()) == COMMITS
    replay_all(world.paths, world.environment, world.registry.snapshot, world.known(), _ALL, dry_run=False)
    assert world.verify().ok
