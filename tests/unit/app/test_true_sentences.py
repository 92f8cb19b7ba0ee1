"""Guards that a sentence is true at the moment at which it is shown: figures of one game, of Repairs and of groups."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.components import group_load, group_state, repair_figures
from app.components.group_state import GroupState
from app.game import figures, versions
from app.game.signals import GameSignals
from app.look import lines, trends
from app.state.control_queries import ControlState
from app.state.readings import Reading
from app.state.services import Environment
from app.state.situations import counted, situation
from listeners.series import Series, by_game
from pipeline.api.trends import Trend
from pipeline.api.versions import GameVersions
from pipeline.base.names import game_key
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.placement.capacity import GroupLoad
from pipeline.store.database.states import Cause
from tests.unit.app.fleet_world import NOW, Game, fleet, incident, series

CHESS = game_key("Chess")


def of_chess(**known: Any) -> GameSignals:
    seen = fleet([Game("Chess")])
    return GameSignals(seen, seen.rows[0], 60.0, **known)


def figure(signals: GameSignals, label: str) -> tuple[str, str]:
    found = next(each for each in figures.figures(signals) if each.label == label)
    return f"{found.value} {found.unit}".strip(), found.note


def trend(*reasons: str) -> Trend:
    rejects = dict.fromkeys(reasons, 5)
    return Trend(NOW - 3600, NOW, (), 100, rejects, {}, 0, (None, None, None))


def test_a_game_shows_no_rate_of_an_earlier_minute() -> None:
    """The page names one minute; a rate that was not reported for it is a dash, not that of an earlier minute."""
    known = series([CHESS], slots=5)
    known.rows[:, -1], known.commits[:, -1], known.status[:, -1] = 0, 0, -1
    signals = of_chess(series=known, recent=known)
    assert figure(signals, "Rows landed") == ("–", "not reported for that minute")
    assert figure(signals, "Rows refused") == ("–", "not reported for that minute")
    assert figure(of_chess(recent=None), "Rows landed") == ("–", "not read")


def test_a_minute_that_is_not_known_is_none_without_rows() -> None:
    """Beside rows that were not reported no figure says that there were none, nor that a live driver is silent."""
    quiet = [Game("Chess", reported={"latency_p99_seconds": None, "latency_p99_last_minute_seconds": None})]

    def latency(known: Series) -> tuple[str, str]:
        seen = fleet(quiet)
        return figure(GameSignals(seen, seen.rows[0], 60.0, series=known, recent=known), "Latency p99")

    known = series([CHESS], slots=5)
    known.counts[:, -1], known.rows[:, -1] = 0, 0
    assert latency(known) == ("–", "no row in that minute")
    lost = replace(known, partial={"a": np.arange(5) == 4})
    assert latency(lost) == ("–", "a report of that minute may be missing")
    known.commits[:, -1], known.status[:, -1] = 0, -1
    assert latency(known) == ("–", "not reported for that minute")
    known.rows[:, -1] = known.caught_up[:, -1] = 60
    assert latency(known) == ("–", "only rows that were caught up")
    none = series([], slots=5, events=np.full(5, np.nan))
    assert figure(of_chess(recent=none), "Rows landed") == ("–", "no whole minute is reported yet")
    silent = fleet([Game("Chess")], silent={"a": 120.0})
    gone = GameSignals(silent, silent.rows[0], 60.0, recent=none)
    assert figure(gone, "Rows landed") == ("–", "no driver reported lately")


def test_a_game_whose_driver_was_killed_shows_at_least_what_was_reported() -> None:
    """Of the minute in which its driver was killed the next one reports its own rows alone, which are no rate."""
    marked = {"a": np.array([False] * 4 + [True]), "b": np.array([True] * 5)}
    known = series([CHESS], slots=5, partial=marked)
    known.rows[:, -1] = 240
    signals = of_chess(series=known, recent=known)
    assert figure(signals, "Rows landed") == ("≥ 4.0 /s", "at least: a report of that minute may be missing")
    assert lines.partial_text(known, {"a"}) == " · at least these rows in 07:59: reports may be missing"
    assert lines.partial_text(known, {"c"}) == ""
    assert lines.partial_text(known) == " · at least these rows in 07:59, 07:58 and 3 more: reports may be missing"


def test_reasons_of_refusals_have_the_time_that_they_are_of() -> None:
    """Reasons are of the range on screen, and say so: beside the rate of one minute they would be its reasons."""
    known = series([CHESS], slots=5)
    known.refused[:, 1] = 60
    said = figure(of_chess(series=known, recent=known, trend=trend("quarantined_schema")), "Rows refused")
    assert said == ("0 /s", "in 1 h: quarantined_schema")
    many = trend("malformed_payload", "quarantined_schema", "unknown_schema", "empty_payload")
    assert figure(of_chess(series=known, recent=known, trend=many), "Rows refused")[1].endswith("and 2 more")
    known.refused[:] = 0
    assert figure(of_chess(series=known, recent=known, trend=trend()), "Rows refused")[1] == "none in 1 h"
    lost = replace(known, partial={"a": np.arange(5) == 2})
    in_part = figure(of_chess(series=lost, recent=known, trend=trend()), "Rows refused")[1]
    assert in_part == "none reported in 1 h; a report may be missing"
    assert [figures.span(seconds) for seconds in (900, 3600, 21_600, 86_400)] == ["15 min", "1 h", "6 h", "24 h"]


def steering(**reported: Any) -> ControlState:
    known = fleet([Game("Chess", reported=reported), Game("Go")])
    return cast(ControlState, SimpleNamespace(fleet=known, decisions={}, busy={}, read_at=NOW))


def test_refused_rows_of_now_are_in_the_hour_of_repairs() -> None:
    """The series ends with a closed minute; a burst of now, which drivers count, makes the hour "at least" as many."""
    hour = series([CHESS, game_key("Go")], slots=10)
    hour.refused[1, 0] = 265
    old = repair_figures.figures(steering(), Reading(hour))[2]
    assert (old.value, old.note) == ("≥ 265", "Go: 100 % of them; complete until 08:00 UTC")
    burst = repair_figures.figures(steering(refused={"quarantined_schema": 3735}), Reading(hour))[2]
    assert (burst.value, burst.note) == ("≥ 4\u202f000", "Chess: 93 % of them; complete until 08:00 UTC")
    hour.refused[:] = 0
    none = repair_figures.figures(steering(), Reading(hour))[2]
    assert (none.value, none.note) == ("0", "none until 08:00 UTC")


def test_a_minute_whose_report_is_missing_is_never_zero() -> None:
    """The driver after a killed one reports 0 rows of that minute: charts have a gap there, and trends no point."""
    marked = {"a": np.array([False, True, False, False, False])}
    known = series([CHESS, game_key("Go")], slots=5, groups=["a", "b"], partial=marked)
    known.rows[:, 1] = 0
    assert np.isnan(known.by_group("rows")["a"]).tolist() == marked["a"].tolist()
    assert known.by_group("rows")["b"].tolist() == [600, 0, 600, 600, 600], "its driver reported all"
    assert figures.per_second(known.of([CHESS]), "rows")[1] is None
    assert trends.landed(known, known.games).to_pylist() == [[600, 600, 600], [600, 0, 600, 600, 600]]
    long = series([CHESS], slots=60, partial={"a": np.arange(60) == 30})
    long.rows[:, 30] = 0
    assert trends.landed(long, [CHESS]).to_pylist() == [[600] * 20], "points of three minutes are of the other two"


def test_a_missing_report_stays_with_the_group_that_had_the_game() -> None:
    """A game that moved lacks what its group of then did not report, and nothing of a group that it was not in."""
    lines_of = series(["x", "x"], slots=4, groups=["a", "b"])
    for at, slots in ((0, slice(2, None)), (1, slice(0, 2))):
        lines_of.rows[at, slots], lines_of.commits[at, slots], lines_of.status[at, slots] = 0, 0, -1
    marked = {"a": np.array([True, False, True, False]), "b": np.array([True, False, True, False])}
    moved = by_game(replace(lines_of, partial=marked), [(0,), (1,)])
    assert moved.whole.tolist() == [[False, True, False, True]]
    only = by_game(replace(lines_of, partial={"b": marked["b"]}), [(0,), (1,)])
    assert only.whole.tolist() == [[True, True, False, True]]
    assert moved.unsure.tolist() == [[True, False, True, False]]
    assert only.unsure.tolist() == [[False, False, True, False]], "of the group that had it then"


def test_repairs_is_not_complete_where_a_report_is_missing() -> None:
    """Rows that a killed driver had refused and not reported are not in the sum: no minute of it is called complete."""
    hour = series([CHESS, game_key("Go")], slots=10, partial={"a": np.arange(10) == 7})
    hour.refused[1, 0] = 265
    some = repair_figures.figures(steering(), Reading(hour))[2]
    assert (some.value, some.note) == ("≥ 265", "Go: 100 % of them; until 08:00 UTC; reports of 07:57 may be missing")
    hour.refused[:] = 0
    none = repair_figures.figures(steering(), Reading(hour))[2]
    assert (none.value, none.note) == ("≥ 0", "none seen until 08:00 UTC; reports of 07:57 may be missing")


def test_games_are_well_by_one_judgement() -> None:
    """A game counts as well where its cell has that colour: neither while it starts nor in an open incident."""
    known = fleet([Game("Chess"), Game("Go", "STARTING"), Game("Ludo", "FAILED"), Game("Risk"), Game("Nim", "PAUSED")])
    found = (incident([game_key("Risk")], tone="recovering"),)
    how = counted(known.rows, situation(known, found))
    assert (how.well, how.busy, how.troubled) == (2, 2, 1)
    assert how.words == "2 of 5 well, 2 on the way"
    assert counted(known.rows[:1], situation(known, found)).words == "1 well"


def test_a_group_does_not_carry_what_was_reported_in_part() -> None:
    """A minute in which its driver was killed is neither what it carries lately nor the most that it kept up with."""
    made = series(["one"], groups=["a"], partial={"a": np.array([False] * 59 + [True])})
    made.rows[:, -1] = 6000
    seen = group_load.course(made, "a", 60.0)
    assert (seen.now, seen.trend) == (None, [])
    assert group_load.headroom(GroupLoad("a"), seen, 0).endswith("its rows of now are not known.")
    whole: Series = replace(made, partial={})
    assert group_load.course(whole, "a", 60.0).now == 6000
    outage = replace(made, partial={"a": np.arange(60) == 55})
    outage.status[:, 56], outage.rows[:, 56], outage.commits[:, 56] = -1, 0, 0
    trend_of = group_load.course(outage, "a", 60.0).trend
    assert trend_of == [600, 600, 6000], "what landed before an outage is not joined to what landed after it"


def _of_group(name: str, **changed: Any) -> Incident:
    made = incident([CHESS], group=name, **changed)
    return replace(made, finding=replace(made.finding, cause=Cause.STORAGE, scope=f"group {name}"))


def test_a_group_has_one_colour_wherever_its_state_is_drawn() -> None:
    """A driver that starts, or runs, has the mark and the colour of the trouble that stands of its group."""
    known = fleet([Game("Chess"), Game("Go", group="b")])
    control = cast(ControlState, SimpleNamespace(fleet=known, assignments={}, groups={}, busy={}))
    calm = group_state.of(control, situation(known, ()), "a")
    assert (calm, calm.tone) == (GroupState("● running"), "well")
    ill = group_state.of(control, situation(known, (_of_group("a", tone="late"),)), "a")
    assert (ill.word, ill.tone) == ("! running", "late")
    assert group_state.tones([calm, ill]) == {"● running": "well", "! running": "late"}
    worse = replace(ill, severity="bad")
    assert group_state.tones([worse, ill]) == {"! running": "bad"}


def test_a_version_that_is_registered_again_says_which_one_it_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas names the column that it gave the table: Game compares two versions, and says which."""
    monkeypatch.setattr("app.game.versions.queries.comparison", lambda *_: SimpleNamespace(changes=()))
    each = [SimpleNamespace(version=at, created_at=NOW - 60, registered_by="ann") for at in (6, 7)]
    game = cast(GameVersions, SimpleNamespace(versions=each, quarantined=()))
    newest, _ = versions.lines(cast(Environment, None), game, NOW)
    assert newest == ("7 ✓", "same fields as version 6 · 1 min ago by ann")
