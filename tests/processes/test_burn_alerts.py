"""Guards when objectives raise alerts: by the share of time that is spent, not by a moment."""

from pathlib import Path

import pytest

from pipeline.health.alerting import files
from pipeline.health.alerting.objectives import parse
from pipeline.settings.tree import Settings
from tests.processes.alert_world import (
    HOUR,
    Scenario,
    age,
    flat,
    gone,
    grows,
    heartbeat,
    info,
    later,
    promtool,
    status,
    up,
)
from tests.processes.burn_world import DRIP, FAST, SLOW, burn, rules_of, run

DAY = 24 * HOUR


def ages(*parts: tuple[float, float]) -> str:
    """Return ages of a backlog, each for a while."""
    return " ".join(flat(value, seconds) for value, seconds in parts)


SCENARIOS = [
    Scenario(
        "a game that is late for 9 minutes of an hour pages, and clears within 5 minutes of being fresh",
        [info(flat(1, 3 * HOUR)), age(ages((5, HOUR), (90, 600), (5, HOUR)))],
        {HOUR + 495: [], HOUR + 555: [FAST], HOUR + 795: [FAST], HOUR + 930: [], 2 * HOUR: []},
    ),
    Scenario(
        "blips of 60 seconds are silent, however many",
        [info(flat(1, 2 * HOUR)), age(" ".join([ages((5, 540), (90, 60))] * 12))],
        {at: [] for at in range(0, 2 * HOUR, 300)},
    ),
    Scenario(
        "a quiet game is silent: it has no rows, and nothing waits",
        [info(flat(1, HOUR)), age(flat(0, HOUR)), status("RUNNING", flat(1, HOUR))],
        {at: [] for at in range(0, HOUR, 300)},
    ),
    Scenario(
        "the first minutes of a Prometheus, of a game, or of both raise nothing",
        [info(flat(1, HOUR)), age(ages((90, 480), (5, HOUR)))],
        {at: [] for at in range(0, 1_500, 60)},
    ),
    Scenario(
        "lateness that returns is slow burn, though no hour has much of it",
        [info(flat(1, 4 * HOUR)), age(" ".join([ages((90, 240), (5, 1_560))] * 8))],
        {**{at: [] for at in range(0, 9_000, 300)}, 3 * HOUR + 120: [SLOW]},
    ),
    Scenario(
        "a failed stream misses its objective, though nothing waits",
        [info(flat(1, 2 * HOUR)), age(flat(0, 2 * HOUR)), status("FAILED", flat(1, 2 * HOUR))],
        {480: [], 600: [FAST], 1_200: [FAST]},
    ),
    Scenario(
        "paused and backfilling games are exempt",
        [
            info(flat(1, 2 * HOUR)),
            age(flat(900, 2 * HOUR)),
            status("PAUSED", f"{flat(1, HOUR)} {flat(0, HOUR)}"),
            status("BACKFILLING", f"{flat(0, HOUR)} {flat(1, HOUR)}"),
        ],
        {at: [] for at in range(0, 2 * HOUR - 60, 300)},
    ),
    Scenario(
        "games of a dead group miss their objective, with their group, and no longer when it was stopped on purpose",
        [
            up(f"{flat(1, 600)} {flat(0, 2 * HOUR)}"),
            info(f"{flat(1, 600)} {gone(2 * HOUR)}"),
            age(f"{flat(3, 600)} {gone(2 * HOUR)}"),
            heartbeat(f"{grows(1, 600)} {gone(2 * HOUR)}"),
            ('turnout_fleet_group_stopped{cluster_group="a",kind="ingest"}', later(HOUR, flat(1, HOUR))),
            ("turnout_ingest_last_commit_timestamp_seconds", grows(1, 3 * HOUR)),
        ],
        {1_200: [], 1_320: [FAST], 1_800: [FAST], HOUR + 330: [SLOW, DRIP], HOUR + 1_800: [DRIP]},
    ),
    Scenario(
        "a move to another group does not count, and the alert names the owner of now",
        [
            info(f"{flat(1, HOUR)} {gone(HOUR)}"),
            info(later(HOUR, flat(1, HOUR)), "b"),
            age(f"{ages((5, 2_700), (90, 900))} {gone(HOUR)}"),
            age(later(HOUR, flat(90, HOUR)), "b"),
        ],
        {HOUR - 60: [FAST], HOUR + 60: [burn("BurnFast", group="b")]},
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.law for scenario in SCENARIOS])
@pytest.mark.proves("G221")
def test_objectives_raise_alerts_when_they_should_and_only_then(scenario: Scenario, tmp_path: Path) -> None:
    """At each given second exactly the given burns fire."""
    run(tmp_path, scenario)


def test_each_burn_fires_in_a_scenario() -> None:
    """No alert of an objective is without a scenario in which it fires."""
    assert {FAST, SLOW, DRIP} <= {
        each for scenario in SCENARIOS for firing in scenario.firing.values() for each in firing
    }


@pytest.mark.long
def test_a_budget_that_drips_away_is_a_ticket(tmp_path: Path) -> None:
    """Two and a half minutes of each hour are much over a day, and little in any hour."""
    scenario = Scenario(
        "drip", [info(flat(1, DAY)), age(" ".join([ages((90, 150), (5, 3_450))] * 24))],
        {6 * HOUR: [], 12 * HOUR: [], 20 * HOUR: [DRIP], 23 * HOUR: [DRIP]},
    )  # fmt: skip
    run(tmp_path, scenario)


def test_each_class_has_its_own_latency(tmp_path: Path) -> None:
    """30 seconds are late for one class and not for the other; a game that no class names has no objective."""
    text = """\
classes:
  - name: quick
    games: [quick_abcdefghijkl]
    latency_seconds: 20
  - name: slow
    games: ["slow*"]
    latency_seconds: 40
"""
    found, wrong = parse(text.encode())
    assert not wrong
    text = files.render_rules(Settings(), found)
    promtool("check", "rules", str(rules_of(tmp_path, text)))
    games = ("quick_abcdefghijkl", "slow_abcdefghijkl", "other_abcdefghijkl")
    series = [
        each
        for game in games
        for each in (
            info(flat(1, HOUR), game=game),
            (f'turnout_stream_backlog_age_seconds{{game="{game}",cluster_group="a"}}', flat(30, HOUR)),
        )
    ]
    expected = [burn("BurnFast", game="quick_abcdefghijkl", cls="quick")]
    run(tmp_path, Scenario("classes", series, {1_200: expected}), text, "TurnoutFreshnessBurnFast")
