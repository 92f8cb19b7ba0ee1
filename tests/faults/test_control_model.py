"""Steering as a state machine, at random and for long: what people ask, break and kill, in any order."""

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine, true, update

from pipeline.control import engine as engine_module
from pipeline.control import moves, pauses, retirement
from pipeline.control.controller import KINDS
from pipeline.control.engine import Progress
from pipeline.store import games as games_module
from pipeline.store import leases as leases_module
from pipeline.store import operations as operations_module
from pipeline.store.operations import Operation, change, operation
from pipeline.store.tables import games, leases
from pipeline.streams.roster import Roster
from tests.unit.control_laws import Laws
from tests.unit.control_machine import STEPS, Steering

SEQUENCES = int(os.environ.get("PROOF_SEQUENCES", "500"))
_ENOUGH = 100  # sequences within which a planted bug must be seen

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
    begun, looks = time.monotonic(), Laws.looks
    run_state_machine_as_test(Steering, settings=some(SEQUENCES))
    seconds = time.monotonic() - begun
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
    monkeypatch.setattr(Roster, "_is_read", lambda _self, _stream: False)


def a_lease_that_others_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module.Lease, "_mine", property(lambda self: self._row))


def change_without_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(engine: Engine, stale: Operation, *more: Any) -> Operation:
        return change(engine, replace(stale, version=operation(engine, stale.operation_id).version), *more)

    monkeypatch.setattr(engine_module, "change", late)


def steps_without_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (moves, pauses, retirement):
        monkeypatch.setattr(module, "hold", lambda *_arguments: None)


def targets_that_stay_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_module, "delete", lambda table: update(table).values(target=table.c.target))


def assigned_whatever_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def reassign(connection: Any, wanted: Any) -> None:
        for key, (_, group) in wanted.items():
            mine = update(games).where(games.c.game_key == key)
            connection.execute(mine.values(group_name=group, epoch=games.c.epoch + 1))

    monkeypatch.setattr(moves, "reassign", reassign)


def without_step(kind: str, name: str) -> Plant:
    """Let a step be done as soon as it begins."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        real = KINDS[kind]
        steps = tuple(
            replace(each, act=lambda *_: Progress("done", "x")) if each.name == name else each for each in real.steps
        )
        monkeypatch.setitem(KINDS, kind, replace(real, steps=steps))

    return plant


def nonsense_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_module, "_require_types", lambda _plain: None)


MUTANTS: dict[str, Plant] = {
    "every game is free": every_game_is_free,
    "no game is ever free": no_game_is_ever_free,
    "let go in mid-pass": let_go_in_mid_pass,
    "a lease that others can take": a_lease_that_others_can_take,
    "a change without the version": change_without_version,
    "steps without the version": steps_without_version,
    "targets that stay taken": targets_that_stay_taken,
    "assigned whatever it was": assigned_whatever_it_was,
    "release is not waited for": without_step("move", "release"),
    "take is not waited for": without_step("move", "take"),
    "a move's end is not looked for": without_step("move", "see"),
    "decided and not done": without_step("pause", "decide"),
    "retired and still held": without_step("retire", "release"),
    "a pause's end is not looked for": without_step("pause", "see"),
    "a stop's end is not looked for": without_step("stop", "see"),
    "nonsense is believed": nonsense_is_believed,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_sees_every_planted_bug(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A model that cannot fail proves nothing: with this bug in place a law is broken."""
    MUTANTS[name](monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever law sees it first
        run_state_machine_as_test(
            Steering, settings=some(_ENOUGH, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
        )
