"""Steering as a state machine, at random and for long: what people ask, break and kill, in any order."""

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import true

from pipeline.store import games as games_module
from pipeline.store.tables import games, leases
from tests.unit.control_machine import STEPS, Steering

SEQUENCES = int(os.environ.get("PROOF_SEQUENCES", "500"))
_ENOUGH = 150  # sequences within which a planted bug must be seen

Plant = Callable[[pytest.MonkeyPatch], None]


def some(sequences: int, **more: Any) -> hypothesis.settings:
    every = list(hypothesis.HealthCheck)
    return hypothesis.settings(
        max_examples=sequences, stateful_step_count=STEPS, database=None, deadline=None, suppress_health_check=every,
        **more,
    )  # fmt: skip


@pytest.mark.timeout(600 + SEQUENCES * 10)
def test_no_order_of_accidents_breaks_a_law_of_steering(caplog: pytest.LogCaptureFixture) -> None:
    """D1 to D5, D7, D8, D9, D17, D18: after each step the laws hold, and at the end all comes to rest by itself."""
    caplog.set_level(logging.CRITICAL, "turnout")
    begun = time.monotonic()
    run_state_machine_as_test(Steering, settings=some(SEQUENCES))
    seconds = time.monotonic() - begun
    sys.stdout.write(f"\n{SEQUENCES} sequences of {STEPS} steps at most in {seconds:.0f} s: no law was broken\n")


# Bugs.


def every_game_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games_module, "_is_free", true)


def no_game_is_ever_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def for_ever() -> Any:
        return (leases.c.kind == "group") & (leases.c.name == games.c.held_by)

    monkeypatch.setattr(games_module, "holding", for_ever)


MUTANTS: dict[str, Plant] = {
    "every game is free": every_game_is_free,
    "no game is ever free": no_game_is_ever_free,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_sees_a_planted_bug(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A model that cannot fail proves nothing: with this bug in place a law is broken."""
    MUTANTS[name](monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever law sees it first
        run_state_machine_as_test(
            Steering, settings=some(_ENOUGH, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
        )
