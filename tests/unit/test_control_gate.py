"""One gate for commands and pages: no operation and no other act without its role, its reason and its audit entry."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.state import previews, services
from pipeline.control import gate
from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store import audit
from pipeline.store.engine import open_store
from pipeline.store.operations import Intent, list_operations
from tests.unit.app_world import sign_in

ROLES = {"TURNOUT_ROLES__MOVERS": '["max"]'}


def test_what_disturbs_is_not_submitted_without_a_reason(engine: Engine, tmp_path: Path) -> None:
    """Role and reason are checked in one place; then operation and audit entry are written together."""
    settings, _ = load(tmp_path, ROLES)
    for actor, reason, lacks in (("eve", "r", "needs the role mover"), ("max", " ", "Say why")):
        with pytest.raises(Refused, match=lacks):
            gate.submit(settings, engine, Intent("move", ("game:go",), actor, reason))
    assert (list_operations(engine), list(audit.entries(engine))) == ([], [])
    asked = gate.submit(settings, engine, Intent("move", ("game:go",), "max", "r"))
    (entry,) = audit.entries(engine)
    assert (entry.operation_id, entry.actor, entry.phase) == (asked.operation_id, "max", "begun")


def test_an_act_is_entered_with_the_role_and_audited(engine: Engine, tmp_path: Path) -> None:
    """What is no operation is begun in the log before it is done; who may not does nothing and is in no log."""
    settings, _ = load(tmp_path, ROLES)
    with pytest.raises(Refused, match="may not set an own query"), gate.acting(
        settings, engine, "eve", "set an own query", ("game:go",), {}
    ):  # fmt: skip
        pytest.fail("it was done")
    assert list(audit.entries(engine)) == []
    with gate.acting(settings, engine, "max", "set an own query", ("game:go",), {"own_query": "on"}):
        assert [each.phase for each in audit.entries(engine)] == ["begun"]
    _, ended = audit.entries(engine)
    assert (ended.phase, ended.outcome, ended.detail) == ("ended", "succeeded", {"own_query": "on"})


def test_a_page_submits_nothing_that_disturbs_without_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page forgets to ask for, the gate refuses."""
    sign_in(monkeypatch, "ann")
    open_store(*load(tmp_path))
    environment = services.open_environment([], {"TURNOUT_ENV_DIR": str(tmp_path)})
    with pytest.raises(Refused, match="Say why"):
        previews.ask(environment, Intent("move", ("game:go",), "ann"))
