"""Guards the way of an alert to a person: fault, Prometheus, Alertmanager, webhook, and the end of it."""

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from listeners.totals import DerivedMetrics
from pipeline.api import alerts as page
from pipeline.health.alerting import files
from pipeline.health.alerting.alertmanager import alertmanager_config
from pipeline.health.alerting.alerts import alerts
from pipeline.settings.alerts import AlertSettings
from tests.signals.fleet import GROUP, Fleet
from tests.signals.scaling import FACTOR, durations, rest, scaled
from tests.signals.servers import PATIENCE_SECONDS, Servers

SEVERITY = {alert.name: alert.severity for alert in alerts()}
BURNS = ("TurnoutFreshnessBurnFast", "TurnoutFreshnessBurnSlow", "TurnoutFreshnessBudgetDrip")
LATE = "TurnoutLatencyOverObjective"

ATTEMPTS = 3

Fault = Callable[[Fleet], None]
FAULTS: dict[str, Fault] = {
    "TurnoutStreamDown": lambda fleet: fleet.set(status="FAILED"),
    "TurnoutStreamStalled": lambda fleet: fleet.set(status="STALLED"),
    LATE: lambda fleet: fleet.set(age=90.0),
    "TurnoutRejectRatioHigh": lambda fleet: fleet.set(rejects=5),
    "TurnoutContractViolated": lambda fleet: fleet.set(broken=5),
    "TurnoutContractStale": lambda fleet: fleet.set_control(stale_contracts={("sales", fleet.game): True}),
    "TurnoutContractNotUnique": lambda fleet: fleet.set_control(
        derived=[DerivedMetrics("sold", fleet.game, GROUP, 1, 1, 0, 0.0, None, time.time(), False, 0, ("sales",))]
    ),
    "TurnoutDerivedStopped": lambda fleet: fleet.set_control(
        derived=[DerivedMetrics("sold", fleet.game, GROUP, 1, 1, None, None, ("Refused", time.time()), time.time())]
    ),
    "TurnoutTypesWithoutTable": lambda fleet: fleet.set_control(left_out_types={fleet.game: 2}),
    "TurnoutDayNotClosed": lambda fleet: fleet.set_control(books_due={fleet.game: time.time() - 4000.0}),
    "TurnoutEdgeDown": lambda fleet: fleet.set(is_edge_gone=True),
    "TurnoutEdgeCertificateExpires": lambda fleet: fleet.set(certificate_left=0.1),
    "TurnoutGroupDown": lambda fleet: fleet.set(heartbeat_ago=130.0),
    "TurnoutIngestStalled": lambda fleet: fleet.set(committed_ago=310.0),
    "TurnoutSourceBacklog": lambda fleet: fleet.set_control(source_age_seconds=75.0, source_rows=9),
    "TurnoutSourceUnknown": lambda fleet: fleet.set_control(source_age_seconds=None, source_rows=None),
    "TurnoutFleetUnhealthy": lambda fleet: fleet.set(problems=1),
    "TurnoutControllerDown": lambda fleet: fleet.set_control(is_controller_running=False),
    "TurnoutOperationNeedsPerson": lambda fleet: fleet.set_control(
        open_operations={"needs_human": 1}, oldest_stuck_since=time.time()
    ),
    "TurnoutRegistryMistrusted": lambda fleet: fleet.set_control(mistrusted={"main": time.time() - 60}),
    "TurnoutMaintenanceOverdue": lambda fleet: fleet.set_control(maintenance_overdue_seconds=60.0),
    "TurnoutEvacuationWaits": lambda fleet: fleet.set_control(evacuations={GROUP: (1, time.time())}),
    "TurnoutAccessDrift": lambda fleet: fleet.set_control(drift={"extra": 2}),
    "TurnoutAccessOverdue": lambda fleet: fleet.set_control(overdue_access=1),
    "TurnoutAccessUnknown": lambda fleet: fleet.set_control(access_read_at=time.time() - 8_000),
    "TurnoutListenerLagging": lambda fleet: fleet.set(drops=True),
    "TurnoutMetricsStale": lambda fleet: fleet.set(is_late=True),
}
SILENCE = {  # alerts that processes raise which cannot be read: a machine that stalls for 0.3 s is silent for 3 minutes
    "TurnoutGroupDown", "TurnoutFleetUnhealthy", "TurnoutIngestStalled", "TurnoutSourceUnknown",
    "TurnoutMaintenanceOverdue", "TurnoutMetricsStale", *BURNS,
}  # fmt: skip
FOLLOWS = {  # alerts that the same fault also raises, by design
    "TurnoutStreamDown": set(BURNS),
    "TurnoutStreamStalled": set(BURNS),
    LATE: set(BURNS),
    "TurnoutGroupDown": set(BURNS),
    "TurnoutSourceBacklog": set(BURNS),
}


def calm(servers: Servers, fleet: Fleet) -> None:
    """Wait until nothing fires but the watchdog, and forget what has arrived."""
    fleet.set()
    fleet.take_new_game()
    # Burns of earlier games go on for a while: windows are long even when an hour is short.
    servers.wait_for(lambda: servers.firing(fleet.game) == {"TurnoutWatchdog"}, "the calm fleet raises alerts")
    servers.inbox.clear()


def follow(servers: Servers, fleet: Fleet, name: str) -> None:
    """Inject the fault of an alert, follow it to its webhook, end the fault, and follow the end."""
    path = f"/{SEVERITY[name]}"
    for _ in range(ATTEMPTS):  # on a busy machine the burn that follows may be faster, and mute it
        calm(servers, fleet)
        missed = servers.missed_scrapes()
        FAULTS[name](fleet)
        alert = servers.inbox.wait_or_none(path, name, "firing", PATIENCE_SECONDS / ATTEMPTS)
        if alert is not None:
            break
    assert alert is not None, f"{name} did not arrive in {ATTEMPTS} attempts"
    assert urlsplit(alert["annotations"]["runbook_url"]).path == f"/runbooks/{name.lower()}"
    fleet.set()
    servers.inbox.wait(path, name, "resolved")
    others = servers.inbox.names("firing", fleet.game) - FOLLOWS.get(name, set()) - {name}
    if servers.missed_scrapes() > missed:
        others -= SILENCE
    assert others == set()


def test_every_alert_has_a_fault() -> None:
    """An alert that nobody has followed to its end may never arrive."""
    assert {*FAULTS, *BURNS, "TurnoutWatchdog"} == set(SEVERITY)


def test_an_hour_of_six_seconds_changes_durations_only() -> None:
    """A proof with scaled files holds for the real ones: nothing else differs."""
    for text in (
        files.render_rules(),
        files.prometheus_config(Path("/targets"), Path("/rules.yml"), 30),
        alertmanager_config(AlertSettings(page_webhook="http://127.0.0.1:1/page")),
    ):
        small = scaled(text)
        assert rest(small) == rest(text)
        assert durations(text)
        assert durations(small) == [-(-each // FACTOR) for each in durations(text)]
    assert all(each % 600 == 0 for each in durations(files.render_rules()))


@pytest.mark.proves("G221")
def test_a_fault_reaches_a_person_and_its_end_too(servers: Servers, fleet: Fleet) -> None:
    """A failed stream pages once, names its game and runbook, and is reported as resolved."""
    follow(servers, fleet, "TurnoutStreamDown")
    calm(servers, fleet)


def test_the_watchdog_arrives_again_and_again(servers: Servers, fleet: Fleet) -> None:
    """A service that waits for it notices when the way to it breaks."""
    for _ in range(3):
        servers.inbox.clear()
        servers.inbox.wait("/watchdog", "TurnoutWatchdog", "firing")


def test_pages_show_what_alertmanager_would_send(servers: Servers, fleet: Fleet) -> None:
    """The dashboard lists what fires and was not explained by another alert; both servers say the same."""
    calm(servers, fleet)
    FAULTS["TurnoutRegistryMistrusted"](fleet)
    servers.inbox.wait("/ticket", "TurnoutRegistryMistrusted", "firing")
    for settings in (AlertSettings(servers.alertmanager + "/"), AlertSettings(prometheus_url=servers.prometheus)):
        found = page.read(settings)
        assert found.why_unknown is None
        assert found.firing is not None
        (only,) = (each for each in found.firing if each.name not in SILENCE)
        assert (only.name, only.severity, only.runbook) == (
            "TurnoutRegistryMistrusted", "ticket", "turnoutregistrymistrusted",
        )  # fmt: skip
        assert only.since <= found.read_at
    calm(servers, fleet)


@pytest.mark.long
@pytest.mark.proves("G221")
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_alert_arrives_and_clears(servers: Servers, fleet: Fleet, name: str) -> None:
    """Each alert arrives where its severity belongs, alone but for what its fault means, and is cleared."""
    follow(servers, fleet, name)


@pytest.mark.long
def test_burns_arrive_in_their_order_and_clear(servers: Servers, fleet: Fleet) -> None:
    """While a faster burn fires the slower ones are silent; each arrives as the faster one clears."""
    calm(servers, fleet)
    fleet.set(age=90.0)
    servers.inbox.wait("/page", BURNS[0], "firing")
    servers.wait_for(lambda: set(BURNS) <= servers.firing(fleet.game), "a lasting lateness raises not every burn")
    assert servers.inbox.names("firing", fleet.game) & set(BURNS) == {BURNS[0]}
    fleet.set()
    servers.inbox.wait("/page", BURNS[0], "resolved")
    servers.inbox.wait("/page", BURNS[1], "firing")
    servers.inbox.wait("/page", BURNS[1], "resolved")
    servers.inbox.wait("/ticket", BURNS[2], "firing")
    alert = servers.inbox.wait("/ticket", BURNS[2], "resolved")
    assert alert["labels"]["game"] == fleet.game
    assert alert["labels"]["cluster_group"] == GROUP


@pytest.mark.long
@pytest.mark.proves("G221")
def test_a_dead_group_is_one_alert(servers: Servers, fleet: Fleet) -> None:
    """While a group is silent nobody is called for its games, though they are late."""
    expected = {"TurnoutStreamDown", BURNS[0]}
    for _ in range(ATTEMPTS):
        calm(servers, fleet)
        missed = servers.missed_scrapes()
        fleet.set(heartbeat_ago=130.0)
        servers.inbox.wait("/page", "TurnoutGroupDown", "firing")
        servers.inbox.clear()
        fleet.set(heartbeat_ago=130.0, age=90.0, status="FAILED")
        servers.wait_for(lambda: expected <= servers.firing(fleet.game), "the games raise no alert")
        about_games = servers.inbox.names("firing", fleet.game) & {"TurnoutStreamDown", LATE, *BURNS}
        if servers.missed_scrapes() == missed:  # else the group was silent in another way for a moment
            break
    assert about_games == set()
    calm(servers, fleet)
