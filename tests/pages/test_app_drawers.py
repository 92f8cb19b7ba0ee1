"""Drawers: what changes and what was checked, then the steps with their times, then the way back or what follows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.components import confirm, progress
from app.components.confirm import does
from app.state import control_queries, services
from app.state.control_queries import OneOperation
from pipeline.api.acts import Follows, Preview, Waiting
from pipeline.base.errors import Refused
from pipeline.store import stream_control
from pipeline.store.database.states import OperationKind, OperationState, StepState
from pipeline.store.operations import (
    Intent,
    Operation,
    Step,
    begin_step,
    change,
    end_step,
    list_operations,
    operation,
)
from tests.unit.app.app_world import KEY, Opening, again, fill, texts

CHESS = KEY["Chess"]
PLACE = f"game_{CHESS}"


def said(app: AppTest) -> str:
    return re.sub(r" +", " ", texts(app))


def labels(app: AppTest, key: str) -> list[str]:
    return [each.label for each in app.button if each.key == key]


def moved_on(app: AppTest) -> AppTest:
    services.forget()
    return again(app)


def paused(store: Engine, opening: Opening) -> tuple[AppTest, Operation]:
    app = opening("game", game=CHESS)
    app.button(key="act_pause").click().run()
    fill(app, reason="its schema").button(key=f"ask_{PLACE}").click().run()
    (submitted,) = list_operations(store)
    return app, submitted


def of(
    kind: str, *steps: Step, state: OperationState = OperationState.RUNNING, usual_seconds: float | None = None
) -> OneOperation:
    asked = Operation("0af3" * 8, kind, state, ("game:g",), {}, "ann", "", {}, "", None, None, 1000.0, None, 1)
    return OneOperation(asked, steps, {}, None, None, 1067.0, usual_seconds=usual_seconds)


# ---------------------------------------------------------------------------------------------------------- before


def test_a_preview_shows_what_changes_and_what_was_checked(store: Engine, opening: Opening) -> None:
    """A diff, what it touches and checks stand in the drawer, and its button says what it does."""
    app = opening("game", game=CHESS)
    app.button(key="act_pause").click().run()
    shown = said(app)
    assert "- Chess running\n + Chess paused" in shown
    assert "1 to pause. No other stream is touched." in shown
    assert "✓ no other operation is about them" in shown
    assert "△ no controller runs, so it waits" in shown
    assert labels(app, f"ask_{PLACE}") == ["Pause 1 game"]


def test_a_button_says_what_it_does() -> None:
    """Title and button name the act with the rows or games that it is about, or what the act calls itself."""
    replay = Preview(Intent(OperationKind.REPLAY, ("game:g",), "ann"), (), 1, 0.0)
    assert does(replay) == "Replay 1 game"
    assert does(Preview(replay.intent, (), 1, 0.0, amount="7,980 rows")) == "Replay 7,980 rows"
    assert does(Preview(replay.intent, (), 1, 0.0, label="Land them")) == "Land them"
    restart = Preview(Intent(OperationKind.RESTART, ("group:a",), "ann"), (), 12, 0.0)
    assert (does(restart), does(replace(restart, games=0))) == ("Restart 12 games", "Restart 1 group")


# --------------------------------------------------------------------------------------------------- under way


def test_a_drawer_goes_on_with_its_operation(store: Engine, opening: Opening) -> None:
    """Once a drawer stayed on "planned": each draw has the operation's state, and the steps that are to come."""
    app, submitted = paused(store, opening)
    assert "○ planned" in said(app)
    assert "Decide" in said(app)
    running = change(store, submitted, OperationState.RUNNING)
    end_step(store, running, begin_step(store, running, "decide"), "done", "Decided for 1.")
    begin_step(store, running, "verify", "No driver has reported 1 yet.")
    shown = said(moved_on(app))
    assert "○ planned" not in shown
    assert re.search(r"✓ Decide \d\d:\d\d:\d\d UTC · .*Decided for 1\.", shown)
    assert re.search(r"» Verify .*No driver has reported 1 yet\.", shown)
    assert labels(app, "drawer_undo") == []
    stream_control.submit_control(store, CHESS, "ann", desired="paused")
    change(store, operation(store, submitted.operation_id), OperationState.SUCCEEDED, "Paused: chess.")
    app = moved_on(app)
    assert "✓ succeeded: Paused: chess." in said(app)
    app.button(key="drawer_undo").click().run()
    assert "1 to resume. No other stream is touched." in said(app)
    assert labels(app, f"ask_{PLACE}") == ["Resume 1 game"]
    assert len(list_operations(store)) == 1, "an undo is confirmed like any act"


def test_a_submitted_act_is_drawn_again_each_second(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drawer does not wait for the page, which is drawn every few seconds, more rarely under load, or is paused."""
    asked: list[object] = []
    real = st.fragment

    def record(function: object = None, *, run_every: object = None, **more: object) -> object:
        asked.append(run_every)
        return real(function, run_every=run_every, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(st, "fragment", record)
    paused(store, opening)
    assert progress.POLL_SECONDS == 1.0
    assert 1.0 in asked


def test_steps_have_times_and_a_first_try_is_no_step() -> None:
    """Those that have begun have when and how long and what they say; those to come wait; a second try is news."""

    def step(number: int, name: str, state: StepState, detail: str = "", ended_at: float | None = None) -> Step:
        return Step(number, name, state, detail, 1000.0 + number, ended_at)

    lines = progress.journal(of("replay", step(1, "replay", "running", "Rows of 1 are being decoded."),
                                step(2, "try 1", "running")))  # fmt: skip
    assert lines == [
        ("running", "Replay", "00:16:41 UTC · 66 s", "Rows of 1 are being decoded."), ("waiting", "Verify", "", "")
    ]  # fmt: skip
    again_begun = of("replay", step(1, "replay", "running"), step(2, "try 1", "failed", "", 1010.0),
                     step(3, "try 2", "running"))  # fmt: skip
    assert [name for _, name, _, _ in progress.journal(again_begun)] == ["Replay", "Try 1", "Try 2", "Verify"]
    stuck = progress.journal(of("replay", step(1, "replay", "failed", "no", 1010.0), state=OperationState.NEEDS_HUMAN))
    assert stuck[0][0] == "person"
    assert progress.journal(of("replay", step(1, "replay", "done", "", 1010.0)))[0][3] == "", "it said nothing"


def test_steps_name_games_as_people_do() -> None:
    """A step's text names games by their keys, and the drawer by their names; an unknown key stays."""
    key, gone = CHESS, KEY["Go"]
    step = Step(1, "acquire", "running", f"Group a has not taken 2 yet: {key}, {gone}.", 1000.0, None)
    seen = replace(of("move", step), names={key: "Chess"})
    assert progress.journal(seen)[0][3] == f"Group a has not taken 2 yet: Chess, {gone}."


def test_a_bar_shows_what_the_last_one_took() -> None:
    """A step without progress of its own is compared with the last success; nobody guesses without one."""
    share = progress.bar(of("restart", usual_seconds=134.0))
    assert share is not None
    assert (share.after, share.words) == (0.5, "67 s, the last one took 134 s")
    late = progress.bar(of("restart", usual_seconds=30.0))
    assert late is not None
    assert late.after == 0.95, "not done is never full"
    assert progress.bar(of("restart")) is None
    assert progress.bar(of("restart", state=OperationState.SUCCEEDED, usual_seconds=30.0)) is None


# ------------------------------------------------------------------------------------------------------- afterwards


@pytest.mark.parametrize(("waiting", "label", "caption"), [
    (Waiting(7_980), "Replay 7\u202f980 rows…", ""),
    (Waiting(1, "Its driver still writes by the earlier schemas."), "Replay 1 row…", "still writes by the earlier"),
    (Waiting(0), None, "No row waits in quarantine."),
    (Refused("quarantine is away"), None, "quarantine is away"),
])  # fmt: skip
def test_the_act_that_follows_is_offered_with_its_rows(
    waiting: Waiting | Refused, label: str | None, caption: str, store: Engine, opening: Opening, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """After a version was registered its refused rows are the next step, counted, once its driver writes by it."""
    del store, tmp_path

    def counted(_environment: object, _follows: Follows) -> Waiting:
        if isinstance(waiting, Refused):
            raise waiting
        return waiting

    monkeypatch.setattr(control_queries, "waiting_rows", counted)
    app = opening("game", game=CHESS)
    registered = Preview(Intent("register a schema", (), "ann"), (), 1, 0.0, label="Register version 2",
                         follows=Follows(OperationKind.REPLAY, (CHESS,)))  # fmt: skip
    app.session_state[f"offer_{PLACE}"] = confirm._Offer(registered, done="Schema id 2 is version 2 of the game.")
    app.run()
    assert labels(app, "drawer_next") == ([] if label is None else [label])
    assert caption in said(app).replace("\\", "")
    if label is not None:
        assert app.button(key="drawer_next").disabled == (caption != "")
