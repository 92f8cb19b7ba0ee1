"""Values that a hand has put into the control store: of the type of their column, and still no date and no text."""

from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from app import formatting
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.group_changes import describe
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.proposals import PlacementView
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.errors import Refused
from pipeline.names import game_key
from pipeline.settings import load
from pipeline.store.assignments import UnknownGameError, read_assignments
from pipeline.store.drivers import start_driver
from pipeline.store.engine import open_store, require_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.groups import Group, read_groups
from pipeline.store.loads import read_loads
from pipeline.store.operations import Intent, Operation, ask, begin_step

LATIN: Final = "CAST(X'4dfc' AS TEXT)"  # "Mü" as a terminal with Latin-1 writes it
TEXTS: Final = (
    "operations.reason", "operations.outcome", "operation_steps.detail", "groups.spark_master", "drivers.error",
    "games.game", "audit.actor",
)  # fmt: skip
TIMES: Final = ("operations.requested_at", "operation_steps.started_at", "games.discovered_at")


def turnout(env_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--env-dir", str(env_dir)])


def filled(env_dir: Path) -> tuple[Engine, Operation]:
    """Return a control store with a group, its driver, a game and an operation that has begun."""
    engine = open_store(*load(env_dir, {}))
    register_group(engine, "a")
    start_driver(engine, "group", "a", None)
    record_seen(engine, {game_key("Go"): "Go"}, 1)
    asked = ask(engine, Intent("pause", (f"game:{game_key('Go')}",), "ann", "r"))
    begin_step(engine, asked, "try 1", "")
    return engine, asked


def edit(engine: Engine, column: str, value: str) -> None:
    table, _, name = column.partition(".")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET {name} = {value}")


@pytest.mark.parametrize("at", [1e300, 1e12, -1e300])
def test_a_number_that_is_in_no_year_is_no_date(tmp_path: Path, at: float) -> None:
    """The lists go on and say so, and the operation waits for a person."""
    engine, asked = filled(tmp_path)
    for column in TIMES:
        edit(engine, column, repr(at))
    for words in (("ops", "list"), ("ops", "show", asked.operation_id), ("games", "list")):
        done = turnout(tmp_path, *words)
        assert done.exit_code == 0, (words, done.exception)
    assert "Its row in the control store makes no sense" in turnout(tmp_path, "ops", "show", asked.operation_id).output
    assert formatting.moment(at) == formatting.clock(at) == "no date"


@pytest.mark.parametrize("column", TEXTS)
def test_a_text_that_is_no_utf_8_stops_nothing(tmp_path: Path, column: str) -> None:
    """sqlite3 fails of it as of a store that is away, and all supervision, `status` and `ops list` would wait."""
    engine, _ = filled(tmp_path)
    edit(engine, column, LATIN)
    settings, paths = load(tmp_path, {})
    tick(ControlContext(settings, engine, paths), KINDS)
    Supervisor(engine, {}, lambda _: None).tick()
    for words in (("ops", "list"), ("groups", "list"), ("games", "list"), ("status",), ("audit", "list")):
        done = turnout(tmp_path, *words)
        assert done.exit_code in ({0, 1} if words == ("status",) else {0}), (words, done.exception)
    if column == "audit.actor":
        assert "NOT intact" in turnout(tmp_path, "audit", "verify").output


@pytest.mark.parametrize("column", ["actor", "kind", "reason", "outcome", "preview_hash", "stuck_since", "undoes"])
def test_an_operation_with_bytes_in_a_column_of_its_row_can_be_closed(tmp_path: Path, column: str) -> None:
    """It cannot be carried out, so a person must be able to end it: its targets are free then, and the log whole."""
    engine, asked = filled(tmp_path)
    edit(engine, f"operations.{column}", "X'00FF'")
    settings, paths = load(tmp_path, {})
    tick(ControlContext(settings, engine, paths), KINDS)
    assert "needs_human" in turnout(tmp_path, "ops", "show", asked.operation_id).output
    closed = turnout(tmp_path, "ops", "close", asked.operation_id[:8], "--reason", "its row was edited")
    assert closed.exit_code == 0, (closed.output, closed.exception)
    assert turnout(tmp_path, "audit", "verify").exit_code == 0
    again = ask(engine, Intent("pause", (f"game:{game_key('Go')}",), "ann", "r"))
    assert again.operation_id != asked.operation_id


def test_nothing_is_done_to_a_game_whose_row_is_spoilt_and_its_group_is_not_drained(tmp_path: Path) -> None:
    """Steps and plans say what is wrong; a group is never drained with a game in it that the preview does not name."""
    engine, _ = filled(tmp_path)
    edit(engine, "games.epoch", "'x'")
    with pytest.raises(UnknownGameError, match="epoch 'x'"):
        read_assignments(engine)[game_key("Go")]
    settings, _ = load(tmp_path, {})
    with pytest.raises(Refused, match="cannot be drained while it is not known where game"):
        PlacementView(settings, engine).drain("a", "ann")


@pytest.mark.parametrize("version", [(1 << 63) - 1, 1e300, "purple"])
def test_a_group_whose_version_cannot_grow_is_left_alone_and_named(version: Any) -> None:
    """A change is a compare-and-set on it: one more than 1e300 is the same, and than the largest number an error."""
    defect = Group("a", version=version).defect
    assert defect is not None
    assert "version" in defect
    assert "Correct or delete it there" in defect


@pytest.mark.parametrize("value", ["9e999", "-9e999", "X'00FF'"])
def test_a_capacity_that_is_no_number_is_a_defect_of_its_group(tmp_path: Path, value: str) -> None:
    """Placement takes it for no limit that is known, and `groups set` corrects it."""
    engine, _ = filled(tmp_path)
    edit(engine, "groups.capacity_cores", value)
    assert "capacity_cores" in (read_groups(engine)["a"].defect or "")
    assert read_loads(engine).groups["a"].capacity_cores is None
    done = turnout(tmp_path, "groups", "set", "a", "--cores", "4", "--reason", "r")
    assert done.exit_code == 0, (done.output, done.exception)
    assert read_groups(engine)["a"].defect is None


def test_a_group_whose_name_is_no_text_is_left_alone_and_named(tmp_path: Path) -> None:
    """The others are supervised and judged."""
    engine, _ = filled(tmp_path)
    register_group(engine, "b")
    edit(engine, "groups.name", "CASE name WHEN 'b' THEN x'ff00' ELSE name END")
    found = read_groups(engine)
    assert sorted(found) == ["a", "b'\\xff\\x00'"]
    assert "name b'\\xff\\x00'" in (found["b'\\xff\\x00'"].defect or "")
    done = turnout(tmp_path, "status")
    assert (done.exit_code, done.exception.__class__) == (1, SystemExit)
    assert "makes no sense" in done.output


def test_what_a_hand_has_put_in_a_text_or_a_number_is_shown() -> None:
    """A page that draws it does not end."""
    assert formatting.shown(b"\xff") == "b'\\xff'"
    assert describe(Group("a", capacity_cores="zz"), "local")["capacity"] == "'zz' cores"  # type: ignore[arg-type]


def test_a_revision_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Which commands fit a store is not guessed."""
    engine, _ = filled(tmp_path)
    edit(engine, "alembic_version.version_num", "x'ff'")
    done = turnout(tmp_path, "status")
    assert isinstance(done.exception, Refused)
    assert "revision is b'\\xff'" in str(done.exception)


def test_an_undo_of_what_says_not_what_it_moved_is_refused(tmp_path: Path) -> None:
    """A preview of another shape ends no command with a traceback."""
    engine, asked = filled(tmp_path)
    edit(engine, "operations.kind", "'move'")
    edit(engine, "operations.preview", """'{"g": 1}'""")
    edit(engine, "operations.state", "'succeeded'")
    edit(engine, "operations.ended_at", "requested_at")
    done = turnout(tmp_path, "ops", "undo", asked.operation_id, "--reason", "r")
    assert isinstance(done.exception, Refused)
    assert "does not say what it moved" in str(done.exception)


def test_the_name_of_a_folder_is_no_option_of_its_store(tmp_path: Path) -> None:
    """Of `e?a=1` and `e?b=2` each has a control store of its own, and in its folder."""
    for name in ("a=1", "b=2"):
        env = tmp_path / f"e?{name}"
        open_store(*load(env, {})).dispose()
        assert (env / "control.db").is_file()
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:{folder}/x.db?uri=true&mode=rwc"])
def test_a_store_without_a_file_of_its_own_is_refused(tmp_path: Path, url: str) -> None:
    """What a command writes to memory is gone with it, and a URI would give the file another mode than ours."""
    settings, paths = load(tmp_path / "env", {"TURNOUT_STORE__URL": url.format(folder=tmp_path)})
    for opening in (open_store, require_store):
        with pytest.raises(Refused, match=r"store\.url names no file"):
            opening(settings, paths)
    assert not (tmp_path / "x.db").exists()
