"""The audit log: append-only, in order, and no change of it goes unseen."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, delete, event, insert, update

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.operations.executor import resume
from pipeline.settings.tree import load
from pipeline.store.audit import Act, begin, end, entries, verify
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import audit, audit_head
from pipeline.store.operations import Intent, change, submit
from tests.unit.store.leases_world import StoreClock

MOVE = Act("ann", "move", ("game:chess_1",), "op1", {"from": "a", "to": "b", "reason": "«quoted» 'text'"})


def done(engine: Engine, act: Act = MOVE, outcome: str = "succeeded") -> None:
    with engine.begin() as connection:
        begin(connection, act)
    with engine.begin() as connection:
        end(connection, act, outcome)


def test_what_was_written_is_read_back_and_intact(engine: Engine) -> None:
    """Every entry is found again as it was written, in its order, and the log is intact."""
    assert verify(engine).intact
    assert verify(engine).entries == 0
    done(engine)
    done(engine, Act("bob", "pause", ("game:go_1",)), "failed")
    read = list(entries(engine))
    assert [(each.number, each.phase, each.outcome, each.actor) for each in read] == [
        (1, "begun", None, "ann"), (2, "ended", "succeeded", "ann"),
        (3, "begun", None, "bob"), (4, "ended", "failed", "bob"),
    ]  # fmt: skip
    assert (read[0].targets, read[0].operation_id, read[0].detail) == (MOVE.targets, "op1", MOVE.detail)
    verdict = verify(engine, read[1].hash)
    assert (verdict.intact, verdict.entries, verdict.head, verdict.unended) == (True, 4, read[-1].hash, ())


CHANGES: dict[str, Callable[[], object]] = {
    "another actor": lambda: update(audit).where(audit.c.number == 3).values(actor="eve"),
    "another time": lambda: update(audit).where(audit.c.number == 3).values(at=audit.c.at + 1),
    "another target": lambda: update(audit).where(audit.c.number == 3).values(targets='["game:go_2"]'),
    "another outcome": lambda: update(audit).where(audit.c.number == 2).values(outcome="failed"),
    "another detail": lambda: update(audit).where(audit.c.number == 1).values(detail="{}"),
    "another executor": lambda: update(audit).where(audit.c.number == 1).values(executor="x"),
    "another operation": lambda: update(audit).where(audit.c.number == 1).values(operation_id=None),
    "another day": lambda: update(audit).where(audit.c.number == 4).values(day="2000-01-01"),
    "one taken out": lambda: delete(audit).where(audit.c.number == 2),
    "the first taken out": lambda: delete(audit).where(audit.c.number == 1),
    "the end taken off": lambda: delete(audit).where(audit.c.number == 4),
    "all taken out": lambda: delete(audit),
    "one slipped in": lambda: insert(audit).values(
        day="9999-01-01",
        number=1,
        at=9e9,
        actor="eve",
        executor="x",
        action="move",
        targets="[]",
        phase="begun",
        detail="{}",
        hash="0" * 64,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.proves("G117", "H9")
def test_no_change_goes_unseen(engine: Engine, change: str) -> None:
    """H9: whatever is changed, taken out or slipped in by hand is found."""
    done(engine)
    done(engine, Act("bob", "pause", ("game:go_1",)))
    assert verify(engine).intact
    with engine.begin() as connection:
        connection.execute(CHANGES[change]())  # type: ignore[call-overload]
    assert not verify(engine).intact


@pytest.mark.parametrize(
    "spoilt",
    [
        {"targets": "[oh"},
        {"targets": "5"},
        {"targets": "[5]"},
        {"targets": '["\\ud800"]'},
        {"detail": "[]"},
        {"detail": ""},
        {"detail": '{"reason":"another","reason":""}'},
        {"targets": '["game:go_1" ]'},
        {"detail": "[" * 100_000},
    ],
)
def test_a_row_that_makes_no_sense_is_a_defect_and_hides_no_other(engine: Engine, spoilt: dict[str, str]) -> None:
    """What a hand has made unreadable is reported, and so is each change before and after it."""
    for name in ("ann", "bob", "cid"):
        done(engine, Act(name, "pause", ("game:go_1",)))
    with engine.begin() as connection:
        connection.execute(update(audit).where(audit.c.number == 3).values(spoilt))
        connection.execute(update(audit).where(audit.c.number.in_([1, 6])).values(executor="x"))
    assert [each.number for each in entries(engine) if each.defect is not None] == [3]
    verdict = verify(engine)
    assert [defect.partition(":")[0][-2:] for defect in verdict.defects] == ["#1", "#3", "#6"]
    assert "is invalid and was edited" in verdict.defects[1]
    assert verdict.entries == 6


def test_a_number_after_which_none_comes_refuses_acts_in_a_sentence(engine: Engine) -> None:
    """The database has no larger number, so the next entry could not be written: a hand has put it there."""
    done(engine)
    largest = (1 << 31) - 1
    with engine.begin() as connection:
        connection.execute(update(audit).where(audit.c.number == 2).values(number=largest))
        connection.execute(update(audit_head).values(number=largest))
    with pytest.raises(Refused, match=r"was edited.*audit verify"):
        done(engine)
    assert not verify(engine).intact


@pytest.mark.parametrize("day", ["", "purple"])
def test_an_entry_of_no_day_is_in_every_list(day: str, tmp_path: Path) -> None:
    """Nobody knows when it was, so it may be of the days that are asked for; the audit page always asks for some."""
    engine = open_store(*load(tmp_path))
    done(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE audit SET day = ? WHERE number = 2", (day,))
    assert sorted(each.number for each in entries(engine)) == [1, 2]
    assert [each.number for each in entries(engine, "2001-01-01", "2001-01-02")] == [2]
    listed = CliRunner().invoke(cli, ["audit", "list", "--json", "--env-dir", str(tmp_path)])
    assert len(listed.output.splitlines()) == 2


HEADS = {
    "another day": "UPDATE audit_head SET day = '2001-01-01'",
    "a lower number": "UPDATE audit_head SET number = 1",
    "a higher number": "UPDATE audit_head SET number = 9",
    "a time in the future": "UPDATE audit_head SET at = 9e9",
    "another hash": "UPDATE audit_head SET hash = 'x'",
    "no head": "DELETE FROM audit_head",
    "two heads": "INSERT INTO audit_head SELECT 1, day, number, at, hash FROM audit_head",
    "the newest entry taken out": "DELETE FROM audit WHERE number = 2",
}


@pytest.mark.parametrize("change", HEADS)
def test_a_head_that_is_not_the_last_entry_is_found_and_nothing_is_added(engine: Engine, change: str) -> None:
    """What is kept of the newest entry must be that entry: otherwise verify says so, and acts are refused in words."""
    done(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(HEADS[change])
    verdict = verify(engine)
    assert len(verdict.defects) == 1
    with pytest.raises(Refused, match="Run `turnout audit verify`"):
        done(engine)
    assert verify(engine) == verdict


def test_an_act_between_the_looks_is_no_defect(engine: Engine) -> None:
    """What is written after the entries were read and before the head is, is no change by hand."""
    acts = [MOVE]

    def write(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.startswith("SELECT") and "FROM audit_head" in statement and acts:
            done(engine, acts.pop())

    event.listen(engine, "before_cursor_execute", write)
    assert verify(engine).intact
    assert not acts


def test_an_entry_slipped_in_before_all_days_is_found(engine: Engine) -> None:
    """A row without a day and with a number below 1 stands before the first: it is read, too."""
    done(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO audit SELECT '', -1, at, 'eve', executor, action, targets, operation_id, phase, outcome,"
            " detail, hash FROM audit WHERE number = 1"
        )
    assert not verify(engine).intact


@pytest.mark.proves("G117")
def test_a_log_that_was_written_anew_is_found_by_a_hash_kept_elsewhere(engine: Engine) -> None:
    """Who can write the whole table can write a chain that holds; not one with the hash that somebody noted."""
    done(engine)
    noted = verify(engine).head
    with engine.begin() as connection:
        connection.execute(delete(audit))
        connection.execute(update(audit_head).values(day="", number=0, at=0.0, hash=""))
    done(engine, Act("eve", "nothing", ()))
    assert verify(engine).intact
    (defect,) = verify(engine, noted).defects
    assert noted in defect


def test_an_act_without_an_end_is_named(engine: Engine) -> None:
    """What has begun and not ended is an act of which nobody knows how it ended."""
    done(engine)
    with engine.begin() as connection:
        begin(connection, MOVE)
    (waiting,) = verify(engine).unended
    assert (waiting.number, waiting.actor) == (3, "ann")


def test_an_act_that_is_not_committed_is_not_in_the_log(engine: Engine) -> None:
    """The log tells of an act with the very transaction that does it, or not at all."""
    with engine.connect() as connection:
        begin(connection, MOVE)
        connection.rollback()
    assert list(entries(engine)) == []
    done(engine)
    assert verify(engine).intact


def test_writers_at_once_make_one_chain(engine: Engine) -> None:
    """Processes that write at the same moment wait for each other; no number is given twice or left out."""
    together = threading.Barrier(4)

    def write(name: str) -> None:
        together.wait()
        for number in range(10):
            done(engine, Act(name, "pause", (f"game:{number}",)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    verdict = verify(engine)
    assert (verdict.intact, verdict.entries, verdict.unended) == (True, 80, ())


def test_days_are_chained_and_a_clock_that_goes_back_makes_no_older_day(engine: Engine) -> None:
    """Numbers begin anew each day, a whole day cannot be taken out, and order stays order."""
    clock = StoreClock(engine)
    done(engine)
    clock.now += 86_400
    done(engine)
    clock.now -= 86_400
    done(engine)
    assert [(each.day[-2:], each.number) for each in entries(engine)] == [
        ("15", 1), ("15", 2), ("16", 1), ("16", 2), ("16", 3), ("16", 4),
    ]  # fmt: skip
    assert [each.number for each in entries(engine, "2027-01-16")] == [1, 2, 3, 4]
    assert verify(engine).intact
    with engine.begin() as connection:
        connection.execute(delete(audit).where(audit.c.day == "2027-01-15"))
    assert not verify(engine).intact


def test_what_a_person_does_about_an_operation_does_not_end_it(engine: Engine) -> None:
    """An operation that was resumed has not ended: the log still names the operation as unended, not the resuming."""
    begun = submit(engine, Intent("move", ("game:g",), "ann"))
    waiting = change(engine, change(engine, begun, OperationState.RUNNING), OperationState.NEEDS_HUMAN, "look")
    resume(engine, waiting, "bob", "looked")
    assert [(each.actor, each.action) for each in verify(engine).unended] == [("ann", "move")]
