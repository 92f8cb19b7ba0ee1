"""Guards that the pages say which alerts fire, or that they do not know it: unknown is never none."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from pipeline.api import alerts
from pipeline.settings.alerts import AlertSettings

SINCE = "2026-11-25T14:32:48.123456789Z"
HOSTILE = '<img src=x onerror=alert(1)>"\n'


class Server(HTTPServer):
    """Answers every request with the same."""

    code, content, asked = 200, b"", ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked = self.path
        self.send_response(self.server.code)
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: Server, content: Any, *, prometheus: bool = False, code: int = 200) -> alerts.Alerts:
    server.content = content if isinstance(content, bytes) else json.dumps(content).encode()
    server.code = code
    url = f"http://127.0.0.1:{server.server_port}"
    return alerts.read(AlertSettings(prometheus_url=url) if prometheus else AlertSettings(url))


def active(name: str, severity: str = "page", **labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "severity": severity, **labels},
        "annotations": {"summary": f"{name} {HOSTILE}"},
        "startsAt": SINCE,
    }


WATCHDOG = active("TurnoutWatchdog", "none")


def test_the_page_lists_alerts_that_alertmanager_would_send(server: Server) -> None:
    """Alertmanager leaves out what is silenced or explained; pages come first, and texts stay as they are."""
    found = ask(server, [active("TurnoutAccessDrift", "ticket"), WATCHDOG, active("TurnoutStreamDown", game=HOSTILE)])
    assert found.why_unknown is None
    assert found.firing is not None
    first, second = found.firing
    assert (first.name, second.name) == ("TurnoutStreamDown", "TurnoutAccessDrift")
    assert first.labels["game"] == HOSTILE
    assert first.since == pytest.approx(1_795_617_168.123, abs=0.01)
    assert first.runbook == "/runbooks/turnoutstreamdown"
    assert "silenced=false&inhibited=false" in server.asked


def test_prometheus_reports_pending_alerts_and_those_of_others(server: Server) -> None:
    """Only turnout's alerts that fire count."""
    states = [
        (active("TurnoutStreamDown"), "firing"), (active("TurnoutGroupDown"), "pending"),
        (active("DiskFull"), "firing"), (WATCHDOG, "firing"),
    ]  # fmt: skip
    listed = [{**each, "activeAt": SINCE, "state": state} for each, state in states]
    found = ask(server, {"status": "success", "data": {"alerts": listed}}, prometheus=True)
    assert found.firing is not None
    assert [each.name for each in found.firing] == ["TurnoutStreamDown"]


def test_nothing_fires_only_where_the_watchdog_does(server: Server) -> None:
    """An Alertmanager that no Prometheus reaches has no alerts either."""
    assert ask(server, [WATCHDOG]).firing == ()
    silent = ask(server, [])
    assert silent.firing is None
    assert "TurnoutWatchdog" in (silent.why_unknown or "")


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        (b"no json", 200, "gave no list of alerts"),
        (b"\xff\xfe", 200, "gave no list of alerts"),
        (b"[" * 100_000, 200, "gave no list of alerts"),
        (b"[1]", 200, "gave no list of alerts"),
        (b'[{"labels": {}}]', 200, "gave no list of alerts"),
        (b'{"data": 3}', 200, "gave no list of alerts"),
        (b"", 503, "answers with 503"),
        (b"x" * 8_000_001, 200, "gave no list of alerts"),
    ],
)
def test_a_strange_answer_is_unknown(server: Server, content: bytes, code: int, why: str) -> None:
    """Whatever a server says, the page has a reason and no error."""
    found = ask(server, content, code=code)
    assert found.firing is None
    assert why in (found.why_unknown or "")


def test_a_server_that_is_away_is_unknown(server: Server) -> None:
    """Nobody listens: the reason says which server, and names the system's error."""
    with HTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    found = alerts.read(AlertSettings(f"http://127.0.0.1:{port}"))
    assert found.firing is None
    assert "Alertmanager does not answer" in (found.why_unknown or "")


def test_without_a_server_alerts_are_unknown() -> None:
    """An environment without Prometheus has no alerts to show, which is not the same as none."""
    found = alerts.read(AlertSettings())
    assert found.firing is None
    assert "alerts.alertmanager_url" in (found.why_unknown or "")
