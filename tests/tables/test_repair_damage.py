"""Repairs on damaged tables: one sentence that says what to do, and the other games are done."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext as Control
from pipeline.control.operations.executor import tick
from pipeline.store.operations import list_operations
from tests.tables.repair_world import CHESS, GO, SECOND, World, early, good, make_world

Damage = Callable[[Path], None]


def cut_log(folder: Path) -> None:
    """Cut a table's newest commit; a checkpoint of it, which some paths get at this version, would stand in for it."""
    log = folder / "_delta_log"
    newest = max(log.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:30])
    for checkpoint in log.glob(f"{newest.stem}.checkpoint*"):
        checkpoint.unlink()
        (log / "_last_checkpoint").unlink()


def cut_files(folder: Path) -> None:
    """Cut a table's data files."""
    for file in folder.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:30])


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Chess and Go, each with a landed row and a quarantined row that waits for its schema."""
    made = make_world(tmp_path)
    made.register(GO)
    made.ingest(good(1), early(2), good(1, GO), early(2, GO))
    made.split()
    made.split(GO)
    return made


def turnout(world: World, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)])


@pytest.mark.parametrize(
    ("damage", "remedy"), [(cut_log, "Repair its Delta log"), (cut_files, "turnout repair rebuild")]
)
@pytest.mark.parametrize(
    "arguments", [("repair", "actions", "Chess", "--json"), ("quarantine", "list"), ("quarantine", "show")], ids=str
)
def test_a_damaged_table_of_a_game_is_one_sentence(
    world: World, arguments: tuple[str, ...], damage: Damage, remedy: str
) -> None:
    """Readers of refused rows beside a game's table name the damaged table and the fix, without a stack."""
    damage(Path(world.paths.table(CHESS.key)))
    done = turnout(world, *arguments)
    assert isinstance(done.exception, Refused)
    assert (done.stdout, str(done.exception).count("\n")) == ("", 0)
    assert CHESS.key in str(done.exception)
    assert remedy in str(done.exception)


@pytest.mark.parametrize(
    ("damage", "remedy"), [(cut_log, "Repair its Delta log"), (cut_files, "Restore its damaged file")]
)
@pytest.mark.parametrize(
    "arguments",
    [("repair", "actions", "Chess"), ("repair", "replay", "--dry-run"), ("quarantine", "list"), ("quarantine", "show")],
    ids=str,
)
def test_a_damaged_quarantine_is_one_sentence(
    world: World, arguments: tuple[str, ...], damage: Damage, remedy: str
) -> None:
    """Every command that reads quarantine says that it is damaged and what to do, and prints no stack."""
    damage(Path(world.paths.quarantine))
    done = turnout(world, *arguments)
    assert isinstance(done.exception, Refused)
    assert (done.stdout, str(done.exception).count("\n")) == ("", 0)
    assert "Quarantine cannot be" in str(done.exception)
    assert remedy in str(done.exception)


@pytest.mark.parametrize("kind", ["replay", "rebuild"])
def test_a_damaged_file_of_one_game_keeps_no_other_from_its_repair(world: World, kind: str) -> None:
    """The command or the operation names the unreadable table, and the other is repaired."""
    world.register(message=SECOND)
    world.register(GO, SECOND)
    cut_files(Path(world.paths.table(CHESS.key)))
    if kind == "rebuild":
        cut_files(Path(world.paths.bronze))
        world.ingest(good(3, GO))
    games = ("Chess", GO.key)
    submitted = turnout(world, "repair", kind, *games, "--reason", "damaged", "--no-wait")
    is_seen_first = kind == "replay"  # bronze is read when it is rebuilt
    assert submitted.exit_code == is_seen_first, submitted.output
    control = Control(world.settings, world.engine, world.paths)
    for _ in range(8):
        tick(control, KINDS)
        for begun in list(control.background_tasks._begun.values()):
            begun.exception()
    (done,) = list_operations(world.engine)
    assert done.state == ("succeeded" if is_seen_first else "failed"), done.outcome
    named = (
        next(line for line in submitted.output.splitlines() if "left out" in line) if is_seen_first else done.outcome
    )
    assert CHESS.key in str(named)
    if kind == "replay":
        assert world.rows(GO) == [(1, 2), (1, 3)]
