"""One gate for commands and pages: no operation and no other act without its role, its reason and its audit entry."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.state import services
from pipeline.base.errors import Refused
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from pipeline.store.operations import Intent, list_operations
from tests.unit.app.app_world import sign_in, submit

ROLES = {"TURNOUT_ROLES__MOVERS": '["max"]'}


def test_what_disturbs_is_not_submitted_without_a_reason(engine: Engine, tmp_path: Path) -> None:
    """Role and reason are checked in one place; then operation and audit entry are written together."""
    settings, _ = load(tmp_path, ROLES)
    for actor, reason, lacks in (("eve", "r", "needs the role mover"), ("max", " ", "Say why")):
        with pytest.raises(Refused, match=lacks):
            gate.submit(settings, engine, Intent("move", ("game:go",), actor, reason))
    assert (list_operations(engine), list(audit.entries(engine))) == ([], [])
    submitted = gate.submit(settings, engine, Intent("move", ("game:go",), "max", "r"))
    (entry,) = audit.entries(engine)
    assert (entry.operation_id, entry.actor, entry.phase) == (submitted.operation_id, "max", "begun")


def test_an_act_is_entered_with_the_role_and_audited(engine: Engine, tmp_path: Path) -> None:
    """What is no operation is begun in the log before it is done; who may not does nothing and is in no log."""
    settings, _ = load(tmp_path, ROLES)
    by_eve = audit.Act("eve", "accept-gap", ("game:go",), detail={"reason": "r"})
    with (
        pytest.raises(Refused, match="may not accept a gap"),
        gate.acting(settings, engine, DirectAct.ACCEPT_GAP, by_eve),
    ):
        pytest.fail("it was done")
    for detail in ({}, {"reason": None}, {"reason": " "}):
        mute = audit.Act("max", "accept-gap", ("game:go",), detail=detail)
        with pytest.raises(Refused, match="Enter a reason"), gate.acting(settings, engine, DirectAct.ACCEPT_GAP, mute):
            pytest.fail("it was done")
    assert list(audit.entries(engine)) == []
    by_max = audit.Act("max", "accept-gap", ("game:go",), detail={"reason": "r"})
    with gate.acting(settings, engine, DirectAct.ACCEPT_GAP, by_max):
        assert [each.phase for each in audit.entries(engine)] == ["begun"]
    with pytest.raises(OSError, match="away"), gate.acting(settings, engine, DirectAct.ACCEPT_GAP, by_max):
        raise OSError("away")
    entries = [(each.action, each.phase, each.outcome, each.detail) for each in audit.entries(engine)]
    assert entries == [
        ("accept-gap", phase, outcome, {"reason": "r"})
        for phase, outcome in (("begun", None), ("ended", "succeeded"), ("begun", None), ("ended", "failed"))
    ]


def test_what_the_store_writes_with_its_entry_needs_role_and_reason(engine: Engine, tmp_path: Path) -> None:
    """Some acts always need a reason; of others, what they do to drivers and games makes one necessary, and is said."""
    settings, _ = load(tmp_path, ROLES)
    with pytest.raises(Refused, match="may not change a group: it needs the role mover"):
        gate.permit(settings, engine, "eve", DirectAct.CHANGE_GROUP, "r")
    gate.permit(settings, engine, "max", DirectAct.CHANGE_GROUP)
    with pytest.raises(Refused, match=r"^The driver restarts\. Enter a reason\. It is kept in the audit log\.$"):
        gate.permit(
            settings, engine, "max", DirectAct.CHANGE_GROUP, "\u200b", ["The driver restarts.", "So do its games."]
        )
    gate.permit(settings, engine, "max", DirectAct.CHANGE_GROUP, "r", ["The driver restarts."])
    for kind in (DirectAct.REMOVE_GROUP, DirectAct.SET_PRIORITY, DirectAct.ACCEPT_GAP):
        with pytest.raises(Refused, match="Enter a reason"):
            gate.permit(settings, engine, "max", kind, " ")
        gate.permit(settings, engine, "max", kind, "r")


def test_a_page_submits_nothing_that_disturbs_without_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page forgets to ask for, the gate refuses."""
    sign_in(monkeypatch, "ann")
    open_store(*load(tmp_path))
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(tmp_path)})
    with pytest.raises(Refused, match="Say why"):
        submit(environment, Intent("move", ("game:go",), "ann"))
