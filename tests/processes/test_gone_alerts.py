"""Guards that a driver that is gone without a trace, of a group or ingest, pages and costs its games the objective."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.health.alerting import files
from tests.processes.alert_world import (
    HOUR,
    STEP_SECONDS,
    Scenario,
    _fired,
    age,
    flat,
    gone,
    grows,
    heartbeat,
    info,
    judged,
    promtool,
    source_age,
    status,
    up,
)
from tests.processes.burn_world import FAST, SLOW, burn, run

DOWN = _fired("TurnoutGroupDown", cluster_group="a")
COMMITS = "turnout_ingest_last_commit_timestamp_seconds"
CYCLES = 40


def down(values: str, group: str = "a") -> tuple[str, str]:
    return f'turnout_fleet_group_down{{cluster_group="{group}",kind="ingest"}}', values


def stranded(values: str) -> tuple[str, str]:
    return 'turnout_fleet_game_stranded{game="g",cluster_group="a",kind="ingest"}', values


def ingest(seconds: float) -> list[tuple[str, str]]:
    """Return the series of an ingest that is well."""
    series = [(COMMITS, grows(1, seconds)), source_age(flat(0, seconds)), judged(grows(1, seconds))]
    return [*series, up(flat(1, seconds), "ingest", "i")]


def driver(then: str, starting: str, beats: str) -> list[tuple[str, str]]:
    """Return the series of a driver that is well for 15 minutes, and what they are then."""
    known = [info(f"{flat(1, 900)} {then}"), up(f"{flat(1, 900)} {then}"), age(f"{flat(0, 900)} {gone(HOUR)}")]
    states = [status("STARTING", f"{flat(0, 900)} {starting}"), status("RUNNING", f"{flat(1, 900)} {gone(HOUR)}")]
    return [*known, *states, heartbeat(f"{grows(1, 900)} {beats}")]


CYCLE = "stale _x1 1x2"  # 45 s gone, 45 s starting
BEATS = " ".join(f"stale _x1 {900 + 90 * number + 45}+{STEP_SECONDS}x2" for number in range(CYCLES))
LOOP = driver(" ".join([CYCLE] * CYCLES), " ".join([CYCLE] * CYCLES), BEATS)
GIVES_UP = driver(gone(2 * HOUR), gone(2 * HOUR), gone(2 * HOUR))

SCENARIOS = [
    Scenario(
        "a driver that gave up and took its target with it pages, its games miss, and both end with it",
        [
            *ingest(2 * HOUR),
            *GIVES_UP,
            down(f"{flat(0, 900)} {flat(1, HOUR)} {flat(0, HOUR)}"),
            stranded(f"_x{900 // STEP_SECONDS - 1} {flat(1, HOUR)} {gone(HOUR)}"),
        ],
        {
            900: [],
            1_050: [],
            1_110: [DOWN],
            1_800: [DOWN, FAST],
            4_440: [DOWN, FAST, SLOW],
            4_950: [burn("BurnSlow", group=None)],
        },
    ),
    Scenario(
        "a driver that dies at each start pages once, though it answers half of the time",
        [
            *ingest(2 * HOUR),
            *LOOP,
            down(f"{flat(0, 900)} " + f"{flat(1, 45)} {flat(0, 45)} " * CYCLES),
            stranded(f"_x{900 // STEP_SECONDS - 1} " + f"{flat(1, 45)} {gone(45)} " * CYCLES),
        ],
        {960: [], **{at: [DOWN] for at in range(1_290, 1_500, 15)}, 3_000: [DOWN, FAST, SLOW]},
    ),
    Scenario(
        "a driver that is started again within 100 seconds is silent",
        [
            *ingest(HOUR),
            down(f"{flat(0, 900)} {flat(1, 90)} {flat(0, 900)}"),
            up(flat(1, HOUR)),
            heartbeat(grows(1, HOUR)),
        ],
        {at: [] for at in range(900, 1_500, 15)},
    ),
    Scenario(
        "a group that an operation brings back after two minutes pages nobody: it is up when the page would begin",
        [
            *ingest(HOUR),
            up(f"{flat(1, 900)} {flat(0, 150)} {flat(1, 900)}"),
            heartbeat(f"{grows(1, 900)} {gone(150)} {grows(1, 900, 1_050)}"),
            down(f"{flat(0, 900)} {flat(1, 150)} {flat(0, 900)}"),
        ],
        {at: [] for at in range(900, 1_800, 15)},
    ),
    Scenario(
        "a page of a group ends when the judgement finds it up, before its new target is read",
        [
            *ingest(HOUR),
            up(f"{flat(1, 900)} {flat(0, 660)} {flat(1, 900)}"),
            heartbeat(f"{grows(1, 900)} {gone(660)} {grows(1, 900, 1_560)}"),
            down(f"{flat(0, 900)} {flat(1, 600)} {flat(0, 900)}"),
        ],
        {1_485: [DOWN], **{at: [] for at in range(1_515, 2_400, 15)}},
    ),
    Scenario(
        "a page of a driver that went down again and again ends a minute after the last time",
        [
            *ingest(HOUR),
            up(flat(1, HOUR)),
            heartbeat(grows(1, HOUR)),
            down(f"{flat(0, 900)} " + f"{flat(1, 45)} {flat(0, 45)} " * 5 + flat(0, 1_200)),
        ],
        {**{at: [DOWN] for at in range(1_200, 1_320, 15)}, **{at: [] for at in range(1_365, 2_400, 15)}},
    ),
    Scenario(
        "the target that a killed driver left pages no longer once its group is removed, and a retired game burns out",
        [
            *ingest(2 * HOUR),
            up(f"{flat(1, 600)} {flat(0, 2 * HOUR)}"),
            info(f"{flat(1, 600)} {gone(2 * HOUR)}"),
            heartbeat(f"{grows(1, 600)} {gone(2 * HOUR)}"),
            down(f"{flat(0, 600)} {flat(1, 1_200)} {gone(2 * HOUR)}"),
            stranded(f"_x{600 // STEP_SECONDS - 1} {flat(1, 1_200)} {gone(2 * HOUR)}"),
            down(flat(0, 2 * HOUR), "b"),
        ],
        {1_500: [DOWN, FAST], 3_000: [], 3_900: []},
    ),
    Scenario(
        "a game that is retired while its group stays down burns out, and the group goes on paging",
        [
            *ingest(2 * HOUR),
            up(f"{flat(1, 600)} {flat(0, 2 * HOUR)}"),
            info(f"{flat(1, 600)} {gone(2 * HOUR)}"),
            heartbeat(f"{grows(1, 600)} {gone(2 * HOUR)}"),
            down(f"{flat(0, 600)} {flat(1, 2 * HOUR)}"),
            stranded(f"_x{600 // STEP_SECONDS - 1} {flat(1, 1_200)} {gone(2 * HOUR)}"),
        ],
        {1_500: [DOWN, FAST], 3_000: [DOWN], 4_500: [DOWN]},
    ),
    Scenario(
        "rows that wait in the source for long miss the objective of each game that is not exempt",
        [
            info(flat(1, HOUR)),
            info(flat(1, HOUR), game="paused"),
            age(flat(0, HOUR)),
            status("PAUSED", flat(1, HOUR), game="paused"),
            *[each for each in ingest(HOUR) if not each[0].startswith("turnout_source")],
            source_age(f"{flat(0, 900)} {grows(1, 1_800)} {flat(0, 900)}"),
        ],
        {900: [], 1_350: [], 1_560: [FAST], 3_300: [SLOW]},
    ),
    Scenario(
        "an ingest that nobody hears of misses the objective of each game",
        [
            info(flat(1, HOUR)),
            age(flat(0, HOUR)),
            up(flat(1, HOUR)),
            heartbeat(grows(1, HOUR)),
            down(f"{flat(0, 900)} {gone(1_800)}"),
            source_age(f"{flat(0, 900)} {gone(1_800)}"),
            judged(f"{grows(1, 900)} {gone(1_800)}"),
            (COMMITS, f"{grows(1, 900)} {gone(1_800)}"),
        ],
        {900: [], 1_350: [], 1_500: [FAST]},
    ),
    Scenario(
        "a source that is silent misses nothing while ingest knows that nothing waits",
        [info(flat(1, HOUR)), age(flat(0, HOUR)), *ingest(HOUR)[1:], (COMMITS, flat(0, HOUR))],
        {at: [] for at in range(0, HOUR, 300)},
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.law for scenario in SCENARIOS])
@pytest.mark.proves("G221")
def test_a_gone_driver_pages_and_costs_the_objective(scenario: Scenario, tmp_path: Path) -> None:
    """At each given second exactly the given pages of groups and objectives fire."""
    burns = "TurnoutFreshnessBurn(Fast|Slow)"
    run(tmp_path, scenario, only=f"{burns}|TurnoutGroupDown")


TEXTS = [
    (
        [*ingest(HOUR), down(f"{flat(0, 900)} {flat(1, HOUR)}")],
        "Cluster group a is down",
        "Its driver gave up, died, or dies at each start: all its games stand still; `turnout status` says more.",
    ),
    (
        [*ingest(HOUR), down(f"{flat(0, 870)} " + f"{flat(1, 45)} {flat(0, 45)} " * CYCLES)],
        "Cluster group a goes down again and again",
        (
            "Its driver went down twice or more within 10 minutes, the last time within a minute, and runs now: its "
            "games stand still in between; `turnout status` says more."
        ),
    ),
    (
        [*ingest(HOUR), down(flat(0, HOUR)), up(f"{flat(1, 840)} {flat(0, HOUR)}")],
        "Cluster group a cannot be read",
        (
            "Its /metrics could not be read for 2 minutes, or has no heartbeat: `turnout status` says whether its "
            "games stand still."
        ),
    ),
    (
        [*ingest(HOUR), up(f"{flat(1, 840)} {flat(0, HOUR)}"), heartbeat(flat(1_020, HOUR))],
        "Cluster group a is down",
        "Its last heartbeat is 3m 0s old: all its games stand still.",
    ),
]


@pytest.mark.parametrize(("series", "summary", "description"), TEXTS, ids=["down", "again", "unread", "silent"])
def test_the_text_of_a_groups_page_is_true_when_it_is_read(
    series: Sequence[tuple[str, str]], summary: str, description: str, tmp_path: Path
) -> None:
    """Games stand still by the text only where their group is down now."""
    texts = {
        "summary": summary, "description": description,
        "runbook_url": "http://127.0.0.1:8501/runbooks/turnoutgroupdown?group=a",
        "dashboard_url": "http://127.0.0.1:8501/?group=a",
    }  # fmt: skip
    alert = {"exp_labels": {"severity": "page", "cluster_group": "a"}, "exp_annotations": texts}
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": [{"eval_time": "20m", "alertname": "TurnoutGroupDown", "exp_alerts": [alert]}],
    }
    document = {"rule_files": [str(files.RULES_FILE)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": [test]}
    (tmp_path / "test.json").write_text(json.dumps(document), "utf-8")
    promtool("test", "rules", str(tmp_path / "test.json"))
