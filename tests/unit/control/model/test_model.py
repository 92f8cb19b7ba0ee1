"""Steering as a state machine: a few hundred steps of it, always the same ones; `tests/faults` takes many at random."""

import logging

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.control.model.machine import Steering
from tests.unit.control.model.model_settings import settings

SEQUENCES = 8  # a planted bug is seen within six


@pytest.mark.timeout(600)
@pytest.mark.proves("D1", "D2", "D3", "D4", "D5", "D7", "D8", "D9", "D17", "D18", "G103", "G114")
def test_whatever_happens_steering_converges_and_nothing_has_two_owners(caplog: pytest.LogCaptureFixture) -> None:
    """D1 to D5, D7, D8, D9, D17, D18: kills, stops, clocks, edits and nonsense break no law, in whatever order."""
    caplog.set_level(logging.CRITICAL, "turnout")  # what it says of each row that was spoilt costs most of the time
    run_state_machine_as_test(Steering, settings=settings(SEQUENCES))
