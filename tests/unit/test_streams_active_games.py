"""The file names a driver's games while it processes them, and at no other time."""

from pathlib import Path

import pytest

from pipeline.streams.active_games import ActiveGames, read_leftover


def test_it_is_told_only_meanwhile(tmp_path: Path) -> None:
    """A reader during a pass or chunk finds all its games; a pass that ends, or raises, has killed nobody."""
    shared, catch_up = ActiveGames(tmp_path, "shared"), ActiveGames(tmp_path, "catch-up")
    assert read_leftover(tmp_path) is None
    with shared.track(["b", "a"]), catch_up.track(["c"]):
        assert read_leftover(tmp_path) == ["a", "b", "c"]
    assert read_leftover(tmp_path) is None
    with pytest.raises(ZeroDivisionError), shared.track(["a"]):
        raise ZeroDivisionError
    assert read_leftover(tmp_path) is None


def test_a_driver_that_starts_forgets_its_predecessor(tmp_path: Path) -> None:
    """The file names the games of the last process only; a torn file names none."""
    with ActiveGames(tmp_path, "shared").track(["a"]):
        ActiveGames(tmp_path, "shared")
        assert read_leftover(tmp_path) is None
    (tmp_path / "active_games" / "shared.json").write_text('["a", ')
    assert read_leftover(tmp_path) is None
