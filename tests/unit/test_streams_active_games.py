"""What a driver has in hand is there for others while it has it, and at no other time."""

from pathlib import Path

import pytest

from pipeline.streams.active_games import InHand, left


def test_it_is_told_only_meanwhile(tmp_path: Path) -> None:
    """Who asks during a pass or chunk hears of all its games; a pass that ends, or raises, has killed nobody."""
    shared, catch_up = InHand(tmp_path, "shared"), InHand(tmp_path, "catch-up")
    assert left(tmp_path) is None
    with shared.during(["b", "a"]), catch_up.during(["c"]):
        assert left(tmp_path) == ["a", "b", "c"]
    assert left(tmp_path) is None
    with pytest.raises(ZeroDivisionError), shared.during(["a"]):
        raise ZeroDivisionError
    assert left(tmp_path) is None


def test_a_driver_that_starts_forgets_its_predecessor(tmp_path: Path) -> None:
    """What is left names the games of the last process only; a file that is torn names none."""
    with InHand(tmp_path, "shared").during(["a"]):
        InHand(tmp_path, "shared")
        assert left(tmp_path) is None
    (tmp_path / "in_hand" / "shared.json").write_text('["a", ')
    assert left(tmp_path) is None
