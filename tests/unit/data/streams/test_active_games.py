"""The file and the store name a driver's games while it processes them, and at no other time."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.data.streams.active_games import ActiveGames, read_leftover, stored_games
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.processes.runs import begin_run, end_run, ended_runs, open_runs


def test_it_is_told_only_meanwhile(tmp_path: Path) -> None:
    """A reader during a pass or chunk finds all its games; a pass that ends, or raises, has killed nobody."""
    shared, catch_up = ActiveGames(tmp_path, "shared"), ActiveGames(tmp_path, "catch-up")
    assert read_leftover(tmp_path) == []
    with shared.track(["b", "a"]), catch_up.track(["c"]):
        assert read_leftover(tmp_path) == ["a", "b", "c"]
    assert read_leftover(tmp_path) == []
    with pytest.raises(ZeroDivisionError), shared.track(["a"]):
        raise ZeroDivisionError
    assert read_leftover(tmp_path) == []


def test_a_driver_that_starts_forgets_its_predecessor(tmp_path: Path) -> None:
    """The file names the games of the last process only; a torn file names none."""
    with ActiveGames(tmp_path, "shared").track(["a"]):
        ActiveGames(tmp_path, "shared")
        assert read_leftover(tmp_path) == []
    (tmp_path / "active_games" / "shared.json").write_text('["a", ')
    assert read_leftover(tmp_path) == []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    engine = open_store(*load(tmp_path, {}))
    yield engine
    engine.dispose()


def in_hand(store: Engine) -> list[str] | None:
    found = open_runs(store)["g"].active_games
    return None if found is None else json.loads(found)


def begun(store: Engine, backend: str) -> int:
    run_id = begin_run(store, "g", backend=backend)
    assert run_id is not None
    return run_id


def test_after_a_death_elsewhere_the_store_names_them(tmp_path: Path, store: Engine) -> None:
    """The run after a death of a driver on another machine writes all games in hand into its row, and clears it."""
    first = begun(store, "databricks")
    assert stored_games(store, first) is None, "nobody has died"
    end_run(store, first, "killed", died=True)
    kept = stored_games(store, begun(store, "databricks"))
    shared, catch_up = ActiveGames(tmp_path, "shared", kept), ActiveGames(tmp_path, "catch-up", kept)
    with shared.track(["b", "a"]), catch_up.track(["c"]):
        assert in_hand(store) == ["a", "b", "c"]
    assert in_hand(store) == []
    with shared.track(["b"]):
        end_run(store, open_runs(store)["g"].run_id, "killed", died=True)
    assert [each.active_games for each in ended_runs(store, 0)["g"]] == ['["b"]', None]


def test_a_driver_of_this_machine_writes_nothing_into_the_store(store: Engine) -> None:
    """A pass of a local driver costs the store nothing: its controller reads the file."""
    end_run(store, begun(store, "local"), "killed", died=True, active_games=[])
    assert stored_games(store, begun(store, "local")) is None
    assert stored_games(store, None) is None
