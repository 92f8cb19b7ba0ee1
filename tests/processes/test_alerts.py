import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from pipeline.base.errors import Refused
from pipeline.health.alerting import alerts, files
from pipeline.health.alerting.links import runbook_url
from pipeline.settings.tree import Metrics, Settings
from tests.checkout import ROOT
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
    later,
    promtool,
    source_age,
    status,
    steps,
    up,
)

NAMES = [alert.name for alert in alerts.alerts()]


def landed(values: str, le: str, group: str = "a") -> tuple[str, str]:
    return f'turnout_stream_latency_seconds_bucket{{game="g",cluster_group="{group}",le="{le}"}}', values


def rows(result: str, values: str) -> tuple[str, str]:
    return f'turnout_stream_rows_total{{game="g",cluster_group="a",result="{result}"}}', values


def violations(rule: str, values: str) -> tuple[str, str]:
    return f'turnout_stream_contract_violations_total{{game="g",cluster_group="a",rule="{rule}"}}', values


def derived(name: str, values: str, **labels: str) -> tuple[str, str]:
    shown = "".join(f',{label}="{value}"' for label, value in labels.items())
    return (
        f'turnout_derived_{name}{{derived="sold",game="g",cluster_group="a",kind="ingest",instance="i:1"{shown}}}',
        values,
    )


def drops(values: str) -> tuple[str, str]:
    return 'turnout_listener_events_dropped_total{cluster_group="a",instance="a:1"}', values


def bridge(name: str, values: str, **labels: str) -> tuple[str, str]:
    shown = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'turnout_metrics_serve_{name}{{instance="b:1"{shown}}}', values


def problems(values: str, problem: str = "group") -> tuple[str, str]:
    return f'turnout_fleet_problems{{problem="{problem}",kind="ingest",instance="i:1"}}', values


def controller(values: str) -> tuple[str, str]:
    return 'turnout_controller_running{kind="ingest",instance="i:1"}', values


def supervised(values: str) -> tuple[str, str]:
    return 'turnout_controller_supervised_groups{kind="ingest",instance="i:1"}', values


def operations(state: str, values: str) -> tuple[str, str]:
    return f'turnout_operations_open{{state="{state}",kind="ingest",instance="i:1"}}', values


def waiting_games(values: str, group: str = "a") -> tuple[str, str]:
    return f'turnout_evacuation_waiting_games{{cluster_group="{group}",kind="ingest",instance="i:1"}}', values


def overdue(values: str) -> tuple[str, str]:
    return 'turnout_maintenance_overdue_seconds{kind="ingest",instance="i:1"}', values


def mistrusted(values: str, registry: str = "main") -> tuple[str, str]:
    name = "turnout_registry_mistrusted_since_timestamp_seconds"
    return f'{name}{{registry="{registry}",kind="ingest",instance="i:1"}}', values


def drifted(values: str, kind: str = "extra") -> tuple[str, str]:
    return f'turnout_access_drift_findings{{class="{kind}",kind="ingest",instance="i:1"}}', values


def access_read(values: str) -> tuple[str, str]:
    return 'turnout_access_read_timestamp_seconds{kind="ingest",instance="i:1"}', values


def edge_up(name: str) -> str:
    return f'up{{job="turnout",kind="edge",edge="{name}",instance="{name}:1"}}'


def certificate(name: str, values: str) -> tuple[str, str]:
    return f'turnout_edge_certificate_{name}_seconds{{kind="edge",edge="one",instance="one:1"}}', values


INGESTED = ("turnout_ingest_last_commit_timestamp_seconds", grows(1, 3_600))


def of_game(alert: str, severity: str = "page", group: str | None = "a") -> str:
    return _fired(alert, severity, game="g", **({} if group is None else {"cluster_group": group}))


DOWN, STALLED, LATE = "TurnoutStreamDown", "TurnoutStreamStalled", "TurnoutLatencyOverObjective"
STOPPED = _fired("TurnoutDerivedStopped", "ticket", derived="sold", game="g", cluster_group="a")
TWICE = _fired("TurnoutContractNotUnique", "ticket", derived="sold", game="g")
STALE = _fired("TurnoutContractStale", "ticket", contract="sales", game="g")
UNHEALTHY = _fired("TurnoutFleetUnhealthy", "ticket")
LATE_SOURCE, BLIND_SOURCE = _fired("TurnoutSourceBacklog"), _fired("TurnoutSourceUnknown", "ticket")
EVACUATION = _fired("TurnoutEvacuationWaits", cluster_group="a")
OVERDUE = 'turnout_access_overdue_grants{kind="ingest",instance="i:1"}'
KEPT = _fired("TurnoutAccessOverdue", "ticket")
DRIFT, ACCESS_UNKNOWN = _fired("TurnoutAccessDrift", "ticket"), _fired("TurnoutAccessUnknown", "ticket")
NO_CONTROLLER, STUCK = _fired("TurnoutControllerDown", "ticket"), _fired("TurnoutOperationNeedsPerson", "ticket")
UNTENDED = _fired("TurnoutMaintenanceOverdue", "ticket")
EDGE_DOWN = _fired("TurnoutEdgeDown", edge="one")
CERTIFICATE = _fired("TurnoutEdgeCertificateExpires", "ticket", edge="one")
LIAR = _fired("TurnoutRegistryMistrusted", "ticket", registry="main")
SCENARIOS = [
    Scenario(
        "an edge that does not answer for a minute pages until it answers, and one that drained does not",
        [
            up(flat(1, HOUR), "ingest"),
            (edge_up("one"), f"{flat(1, 300)} {flat(0, 600)} {flat(1, 600)}"),
            (edge_up("two"), f"{flat(1, 300)} {gone(1_200)}"),
        ],
        {345: [], 375: [EDGE_DOWN], 885: [EDGE_DOWN], 960: []},
    ),
    Scenario(
        "a certificate with a seventh of its lifetime left fires after 5 minutes until it is renewed",
        [
            certificate("expires_timestamp", f"{flat(4_200, 2_400)} {flat(9_000, 1_200)}"),
            certificate("lifetime", f"{flat(21_000, 2_400)} {flat(7_000, 1_200)}"),
        ],
        {1_170: [], 1_470: [], 1_530: [CERTIFICATE], 2_385: [CERTIFICATE], 2_430: []},
    ),
    Scenario(
        "maintenance that is overdue for 15 minutes fires until a round ended well; what is not known is not well",
        [up(flat(1, HOUR), "ingest"), overdue(f"{flat(0, 300)} {grows(1, 1_500)} {flat(0, 300)} {gone(1_500)}")],
        {1_170: [], 1_260: [UNTENDED], 1_785: [UNTENDED], 1_860: [], 3_240: [UNTENDED]},
    ),
    Scenario(
        "a failed stream fires after 2 minutes and clears",
        [info(flat(1, HOUR)), status("FAILED", f"{flat(0, 300)} {flat(1, 600)} {flat(0, 900)}")],
        {390: [], 450: [of_game(DOWN)], 885: [of_game(DOWN)], 930: []},
    ),
    Scenario(
        "a change from FAILED to CRASH_LOOP does not start the wait again",
        [
            info(flat(1, HOUR)),
            status("FAILED", f"{flat(1, 90)} {flat(0, 900)}"),
            status("CRASH_LOOP", f"{flat(0, 90)} {flat(1, 900)}"),
        ],
        {150: [of_game(DOWN)]},
    ),
    Scenario("a missing stream fires", [info(flat(1, HOUR)), status("MISSING", flat(1, HOUR))], {180: [of_game(DOWN)]}),
    Scenario(
        "without a known owner it fires too",
        [status("MISSING", flat(1, HOUR))],
        {180: [of_game(DOWN, group=None)]},
    ),
    Scenario(
        "with two owners it fires once, and names none",
        [info(flat(1, HOUR)), info(flat(1, HOUR), "b"), status("FAILED", flat(1, HOUR))],
        {second: [of_game(DOWN, group=None)] for second in range(180, 3_000, 60)},
    ),
    Scenario(
        "after a moment with two owners it names the one that is left",
        [info(flat(1, HOUR)), info(flat(1, 60), "b"), status("FAILED", flat(1, HOUR))],
        {second: [of_game(DOWN)] for second in range(600, 3_000, 60)},
    ),
    Scenario(
        "a stalled stream fires after 3 minutes and keeps firing for 5",
        [info(flat(1, HOUR)), status("STALLED", f"{flat(1, 600)} {flat(0, 1_800)}")],
        {165: [], 195: [of_game(STALLED)], 855: [of_game(STALLED)], 930: []},
    ),
    Scenario(
        "a backlog over the objective fires after 5 minutes",
        [info(flat(1, HOUR)), age(flat(61, HOUR))],
        {285: [], 315: [of_game(LATE, "ticket")]},
    ),
    Scenario("a backlog at the objective is silent", [info(flat(1, HOUR)), age(flat(60, HOUR))], {1_200: []}),
    Scenario(
        "a p95 over the objective fires while the backlog is small",
        [
            info(flat(1, HOUR)),
            age(flat(5, HOUR)),
            landed(flat(0, HOUR), "60.0"),
            landed(grows(2, HOUR), "120.0"),
            landed(grows(2, HOUR), "+Inf"),
        ],
        {285: [], 360: [of_game(LATE, "ticket")]},
    ),
    Scenario(
        "a stream behind by an unknown age is late",
        [info(flat(1, HOUR)), status("CATCHING_UP", flat(1, HOUR))],
        {315: [of_game(LATE, "ticket")]},
    ),
    Scenario(
        "a paused or backfilling stream is not late",
        [
            info(flat(1, HOUR)),
            age(flat(900, HOUR)),
            status("PAUSED", flat(1, 600) + " " + flat(0, 600)),
            status("BACKFILLING", flat(0, 600) + " " + flat(1, 600)),
        ],
        {1_185: []},
    ),
    Scenario(
        "a stream that starts is not late, and becomes so when it goes on",
        [
            info(flat(1, HOUR)),
            age(flat(90, HOUR)),
            status("STARTING", f"{flat(1, 600)} {flat(0, 600)}"),
            status("CATCHING_UP", f"{flat(0, 600)} {flat(1, 600)}"),
        ],
        {585: [], 885: [], 915: [of_game(LATE, "ticket")]},
    ),
    Scenario(
        "more than 1% refused for 15 minutes gives a ticket",
        [info(flat(1, HOUR)), rows("ok", grows(98, HOUR)), rows("rejected", grows(2, HOUR))],
        {885: [], 960: [of_game("TurnoutRejectRatioHigh", "ticket")]},
    ),
    Scenario(
        "less than 1% refused is silent",
        [info(flat(1, HOUR)), rows("ok", grows(1_000, HOUR)), rows("rejected", grows(9, HOUR))],
        {2_400: []},
    ),
    Scenario(
        "rows that keep breaking a contract for 15 minutes give a ticket, and a pause ends it",
        [info(flat(1, HOUR)), violations("sales/price", f"{grows(1, 1_200)} {flat(1_200, HOUR)}")],
        {885: [], **{at: [of_game("TurnoutContractViolated", "ticket")] for at in (960, 1_700)}, 1_890: []},
    ),
    Scenario(
        "rows that break a contract once are silent",
        [info(flat(1, HOUR)), violations("sales/price", f"{flat(0, 300)} {flat(500, HOUR)}")],
        {at: [] for at in range(0, 2_400, 60)},
    ),
    Scenario(
        "a table that is not as fresh as its contract promises for 2 minutes gives a ticket until it is",
        [('turnout_contract_stale{contract="sales",game="g",kind="ingest"}', f"{flat(1, 600)} {flat(0, HOUR)}")],
        {105: [], 150: [STALE], 585: [STALE], 630: []},
    ),
    Scenario(
        "rows that keep coming twice for 15 minutes give a ticket where a contract promises each once",
        [
            derived("duplicate_rows_total", f"{grows(1, 1_200)} {flat(1_200, HOUR)}"),
            ('turnout_contract_unique_info{contract="sales",derived="sold"}', flat(1, HOUR)),
        ],
        {885: [], 960: [TWICE], 1_700: [TWICE], 1_890: []},
    ),
    Scenario(
        "rows that come twice are silent where no contract promises each once, and where they came once",
        [
            derived("duplicate_rows_total", grows(1, HOUR)),
            ('turnout_derived_duplicate_rows_total{derived="other",game="g"}', f"{flat(0, 300)} {flat(500, HOUR)}"),
            ('turnout_contract_unique_info{contract="sales",derived="other"}', flat(1, HOUR)),
        ],
        {at: [] for at in range(0, 2_400, 60)},
    ),
    Scenario(
        "a derived stream that fails for 10 minutes gives a ticket until it goes on, whichever its error",
        [
            derived("info", flat(1, HOUR)),
            derived("reported_timestamp_seconds", grows(1, HOUR)),
            derived("stopped_since_timestamp_seconds", f"{flat(60, 600)} {gone(HOUR)}", error="Refused"),
            derived("stopped_since_timestamp_seconds", f"{gone(600)} {flat(60, 600)} {gone(HOUR)}", error="Transient"),
        ],
        {570: [], 660: [STOPPED], 1_170: [STOPPED], 1_320: []},
    ),
    Scenario(
        "a day that is open for an hour beyond its hour gives a ticket until it closes",
        [
            (
                'turnout_books_due_timestamp_seconds{game="g",kind="ingest"}',
                f"{flat(60, HOUR + 1_800)} {flat(9_000, HOUR)}",
            )
        ],
        {HOUR: [], HOUR + 780: [_fired("TurnoutDayNotClosed", "ticket", game="g")], HOUR + 1_920: []},
    ),
    Scenario(
        "event types that a cap leaves without a table give a ticket until they have one",
        [('turnout_derived_left_out_types{game="g",kind="ingest"}', f"{flat(2, 1_200)} {gone(HOUR)}")],
        {570: [], 660: [_fired("TurnoutTypesWithoutTable", "ticket", game="g")], 1_600: []},
    ),
    Scenario(
        "a derived stream that nobody reports is not well, before its first report too",
        [derived("info", flat(1, HOUR)), derived("reported_timestamp_seconds", f"{gone(1_200)} {flat(1_200, HOUR)}")],
        {570: [], 660: [STOPPED], 1_260: [], 2_040: [], 2_160: [STOPPED]},
    ),
    Scenario(
        "a derived stream that a person has paused gives no ticket, whether or not a driver reports it",
        [
            derived("info", flat(1, HOUR)),
            derived("paused", f"{flat(1, 1_800)} {flat(0, 1_800)}"),
        ],
        {660: [], 1_770: [], 2_370: [], 2_460: [STOPPED]},
    ),
    Scenario(
        "a derived stream of a group that is stopped, or down, is silent",
        [
            derived("info", flat(1, HOUR)),
            ('turnout_fleet_group_stopped{cluster_group="a"}', f"{flat(1, 1_800)} {gone(1_800)}"),
            ('turnout_fleet_group_down{cluster_group="a"}', f"{gone(1_800)} {flat(1, 1_800)}"),
        ],
        {at: [] for at in (660, 1_500)},
    ),
    Scenario(
        "a hung driver gives the group alert",
        [up(flat(1, HOUR)), heartbeat(flat(0, HOUR)), up(flat(1, HOUR), group="b"), heartbeat(grows(1, HOUR), "b")],
        {120: [], 210: [_fired("TurnoutGroupDown", cluster_group="a")]},
    ),
    Scenario(
        "a hung driver that answers now and then gives one alert without a gap",
        [
            up(" ".join(f"{flat(1, 15)} {flat(0, dark)}" for dark in (60, 105, 180, 90) * 4)),
            heartbeat(" ".join(f"600 stale _x{steps(dark) - 1}" for dark in (60, 105, 180, 90) * 4)),
            up(flat(1, HOUR), group="b"),
            heartbeat(grows(1, HOUR), "b"),
        ],
        {705: [], **{at: [_fired("TurnoutGroupDown", cluster_group="a")] for at in range(810, 1_800, 15)}},
    ),
    Scenario(
        "a driver that answers and has never beaten pages, once its start has had its time",
        [up(flat(1, HOUR)), up(flat(1, HOUR), group="b"), heartbeat(later(105, grows(1, HOUR)), "b")],
        {165: [], **{at: [_fired("TurnoutGroupDown", cluster_group="a")] for at in (195, 600, 3_000)}},
    ),
    Scenario(
        "a driver that beats once in three minutes pages once the judgement has found it down twice",
        [
            up(flat(1, HOUR)),
            heartbeat(" ".join(flat(start, 210) for start in range(0, 3_150, 210))),
            judged(grows(1, HOUR)),
            ('turnout_fleet_group_down{cluster_group="a"}', f"{flat(0, 15)} {flat(1, 195)} " * 15),
        ],
        {150: [], **{at: [_fired("TurnoutGroupDown", cluster_group="a")] for at in range(285, 3_000, 15)}},
    ),
    Scenario(
        "the death of a group gives the group alert only, not one per game",
        [
            up(f"{flat(1, 600)} {flat(0, 1_800)}"),
            heartbeat(f"{grows(1, 600)} {gone(1_800)}"),
            info(f"{flat(1, 600)} {gone(1_800)}"),
            age(f"{flat(3, 600)} {gone(1_800)}"),
            status("RUNNING", f"{flat(1, 600)} {gone(1_800)}"),
            status("FAILED", f"{flat(0, 600)} {gone(1_800)}"),
        ],
        {
            660: [],
            795: [_fired("TurnoutGroupDown", cluster_group="a")],
            2_000: [_fired("TurnoutGroupDown", cluster_group="a")],
        },
    ),
    Scenario(
        "ingest that commits nothing fires after 10 minutes",
        [up(flat(1, HOUR), "ingest"), (INGESTED[0], f"{grows(1, 600)} {flat(600, 1_800)}")],
        {1_185: [], 1_245: [_fired("TurnoutIngestStalled")]},
    ),
    Scenario(
        "a source that is usually quiet for as long pages nobody, and does once rows wait",
        [
            up(flat(1, 2 * HOUR), "ingest"),
            (INGESTED[0], f"{grows(1, 600)} {flat(600, 7_000)}"),
            ("turnout_source_silent_after_seconds", f"{flat(12, 600)} {flat(4_000, 2_400)} stale"),
        ],
        {1_245: [], 3_000: [], 3_360: [_fired("TurnoutIngestStalled")]},
    ),
    Scenario(
        "a source that is quiet for longer than usual fires after 10 minutes however short its gaps are",
        [
            up(flat(1, HOUR), "ingest"),
            (INGESTED[0], f"{grows(1, 600)} {flat(600, 1_800)}"),
            ("turnout_source_silent_after_seconds", flat(12, HOUR)),
        ],
        {1_185: [], 1_245: [_fired("TurnoutIngestStalled")]},
    ),
    Scenario(
        "ingest that nobody hears of fires",
        [up(flat(1, HOUR)), heartbeat(grows(1, HOUR)), (INGESTED[0], f"{grows(1, 600)} {gone(1_800)}")],
        {870: [], 930: [_fired("TurnoutIngestStalled")]},
    ),
    Scenario(
        "what the judgement of the fleet finds fires after 2 minutes and clears",
        [
            up(flat(1, HOUR), "ingest"),
            problems(flat(0, HOUR)),
            problems(f"{flat(0, 300)} {flat(1, 600)} {flat(0, 900)}", "controller"),
            judged(grows(1, HOUR)),
        ],
        {300: [], 390: [], 450: [UNHEALTHY], 885: [UNHEALTHY], 930: []},
    ),
    Scenario(
        "a group that was stopped on purpose is silent, though its target does not answer",
        [
            up(f"{flat(1, 600)} {flat(0, 1_800)}"),
            heartbeat(f"{grows(1, 600)} {gone(1_800)}"),
            up(flat(1, HOUR), "ingest", "i"),
            ('turnout_fleet_group_stopped{cluster_group="a",kind="ingest"}', f"{flat(1, 1_200)} {gone(1_200)}"),
            problems(flat(0, HOUR)),
            judged(grows(1, HOUR)),
        ],
        {660: [], 795: [], 1_185: [], 1_320: [_fired("TurnoutGroupDown", cluster_group="a")]},
    ),
    Scenario(
        "a judgement that is old counts as unhealthy",
        [up(flat(1, HOUR), "ingest"), problems(flat(0, HOUR)), judged(f"{grows(1, 600)} {flat(600, 1_800)}")],
        {735: [], 825: [UNHEALTHY]},
    ),
    Scenario(
        "a fleet that nothing judges counts as unhealthy",
        [
            up(f"{flat(1, HOUR)}"),
            heartbeat(grows(1, HOUR)),
            problems(f"{flat(0, 600)} {gone(1_800)}"),
            judged(f"{grows(1, 600)} {gone(1_800)}"),
        ],
        {600: [], 750: [UNHEALTHY]},
    ),
    Scenario(
        "a controller that is dead while groups are supervised fires after 2 minutes and clears",
        [controller(f"{flat(1, 300)} {flat(0, 600)} {flat(1, 900)}"), supervised(flat(3, HOUR))],
        {300: [], 390: [], 450: [NO_CONTROLLER], 885: [NO_CONTROLLER], 930: []},
    ),
    Scenario(
        "a controller of which nothing is known, as a store without writes keeps it from reporting, is not down",
        [controller(f"{flat(1, 300)} {gone(1_500)}"), supervised(flat(3, HOUR)), operations("planned", flat(1, HOUR))],
        {450: [], 900: [], 1_500: []},
    ),
    Scenario(
        "a controller that is dead while an operation waits fires",
        [
            controller(flat(0, HOUR)),
            supervised(flat(0, HOUR)),
            operations("planned", f"{flat(0, 300)} {flat(1, 600)} {flat(0, 900)}"),
            operations("running", flat(0, HOUR)),
        ],
        {300: [], 450: [NO_CONTROLLER], 930: []},
    ),
    Scenario(
        "without supervised groups and waiting operations nobody misses the controller",
        [
            controller(flat(0, HOUR)),
            supervised(flat(0, HOUR)),
            operations("planned", flat(0, HOUR)),
            operations("needs_human", f"{flat(1, 240)} {flat(0, 600)}"),
        ],
        {at: [] for at in range(0, 900, 60)},
    ),
    Scenario(
        "where the control store cannot be read the old judgement fires, and nothing that is not known",
        [
            up(flat(1, HOUR), "ingest"),
            controller(f"{flat(0, 60)} {gone(1_800)}"),
            supervised(f"{flat(3, 60)} {gone(1_800)}"),
            operations("needs_human", f"{flat(1, 60)} {gone(1_800)}"),
            problems(f"{flat(0, 1_800)}"),
            judged(f"{grows(1, 60)} {flat(60, 1_800)}"),
        ],
        {150: [], 450: [UNHEALTHY], 1_500: [UNHEALTHY]},
    ),
    Scenario(
        "a source that ingest cannot keep up with fires after 3 minutes, also where each batch takes most at once",
        [source_age(f"{flat(5, 300)} " + f"{flat(75, 45)} {flat(30, 45)} " * 10 + flat(5, 900))],
        {300: [], 465: [], 540: [LATE_SOURCE], 1_200: [LATE_SOURCE], 1_440: []},
    ),
    Scenario(
        "a source of which nothing is known fires after 5 minutes while ingest runs",
        [
            problems(flat(0, 1_200)),
            judged(f"{grows(1, 1_200)} {gone(1_200)}"),
            source_age(f"{flat(5, 300)} {gone(600)} {flat(5, 300)}"),
        ],
        {300: [], 585: [], 660: [BLIND_SOURCE], 855: [BLIND_SOURCE], 930: [], 1_185: []},
    ),
    Scenario(
        "an operation that needs a person fires after 5 minutes and clears",
        [operations("needs_human", f"{flat(0, 300)} {flat(2, 900)} {flat(0, 900)}")],
        {300: [], 570: [], 630: [STUCK], 1_185: [STUCK], 1_230: []},
    ),
    Scenario(
        "a registry that contradicts itself fires after a minute until a person trusts it again",
        [mistrusted(f"{gone(300)} {flat(300, 600)} {gone(900)}")],
        {300: [], 330: [], 420: [LIAR], 870: [LIAR], 960: []},
    ),
    Scenario(
        "games that cannot leave a dead group fire after 5 minutes for that group, and clear",
        [waiting_games(f"{gone(300)} {flat(4, 600)} {gone(900)}"), waiting_games(flat(0, HOUR), "b")],
        {300: [], 555: [], 660: [EVACUATION], 870: [EVACUATION], 960: []},
    ),
    Scenario(
        "grants that are over and not revoked fire after 2 minutes, and clear",
        [(OVERDUE, f"{flat(0, 300)} {flat(2, 600)} {flat(0, 900)}")],
        {390: [], 480: [KEPT], 870: [KEPT], 960: []},
    ),
    Scenario(
        "findings of drift fire after 15 minutes, also while one class follows another, and clear",
        [
            access_read(grows(1, HOUR)),
            drifted(f"{flat(0, 300)} {flat(2, 600)} {flat(0, 2_400)}"),
            drifted(f"{flat(0, 900)} {flat(1, 900)} {flat(0, 1_500)}", "gone"),
        ],
        {1_170: [], 1_230: [DRIFT], 1_770: [DRIFT], 1_830: []},
    ),
    Scenario(
        "a catalog that was not read for 2 hours fires, with what was found in it last",
        [access_read(flat(0, 3 * HOUR)), drifted(flat(1, 3 * HOUR))],
        {7_200: [DRIFT], 8_070: [DRIFT], 8_145: [DRIFT, ACCESS_UNKNOWN]},
    ),
    Scenario(
        "a catalog of which not all can be seen is not without drift: it is unknown",
        [access_read(grows(1, HOUR)), drifted(f"{flat(0, 600)} {gone(2_400)}")],
        {600: [], 1_455: [], 1_560: [ACCESS_UNKNOWN]},
    ),
    Scenario(
        "a catalog that was never read has no drift to fire for",
        [controller(flat(1, HOUR)), supervised(flat(1, HOUR))],
        {at: [] for at in (300, 3_000)},
    ),
    Scenario(
        "without a controller that is needed its own alert is enough",
        [
            access_read(flat(0, 3 * HOUR)),
            drifted(flat(0, 3 * HOUR)),
            controller(flat(0, 3 * HOUR)),
            supervised(flat(1, 3 * HOUR)),
        ],
        {8_400: [NO_CONTROLLER], 10_200: [NO_CONTROLLER]},
    ),
    Scenario(
        "lasting drops of monitoring events give a ticket",
        [drops(grows(0.1, HOUR))],
        {600: [], 660: [_fired("TurnoutListenerLagging", "ticket", cluster_group="a", instance="a:1")]},
    ),
    Scenario(
        "a place that cannot be read and a driver whose rows do not come give a ticket, a bridge is no group",
        [
            bridge("up", flat(0, HOUR), place="process_sample"),
            bridge("up", flat(1, HOUR), place="control_store"),
            bridge("driver_late", flat(1, HOUR), kind="group", cluster_group="a"),
            bridge("driver_late", flat(0, HOUR), kind="ingest"),
            up(flat(1, HOUR), "bridge", "b"),
        ],
        {
            105: [],
            600: [
                _fired("TurnoutMetricsStale", "ticket", place="process_sample"),
                _fired("TurnoutMetricsStale", "ticket", kind="group", cluster_group="a"),
            ],
        },
    ),
    Scenario(
        "a bridge that does not answer gives a ticket",
        [up(f"{flat(1, 600)} {flat(0, HOUR)}", "bridge", "b"), INGESTED, judged(grows(1, HOUR + 600))],
        {600: [], 960: [_fired("TurnoutMetricsStale", "ticket", instance="b:1")]},
    ),
    Scenario(
        "a blip of 60 seconds is silent everywhere",
        [
            bridge("up", f"{flat(1, 600)} {flat(0, 60)} {flat(1, 2_400)}", place="control_store"),
            bridge("driver_late", f"{flat(0, 600)} {flat(1, 60)} {flat(0, 2_400)}", kind="ingest"),
            info(flat(1, HOUR)),
            status("FAILED", f"{flat(0, 600)} {flat(1, 60)} {flat(0, 2_400)}"),
            status("STALLED", f"{flat(0, 600)} {flat(1, 60)} {flat(0, 2_400)}"),
            age(f"{flat(2, 600)} {flat(90, 60)} {flat(2, 2_400)}"),
            landed(f"{grows(2, 600)} {flat(1_200, 60)} {grows(2, 2_400, 1_200)}", "60.0"),
            landed(grows(2, 3_060), "+Inf"),
            rows("ok", grows(2, 3_060)),
            rows("rejected", f"{flat(0, 600)} {grows(2, 60)} {flat(120, 2_400)}"),
            up(f"{flat(1, 600)} {flat(0, 60)} {flat(1, 2_400)}"),
            heartbeat(f"{grows(1, 600)} {gone(60)} {grows(1, 2_400, 660)}"),
            (INGESTED[0], f"{grows(1, 600)} {gone(60)} {grows(1, 2_400, 660)}"),
            drops(f"{flat(0, 600)} {grows(5, 60)} {flat(300, 2_400)}"),
            controller(f"{flat(1, 600)} {flat(0, 60)} {flat(1, 2_400)}"),
            supervised(flat(3, 3_060)),
            operations("needs_human", f"{flat(0, 600)} {flat(1, 60)} {flat(0, 2_400)}"),
            source_age(f"{flat(1, 600)} {flat(90, 60)} {flat(1, 2_400)}"),
            waiting_games(f"{gone(600)} {flat(1, 60)} {gone(2_400)}"),
        ],
        {at: [] for at in range(600, 3_000, 15)},
    ),
    Scenario(
        "a quiet game is silent",
        [
            info(flat(1, HOUR)),
            status("RUNNING", flat(1, HOUR)),
            status("STALLED", flat(0, HOUR)),
            age(flat(0, HOUR)),
            landed(flat(7, HOUR), "60.0"),
            landed(flat(9, HOUR), "+Inf"),
            rows("ok", flat(9, HOUR)),
            rows("rejected", flat(4, HOUR)),
            up(flat(1, HOUR)),
            heartbeat(grows(1, HOUR)),
            INGESTED,
        ],
        {at: [] for at in (300, 1_200, 3_000)},
    ),
    Scenario(
        "a game that moves between groups is silent",
        [
            info(f"{flat(1, 600)} {gone(1_800)}"),
            info(later(585, flat(1, 1_800)), "b"),
            status("RUNNING", f"{flat(1, 600)} {gone(1_800)}"),
            status("STARTING", later(600, f"{flat(1, 60)} {flat(0, 1_800)}"), instance="b:1"),
            status("CATCHING_UP", later(600, f"{flat(0, 60)} {flat(1, 60)} {flat(0, 1_800)}"), instance="b:1"),
            age(f"{flat(2, 600)} {gone(1_800)}"),
            age(later(600, f"{flat(90, 120)} {flat(2, 1_800)}"), "b"),
            landed(f"{grows(1, 600)} {gone(1_800)}", "60.0"),
            landed(f"{grows(1, 600)} {gone(1_800)}", "+Inf"),
            landed(later(600, grows(1, 1_800)), "60.0", "b"),
            landed(later(600, grows(1, 1_800)), "+Inf", "b"),
            up(flat(1, HOUR)),
            up(flat(1, HOUR), group="b"),
            heartbeat(grows(1, HOUR)),
            heartbeat(grows(1, HOUR), "b"),
            INGESTED,
        ],
        {at: [] for at in range(570, 1_500, 15)},
    ),
    Scenario(
        "a counter that starts again from 0 is silent",
        [
            info(flat(1, HOUR)),
            age(flat(2, HOUR)),
            rows("ok", f"{grows(50, 600)} {grows(50, 1_800)}"),
            rows("rejected", f"{flat(5_000, 600)} {flat(0, 1_800)}"),
            landed(f"{grows(50, 600)} {grows(50, 1_800)}", "60.0"),
            landed(f"{grows(50, 600)} {grows(50, 1_800)}", "+Inf"),
            drops(f"{flat(40, 600)} {flat(0, 1_800)}"),
        ],
        {at: [] for at in range(600, 2_400, 30)},
    ),
]


@pytest.fixture(scope="module")
def without_objectives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the rules but those of objectives, which test_burn_alerts.py follows and promtool takes long for."""
    tree = yaml.safe_load(files.RULES_FILE.read_text("utf-8"))
    groups = [group for group in tree["groups"] if not group["name"].startswith("turnout-objectives")]
    assert 0 < len(groups) < len(tree["groups"])
    for group in groups:
        group["rules"] = [each for each in group["rules"] if not each["alert"].startswith("TurnoutFreshness")]
    rules = tmp_path_factory.mktemp("rules") / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": groups}, sort_keys=False), "utf-8")
    return rules


def run_rules(folder: Path, test: Mapping[str, object], rules: Path = files.RULES_FILE) -> None:
    document = {"rule_files": [str(rules)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(document), "utf-8")  # JSON is YAML
    promtool("test", "rules", str(folder / "test.json"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.law for scenario in SCENARIOS])
@pytest.mark.proves("B24", "G131", "G137")
def test_alerts_fire_when_they_should_and_only_then(
    scenario: Scenario, tmp_path: Path, without_objectives: Path
) -> None:
    """At each told second exactly the told alerts fire: what is not told must be silent."""
    unknown_ingest = not any(name == INGESTED[0] for name, _ in scenario.series)
    unjudged = not any("turnout_fleet_judged" in name for name, _ in scenario.series)
    unmeasured = not any(name.startswith("turnout_source") for name, _ in scenario.series)
    unreported = not any("turnout_maintenance" in name for name, _ in scenario.series)
    ignored = "TurnoutWatchdog"
    ignored += "|TurnoutSourceUnknown" * unmeasured + "|TurnoutMaintenanceOverdue" * unreported
    ignored += "|TurnoutIngestStalled" * unknown_ingest + "|TurnoutFleetUnhealthy" * unjudged
    run_rules(
        tmp_path,
        {
            "interval": f"{STEP_SECONDS}s",
            "input_series": [{"series": name, "values": values} for name, values in scenario.series],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertstate="firing",alertname!~"{ignored}"}}',
                    "eval_time": f"{at}s",
                    "exp_samples": [{"labels": each, "value": 1} for each in firing],
                }
                for at, firing in scenario.firing.items()
            ],
        },
        without_objectives,
    )


def test_every_alert_fires_in_a_scenario() -> None:
    """No alert is without a scenario in which it fires; the watchdog has a test of its own."""
    fired = {each for scenario in SCENARIOS for firing in scenario.firing.values() for each in firing}
    reported = {match.group(1) for each in fired if (match := re.search('alertname="([^"]+)"', each))}
    of_objectives = {name for name in NAMES if name.startswith("TurnoutFreshness")}  # test_burn_alerts.py
    assert set(NAMES) == {*reported, *of_objectives, "TurnoutWatchdog"}


def test_watchdog_fires_when_nothing_is_known(tmp_path: Path) -> None:
    """The watchdog needs no series at all."""
    firing = [{"labels": _fired("TurnoutWatchdog", "none"), "value": 1}]
    expression = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "15m", "exp_samples": firing}
    run_rules(tmp_path, {"interval": "15s", "input_series": [], "promql_expr_test": [expression]})


def test_texts_of_an_alert_are_filled_in(tmp_path: Path) -> None:
    """A person on call reads the game, the status and the numbers, and finds the runbook and the page."""
    expected = {
        "exp_labels": {"severity": "page", "game": "g", "cluster_group": "a"},
        "exp_annotations": {
            "summary": "The stream of g is down",
            "description": "The status is CRASH_LOOP for more than 2 minutes: nothing of this game reaches its table.",
            "runbook_url": "http://127.0.0.1:8501/runbooks/turnoutstreamdown?game=g",
            "dashboard_url": "http://127.0.0.1:8501/game?game=g",
        },
    }
    series = [info(flat(1, HOUR)), status("CRASH_LOOP", flat(1, HOUR)), status("FAILED", flat(0, HOUR))]
    run_rules(
        tmp_path,
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "alert_rule_test": [{"eval_time": "5m", "alertname": DOWN, "exp_alerts": [expected]}],
        },
    )


@pytest.mark.parametrize(("contract", "readers"), [("sales", "BI;"), ("c", "none named;")])
def test_a_broken_contract_names_its_readers(tmp_path: Path, contract: str, readers: str) -> None:
    """A person on call reads who relies on the contract whose rule rows break, not the readers of another one."""
    series = [
        info(flat(1, HOUR)),
        violations(f"{contract}/price", grows(1, HOUR)),
        *(
            (f'turnout_contract_reader_info{{contract="{name}",reader="{reader}"}}', flat(1, HOUR))
            for name, reader in (("sales", "BI"), ("other", "finance"))
        ),
    ]
    expected = {
        "exp_labels": {"severity": "ticket", "game": "g", "cluster_group": "a"},
        "exp_annotations": {
            "summary": "Rows of g break its output contract",
            "description": "For 15 minutes; rows within the last 10 minutes, by rule: "
            f"{contract}/price 600; readers: {readers} `turnout contracts show` has the rules.",
            "runbook_url": "http://127.0.0.1:8501/runbooks/turnoutcontractviolated?game=g",
            "dashboard_url": "http://127.0.0.1:8501/game?game=g",
        },
    }
    run_rules(
        tmp_path,
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "alert_rule_test": [{"eval_time": "20m", "alertname": "TurnoutContractViolated", "exp_alerts": [expected]}],
        },
    )


def test_the_text_of_refused_rows_is_of_the_minutes_that_it_names(tmp_path: Path) -> None:
    """It stays for up to ten minutes after the last refused row, so it does not say that rows are being refused."""
    refused = f"{grows(2, 1_680)} {flat(3_360, 900)}"
    series = [info(flat(1, HOUR)), rows("ok", grows(98, HOUR)), rows("rejected", refused)]
    expected = {
        "exp_labels": {"severity": "ticket", "game": "g", "cluster_group": "a"},
        "exp_annotations": {
            "summary": "Rows of g were refused within the last 10 minutes",
            "description": "About 960 rows, 1.606% of its rows of these 10 minutes, went to quarantine.",
            "runbook_url": "http://127.0.0.1:8501/runbooks/turnoutrejectratiohigh?game=g",
            "dashboard_url": "http://127.0.0.1:8501/game?game=g",
        },
    }
    run_rules(
        tmp_path,
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "alert_rule_test": [{"eval_time": "30m", "alertname": "TurnoutRejectRatioHigh", "exp_alerts": [expected]}],
        },
    )


SINCE = 'turnout_evacuation_waiting_since_timestamp_seconds{cluster_group="a"}'
OLDEST = "turnout_operations_needs_human_since_timestamp_seconds"


@pytest.mark.parametrize(
    ("alert", "series", "description"),
    [
        (
            "TurnoutControllerDown",
            [controller(flat(0, HOUR)), supervised(flat(3, HOUR)), operations("planned", flat(2, HOUR))],
            "Nothing restarts the drivers of 3 groups, and 2 operations wait. Streams go on.",
        ),
        (
            "TurnoutOperationNeedsPerson",
            [operations("needs_human", flat(2, HOUR)), (OLDEST, flat(60, HOUR))],
            "2 in all, one of them for 19m 0s. `turnout ops list` shows the reason of each.",
        ),
        (
            "TurnoutOperationNeedsPerson",
            [operations("needs_human", flat(2, HOUR))],
            "2 in all. `turnout ops list` shows the reason of each.",
        ),
        (
            "TurnoutEvacuationWaits",
            [waiting_games(flat(4, HOUR)), (SINCE, flat(60, HOUR))],
            "4 games stand still in it, for 19m 0s. `turnout status` says what they wait for.",
        ),
        (
            "TurnoutRegistryMistrusted",
            [mistrusted(flat(60, HOUR))],
            (
                "It gave a known id another content 19m 0s ago. turnout keeps the first one and takes no new schema "
                "from it; games that need one wait."
            ),
        ),
        (
            "TurnoutMaintenanceOverdue",
            [overdue(flat(7_200, HOUR))],
            "A round that ends well has been due for 2h 0m 0s. `turnout status` says more.",
        ),
        (
            "TurnoutAccessDrift",
            [drifted(flat(2, HOUR)), drifted(flat(0, HOUR), "gone")],
            "2 of class extra; 2 in all. `turnout grants drift` names them.",
        ),
        (
            "TurnoutAccessOverdue",
            [(OVERDUE, flat(2, HOUR))],
            (
                "2 grants have been over for 5 minutes, and no read of the catalog shows them as revoked. "
                "`turnout incidents` names who and what."
            ),
        ),
        (
            "TurnoutSourceBacklog",
            [source_age(flat(75, HOUR)), ("turnout_source_backlog_rows", flat(760_000, HOUR))],
            (
                "The oldest row that is not in bronze is 1m 15s old, and 760k rows wait; the objective is 60 s. "
                "Every game is at least that late."
            ),
        ),
        (
            "TurnoutAccessUnknown",
            [access_read(flat(1, HOUR))],
            "The catalog was read, but not all of it can be seen. The page Access says why.",
        ),
    ],
)
def test_texts_of_alerts_on_the_controllers_work_have_the_numbers(
    tmp_path: Path, alert: str, series: Sequence[tuple[str, str]], description: str
) -> None:
    """A ticket says how many and since when, and leaves out what is not known."""
    (rule,) = (each for each in alerts.alerts() if each.name == alert)
    labels, address = {"cluster_group": "a", "registry": "main"}, Settings().dashboard.address
    summary, runbook = (
        re.sub(r"{{ \$labels\.(\w+) }}", lambda each: labels[each.group(1)], text)
        for text in (rule.summary, runbook_url(rule, address))
    )
    expected = {
        "exp_labels": {
            "severity": rule.severity,
            **{name: labels[name] for name in labels if f"$labels.{name}" in rule.summary},
        },
        "exp_annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": runbook,
            "dashboard_url": address + rule.dashboard,
        },
    }
    run_rules(
        tmp_path,
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "alert_rule_test": [{"eval_time": "20m", "alertname": alert, "exp_alerts": [expected]}],
        },
    )


def test_rules_are_valid_and_not_stale() -> None:
    """The committed rules are what the template makes, and promtool accepts them."""
    assert files.render_rules() == files.RULES_FILE.read_text("utf-8"), "run python -m pipeline.health.alerting.files"
    (*records, _alerts) = yaml.safe_load(files.render_rules())["groups"]
    assert f"{len(NAMES) + sum(len(group['rules']) for group in records)} rules found" in promtool(
        "check", "rules", str(files.RULES_FILE)
    )


def test_an_alert_says_whether_status_may_be_healthy_meanwhile() -> None:
    """Alerts that follow from the one judgement, or make it unhealthy too, are listed; others say it and why."""
    judged = {
        "TurnoutStreamDown", "TurnoutStreamStalled", "TurnoutFleetUnhealthy", "TurnoutControllerDown",
        "TurnoutOperationNeedsPerson", "TurnoutEvacuationWaits", "TurnoutSourceBacklog", "TurnoutSourceUnknown",
        "TurnoutMaintenanceOverdue",
    }  # fmt: skip
    _, *sections = (ROOT / "docs" / "alerts.md").read_text("utf-8").split("\n## ")
    says = {each.partition("\n")[0] for each in sections if "Fires while `turnout status` is healthy" in each}
    assert set(NAMES) - judged == says


def test_rules_follow_the_objective(tmp_path: Path) -> None:
    """Another latency objective changes the rule and its text, and nothing else."""
    changed = files.render_rules(Settings(metrics=Metrics(latency_objective_seconds=12.5)))
    assert "> 12.5" in changed
    assert "the objective is 12.5 s" in changed
    assert changed.replace("12.5", "60") == files.render_rules()


@pytest.mark.parametrize("scrape_seconds", [1, 2.5, 30])
def test_configuration_is_valid(tmp_path: Path, scrape_seconds: float) -> None:
    """Prometheus accepts the configuration with target files, also for a folder with a space."""
    targets = tmp_path / "env dir" / "targets"
    targets.mkdir(parents=True)
    target = {"targets": ["127.0.0.1:9101"], "labels": {"kind": "group", "cluster_group": "a"}}
    (targets / "group-a.json").write_text(json.dumps([target]), "utf-8")
    config = tmp_path / "prometheus.yml"
    config.write_text(files.prometheus_config(targets, files.RULES_FILE, scrape_seconds), "utf-8")
    assert "SUCCESS" in promtool("check", "config", str(config))


@pytest.mark.parametrize("scrape_seconds", [0, 0.5, 31])
def test_scrapes_that_do_not_fit_the_rules_are_refused(tmp_path: Path, scrape_seconds: float) -> None:
    """A scrape interval with which the rates of the rules would be empty is refused with a sentence."""
    with pytest.raises(Refused, match="Choose 1 to 30 seconds"):
        files.prometheus_config(tmp_path, files.RULES_FILE, scrape_seconds)


def test_every_alert_has_one_runbook_and_none_is_left_over() -> None:
    """There is one page per alert, none without an alert, each with the four sections and the alert's name."""
    pages = {f"/runbooks/{page.stem}" for page in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert {alert.runbook for alert in alerts.alerts()} == pages
    for alert in alerts.alerts():
        text = (ROOT / f"docs{alert.runbook}.md").read_text("utf-8")
        assert text.startswith(f"# {alert.name}\n")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def test_every_alert_has_a_heading_in_the_docs() -> None:
    """docs/alerts.md has exactly one heading per alert, in the rules' order."""
    text = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    assert re.findall(r"^## (Turnout\w+)$", text, re.MULTILINE) == NAMES
