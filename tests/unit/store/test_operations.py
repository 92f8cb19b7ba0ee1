"""Operations in the control store: asked once, one at a time for each target, changed by compare-and-set."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.control.operations.executor import close, resume
from pipeline.store import audit
from pipeline.store.database.states import OperationState
from pipeline.store.operations import (
    Intent,
    Operation,
    OperationConflict,
    begin_step,
    change,
    end_step,
    hash_of,
    list_operations,
    open_ids,
    operation,
    steps,
    submit,
)

MOVE = Intent("move", ("game:chess", "game:go"), "ann", "too busy", {"to": "b"}, {"moves": 2}, "key-1")


def test_what_was_asked_is_read_back(engine: Engine) -> None:
    """An operation is what was asked for, and the audit log says who asked, before anything is done."""
    submitted = submit(engine, MOVE)
    assert operation(engine, submitted.operation_id) == operation(engine, submitted.operation_id[:12]) == submitted
    assert (submitted.state, submitted.targets, submitted.actor, submitted.reason) == (
        "planned",
        MOVE.targets,
        "ann",
        "too busy",
    )
    assert (submitted.parameters, submitted.preview, submitted.preview_hash) == (
        {"to": "b"},
        {"moves": 2},
        hash_of({"moves": 2}),
    )
    (entry,) = audit.entries(engine)
    assert (entry.phase, entry.actor, entry.action, entry.operation_id) == (
        "begun",
        "ann",
        "move",
        submitted.operation_id,
    )
    assert entry.detail["reason"] == "too busy"
    with pytest.raises(Refused, match="No operation has the id 'nothing'"):
        operation(engine, "nothing")
    with pytest.raises(Refused, match="No operation has the id"):
        operation(engine, "")


@pytest.mark.proves("G115")
def test_a_double_click_is_one_operation(engine: Engine) -> None:
    """Asked for twice under one key, at the same moment or after it has ended, it is one operation."""
    together = threading.Barrier(6)

    def click(_number: int) -> Operation:
        together.wait()
        return submit(engine, MOVE)

    with ThreadPoolExecutor(6) as pool:
        submitted = list(pool.map(click, range(6)))
    assert {each.operation_id for each in submitted} == {submitted[0].operation_id}
    done = change(engine, submitted[0], OperationState.SUCCEEDED, "moved")
    assert submit(engine, MOVE) == done
    assert len(list(audit.entries(engine))) == 2
    with pytest.raises(Refused, match="key of operation"):
        submit(engine, replace(MOVE, targets=("game:chess",)))


def test_a_target_belongs_to_one_open_operation(engine: Engine) -> None:
    """Two operations on one thing do not run side by side, whoever asks; an ended one lets its targets go."""
    first = submit(engine, MOVE)
    other = Intent("pause", ("game:go", "game:tetris"), "bob")
    with pytest.raises(Refused, match=rf"1 of 2 targets belong .* game:go to {first.operation_id[:8]}"):
        submit(engine, other)
    submit(engine, Intent("pause", ("game:tetris",), "bob"))
    stuck = change(engine, first, OperationState.NEEDS_HUMAN, "the old driver does not answer")
    with pytest.raises(Refused, match="belong"):
        submit(engine, replace(other, targets=("game:go",)))
    change(engine, stuck, OperationState.FAILED, "given up")
    assert submit(engine, replace(other, targets=("game:go",))).state == "planned"


@pytest.mark.proves("G115")
def test_of_many_that_ask_for_one_target_one_gets_it(engine: Engine) -> None:
    """The rule holds under a race, in both databases."""
    together = threading.Barrier(6)

    def attempt(number: int) -> bool:
        together.wait()
        try:
            submit(engine, Intent("move", (f"game:{number}", "game:hot"), "ann"))
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    assert len(list_operations(engine)) == 1


def test_of_two_that_change_an_operation_the_second_finds_out(engine: Engine) -> None:
    """Two controllers may both look at an operation: what the slower one thinks of it changes nothing."""
    seen = submit(engine, MOVE)
    running = change(engine, seen, OperationState.RUNNING)
    assert running.version == seen.version + 1
    for stale in (seen, replace(running, version=7)):
        with pytest.raises(OperationConflict):
            change(engine, stale, OperationState.FAILED, "late")
        with pytest.raises(OperationConflict):
            begin_step(engine, stale, "release")
    done = change(engine, running, OperationState.SUCCEEDED, "moved")
    with pytest.raises(OperationConflict):
        change(engine, done, OperationState.FAILED, "an ended operation stays as it ended")
    assert operation(engine, seen.operation_id).outcome == "moved"
    assert audit.verify(engine).unended == ()


def test_the_journal_tells_each_step_once(engine: Engine) -> None:
    """A step that a killed controller had begun goes on under its number; one that ended is not taken up again."""
    running = change(engine, submit(engine, MOVE), OperationState.RUNNING)
    one = begin_step(engine, running, "assign")
    assert begin_step(engine, running, "assign") == one
    end_step(engine, running, one, "done", "2 games assigned to b")
    end_step(engine, running, one, "failed", "too late")
    two = begin_step(engine, running, "release", "waits for a")
    end_step(engine, running, two, "running", "a still holds 1 of 2")
    reported = [(each.number, each.name, each.state, each.detail) for each in steps(engine, running.operation_id)]
    assert reported == [
        (1, "assign", "done", "2 games assigned to b"),
        (2, "release", "running", "a still holds 1 of 2"),
    ]
    first, second = steps(engine, running.operation_id)
    assert first.ended_at is not None
    assert first.ended_at >= first.started_at
    assert second.ended_at is None


def test_who_needs_a_person_comes_first(engine: Engine) -> None:
    """The list begins with what cannot go on by itself, then what runs, then what has ended."""
    ended = change(engine, submit(engine, Intent("pause", ("game:a",), "ann")), OperationState.SUCCEEDED)
    stuck = change(engine, submit(engine, Intent("pause", ("game:b",), "ann")), OperationState.NEEDS_HUMAN)
    waits = submit(engine, Intent("pause", ("game:c",), "ann"))
    assert [each.operation_id for each in list_operations(engine)] == [
        each.operation_id for each in (stuck, waits, ended)
    ]
    assert {each.operation_id for each in list_operations(engine, only_open=True)} == {
        stuck.operation_id,
        waits.operation_id,
    }


def test_who_resumes_or_closes_stands_in_the_log_with_the_change_or_not_at_all(engine: Engine) -> None:
    """A person's resume or close is an act with actor and reason, begun and ended; one that came too late is none."""
    stuck = change(engine, change(engine, submit(engine, MOVE), OperationState.RUNNING), OperationState.NEEDS_HUMAN)
    again = change(engine, resume(engine, stuck, "bob", "b runs"), OperationState.NEEDS_HUMAN)
    with pytest.raises(OperationConflict):
        resume(engine, stuck, "eve", "too late")
    closed = close(engine, again, "cid", "b is gone")
    assert (closed.state, closed.outcome) == ("failed", "Closed by cid: b is gone")
    reported = [(each.actor, each.action, each.phase, each.outcome) for each in audit.entries(engine)]
    assert reported == [
        ("ann", "move", "begun", None),
        ("bob", "resume operation", "begun", None), ("bob", "resume operation", "ended", "succeeded"),
        ("cid", "close", "begun", None), ("ann", "move", "ended", "failed"), ("cid", "close", "ended", "succeeded"),
    ]  # fmt: skip
    acts = [each for each in audit.entries(engine) if each.actor != "ann"]
    assert [each.detail["reason"] for each in acts] == ["b runs", "b runs", "b is gone", "b is gone"]
    assert {(each.operation_id, each.targets) for each in acts} == {(stuck.operation_id, stuck.targets)}
    assert (audit.verify(engine).intact, audit.verify(engine).unended) == (True, ())


def test_no_limit_hides_who_needs_a_person(engine: Engine) -> None:
    """However many are newer, the limit leaves out what has ended, then what is open, and last who needs a person."""
    stuck = change(
        engine,
        change(engine, submit(engine, replace(MOVE, targets=("game:a",))), OperationState.RUNNING),
        OperationState.NEEDS_HUMAN,
    )
    waits = submit(engine, Intent("pause", ("game:b",), "ann"))
    for _ in range(3):
        change(engine, submit(engine, Intent("pause", ("game:c",), "ann")), OperationState.FAILED)
    assert [each.operation_id for each in list_operations(engine, limit=1)] == [stuck.operation_id]
    assert [each.operation_id for each in list_operations(engine, limit=2)] == [stuck.operation_id, waits.operation_id]
    assert open_ids(engine) == [stuck.operation_id, waits.operation_id]
