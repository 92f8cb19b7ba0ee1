"""Every alarm of the controller is kept and shown, and a part of it that breaks stops no other one."""

from collections.abc import Sequence

import pytest
from sqlalchemy.exc import OperationalError

from pipeline.control.alarms import Alarms


def breaks() -> Sequence[str]:
    raise TypeError("no\n number")


@pytest.mark.proves("G101")
def test_all_alarms_are_kept_until_their_part_is_quiet() -> None:
    """One alarm hides no other one, of the same part or of another, and each ends with what it is about."""
    assert Alarms().text is None
    alarms = Alarms()
    alarms.run("Supervision", lambda: ["group a is frozen", "group b\nis frozen"])
    alarms.run("Evacuation", lambda: ["group c is dead"])
    assert alarms.text == "group a is frozen\ngroup b is frozen\ngroup c is dead"
    alarms.run("Supervision", list)
    assert alarms.text == "group c is dead"


def test_a_part_that_breaks_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """The controller goes on with its other parts; the traceback is in the log once, not at every look."""
    alarms = Alarms()
    for _ in range(3):
        alarms.run("Supervision", breaks)
        alarms.run("Evacuation", lambda: ["group c is dead"])
    broken = "Supervision cannot go on: TypeError: no number. The controller's log has the traceback."
    assert alarms.text == f"{broken}\ngroup c is dead"
    assert [(each.getMessage(), each.exc_info is not None) for each in caplog.records] == [
        (broken, True),
        ("group c is dead", False),
    ]


def test_an_alarm_is_logged_again_when_more_than_its_numbers_change(caplog: pytest.LogCaptureFixture) -> None:
    """A sentence with minutes in it would else fill the log."""
    alarms = Alarms()
    for said in ("down for 9 min", "down for 10 min", "down for 11 min: a fits nowhere"):
        alarms.run("Evacuation", [said].copy)
    assert caplog.messages == ["down for 9 min", "down for 11 min: a fits nowhere"]
    assert alarms.text == "down for 11 min: a fits nowhere"


def test_a_store_that_is_away_is_no_alarm_of_one_part() -> None:
    """Then all parts wait, and the alarms of before stay."""

    def away() -> Sequence[str]:
        raise OperationalError("", None, Exception("away"))

    alarms = Alarms()
    alarms.run("Evacuation", lambda: ["group c is dead"])
    with pytest.raises(OperationalError):
        alarms.run("Evacuation", away)
    assert alarms.text == "group c is dead"
