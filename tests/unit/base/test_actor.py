import os
import pwd
from types import SimpleNamespace

import pytest

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused


@pytest.mark.parametrize("variable", ["LOGNAME", "USER", "LNAME", "USERNAME"])
@pytest.mark.proves("G170")
def test_no_variable_says_who_acts(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit log names the uid's user: a variable is anybody's to set."""
    monkeypatch.setenv(variable, "(controller)")
    assert current_user() == pwd.getpwuid(os.geteuid()).pw_name


def test_a_uid_without_an_entry_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container runs as any uid; its acts are audited all the same."""
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    assert current_user() == "uid:987654"


@pytest.mark.parametrize("name", ["(controller)", "(anything)", "", " "])
@pytest.mark.proves("G170")
def test_a_reserved_name_cannot_be_claimed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's own actions need no role: no user can have its name."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name=name))
    with pytest.raises(Refused, match="reserved"):
        current_user()
