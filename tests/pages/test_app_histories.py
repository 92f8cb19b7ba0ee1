"""The history of events of an operation, of one of its games, and of a game over all operations."""

from typing import Any

import pytest
from sqlalchemy import Engine

from app.components import links
from pipeline.api.histories import events_of
from pipeline.store.database.states import OperationState
from pipeline.store.operation_events import TargetEvent, note_events
from pipeline.store.operations import Intent, Operation, Step, begin_step, change, end_step, submit
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import KEY, Opening, drawn_alive, texts
from tests.unit.app.app_world import links as links_of

CHESS, GO = f"game:{KEY['Chess']}", f"game:{KEY['Go']}"


@pytest.fixture
def drained(store: Engine) -> Operation:
    """Return a drain of which Chess is level in b, while a still holds Go."""
    preview: dict[str, Any] = {KEY["Chess"]: ["a", "b", 1], KEY["Go"]: ["a", "b", 1]}
    desired = {"assignments": dict.fromkeys(preview, "b"), "desired": {"a": ["running", "drained"]}}
    begun = submit(store, Intent("move", (CHESS, GO), "ann", "upgrade", desired, preview))
    begun = change(store, begun, OperationState.RUNNING)
    end_step(store, begun, begin_step(store, begun, "assign"), "done", "2 assigned.")
    end_step(store, begun, begin_step(store, begun, "release"), "running", "Group a still holds 1.")
    both = [TargetEvent(target, "assign", "a → b, epoch 2") for target in (CHESS, GO)]
    facts = {"release": "a let go", "acquire": "b took it", "verify": "b is level, at seq 9"}
    seen = [*both, *(TargetEvent(CHESS, name, detail) for name, detail in facts.items())]
    note_events(store, [(begun.operation_id, each) for each in seen])
    return begun


def test_a_bulk_operation_has_a_row_for_each_game(drained: Operation, opening: Opening) -> None:
    """Each row has how far its game came and when; the row of a game that is waited for names the step."""
    app = opening("operations", operation=drained.operation_id)
    table = next(each.value for each in app.dataframe if "now" in each.value)
    assert list(table["target"]) == ["Chess", "Go"]
    assert list(table["now"]) == ["✓ verify", "… release"]
    assert list(table["verify"])[1] == "–"
    assert all(each.startswith("+") for each in [*table["assign"], table["verify"][0], table["release"][0]])
    assert table["between"][1] == "–"
    assert "2 targets, 1 through with verify" in texts(app)


def test_the_history_of_an_operation_is_its_events_in_order(drained: Operation, opening: Opening) -> None:
    """Submission, steps and what became of each game stand in one numbered list; `of` leaves one game's."""
    app = opening("operations", operation=drained.operation_id)
    table = app.dataframe[-1].value
    assert list(table["number"]) == list(range(1, len(table) + 1))
    assert list(table["what"])[:2] == ["submitted", "step assign begins"]
    assert table["after"][0] == "+0.0 s"
    assert table["detail"][0] == "by ann: upgrade"
    assert {*table["target"]} == {"–", "Chess", "Go"}
    alone = opening("operations", operation=drained.operation_id, of=GO).dataframe[-1].value
    assert {*alone["target"]} == {"–", "Go"}
    assert len(alone) == len(table) - 4


def test_the_history_of_a_game_goes_over_all_operations(store: Engine, drained: Operation, opening: Opening) -> None:
    """The newest operation comes first, each with what it did to this game and not to others."""
    other = submit(store, Intent("pause", (f"game:{KEY['Risk']}",), "bob", "bad rows"))
    change(store, other, OperationState.CANCELLED, "Cancelled by bob: no")
    app = opening("operations", history=KEY["Chess"])
    assert "History of Chess" in texts(app)
    assert "Drain of group a" in texts(app)
    assert "Pause of Risk" not in texts(app)
    assert "verify" in list(app.dataframe[0].value["what"])
    assert "Go" not in list(app.dataframe[0].value["target"])
    risk = opening("operations", history=KEY["Risk"]).dataframe[0].value
    assert list(risk["what"]) == ["submitted", "cancelled"]
    assert "No such game" in texts(opening("operations", history="nothing"))
    assert "History of its events" in links_of(opening("game", game=KEY["Chess"]))


def test_a_game_below_the_list_opens_its_history(
    store: Engine, drained: Operation, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A game that is chosen among those of the listed operations opens its history in place."""
    went: list[tuple[str, object]] = []
    monkeypatch.setattr(links, "_switch", lambda page, query: went.append((page, query)))
    ended = submit(store, Intent("pause", (f"game:{KEY['Risk']}",), "bob"))
    change(store, ended, OperationState.FAILED, "no")
    app = opening("operations")
    app.selectbox(key="operations_history").set_value(KEY["Risk"]).run()
    assert went == [("operations", {"history": KEY["Risk"]})]


def test_hostile_details_stay_text(store: Engine, opening: Opening) -> None:
    """Reasons, outcomes and details that look like markup reach history and table as plain text."""
    begun = submit(store, Intent("pause", (CHESS, GO), HOSTILE[0], HOSTILE[1]))
    note_events(store, [(begun.operation_id, TargetEvent(CHESS, "verify", HOSTILE[2]))])
    change(store, begun, OperationState.FAILED, HOSTILE[1])
    for app in (opening("operations", operation=begun.operation_id), opening("operations", history=KEY["Chess"])):
        drawn = drawn_alive(app)
        assert not any(part in drawn for part in ("<script", "**bold", "](", ":red[", "javascript:"))
        assert "\u202e" not in texts(app)


def test_events_of_one_moment_stay_in_their_order() -> None:
    """An operation begins before its steps and ends after them, also where a clock says the same for all."""
    operation = Operation(
        "1" * 32, "pause", OperationState.SUCCEEDED, (CHESS,), {}, "ann", "", {}, "", None, "Paused.", 5.0, 5.0, 1
    )
    journal = [Step(1, "decide", "done", "Decided.", 5.0, 5.0)]
    names = [each.name for each in events_of(operation, journal, [TargetEvent(CHESS, "verify", "seen", 5.0)])]
    assert names == ["submitted", "step decide begins", "step decide done", "verify", "succeeded"]
