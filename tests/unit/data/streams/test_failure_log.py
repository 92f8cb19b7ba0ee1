"""Guards what a driver's log says of games whose rows do not land."""

import pytest

from pipeline.data.streams.failure_log import FailureLog
from pipeline.data.streams.lanes import Failure

DISK = Failure("transient", "OSError: [Errno 28] No space left on device: '/tables/chess'")


def test_a_game_that_fails_is_named_with_the_cause_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure at once, a long row of failures a few times an hour, and one line when it is well again."""
    log = FailureLog()
    for now in range(0, 3600, 5):
        log.note({"chess": DISK}, ["go"], (), float(now))
    first, second, *others = caplog.messages
    assert first == f"chess: failed: {DISK.evidence}"
    assert second == f"chess: still failing after 7 failures in 30 s: {DISK.evidence}"
    assert len(others) == 5  # after 90, 210, 450, 930 and 1890 s
    caplog.clear()
    caplog.set_level("INFO", "turnout")
    log.note({}, ["chess", "go"], (), 3600.0)
    log.note({}, ["chess", "go"], (), 3601.0)
    assert caplog.messages == ["chess: recovered after 720 failures in 3600 s"]


def test_each_game_is_logged_on_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """One game that fails hides no other, and a game that fails anew is logged anew."""
    caplog.set_level("WARNING", "turnout")
    log = FailureLog()
    log.note({"chess": DISK}, (), (), 0.0)
    log.note({"chess": DISK, "go": DISK}, (), (), 1.0)
    log.note({}, ["chess"], (), 2.0)
    log.note({"chess": DISK}, (), (), 3.0)
    assert [each.partition(":")[0] for each in caplog.messages] == ["chess", "go", "chess"]


def test_another_owner_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Losing a race for a commit is not logged."""
    FailureLog().note({"chess": Failure("expected", "the table is at seq 3")}, (), (), 0.0)
    assert not caplog.messages


def test_a_game_that_is_parked_is_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """The last of the retries says that none follows, and what a person can do."""
    FailureLog().note({"chess": DISK}, (), {"chess"}, 0.0)
    assert "chess: parked, its retries are used up; run `turnout repair retry`" in caplog.messages


def test_no_value_of_a_row_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A task's error may quote a row: the log has only the error's class."""
    FailureLog().note({"chess": Failure("poison", "ArrowInvalid: bad 'secret'\nsecret", may_quote=True)}, (), (), 0.0)
    (line,) = caplog.messages
    assert "secret" not in line
    assert line.startswith("chess: failed: ArrowInvalid (")
