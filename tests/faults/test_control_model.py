"""Steering as a state machine, at random and for long: what people ask, break and kill, in any order."""

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine, true, update

from pipeline.control.controller import KINDS
from pipeline.control.operations import executor as engine_module
from pipeline.control.operations.definition import StepResult
from pipeline.data.streams.roster import Roster
from pipeline.store import games as games_module
from pipeline.store import operations as operations_module
from pipeline.store.database.tables import games, leases
from pipeline.store.operations import Operation, change, operation
from pipeline.store.processes import leases as leases_module
from tests.faults import figures
from tests.unit.control.model.laws import Laws
from tests.unit.control.model.machine import STEPS, Steering
from tests.unit.control.model.model_settings import settings

SEQUENCES = int(os.environ.get("PROOF_SEQUENCES", "500"))
_ENOUGH = 50  # short sequences within which a planted bug is seen; each was within 6 where this was tried

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(600 + SEQUENCES * 10)
@pytest.mark.proves("G114")
def test_no_order_of_accidents_breaks_a_law_of_steering(caplog: pytest.LogCaptureFixture) -> None:
    """D1 to D5, D7, D8, D9, D17, D18: after each step the laws hold, and at the end all comes to rest by itself."""
    caplog.set_level(logging.CRITICAL, "turnout")
    begun, looks = time.monotonic(), Laws.looks
    run_state_machine_as_test(Steering, settings=settings(SEQUENCES, STEPS, derandomize=False))
    seconds = time.monotonic() - begun
    figures.record({"events": SEQUENCES * STEPS})
    said = f"{SEQUENCES} sequences of {STEPS} steps, {Laws.looks - looks} looks at all laws, {seconds:.0f} s"
    sys.stdout.write(f"\n{said}: no law was broken\n")


# Bugs.


def every_game_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games_module, "_is_free", true)


def no_game_is_ever_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def for_ever() -> Any:
        return (leases.c.kind == "group") & (leases.c.name == games.c.held_by)

    monkeypatch.setattr(games_module, "holding", for_ever)


def let_go_in_mid_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = Roster.sync

    def anyway(self: Roster) -> None:
        claims, self._claims = self._claims, {}
        try:
            sync(self)
        finally:
            self._claims = claims

    monkeypatch.setattr(Roster, "sync", anyway)


def a_lease_taken_before_it_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module.Process, "is_dead", lambda _self: True)


def let_go_without_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games_module, "_is_held", lambda name, _epoch: games.c.held_by == name)


def change_without_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(engine: Engine, stale: Operation, *more: Any, **others: Any) -> Operation:
        return change(engine, replace(stale, version=operation(engine, stale.operation_id).version), *more, **others)

    monkeypatch.setattr(engine_module, "change", late)


def targets_that_stay_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_module, "delete", lambda table: update(table).values(target=table.c.target))


def without_step(kind: str, name: str) -> Plant:
    """Let a step be done as soon as it begins."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        real = KINDS[kind]
        steps = tuple(
            replace(each, act=lambda *_: StepResult("done", "x")) if each.name == name else each for each in real.steps
        )
        monkeypatch.setitem(KINDS, kind, replace(real, steps=steps))

    return plant


MUTANTS: dict[str, Plant] = {
    "every game is free": every_game_is_free,
    "no game is ever free": no_game_is_ever_free,
    "let go in mid-pass": let_go_in_mid_pass,
    "a lease taken before it ran out": a_lease_taken_before_it_ran_out,
    "let go without the epoch": let_go_without_the_epoch,
    "a change without the version": change_without_version,
    "targets that stay taken": targets_that_stay_taken,
    "release is not waited for": without_step("move", "release"),
    "take is not waited for": without_step("move", "acquire"),
    "decided and not done": without_step("pause", "decide"),
    "retired and still held": without_step("retire", "release"),
    "a pause's end is not looked for": without_step("pause", "verify"),
    "a stop's end is not looked for": without_step("stop", "verify"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.proves("G169")
def test_the_model_sees_every_planted_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A model that cannot fail proves nothing: with this bug in place fifty sequences of thirty steps break a law."""
    caplog.set_level(logging.CRITICAL, "turnout")
    # An earlier test of this process may have built the query, from functions without the bug.
    monkeypatch.setattr(games_module, "_held_query", games_module._held_query.__wrapped__)
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):  # whichever law sees it first
        run_state_machine_as_test(Steering, settings=settings(_ENOUGH, shrinks=False))
