"""The charts of a game are marked with what happened to it in the group that it was in then, whichever has it now."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.game import marks
from app.game.signals import GameSignals
from app.game.stays import Stay, held, stays
from listeners.series import Series, by_game
from pipeline.base.names import game_key
from pipeline.health.incidents.incidents import Incident
from pipeline.store.database.states import Cause, OperationState
from pipeline.store.operations import Operation
from pipeline.store.processes.runs import Run
from tests.unit.app.fleet_world import NOW, Game, fleet, incident, series

KEY = str(game_key("one"))
DIED, MOVED = NOW - 1800, NOW - 1200


def moved_series(gap: int = 10) -> Series:
    """Return an hour in which group a reported the game for 30 minutes, then nobody, then group b."""
    made = series([KEY, KEY], groups=["a", "b"])
    for name, nothing in {"rows": 0, "commits": 0, "counts": 0, "status": -1}.items():
        getattr(made, name)[0, 30:] = nothing
        getattr(made, name)[1, : 30 + gap] = nothing
    return by_game(made, [(29, 0), (59, 0)])


def moving(at: float = MOVED, target: str = "b", source: str | None = "a") -> Operation:
    """Return a move of the game that was requested then, and has ended a minute later."""
    return Operation(
        "o1", "move", OperationState.SUCCEEDED, (f"game:{KEY}",), {"assignments": {KEY: target}}, "ann", "",
        {KEY: [source, target, 1]}, "", None, None, at, at + 60, 1,
    )  # fmt: skip


def run(group: str, began: float, ended: float | None = None, **more: Any) -> Run:
    """Return a run of a group's driver; nobody requested its end."""
    return Run(int(began), group, "r", began, None, ended, ended is not None, "killed", **more)


def known(incidents: Sequence[Incident] = (), **more: Any) -> GameSignals:
    """Return a game that is in group b now."""
    seen = fleet([Game("one", group="b"), Game("two", group="a")])
    row = seen.row(KEY)
    assert row is not None
    given: dict[str, Any] = {"series": moved_series(), "operations": [moving()], "incidents": incidents}
    return GameSignals(seen, row, 60.0, **(given | more))


def gone(since: float, group: str, keys: Sequence[str] = (), cause: Cause = Cause.DRIVER_GONE) -> Incident:
    """Return an incident of a group that has ended; its games had left it by then."""
    made = incident(keys, since=since, ended_at=since + 600)
    return replace(made, finding=replace(made.finding, cause=cause, scope=f"group {group}"))


def labels(signals: GameSignals) -> list[str]:
    return [each.label for each in marks.events(signals)]


def test_a_gap_belongs_to_the_group_before_it() -> None:
    """A stay ends when the move was requested, and without a known one when the next group reported."""
    assert [Stay("a", -math.inf, MOVED), Stay("b", MOVED)] == stays(moved_series(), KEY, "b", [moving()], NOW)
    begun = NOW - 1200
    assert [Stay("a", -math.inf, begun), Stay("b", begun)] == stays(moved_series(), KEY, "b", [], NOW)
    both = stays(moved_series(), KEY, "b", [moving()], NOW)
    assert (held(both, "a", DIED), held(both, "b", DIED), held(both, "b", MOVED)) == (True, False, True)


def test_a_game_that_no_driver_reports_is_where_operations_put_it() -> None:
    """Before the first report of a new group, and where the old one never reported, a move says who had the game."""
    assert stays(None, KEY, "b", [], NOW) == [Stay("b")]
    assert stays(None, KEY, None, [], NOW) == []
    quiet = moved_series().of([])
    assert stays(quiet, KEY, "b", [moving()], NOW) == [Stay("a", -math.inf, MOVED), Stay("b", MOVED)]
    again = stays(moved_series(), KEY, "c", [moving(), moving(NOW - 90, "c", "b")], NOW)
    assert [each.group for each in again] == ["a", "b", "c"]
    assert again[-1] == Stay("c", NOW - 90)
    assert [each.group for each in stays(moved_series(), KEY, "c", [], NOW)] == ["a", "b", "c"]


def test_a_moved_game_shows_the_death_that_made_its_gap() -> None:
    """The old group's death and cause stay; the new group's restarts and causes of the time before the move do not."""
    runs = [run("a", NOW - 3000, DIED), run("b", NOW - 2400, NOW - 2000), run("b", NOW - 1990), run("a", NOW - 600)]
    causes = [gone(DIED + 300, "a"), gone(NOW - 2000, "b"), gone(NOW - 300, "a")]
    assert labels(known(causes, runs=runs)) == ["a starts", "a died", "driver gone", "move"]
    assert "driver gone" not in labels(known([gone(DIED + 20, "a")], runs=runs)), "its death says the same"
    frozen = known([gone(DIED, "a")], runs=[])
    assert labels(frozen) == ["driver gone", "move"]


def test_causes_of_the_game_and_of_the_source_are_marked() -> None:
    """A cause without a group belongs to the games it names; an undetermined one says nothing in a chart."""
    own = incident([KEY], since=NOW - 500)
    other = replace(own, games=("other",))
    source = gone(NOW - 400, "a", cause=Cause.INGEST_BEHIND)
    source = replace(source, finding=replace(source.finding, scope="source"))
    unknown = replace(own, finding=replace(own.finding, cause=Cause.UNDETERMINED))
    assert labels(known([own, other, source, unknown])) == ["move", "schema", "ingest behind"]


def test_a_reading_without_runs_marks_today_s_driver_only_since_it_has_the_game() -> None:
    """Without the controller's runs the driver's own start is known, which lies before the move here."""
    assert np.isnan(moved_series().total("rows")[35])
    assert labels(known(runs=None)) == ["move"]
    stayed = known(runs=None, operations=[], series=series([KEY], groups=["b"], slots=180))
    assert labels(stayed) == ["b starts"]
