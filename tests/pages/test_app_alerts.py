"""Guards that the pages say which alerts fire, or that they do not know it: unknown is never none."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import MappingProxyType
from typing import Any

import pytest

from pipeline.api import alerts
from pipeline.settings.alerts import AlertSettings

SINCE = "2026-11-25T14:32:48.123456789Z"
HOSTILE = '<img src=x onerror=alert(1)>"\n'


class Server(HTTPServer):
    """Answers every request with the same."""

    code, content, asked = 200, b"", ""
    answers: Mapping[str, Any] = MappingProxyType({})  # of single paths


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked = self.path
        self.send_response(self.server.code)
        self.end_headers()
        answer = self.server.answers.get(self.path)
        self.wfile.write(self.server.content if answer is None else json.dumps(answer).encode())

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
    assert first.runbook == "turnoutstreamdown"
    assert first.page == ("game", {"game": HOSTILE})
    assert second.page == ("access", {})


def test_silenced_and_explained_alerts_are_listed_and_do_not_count_as_firing(server: Server) -> None:
    """Each alert of Alertmanager is in one list: firing, silenced with person and end, or explained by another."""
    quiet = {**active("TurnoutGroupDown"), "status": {"state": "suppressed", "silencedBy": ["s1"], "inhibitedBy": []}}
    told = {**active("TurnoutStreamDown"), "status": {"state": "suppressed", "silencedBy": [], "inhibitedBy": ["f1"]}}
    silence = {"id": "s1", "createdBy": HOSTILE, "comment": "upgrade", "endsAt": SINCE}
    server.answers = {"/api/v2/silences": [silence]}
    found = ask(server, [quiet, told, WATCHDOG])
    assert (found.firing, found.by) == ((), "Alertmanager")
    assert [each.name for each in found.explained or ()] == ["TurnoutStreamDown"]
    (silenced,) = found.silenced or ()
    assert silenced.silence is not None
    assert (silenced.silence.by, silenced.silence.comment) == (HOSTILE, "upgrade")
    assert silenced.silence.until == pytest.approx(1_795_617_168.123, abs=0.01)
    server.answers = {"/api/v2/silences": 7}
    (unsaid,) = ask(server, [quiet, WATCHDOG]).silenced or ()
    assert (unsaid.state, unsaid.silence) == ("silenced", None)


def test_texts_have_the_time_at_which_they_were_told(server: Server) -> None:
    """Numbers in a text are of when Prometheus sent it, which Alertmanager says; without that nobody knows."""
    told = {**active("TurnoutFleetUnhealthy"), "updatedAt": "2026-11-25T14:40:00.000Z"}
    (found,) = ask(server, [told, WATCHDOG]).firing or ()
    assert found.updated_at == pytest.approx(found.since + 431.877, abs=0.01)
    (unsaid,) = ask(server, [active("TurnoutFleetUnhealthy"), WATCHDOG]).firing or ()
    assert unsaid.updated_at is None


def test_pending_alerts_are_those_of_prometheus(server: Server) -> None:
    """Alertmanager hears of no alert before it fires; without Prometheus it is not known which wait."""
    pending = {**active("TurnoutGroupDown"), "activeAt": SINCE, "state": "pending"}
    watchdog = {**WATCHDOG, "activeAt": SINCE, "state": "firing"}
    server.answers = {"/api/v1/alerts": {"data": {"alerts": [pending, watchdog]}}}
    server.content = json.dumps([WATCHDOG]).encode()
    url = f"http://127.0.0.1:{server.server_port}"
    assert [each.name for each in alerts.read(AlertSettings(url, url)).pending or ()] == ["TurnoutGroupDown"]
    alone = alerts.read(AlertSettings(url))
    assert (alone.firing, alone.pending) == ((), None)
    assert "alerts.prometheus_url is not set" in (alone.why_no_pending or "")


def test_a_server_that_is_away_is_away_since_it_first_was(server: Server) -> None:
    """The answer has the time since when nobody knows, and keeps the last good answer until a server answers again."""
    good = ask(server, [active("TurnoutStreamDown"), WATCHDOG])
    away = ask(server, b"", code=503).after(good)
    longer = ask(server, b"", code=503).after(away)
    assert longer.away_since == away.away_since is not None
    assert longer.last is good
    assert longer.firing is None
    back = ask(server, [WATCHDOG]).after(longer)
    assert (back.away_since, back.last, back.firing) == (None, None, ())
    never = ask(server, b"", code=503).after(None)
    assert (never.last, never.away_since) == (None, never.read_at)


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
    assert [each.name for each in found.pending or ()] == ["TurnoutGroupDown"]
    assert found.silenced is None, "only Alertmanager knows"


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
