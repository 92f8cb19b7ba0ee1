"""The headlines of all pages are of one list of what stands: none is green or says healthy beside another's trouble."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listeners.status import Status
from pipeline.base.names import game_key
from pipeline.health.headlines.pages import of_game, of_groups, of_operations, of_repairs
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.database.states import Cause
from pipeline.store.rows import Driver
from tests.unit.app.fleet_world import NOW, Game, fleet, incident
from tests.unit.health.headlines.headline_world import check, headlines

NAMES: Final = ("Chess", "Go", "Ludo", "Mill")
SUPERVISED: Final = {"a": GroupIntent("running", "local")}


def situation(games: Sequence[Game], found: Sequence[Incident] | None = (), **facts: Any) -> Situation:
    """Return the situation of a fleet with these games and incidents."""
    seen = fleet(games, **facts)
    return Situation(seen.judgement, seen.rows, found)


def silent_source() -> Incident:
    """Return that the source fell silent, an incident of all games."""
    finding = Finding(
        Cause.SOURCE_SILENT, "The source fell silent", ("no row for 2 min",), (), None, None, scope="source"
    )
    keys = [game_key(name) for name in NAMES]
    return incident(keys, finding=finding, tone="late", since=NOW - 150)


def replayed() -> Incident:
    """Return that rows of Chess wait for a replay."""
    action = Action("Replay…", "repairs", {"repair": "replay", "games": game_key("Chess")})
    finding = Finding(Cause.SCHEMA, "Rows of Chess refused for their schema", (), (), action, None)
    return incident([game_key("Chess")], finding=finding, tone="late", since=NOW - 90)


def test_while_the_source_is_silent_no_page_is_green() -> None:
    """All streams run and an incident stands: it is the sentence of Fleet, and every other page names it."""
    of = situation([Game(name) for name in NAMES], [silent_source()])
    made = headlines(of)
    assert (made["fleet"].text, made["fleet"].tone, made["fleet"].since) == (
        "The source fell silent",
        "late",
        NOW - 150,
    )
    assert made["fleet"].notes == ("4 streams level with bronze",)
    assert all(each.elsewhere is not None for page, each in made.items() if page != "fleet")
    check(of)


def test_a_replay_that_fleet_offers_is_not_news_to_repairs() -> None:
    """The page that an incident's action opens is about that incident, with its severity and its time."""
    of = situation([Game(name) for name in NAMES], [replayed()])
    said = of_repairs(of, ())
    assert (said.text, said.tone, said.since) == ("Rows of Chess refused for their schema", "late", NOW - 90)
    assert said.elsewhere is None
    check(of)


def test_a_group_whose_games_stand_still_is_not_green() -> None:
    """A driver that lives while half of its games are in trouble is named on Groups, with the severity of Fleet."""
    of = situation([Game("Chess", "STALLED", "b"), Game("Go", "STALLED", "b"), Game("Ludo")])
    said = of_groups(of)
    assert (said.text, said.tone) == ("Group b degraded (2 of 2)", "bad")
    check(of)


def test_operations_are_not_green_without_a_controller() -> None:
    """Where no controller runs, an empty list of operations is no good news; where it is needed all pages say so."""
    idle = situation([Game("Chess")])
    said = of_operations(idle, 0, 0)
    assert (said.text, said.tone, said.notes) == ("No operation is open", "plain", ("no controller runs",))
    needed = situation([Game("Chess")], groups=SUPERVISED)
    assert of_operations(needed, 0, 0).tone == "late", "rows go on without it"
    assert headlines(needed)["fleet"].text == "No controller runs"
    check(needed)
    alarmed = Driver("controller", "main", "host", 5, NOW - 900, NOW - 2, "running", "group b has no driver", None)
    runs = of_operations(situation([Game("Chess")], more=(alarmed,)), 0, 0)
    assert (runs.text, runs.tone) == ("No operation is open", "plain")
    assert runs.elsewhere is not None
    assert runs.elsewhere.text == "The controller reports: group b has no driver"


def test_since_is_of_what_the_sentence_names() -> None:
    """An incident that is older, about other games, does not date the streams that fail."""
    games = [Game("Chess", "FAILED", reported={"status_since": NOW - 60}), Game("Go"), Game("Ludo"), Game("Mill")]
    of = situation(games, [incident([game_key("Go")], since=NOW - 7200, tone="late")])
    said = headlines(of)["fleet"]
    assert (said.text, said.since) == ("1 of 4 streams failing", NOW - 60)
    assert of_repairs(of, ()).since == NOW - 60
    check(of)


def test_a_group_that_starts_is_neither_green_nor_trouble() -> None:
    """A start that nobody needs to look at makes each page blue or grey, also where the group has no game."""
    starting = Driver("group", "b", "host", 9, NOW - 5, NOW - 5, "starting", None, None)
    of = situation([Game("Chess")], more=(starting,))
    made = headlines(of)
    assert (made["fleet"].text, made["fleet"].tone) == ("Group b is starting", "busy")
    assert (made["groups"].text, made["groups"].tone) == ("1 of 2 groups' drivers starting: b", "busy")
    assert made["books"].tone == "plain"
    check(of)
    lost = Finding(Cause.DRIVER_GONE, "Group b lost its driver", (), (), None, None, scope="group b")
    over = incident([game_key("Chess")], finding=lost, tone="recovering", since=NOW - 300, group="b")
    assert of_groups(situation([Game("Chess", group="b")], [over], more=(starting,))).since == NOW - 5


def test_a_running_game_of_an_incident_is_as_its_cell() -> None:
    """The page of a game whose rows are refused is not green; that of its neighbour is, with the incident beside it."""
    of = situation([Game("Chess"), Game("Go")], [replayed()])
    chess, go = (of_game(of, each) for each in of.games)
    assert (chess.tone, chess.since, chess.elsewhere) == ("late", NOW - 90, None)
    assert go.tone == "well"
    assert go.elsewhere is not None
    check(of)


def test_an_incident_that_recovers_is_late_while_its_game_is() -> None:
    """Blue is for games on their way, and for none that is still late."""
    over = incident([game_key("Chess")], tone="recovering")
    for status, severity in (("CATCHING_UP", "busy"), ("LAGGING", "late")):
        of = situation([Game("Chess", status), Game("Go"), Game("Ludo")], [over])
        assert of.standings[0].severity == severity
        check(of)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Situation, int, int]:
    """Draw a fleet in any condition with incidents of its games and of none, its open and its stuck operations."""
    waiting, stuck = draw(st.integers(0, 2)), draw(st.integers(0, 1))
    games = [
        Game(
            name, draw(st.sampled_from([*Status])), draw(st.sampled_from(["a", "b", None])),
            draw(st.sampled_from([None, {}, {"status_since": NOW - 60}, {"updated_at": NOW - 600}])),
        )
        for name in NAMES[: draw(st.integers(0, len(NAMES)))]
    ]  # fmt: skip
    age = st.sampled_from([2.0, 2.0, 2.0, 120.0])
    silent = {name: draw(age) for name in ("main", "a", "b")}
    states = st.sampled_from(["running", "starting", "failed", "stopped"])
    more = [
        Driver(kind, name, "host", 9, NOW - draw(age), NOW - draw(age), draw(states), None, None)
        for kind, name in (("controller", "main"), ("group", "c"), ("maintenance", "main"))
        if draw(st.booleans())
    ]
    keys = [game_key(each.name) for each in games]
    found = [
        replace(
            draw(st.sampled_from([silent_source(), replayed(), incident([])])),
            incident_id=str(number), games=tuple(draw(st.lists(st.sampled_from(keys), unique=True)) if keys else ()),
            tone=draw(st.sampled_from(["bad", "late", "recovering"])), since=NOW - draw(st.sampled_from([9.0, 900.0])),
            ended_at=draw(st.sampled_from([None, None, NOW - 5])),
        )
        for number in range(draw(st.integers(0, 2)))
    ]  # fmt: skip
    of = situation(
        games, None if draw(st.integers(0, 9)) == 0 else found, silent=silent, more=more,
        groups=SUPERVISED if draw(st.booleans()) else {}, waiting_operations=waiting, stuck_operations=stuck,
        newest_bronze_at=NOW - draw(st.sampled_from([2.0, 400.0])),
    )  # fmt: skip
    return of, waiting + stuck, stuck


@given(situations(), st.sets(st.sampled_from(NAMES)))
@pytest.mark.proves("G131")
def test_no_page_contradicts_another(drawn: tuple[Situation, int, int], stopped: set[str]) -> None:
    """Whatever has happened, no headline is green or says healthy beside trouble, and none hides the worst."""
    of, opened, stuck = drawn
    check(of, {game_key(name) for name in stopped} & {each.game_key for each in of.games}, opened, stuck)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@settings(max_examples=10_000)
@given(situations(), st.sets(st.sampled_from(NAMES)))
@pytest.mark.proves("G131")
def test_no_page_contradicts_another_in_ten_thousand_situations(
    drawn: tuple[Situation, int, int], stopped: set[str]
) -> None:
    """The same for many more; `tests/signals/test_one_judgement.py` compares the pages over histories."""
    of, opened, stuck = drawn
    check(of, {game_key(name) for name in stopped} & {each.game_key for each in of.games}, opened, stuck)
