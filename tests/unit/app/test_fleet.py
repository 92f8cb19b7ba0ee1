"""The Fleet page calls nothing unknown well or zero, leaves no trouble out, and moves no healthy row by its numbers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from app.fleet import blocks, choice, figures, glance, headline, incidents, strip, table, timeline
from app.fleet.choice import Choice
from app.fleet.signals import forgotten
from app.look import grid, lines, tokens, trends
from app.look.parts import Figure
from listeners.status import Status
from pipeline.api.figures import minute
from pipeline.api.fleet import RegisteredSchema
from pipeline.base.names import game_key
from pipeline.base.texts import in_utc
from pipeline.health.incidents.causes import Finding
from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Operation
from pipeline.store.processes.runs import Run
from pipeline.store.rows import Driver, SourceReading
from tests.unit.app.fleet_world import NOW, Game, fleet, incident, series, signals

UNKNOWN = "–"


# ------------------------------------------------------------------------------------------------------------- sentence


def test_trouble_is_the_sentence_and_since_when_stands_beside_it() -> None:
    """The first words say how many streams fail, and beside them stands since when; the dot is that of the worst."""
    bad = Game("bad", "FAILED", reported={"status_since": NOW - 720})
    said = headline.headline(signals([bad, Game("one"), Game("two"), Game("late", "LAGGING")]))
    assert said.text == "1 of 4 streams failing, 1 lagging"
    assert said.meta.startswith("since 07:48, 12 min · "), "since when streams fail: the late one is longer so"
    assert said.tone == "bad"


def test_healthy_streams_with_a_silent_ingest_are_not_green() -> None:
    """Where no stream is at fault but something else is, that is the sentence, and none is called healthy."""
    said = headline.headline(signals([], fleet=fleet([Game("one")], silent={"main": 120.0})))
    assert said.text == "Ingest silent"
    assert said.meta == "since 07:58, 2 min · 1 stream level with bronze"
    assert said.tone == "bad"


@pytest.mark.parametrize(
    ("games", "tone"),
    [
        ([], "plain"),
        ([Game("a", "STARTING")], "busy"),
        ([Game("a"), Game("b", "STARTING")], "busy"),
        ([Game("a", "PAUSED")], "plain"),
        ([Game("a")], "well"),
    ],
)
def test_green_needs_a_stream_that_runs(games: list[Game], tone: str) -> None:
    """A fleet without games, whose streams only start or are paused, or whose incidents are not known, is not green."""
    assert headline.headline(signals(games, incidents=())).tone == tone
    assert headline.headline(signals(games)).tone != "well"


def test_a_store_that_does_not_answer_is_the_sentence() -> None:
    """Once the readings are old, the sentence says for how long nothing is known, hollow, and what was known then."""
    said = headline.stale_headline(fleet([Game("a")]), NOW + 240, "the control store does not answer")
    assert said.text == "Nothing known for 4 min"
    assert said.meta == "then: 1 stream healthy · the control store does not answer"
    assert said.tone == "blind"


def test_an_open_incident_is_not_calm() -> None:
    """Rows may be refused while their stream runs: the incident is the sentence, and no stream is called healthy."""
    said = headline.headline(signals([Game("a")], incidents=(incident([game_key("a")], since=NOW - 300),)))
    assert (said.text, said.tone) == ("Rows of 1 games refused since schema version 7", "bad")
    assert said.meta == "since 07:55, 5 min · 1 stream level with bronze"


def test_calm_is_told_from_the_last_incident_or_from_the_series() -> None:
    """Since when all was well is known from what ended last; a series without trouble gives the least there was."""
    ended = incident([game_key("a")], ended_at=NOW - 3600 * 3 - 720)
    assert headline.headline(signals([Game("a")], incidents=(ended,))).meta == "calm for 3 h 12 min"
    hour = series([game_key("a")])
    assert headline.headline(signals([Game("a")], series=hour, incidents=())).meta == "calm for at least 1 h 0 min"
    assert headline.headline(signals([Game("a")], incidents=())).meta == ""
    assert headline.headline(signals([Game("a")], series=hour)).meta == "causes are not known"


# ---------------------------------------------------------------------------------------------------------------- strip


def test_a_slot_without_reports_is_hatched_and_never_green() -> None:
    """Slots in which no driver reported, and those that are not reported yet, are not known."""
    hour = series([game_key("a")])
    hour.status[:, 10] = -1
    late = replace(hour, since=hour.since - 180)
    made = strip.slots(late, fleet([Game("a")]), NOW)
    assert [each.known for each in made[-4:]] == [True, False, False, True], "a minute may be written a minute late"
    assert len(made) == strip.SLOTS
    assert not next(each for each in made if "no driver reported" in each.title).known


def test_one_failing_game_of_many_and_a_silent_one_are_seen() -> None:
    """The shares are of all games that should have reported; a game that was heard before and is silent is late."""
    hour = series([game_key(name) for name in "abcd"])
    hour.status[0, 30] = Status.FAILED.severity
    hour.status[1, 30] = -1
    slot = strip.slots(hour, fleet([Game(name) for name in "abcd"]), NOW)[30 - 1]  # the last slot is now
    assert (slot.bad, slot.late, slot.known) == (0.25, 0.25, True)
    assert slot.title == "07:30 UTC: 1 failing, 1 silent"


def test_a_game_whose_report_may_be_missing_is_neither_silent_nor_well() -> None:
    """In the two minutes that a killed driver takes with it nobody knows its games; a longer silence is late."""
    lost = {"b": np.isin(np.arange(60), (30, 31))}
    hour = series([game_key(name) for name in "abcd"], groups=["a", "a", "b", "b"], partial=lost)
    hour.status[2:, 30:33] = -1
    seen = fleet([Game(name, group="a" if name in "ab" else "b") for name in "abcd"])
    first, second, silent = strip.slots(hour, seen, NOW)[29:32]
    assert first.title == "07:30 UTC: 2 not known: reports may be missing"
    assert (first.late, first.starting, second.late, second.starting) == (0.0, 0.5, 0.0, 0.5)
    assert (silent.title, silent.late) == ("07:32 UTC: 2 silent", 0.5)
    long = replace(hour, slot_seconds=240, since=NOW - 60 * 240)
    assert strip.slots(long, seen, NOW)[29].title.endswith("2 silent"), "longer than a driver's report is late"
    newest = replace(hour, partial={"b": np.arange(60) == 59})
    newest.status[2:, 59] = -1
    assert strip.calm_since(newest, seen) is None


def test_a_starting_stream_is_neither_well_nor_trouble() -> None:
    """Of a stream that starts nothing is known: it is not green in a slot, and nothing is called calm beside it."""
    hour = series([game_key("a"), game_key("b")])
    hour.status[0, 30] = Status.STARTING.severity
    seen = fleet([Game("a", "STARTING"), Game("b")])
    made = strip.slots(hour, seen, NOW)
    for slot in (made[30 - 1], made[-1]):
        assert (slot.bad, slot.late, slot.starting) == (0.0, 0.0, 0.5)
        assert slot.title.endswith("1 starting")
    assert "calm" not in headline.headline(signals([Game("a", "STARTING"), Game("b")], series=hour)).meta


def test_a_game_that_starts_in_an_incident_counts_once() -> None:
    """A slot counts a game once: while it starts in an open incident, the slot counts no second game as late."""
    names = [f"g{number}" for number in range(4)]
    keys = [game_key(name) for name in names]
    hour = series(keys)
    hour.status[:2, 30:] = Status.STARTING.severity
    seen = fleet([Game(name, "STARTING" if name in names[:2] else "RUNNING") for name in names])
    for tone in ("late", "bad"):
        stood = incident(keys[:3], since=NOW - 3600, tone=tone)
        made = strip.slots(hour, seen, NOW, None, (stood,))
        assert made[30 - 1].title.startswith("07:30 UTC: 2 starting, 1 running in an incident, incident: schema")
        counted = {"late": "1 late", "bad": "1 failing or unknown"}[tone]
        assert made[-1].title == f"now: {counted}, 2 starting"
        for slot in (made[30 - 1], made[-1]):
            assert (slot.bad + slot.late, slot.starting) == (0.75, 0.0)
    beginning = strip.slots(hour, seen, NOW, None, (incident(keys[:2], since=NOW - 3600, tone="recovering"),))[-1]
    assert (beginning.title, beginning.starting) == ("now: 2 starting", 0.5)
    over = incident(keys[:3], since=NOW - 3600, tone="recovering")
    (*_, run) = strip.slots(hour, fleet([Game(name) for name in names]), NOW, None, (over,))
    assert (run.title, run.starting, run.late) == ("now: 3 recovering", 0.75, 0.0), "the headline says so as well"


def test_a_paused_game_may_be_silent() -> None:
    """The silence of a game that is paused, or whose group is stopped, is no trouble of a slot."""
    hour = series([game_key("a"), game_key("b")])
    hour.status[1, 20:] = -1
    paused = [Game("a"), Game("b", "PAUSED")]
    assert not any(each.late for each in strip.slots(hour, fleet(paused), NOW))
    assert any(each.late for each in strip.slots(hour, fleet([Game("a"), Game("b")]), NOW))


def test_a_pause_of_now_hides_no_outage_of_then() -> None:
    """A game that was silent, came back and is paused now was late in those slots; since its last report it is not."""
    hour = series([game_key("a"), game_key("b")])
    hour.status[1, 20:30] = hour.status[1, 40:] = -1
    made = strip.slots(hour, fleet([Game("a"), Game("b", "PAUSED")]), NOW)
    assert [at + 1 for at, each in enumerate(made) if each.late] == list(range(20, 30))


def test_the_last_slot_is_this_moment_unless_nothing_is_known() -> None:
    """The store's states are the newest slot; where it does not answer, all slots since then are hatched."""
    hour, failing = series([game_key("a")]), fleet([Game("a", "FAILED")])
    assert strip.slots(hour, failing, NOW)[-1].bad == 1.0
    stale = strip.slots(hour, failing, NOW, stale_since=NOW - 240)
    assert [each.known for each in stale[-5:]] == [False] * 5
    assert stale[-6].known
    assert not strip.slots(hour, fleet([]), NOW)[-1].known


# -------------------------------------------------------------------------------------------------------------- figures


def value(label: str, made: list[Figure]) -> tuple[str, str]:
    figure = next(each for each in made if each.label == label)
    return f"{figure.value} {figure.unit}".strip(), figure.note


def test_what_is_not_read_is_a_dash_with_its_reason() -> None:
    """Without series, alerts and operations, all seven figures stand, none of them 0, each with why."""
    whys = {"series": "the series is away", "alerts": "no Prometheus is set", "operations": "the store is away"}
    made = figures.figures(signals([Game("a", reported=None)], whys=whys))
    assert [each.value for each in made] == [UNKNOWN] * 7
    assert {each.tone for each in made} == {"blind"}
    assert value("Alerts firing", made) == (UNKNOWN, "no Prometheus is set")
    assert value("Events in", made) == (UNKNOWN, "the series is away")


def test_alerts_that_are_not_known_are_not_zero() -> None:
    """An Alertmanager that does not answer is no fleet without alerts."""
    unknown = figures.figures(signals([], whys={"alerts": "Alertmanager does not answer"}))
    assert value("Alerts firing", unknown) == (UNKNOWN, "Alertmanager does not answer")
    assert value("Alerts firing", figures.figures(signals([], firing=()))) == ("0", "none")
    assert value("Alerts firing", figures.figures(signals([], firing=("TurnoutGroupDown",)))) == ("1", "GroupDown")


def test_rates_are_those_of_the_last_minute_and_gaps_stay_gaps() -> None:
    """Events and rows are rates per second, with the usual of the hour; where no driver reported the line is broken."""
    hour = series([game_key("a")])
    hour.status[:, 5], hour.rows[:, 5], hour.commits[:, 5] = -1, 0, 0
    hour.events[5] = np.nan
    made = figures.figures(signals([Game("a")], series=hour, recent=hour))
    assert value("Events in", made) == ("10 /s", "usual 10")
    assert value("Rows landed", made) == ("10 /s", "100 % of events over 3 min")
    assert [made[1].points[place] for place in (4, 5, 6)] == [10.0, None, 10.0]
    assert made[0].points[5] is None
    begun = replace(hour, until=hour.since + 59 * 60)
    assert lines.per_second(begun, begun.events)[-1] is None, "no second of it is over"


def test_a_share_of_the_events_is_of_whole_minutes() -> None:
    """The minute in which ingest began is a part of one, and rows of earlier minutes are no share of this one's."""
    hour = series([game_key("a")], slots=3)
    hour.events[0], hour.events[1], hour.events[2] = np.nan, 300.0, 600.0
    begun = figures.figures(signals([Game("a")], recent=hour))
    assert value("Rows landed", begun) == ("10 /s", "100 % of events")
    hour.events[1] = np.nan
    assert value("Rows landed", figures.figures(signals([Game("a")], recent=hour)))[1] == ""


def test_a_share_has_the_minutes_that_it_is_of() -> None:
    """Beside a rate of one minute a share is of that one and names the others, or is left out."""
    hour = series([game_key("a")], slots=5)
    hour.rows[0, -2], hour.refused[0, -1] = 900, 60
    made = figures.figures(signals([Game("a")], recent=hour))
    assert value("Rows landed", made) == ("10 /s", "more than came in over 3 min")
    assert value("Rows refused", made) == ("1.0 /s", "3 % of events over 3 min")
    ingest = replace(hour, partial_events=np.array([False] * 4 + [True]))
    assert value("Rows landed", figures.figures(signals([Game("a")], recent=ingest))) == ("10 /s", "")


def test_a_fleet_catches_up_only_while_something_is_behind() -> None:
    """Rows of earlier minutes that landed do not say that anything is behind at this moment: the judgement does."""
    hour = series([game_key("a")], slots=3)
    hour.events[:], hour.rows[:] = 600.0, 1400
    level = figures.figures(signals([Game("a")], recent=hour))
    assert value("Rows landed", level)[1] == "more than came in over 2 min"
    behind = figures.figures(signals([Game("a", "CATCHING_UP")], recent=hour))
    assert value("Rows landed", behind)[1] == "more than came in over 2 min: catching up"


def test_a_figure_is_of_the_minute_that_the_page_names() -> None:
    """A rate that nobody reported for that minute is a dash: an earlier one would stand under its name."""
    hour = series([game_key("a")], slots=5)
    hour.rows[:, -1], hour.commits[:, -1], hour.counts[:, -1], hour.status[:, -1] = 0, 0, 0, -1
    known = signals([Game("a", reported={"rows_per_second": None})], recent=hour)
    made = figures.figures(known)
    assert minute(hour).endswith(in_utc(NOW, "%H:%M UTC"))
    assert value("Events in", made)[0] == "10 /s"
    assert value("Rows landed", made) == (UNKNOWN, "not reported for that minute")
    assert value("Rows refused", made) == (UNKNOWN, "not reported for that minute")
    assert value("Latency p99", made)[0] == UNKNOWN


def test_a_minute_of_which_a_report_may_be_missing_is_no_whole() -> None:
    """A killed driver takes unreported rows with it: sums are "at least", and no share is taken of them."""
    partial = {"b": np.array([False, False, False, False, True])}
    hour = series([game_key("a"), game_key("b")], slots=5, groups=["a", "b"], partial=partial)
    hour.rows[1, -1] = 60
    made = figures.figures(signals([Game("a"), Game("b", group="b")], recent=hour))
    assert value("Rows landed", made) == ("≥ 11 /s", "at least: a report of that minute may be missing")
    assert value("Events in", made)[0] == "20 /s"
    assert value("Latency p99", made) == ("5.0 s", "a report of that minute may be missing")
    none = replace(hour, counts=np.zeros_like(hour.counts))
    lost = figures.figures(signals([Game("a"), Game("b", group="b")], recent=none))
    assert value("Latency p99", lost) == (UNKNOWN, "a report of that minute may be missing")
    hour.partial["b"][:] = [False, False, False, True, False]
    assert value("Rows landed", figures.figures(signals([], recent=hour)))[1] == "78 % of events over 2 min", (
        "without that minute"
    )
    stopped = replace(hour, partial={}, partial_events=np.array([False] * 4 + [True]))
    assert value("Events in", figures.figures(signals([], recent=stopped)))[0] == "≥ 20 /s"


def test_nobody_is_told_to_start_a_process_that_runs() -> None:
    """Before the first event the page says what is missing, by what runs, starts or was never started."""
    empty = replace(fleet([]), registered_games=40)
    assert glance.nothing_yet(empty).startswith("40 games are registered, and ingest runs. No event has arrived")
    for waits in (SourceReading(NOW - 2, 24.0, 24.0, 7200, 60.0), None):
        first = replace(fleet([], source=waits), registered_games=40)
        assert "after its first commit; " in glance.nothing_yet(first)
        assert "producer" not in glance.nothing_yet(first)
    starting = replace(fleet([], groups={"a": GroupIntent("running", "local", NOW)}, ingest=False), registered_games=40)
    assert "Ingest is starting" in glance.nothing_yet(starting)
    away = replace(fleet([], silent={"main": 120.0}), registered_games=40)
    assert "start it with turnout ingest run" in glance.nothing_yet(away)


def test_before_the_first_closed_minute_the_drivers_say_what_lands() -> None:
    """Rows landed are known from the first second on: from the drivers' reports, if all of them give a rate."""
    assert value("Rows landed", figures.figures(signals([Game("a"), Game("b")])))[0] == "20 /s"
    silent = Game("b", reported={"rows_per_second": None})
    assert value("Rows landed", figures.figures(signals([Game("a"), silent])))[0] == UNKNOWN
    first = signals([Game("a")], recent=series([], slots=3, events=np.full(3, np.nan)))
    for label in ("Events in", "Latency p99", "Rows refused"):
        assert value(label, figures.figures(first)) == (UNKNOWN, "no whole minute is reported yet")


def test_the_latency_now_has_no_row_that_was_caught_up() -> None:
    """Rows read after an outage are not in p99; a minute that has no other ones has no p99, and says why."""
    hour = series([game_key("a")])
    made = figures.figures(signals([Game("a")], recent=hour))
    assert value("Latency p99", made) == ("5.0 s", "objective 1 min")
    hour.counts[:, -1, :], hour.caught_up[:, -1] = 0, 600
    assert value("Latency p99", figures.figures(signals([Game("a")], recent=hour))) == (
        UNKNOWN,
        "only rows that were caught up",
    )


def test_the_oldest_backlog_names_its_game_and_what_is_unknown() -> None:
    """The figure is of the worst stream that should run, with how many nobody knows; a paused one does not count."""
    games = [
        Game("late", "LAGGING", reported={"backlog_age_seconds": 720.0}),
        Game("lost", "LAGGING", reported={"backlog_age_seconds": None}),
        Game("resting", "PAUSED", reported={"backlog_age_seconds": 9000.0}),
    ]
    assert value("Oldest backlog", figures.figures(signals(games))) == ("12 min", "late; that of 1 unknown")
    assert value("Oldest backlog", figures.figures(signals(games[1:2]))) == (UNKNOWN, "of no stream known")
    unheard = [Game("well"), Game("new", "STARTING", reported={"backlog_age_seconds": None})]
    assert value("Oldest backlog", figures.figures(signals(unheard)))[1] == "that of 1 unknown", "it may be late"


# ------------------------------------------------------------------------------------------------------------ incidents


def test_games_of_one_cause_are_one_row_with_its_next_step() -> None:
    """An incident is one row: the cause, where, the numbers, what it is not, the action and the runbook."""
    games = [Game("Chess", "FAILED"), Game("Go", "FAILED"), Game("well")]
    keys = [game_key("Chess"), game_key("Go")]
    (row,) = incidents.rows(signals(games, incidents=(incident(keys),)))
    assert row.title == "Rows of 2 games refused since schema version 7"
    assert row.about.startswith("Chess, Go in group a · 41 rows/s to quarantine")
    assert row.about.endswith("its 78 neighbours are well")
    assert (row.glyph, row.tone, row.since) == ("✗", "bad", NOW - 720)
    assert row.action is not None
    assert row.action.page == "schemas"


def test_rates_name_the_minute_that_they_are_of() -> None:
    """The figures are of the last closed minute, which the page says: what happens now may be another thing."""
    known = series([game_key("Chess")], slots=3)
    gone = replace(known, events=np.array([600.0, np.nan, np.nan]))
    assert minute(known) == f"{in_utc(NOW - 60, '%H:%M')} to {in_utc(NOW, '%H:%M')} UTC"
    assert minute(replace(gone, rows=gone.rows * 0, status=gone.status * 0 - 1, commits=gone.commits * 0)).startswith(
        in_utc(NOW - 180, "%H:%M")
    )
    assert minute(gone).endswith(in_utc(NOW, "%H:%M UTC")), "its driver reported it"
    silent = replace(known, events=np.full(3, np.nan)).of(())
    assert (minute(None), minute(silent)) == ("", "")


def test_a_problem_reads_as_a_sentence() -> None:
    """`group b: has waited 20 s for its disk` is about the group, whatever its driver did."""
    waiting = Driver("group", "b", "host", 7, NOW - 7200, NOW - 2, "running", "has waited 20 s for its disk", 9)
    (row,) = incidents.rows(signals([], fleet=fleet([Game("lost", group="b")], more=(waiting,)), incidents=()))
    assert row.title == "Group b has waited 20 s for its disk"


def test_a_history_without_a_closed_minute_has_no_trend() -> None:
    """In the first minute of an environment the table of games is drawn, without trends."""
    young = series([game_key("Chess")], slots=0)
    assert trends.backlogs(young, young.games).to_pylist() == [None]
    assert trends.landed(young, young.games).to_pylist() == [None]


def test_a_driver_that_is_silent_has_no_load() -> None:
    """Fleet shows no load of a driver that does not live, whatever it measured before."""
    known = fleet([Game("Chess"), Game("lost", group="b")], silent={"b": 120.0})
    made = blocks.blocks(known, known.rows, {"a": "load 0.1 cores", "b": "load 0.1 cores"}, (), stale=False)
    assert [each.load for each in made] == ["load 0.1 cores", "load –"]
    starts = Driver("group", "b", "host", 8, NOW - 2, NOW - 1, "starting", None, None)
    again = fleet([Game("Chess"), Game("lost", group="b")], more=[starts])
    made = blocks.blocks(again, again.rows, {"a": "load 0.1 cores", "b": "load 0.1 cores"}, (), stale=False)
    assert [each.load for each in made] == ["load 0.1 cores", "load –"], "the driver before it used it"


def test_no_trouble_is_left_out_where_no_incident_names_it() -> None:
    """Each stream and driver in trouble has a row: of an incident, of its group that is down, or of its own."""
    games = [Game("Chess", "STALLED"), Game("Go"), Game("lost", group="b"), Game("lost too", group="b")]
    made = incidents.rows(signals(games, fleet=fleet(games, silent={"b": 120.0}), incidents=()))
    assert [row.title for row in made] == ["Group b is silent for 120 s", "Chess stalled"]
    assert "its 1 neighbour is well" in made[1].about
    behind = [games[0], Game("Go", "CATCHING_UP")]
    (stalled,) = (row for row in incidents.rows(signals(behind, incidents=())) if row.title == "Chess stalled")
    assert "neighbours: 0 of 1 well, 1 on the way" in stalled.about
    assert made[0].about == "2 games"
    assert made[0].action is not None
    assert dict(made[0].action.query) == {"steer": "b"}
    other = incident([game_key("Go")], group="b")
    beside = incidents.rows(signals(games, fleet=fleet(games, silent={"b": 120.0}), incidents=(other,)))
    assert [row.title for row in beside][1:] == [row.title for row in made], (
        "an incident of games is not their driver's"
    )
    unread = incidents.rows(signals(games, fleet=fleet(games, silent={"b": 120.0}), incidents=None))
    assert unread == made


def test_a_calm_fleet_says_what_ended_last_and_when() -> None:
    """Without incidents one line has the last one; where they were not read it does not say that there is none."""
    ended = incident([game_key("a")], ended_at=NOW - 720)
    assert incidents.calm_text(signals([Game("a")], incidents=(ended,))) == (
        "No incident. The last one ended 07:48: Rows of 1 games refused since schema version 7."
    )
    unread = incidents.calm_text(signals([Game("a")], whys={"incidents": "the store is away"}))
    assert "not known: the store is away" in unread
    assert not unread.startswith("No incident")


def test_incidents_that_have_ended_are_listed_with_how_long_they_lasted() -> None:
    """The history has each incident that has ended, with its cause and games, and none that is open."""
    chess = game_key("Chess")
    over = incident([chess], since=NOW - 900, ended_at=NOW - 300)
    known = signals([Game("Chess")], incidents=(incident([chess], incident_id="i2"), over))
    (line,) = incidents.ended(known)
    assert (line["ended"], line["lasted"], line["cause"]) == ("07:55", "10 min", "schema")
    assert line["where"] == "Chess in group a"
    assert not incidents.ended(signals([Game("Chess")]))


def test_hostile_texts_of_an_incident_lose_what_cannot_be_seen() -> None:
    """Names and findings pass through the one place that removes invisible and direction-changing characters."""
    spoof = "\u202egnihton\u202c\nsecond"
    finding = Finding(incident(["x"]).finding.cause, spoof, (spoof,), (spoof,), None, None)
    key = game_key(spoof)
    (row,) = incidents.rows(signals([Game(spoof, "FAILED")], incidents=(incident([key], finding=finding),)))
    assert "\u202e" not in row.title + row.about
    assert "\n" not in row.title + row.about


# ---------------------------------------------------------------------------------------------------------------- table


def test_healthy_rows_never_move_by_their_numbers() -> None:
    """Worst first is by status, then by when it began; healthy games stand by name, whatever their backlogs."""
    games = [
        Game("zebra", reported={"backlog_age_seconds": 50.0, "status_since": NOW - 9}),
        Game("apple"),
        Game("new", "LAGGING", reported={"status_since": NOW - 10}),
        Game("old", "LAGGING", reported={"status_since": NOW - 900}),
        Game("broken", "FAILED"),
    ]
    rows = fleet(games).rows
    assert [row.game for row in choice.chosen(rows, Choice())] == ["broken", "old", "new", "apple", "zebra"]
    assert choice.chosen(rows, Choice(sort="backlog"))[0].game == "zebra"
    assert [row.game for row in choice.chosen(rows, Choice(trouble=True, text="O"))] == ["broken", "old"]
    involved = frozenset({game_key("zebra")})
    assert [row.game for row in choice.chosen(rows, Choice(), involved)][-2:] == ["zebra", "apple"]
    assert len(choice.chosen(rows, Choice(trouble=True), involved)) == 4
    assert choice.counts(rows) == {"FAILED": 1, "LAGGING": 2, "RUNNING": 2}


def test_names_that_look_alike_are_told_apart() -> None:
    """Each game has a text of its own: its name, with its key where another name looks like it or claims its text."""
    names = ["Chess", "chess", "Go", "Сhess", f"Chess · {game_key('Chess')}", "tab\tbed"]  # noqa: RUF001 - the point
    rows = fleet([Game(name) for name in names]).rows
    made = choice.labels(rows)
    assert len(set(made.values())) == len(names)
    assert made[game_key("Go")] == "Go"
    assert made[game_key("Chess")] == f"Chess · {game_key('Chess')}"
    assert made[game_key("tab\tbed")].endswith(game_key("tab\tbed"))


def test_a_table_has_nulls_for_what_is_unknown() -> None:
    """Numbers of a silent stream are null and not 0; a trend is the newest run of known points, or null."""
    known, lost = Game("known"), Game("lost", group="b")
    seen = fleet([known, lost], silent={"b": 120.0})
    rows = choice.chosen(seen.rows, Choice())
    hour = series([game_key("known"), game_key("lost")])
    hour.status[1, 30:], hour.rows[1, 30:], hour.commits[1, 30:], hour.backlog[1, 30:] = -1, 0, 0, np.nan
    made = table.table(seen, rows, choice.labels(seen.rows), hour, None).to_pylist()
    first, second = made
    assert (first["game"], first["status"]) == ("lost", ["? unknown"])
    assert {first[name] for name in ("backlog", "p99", "rows")} == {None}
    assert "is silent for 120 s" in first["cause"]
    assert (first["rows_trend"], first["backlog_trend"]) == (None, None), "nobody knows it now"
    assert (second["backlog"], second["p99"], second["rows"], second["cause"]) == ("1.5 s", "4.0 s", "10", None)
    assert second["rows_trend"] == [600] * 20
    hour.status[0, :30], hour.rows[0, :30], hour.commits[0, :30], hour.backlog[0, :30] = -1, 0, 0, np.nan
    late = table.table(seen, rows, choice.labels(seen.rows), hour, None).to_pylist()
    assert (late[1]["rows_trend"], late[1]["backlog_trend"]) == ([600] * 10, [3] * 10), "no zeros before it began"
    bare = table.table(seen, rows, choice.labels(seen.rows), None, None).to_pylist()
    assert {row["rows_trend"] for row in bare} == {None}


def test_a_fleet_that_is_not_known_any_more_has_no_running_game_and_no_number() -> None:
    """Once readings are old every game that should run is unknown in the table, with what it was; paused ones stay."""
    old = forgotten(fleet([Game("a"), Game("b", "PAUSED")]))
    rows = choice.chosen(old.rows, Choice())
    first, second = table.table(old, rows, choice.labels(old.rows), None, None).to_pylist()
    assert (first["status"], first["cause"]) == (["? unknown"], "last known: running")
    assert {first[name] for name in ("backlog", "p99", "rows", "commit")} == {None}
    assert second["status"] == ["‖ paused"]


def test_a_clock_ahead_tells_no_age() -> None:
    """A moment in the future has no age: the cell is empty, not `0 s`."""
    ahead = fleet([Game("a", reported={"last_commit_at": NOW + 500, "status_since": NOW + 500})])
    made = table.table(ahead, ahead.rows, choice.labels(ahead.rows), None, None).to_pylist()
    assert (made[0]["commit"], made[0]["since"]) == (None, None)


# ---------------------------------------------------------------------------------------------------------------- marks


def test_starts_close_together_are_one_mark() -> None:
    """Drivers that started together are one mark, first versions of schemas none, an operation says what it did."""
    seen = fleet([Game("a"), Game("b", group="b")])
    move = SimpleNamespace(
        kind="move", state=OperationState.SUCCEEDED, ended_at=NOW - 60, targets=("game:x", "game:y"),
        parameters={"assignments": {"x": "b", "y": "b"}}, preview={"x": ["a"], "y": ["a"]},
    )  # fmt: skip
    came = [RegisteredSchema("x", 1, NOW - 90), RegisteredSchema("x", 2, NOW - 89)]
    schemas = [*came, RegisteredSchema(game_key("a"), 7, NOW - 80)]
    made = timeline.events(seen, [cast(Operation, move)], schemas, NOW - 8000)
    assert [each.label for each in made] == ["3 drivers start", "schema 7 a", "2 games → b"]
    assert timeline.events(seen, [], [], NOW - 60) == []


def test_each_start_of_a_driver_stays_marked() -> None:
    """A driver that was restarted keeps the marks of its earlier starts; several at once are counted."""
    runs = [
        Run(at, "a", "r", NOW - at, None, NOW - at + 5, died=True, exit_message="killed") for at in (3000, 1200, 1190)
    ]
    runs.append(Run(1, "x", "r", NOW - 1000, None, None, died=False, exit_message=None, kind="maintenance"))
    made = timeline.events(fleet([Game("a")]), [], [], NOW - 3600, runs)
    assert [(each.at - NOW, each.label) for each in made] == [(-3000, "a starts"), (-1200, "a starts 2 times")]


@pytest.mark.parametrize(("tone", "fill"), [("bad", "bad"), ("late", "late"), ("recovering", "busy")])
def test_a_running_game_of_an_open_incident_is_not_green_in_the_grid(tone: str, fill: str) -> None:
    """Where rows of a running game are refused, its cell, its group and the legend say so; a failed one fails."""
    chess, go = game_key("Chess"), game_key("Go")
    known = fleet([Game("Chess"), Game("Go", "FAILED"), Game("Ludo")])
    found = [incident([chess, go], tone=tone), incident([game_key("Ludo")], incident_id="i2", ended_at=NOW - 60)]
    made = blocks.blocks(known, known.rows, {}, found, stale=False)
    assert [(cell.name, cell.mark) for cell in made[0].cells] == [
        ("Chess", "busy" if tone == "recovering" else tone),
        ("Go", None),
        ("Ludo", None),
    ]
    assert made[0].well == f"1 of 3 well{', 1 on the way' if tone == 'recovering' else ''}"
    legend = grid.legend(made)
    assert legend[0][0] == fill
    assert legend[0][1].startswith("! runs, in an incident")
    assert ("ok-quiet", "running") in legend
    spec = grid.grid(made, "light").spec["layer"]
    codes = grid.grid(made, "light").datasets["cells"]["code"].to_pylist()
    scale = spec[0]["encoding"]["fill"]["scale"]
    fills = dict(zip(scale["domain"], scale["range"], strict=True))
    assert fills[codes[0]] == tokens.colour(fill, "light")
    assert "1 of the running ones in an open incident" in blocks.summary(known, made, stale=False)
