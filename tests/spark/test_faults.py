"""A share of the proof by crashes; all of it is `./turnout test-faults`."""

from typing import Any

import pytest

from tests.faults.faults import Faults
from tests.faults.life import WAYS, fail_everywhere
from tests.faults.mutants import require_a_planted_bug_is_seen


@pytest.mark.long
@pytest.mark.timeout(600)  # one pass and more for each way to fail
@pytest.mark.proves("G162")
def test_a_fault_at_each_point_loses_and_doubles_nothing(world: Any, faults: Faults) -> None:
    """Laws L1 to L7 and L12: each fail-point raises once, over 12 games, and every row is accounted for."""
    fired = fail_everywhere(world, faults, count=len(WAYS) + 1, events=3_000)
    assert all(fired[point] for point in WAYS), fired


@pytest.mark.long
@pytest.mark.parametrize("name", ["constant version", "chain check removed"])
def test_the_oracle_sees(world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two planted bugs must be seen here, too: a doubled batch and a skipped one."""
    require_a_planted_bug_is_seen(world, faults, monkeypatch, name)
