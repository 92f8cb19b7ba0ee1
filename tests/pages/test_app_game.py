"""The Game page: what is wrong first, then the proof, then what can be done; nothing unknown is a zero."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app import formatting
from app.game import cause, figures, marks, queries
from app.game.signals import GameSignals, state_text
from listeners.series import BUCKETS, Series
from listeners.status import Status
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.catalogue.versions import Version
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.incidents.causes import Acting, Action, Finding
from pipeline.health.incidents.incidents import Incident
from pipeline.settings.tree import Paths, Settings
from pipeline.store import derived
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import Cause, OperationState
from pipeline.store.operations import Operation
from pipeline.store.rows import RuleTable
from tests.browser.game_world import failing_game, with_contract, with_derived
from tests.browser.seed import HOSTILE, Seeded, seed
from tests.tables.repair_world import CHESS
from tests.unit.app.app_world import again, drawn_alive, name_roles, texts

Opening = Callable[..., AppTest]
NOW = 1_800_000_000.0


def signals_of(folder: Path, *games: Seeded, **more: Any) -> GameSignals:
    """Return what is known of the worst of these games."""
    seed(folder, games, now=NOW, heartbeat_ages={"ingest": 1, "a": 1}, history=False)
    engine = open_store(Settings(), Paths(folder))
    fleet = read_fleet(engine, NOW)
    engine.dispose()
    return GameSignals(fleet, fleet.rows[0], 60.0, **more)


def series_of(statuses: list[str | None], **more: Any) -> Series:
    """Return minutes of one game, up to now: with a status 60 rows landed, without one no driver reported."""
    slots = len(statuses)
    known = np.array([status is not None for status in statuses])
    rows = np.where(known, 60, 0)[np.newaxis]
    counts = np.zeros((1, slots, BUCKETS), np.int64)
    counts[:, :, 1] = rows
    given: dict[str, Any] = {
        "rows": rows,
        "caught_up": np.zeros((1, slots), np.int64),
        "refused": np.zeros((1, slots), np.int64),
        "commits": rows // 60,
        "counts": counts,
        "backlog": np.where(known, 1.0, np.nan)[np.newaxis],
        "status": np.array([[-1 if status is None else Status(status).severity for status in statuses]]),
        "events": np.full(slots, np.nan),
        "refused_early": np.full(slots, np.nan),
    }
    return Series(NOW - 60 * slots, 60, ("one",), ("a",), **{**given, **more})


def incident_of(key: str, **more: Any) -> Incident:
    finding = Finding(
        Cause.SCHEMA,
        "Rows of 2 games refused since schema version 7",
        ("492 rows refused since 15:40", "all of schema 7"),
        ("the group: its 78 others are well",),
        Action("Review schema 7…", "schemas", {"game": key}),
        "turnoutrejectratiohigh",
    )
    return Incident("i1", finding, **{"games": (key, "other"), "group": "a", "since": NOW - 720, "ended_at": None,
                                      "outlook": None, "tone": "bad", **more})  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- figures


def test_a_slot_without_a_report_is_a_gap(tmp_path: Path) -> None:
    """Without a reading a figure is a dash with its reason; a minute without a report is a gap, never a zero."""
    bare = signals_of(tmp_path, Seeded("one", "a", None))
    assert {each.value for each in figures.figures(bare)} == {"–"}
    assert all(each.note and each.tone == "blind" and not each.points for each in figures.figures(bare))
    series = series_of(["RUNNING", None, "RUNNING"])
    assert figures.per_second(series, "rows") == [1.0, None, 1.0]
    assert figures.per_second(series, "refused") == [0.0, None, 0.0]
    assert figures.backlog(series) == [1.0, None, 1.0]
    assert figures.since_commit(series) == [0.0, None, 0.0]
    assert figures.quantiles(series)["p99"][1] is None
    assert figures.per_second(series.of(()), "rows") == [None] * 3


def test_figures_say_what_is_late_and_what_is_not(tmp_path: Path) -> None:
    """A backlog above the objective, rows that stopped and refusals have a tone; a game that is well has none."""
    refused = np.array([[0, 0, 120]])
    stopped = series_of(["RUNNING", "RUNNING", "FAILED"], rows=np.array([[60, 60, 0]]), refused=refused)
    bad = Seeded("one", "a", {"status": "FAILED", "backlog_age_seconds": 720.0, "last_commit_age": 724.0})
    found = {
        each.label: each for each in figures.figures(signals_of(tmp_path / "bad", bad, series=stopped, recent=stopped))
    }
    assert {label: (each.value, each.unit, each.tone) for label, each in found.items()} == {
        "Oldest backlog": ("12", "min", "bad"),
        "Rows landed": ("0", "/s", "bad"),
        "Rows refused": ("2.0", "/s", "late"),
        "Latency p99": ("1.0", "s", "plain"),
        "Last commit": ("12", "min ago", "plain"),
        "Complete through": ("–", "", "blind"),
    }
    well = series_of(["RUNNING"] * 3)
    found = {
        each.label: each
        for each in figures.figures(signals_of(tmp_path / "well", Seeded("one", "a", {}), series=well, recent=well))
    }
    assert {each.tone for label, each in found.items() if label != "Complete through"} == {"plain"}
    assert found["Rows refused"].note == "none in this time"


def test_the_strip_has_trouble_silence_and_now(tmp_path: Path) -> None:
    """A slot is bad, late, well or not known, and the last one is this moment by the control store."""
    series = series_of(["RUNNING", "LAGGING", "FAILED", None])
    made = figures.slots(signals_of(tmp_path, Seeded("one", "a", {"status": "STALLED"}), series=series))
    assert [(each.bad, each.late, each.known) for each in made] == [
        (0, 0, True), (0, 1, True), (1, 0, True), (0, 0, False), (1, 0, True),
    ]  # fmt: skip
    assert [each.title.partition(": ")[2] for each in made] == [
        "running",
        "lagging",
        "failed",
        "no driver reported",
        "stalled",
    ]
    assert figures.label(made) == "Status over time, 5 slots: 2 failing, 1 late or unknown, 1 not reported."
    long = figures.slots(signals_of(tmp_path / "long", Seeded("one", "a", {}), series=series_of(["RUNNING"] * 90)))
    assert len(long) == figures.SLOTS


# ---------------------------------------------------------------------------------------------------------------- cause


def test_a_cause_has_evidence_and_what_it_is_not_and_what_is_next(tmp_path: Path) -> None:
    """The card of an incident shows all that was found, with the next action and what follows it."""
    known = signals_of(tmp_path, Seeded("one", "a", {"status": "FAILED", "last_error": "field 3"}))
    card = cause.card(replace(known, incidents=(incident_of(game_key("one")),)))
    assert card is not None
    assert (card.title, card.tone, card.glyph) == ("Rows of 2 games refused since schema version 7", "bad", "✗")
    assert card.since == "for 12 min, since 07:48"
    assert card.lines == (
        ("evidence", "492 rows refused since 15:40"),
        ("", "all of schema 7"),
        ("error", "field 3"),
        ("not", "the group: its 78 others are well"),
        ("also", "1 other game in the same incident"),
        ("next", "Review schema 7, then replay its refused rows"),
    )
    assert (card.following, card.runbook) == ("replay", "turnoutrejectratiohigh")
    assert card.why_not_yet == "Mend the schema first: until then a replay leaves the rows in quarantine."
    assert card.action is not None


def test_a_cause_that_is_being_mended_says_by_whom_and_offers_nothing_more(tmp_path: Path) -> None:
    """While an operation works on it, and while it recovers, the card says so and no further act is next."""
    known = signals_of(tmp_path, Seeded("one", "a", {"status": "FAILED"}))
    opened = incident_of(game_key("one"))
    acting = Acting("ann", "replay 0af30af3 by ann is under way", known.now - 30)
    at_it = replace(opened, finding=replace(opened.finding, acting=acting))
    over = replace(opened, tone="recovering", outlook="level in about 4 min", finding=opened.finding.over("One"))
    for incident, said, tone in (
        (at_it, "replay 0af30af3 by ann is under way, for 30 s", "bad"), (over, "level in about 4 min", "bad"),
    ):  # fmt: skip
        card = cause.card(replace(known, incidents=(incident,)))
        assert card is not None
        assert (card.lines[0], card.glyph, card.tone, card.following) == (("now", said), "»", tone, None)
        assert (card.action is None) == (incident is over)


def test_without_an_incident_trouble_is_still_said(tmp_path: Path) -> None:
    """A game in trouble has a card of what its driver and neighbours say; a game that is well has none."""
    well = [Seeded(f"w{n}", "a", {}) for n in range(3)]
    alone = signals_of(tmp_path / "alone", *well, Seeded("sick", "a", {"status": "STALLED", "status_since_age": 360.0}))
    card = cause.card(replace(alone, incidents=()))
    assert card is not None
    assert card.title == "Stalled for 6 min, since 07:54"
    assert dict(card.lines) == {"not": "group a: its 3 other games are well", "cause": "undetermined"}
    unread = cause.card(replace(alone, whys={"incidents": "The control store cannot be read"}))
    assert unread is not None
    assert ("cause", "not known: The control store cannot be read") in unread.lines
    sick = [Seeded(f"s{n}", "a", {"status": "STALLED"}) for n in range(3)]
    shared = cause.card(signals_of(tmp_path / "shared", *sick, Seeded("w", "a", {})))
    assert shared is not None
    assert ("next", "Look at group a first") in shared.lines
    assert cause.card(replace(alone, row=alone.fleet.rows[-1], incidents=())) is None
    ended = incident_of(game_key("w0"), ended_at=NOW - 1)
    assert cause.card(replace(alone, row=alone.fleet.rows[-1], incidents=(ended,))) is None


def test_the_head_states_facts(tmp_path: Path) -> None:
    """A failing game says since when nothing landed; others say how long they are so and when they last committed."""
    bad = Seeded("one", "a", {"status": "FAILED", "last_commit_age": 720.0})
    assert state_text(signals_of(tmp_path / "bad", bad)) == "nothing landed for 12 min, since 07:48"
    assert state_text(signals_of(tmp_path / "well", Seeded("one", "a", {}))).endswith("last commit 2 s ago · lag 0.6 s")


def test_charts_are_marked_with_what_was_done_and_changed(tmp_path: Path) -> None:
    """Operations, schema versions and the start of the driver stand in the charts, unless they could not be read."""
    known = signals_of(tmp_path, Seeded("one", "a", {}))
    targets = (f"game:{game_key('one')}", "game:two")
    operation = Operation(
        "o1", "pause", OperationState.SUCCEEDED, targets, {}, "ann", "", {}, "", None, None, NOW - 60, NOW, 1
    )
    version = Version(game_key("one"), "one", 7, 1, "protobuf", "t.M", NOW - 30)
    marked = marks.events(replace(known, operations=(operation,), versions=(version,)))
    assert [(each.at - NOW, each.label) for each in marked] == [
        (-7200, "a starts"),
        (-60, "pause 2 games"),
        (-30, "schema 7"),
    ]
    assert [each.label for each in marks.events(known)] == ["a starts"]


# ----------------------------------------------------------------------------------------------------------------- page


@pytest.fixture
def failing(tmp_path: Path) -> str:
    world = failing_game(tmp_path, time.time())
    world.engine.dispose()
    return str(CHESS.key)


def test_a_failing_game_shows_cause_then_proof_then_actions(failing: str, opening: Opening) -> None:
    """The first words are what is wrong; figures and rows prove it; actions stand below the evidence."""
    app = opening("game", game=failing)
    drawn = [each.value for each in app.html]
    said = texts(app)
    places = [next(at for at, each in enumerate(drawn) if words in each) for words in (
        "nothing landed for 12 min", "t-incident", "Oldest backlog", "What can be done",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "SchemaMismatch: field 4 of schema version 2 is not wanted" in said
    (choice,) = (each for each in app.segmented_control if each.key == "game_rows")
    assert [each.content for each in choice.proto.options] == ["Refused", "Landed", "Contract", "Derived"]
    assert re.search(r"at least 27\u202f060 were refused in [^,]+, with those that landed since", said)
    assert "2 ✓" in said
    assert f"key {failing}" in said
    rows, neighbours = (element.value for element in app.dataframe)
    assert list(rows["Seq"])[:2] == ["14 · 1", "14 · 0"]
    assert list(rows["Reason"])[:2] == ["malformed_payload", "quarantined_schema"]
    values = list(rows["Decoded as far as it goes"])
    assert values[0].startswith("match_id=25 move=e4 … the payload ends")
    assert values[1].endswith("elo_after=1500")
    assert len(neighbours) == 20
    landed = opening("game", game=failing, rows="landed").dataframe[0].value
    assert next(iter(landed["Decoded as far as it goes"])) == "match_id=45487493 move=e7 clock_ms=51645"


def test_a_contract_is_shown_with_the_rows_that_broke_it(tmp_path: Path, opening: Opening) -> None:
    """Rules that rows broke come first; a game without a contract has a sentence; foreign texts are inert."""
    world = failing_game(tmp_path, time.time())
    app = opening("game", game=str(CHESS.key), rows="contract")
    assert "No output contract is for this game." in texts(app)
    with_contract(world, time.time())
    world.engine.dispose()
    st.cache_data.clear()
    st.cache_resource.clear()
    frames = [each.value for each in opening("game", game=str(CHESS.key), rows="contract").dataframe]
    rows = next(each for each in frames if "Rule" in each).to_dict("records")
    names = ("Rule", "Action", "Rows that break it", "Promise", "Readers")
    assert [[each[name] for name in names] for each in rows] == [
        ["play/clock_ms", ["△ warn"], "6", "integer · at least 0", "BI <b>, daily revenue"],
        ["play/move", ["◆ quarantine"], "2", "never null · matches [a-h][1-8]", "BI <b>, daily revenue"],
        ["play/rated", ["■ stop"], "0", "100 to 4000", "BI <b>, daily revenue"],
    ]


def test_derived_streams_are_shown_with_their_lag_and_reason(tmp_path: Path, opening: Opening) -> None:
    """Trouble comes first; a stream that fails, is silent or was never carried has no lag of 0."""
    world = failing_game(tmp_path, time.time())
    app = opening("game", game=str(CHESS.key), rows="derived")
    assert "No derived stream is of this game." in texts(app)
    with_derived(world, time.time())
    world.engine.dispose()
    st.cache_data.clear()
    st.cache_resource.clear()
    rows = opening("game", game=str(CHESS.key), rows="derived").dataframe[0].value.to_dict("records")
    names = ("Table", "State", "Rows", "Behind", "Lag", "Generation")
    assert [[each[name] for name in names] for each in rows] == [
        ["silver/moves_broken", ["■ stands still"], "160\u202f000", "–", "11 min", "1"],
        ["silver/moves_silent", ["? unknown"], "160\u202f000", "–", "–", "1"],
        ["silver/moves_new", ["? unknown"], "–", "–", "–", "–"],
        ["silver/moves_late", ["» behind"], "160\u202f000", "6", "1 min", "3"],
        ["silver/moves", ["● level"], "160\u202f000", "0", "0.0 s", "1"],
    ]
    assert "no column 'elo', which silver moves_broken names <b>" in rows[0]["Reason"]
    assert rows[0]["Reason"].startswith("for 11 min: Refused: ")
    assert [each["Reason"] for each in rows[1:3]] == ["no report for 16 min", "no driver has carried it yet"]


def test_event_types_that_a_cap_leaves_out_are_named(tmp_path: Path, opening: Opening) -> None:
    """A person sees on the Game page which event type has no silver table, and which setting is the cause."""
    world = failing_game(tmp_path, time.time())
    left = RuleTable("t", str(CHESS.key), "Chess", "acme.<b>Sold", 0, None, "derived.tables_per_game is 1, and so on")
    derived.keep_rule_tables(world.engine, lambda _, known: known or [left])
    shown = texts(opening("game", game=str(CHESS.key), rows="derived"))
    assert "come into no silver table: 1" in shown
    assert "derived.tables_per_game is 1" in shown


def test_rows_that_a_link_asked_for_stand_above_the_charts(failing: str, opening: Opening) -> None:
    """The next action of refused rows leads to them: they are seen without scrolling, also at the next refresh."""

    def places(app: AppTest) -> tuple[int, int]:
        drawn = [each.value for each in app.html]
        rows = next(at for at, each in enumerate(drawn) if "newest first" in each)
        return rows, next(at for at, each in enumerate(drawn) if "What can be done" in each)

    app = opening("game", game=failing)
    rows, actions = places(app)
    assert rows > actions
    app.session_state["links_asked"] = {"game": failing, "rows": "refused"}
    for _ in range(2):
        rows, actions = places(again(app))
        assert rows < actions


def test_payloads_are_not_on_the_page_of_a_viewer(failing: str, opening: Opening, tmp_path: Path) -> None:
    """Law of the role: a page without it has time, place, schema, reason and size, and says why no more."""
    name_roles(tmp_path, operators=["bob"])
    app = opening("game", game=failing)
    assert list(app.dataframe[0].value.columns) == ["At, UTC", "Seq", "Schema", "Reason", "Size"]
    assert "shapes are shown to operators" in texts(app)
    assert "values are hidden" in texts(opening("game", game=failing, rows="landed"))
    name_roles(tmp_path, operators=[current_user()])
    shapes = opening("game", game=failing)
    assert "Bytes" not in shapes.dataframe[0].value.columns
    assert shapes.dataframe[0].value["Decoded as far as it goes"][0] == "match_id=… move=… … no further field"
    with (tmp_path / "turnout.toml").open("a") as settings:
        settings.write("\n[access]\noperators_see_values = true\n")
    values = opening("game", game=failing)
    assert values.dataframe[0].value["Decoded as far as it goes"][0].startswith("match_id=25 move=e4 … the payload")
    assert "this look is in the audit log" in texts(values)


def test_a_part_that_cannot_be_read_leaves_the_others(
    failing: str, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each panel fails alone and says what did not answer; figures of the control store stay."""

    def refuse(*_: object) -> None:
        raise Refused("The minute tables cannot be read")

    monkeypatch.setattr(queries, "_of_game", refuse)
    monkeypatch.setattr("app.game.rows_panel.last_rows", refuse)
    said = texts(opening("game", game=failing))
    assert said.count("The minute tables cannot be read") >= 3
    assert "The rows cannot be read." in said
    assert "nothing landed for 12 min" in said
    assert "What can be done" in said


def test_a_game_that_is_well_has_no_cause_card(tmp_path: Path, opening: Opening) -> None:
    """Calm is quiet: no card of a cause, and without minutes the charts say why they are empty."""
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening("game", game=game_key("one"))
    assert not [each for each in app.html if 'class="t-incident' in each.value]
    assert "● running" in texts(app)
    assert "No driver reported this game in this time." in texts(app)
    assert "Quarantine holds no row of this game." in texts(app)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_on_the_page(name: str, tmp_path: Path, opening: Opening) -> None:
    """A game's name, error and group are text in every part of its page."""
    bad = Seeded(name, "a", {"status": "FAILED", "last_error": name})
    seed(tmp_path, [bad, Seeded("one", "a", {})], now=time.time(), history=False)
    app = opening("game", game=game_key(name))
    assert not app.exception
    assert not any(part in drawn_alive(app) for part in ("<script", "**bold** [", "](", ":red[", "javascript:"))
    assert formatting.shown(name, 60)[:20] in texts(app)
    assert "\u202e" not in texts(app)
