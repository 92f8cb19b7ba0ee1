"""Access to the dashboard on one machine: the real process, as `turnout dashboard` starts it, over raw sockets."""

import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.gate import PERSON_HEADER
from pipeline.base.actor import current_user
from tests.browser.seed import Seeded, seed
from tests.browser.served import free_port, origin_of, printed_url, started
from tests.raw_client import Sent, request, shake_hands, tab

pytestmark = pytest.mark.timeout(300)

STRANGER = (
    "Open the URL that `turnout dashboard` or `turnout demo` printed: it carries this dashboard's token. "
    "If you followed a link from another site, press Enter in the address bar."
)
FOREIGN = {
    "This host name is not the dashboard's.",
    "Only the dashboard's own pages may do this.",
    "A request without an Origin header may only read.",
}
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class Dashboard:
    """A dashboard that runs, and what its user has of it."""

    folder: Path
    url: str
    process: "subprocess.Popen[bytes]"

    @property
    def origin(self) -> str:
        return origin_of(self.url)

    @property
    def token(self) -> str:
        return urlsplit(self.url).query.removeprefix("token=")

    @property
    def cookie(self) -> tuple[str, str]:
        """Return the cookie that the printed URL is exchanged for, as a browser sends it back."""
        given = request(self.origin, f"/?token={self.token}").headers["Set-Cookie"]
        return ("Cookie", given.partition(";")[0])


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """Start it in a working folder that has options for Streamlit and a package of the app's name."""
    folder, elsewhere = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    seed(folder, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    (elsewhere / ".streamlit").mkdir()
    (elsewhere / ".streamlit" / "config.toml").write_text(
        '[server]\nenableCORS = false\nenableAgentApi = true\n[theme.dark]\nlinkColor = "#BADBAD"\n'
    )
    (elsewhere / "app").mkdir()
    (elsewhere / "app" / "__init__.py").write_text("raise SystemExit('another app')")
    port, log = free_port(), folder / "app.log"
    command = ["-m", "pipeline", "dashboard", "--env-dir", str(folder), "--port", str(port)]
    with started(command, port, log, cwd=elsewhere) as process:
        yield Dashboard(folder, printed_url(log), process)


@pytest.mark.parametrize(
    "path",
    ["/", "/audit", "/favicon.png", "/static/js/x.js", "/_stcore/health", "/_stcore/host-config", "/media/x.csv"],
)
@pytest.mark.proves("G171")
def test_without_the_printed_url_there_is_one_sentence(dashboard: Dashboard, path: str) -> None:
    """Another user of the machine, who has neither token nor cookie, gets nothing of any page or file."""
    for headers in ((), (("Cookie", dashboard.cookie[1][:-1]),), (("Cookie", f"turnout={dashboard.token}"),)):
        answer = request(dashboard.origin, path, headers)
        assert (answer.status, answer.body) == (401, STRANGER), "of 403 Streamlit's page says that CORS is to blame"
    assert request(dashboard.origin, f"{path}?token={dashboard.token[:-1]}").status == 401
    assert request(dashboard.origin, f"{path}?token={dashboard.token}&token=x").status == 401


@pytest.mark.proves("G171")
def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(dashboard: Dashboard) -> None:
    """The first request changes the URL's token into a cookie, and goes on to the same page without the token."""
    answer = request(dashboard.origin, f"/groups?steer=a&token={dashboard.token}&to=b")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.split("; ")[1:] == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert '"0;url=/groups?steer=a&amp;to=b"' in answer.body
    assert dashboard.token not in answer.body + cookie
    assert "//evil" not in request(dashboard.origin, f"//evil.example/?token={dashboard.token}").body
    others = "a=b; turnout-1=x; {bad json}; " + dashboard.cookie[1]
    assert '<div id="root">' in request(dashboard.origin, "/groups", [("Cookie", others)]).body


@pytest.mark.proves("G171")
def test_the_token_is_in_a_file_of_its_user_and_nowhere_else(dashboard: Dashboard) -> None:
    """Neither the process list nor the log shows the token to others of the machine."""
    file = dashboard.folder / "dashboard.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == dashboard.token
    assert dashboard.token.encode() not in Path(f"/proc/{dashboard.process.pid}/cmdline").read_bytes()
    assert (dashboard.folder / "app.log").read_text().count(dashboard.token) == 1  # the line that is printed


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 101),
        ("localhost:{port}", "http://localhost:{port}", 101),
        ("localhost:9000", "http://localhost:9000", 101),  # a tunnel's end
        ("127.0.0.1:{port}", None, 403),
        ("127.0.0.1:{port}", "http://localhost:3000", 403),
        ("127.0.0.1:{port}", "http://localhost:{port}", 403),
        ("127.0.0.1:{port}", "https://127.0.0.1:{port}", 403),
        ("127.0.0.1:{port}", "http://evil.example", 403),
        ("127.0.0.1:{port}", "null", 403),
        ("evil.example:{port}", "http://evil.example:{port}", 403),
        ("evil.example@127.0.0.1", "http://evil.example@127.0.0.1", 403),
    ],
)
@pytest.mark.proves("G174")
def test_only_the_dashboards_own_pages_speak_to_it(
    dashboard: Dashboard, host: str, origin: str | None, expected: int
) -> None:
    """The holder of the cookie still acts only from a page of its own origin: over the websocket and by any write."""
    port = str(urlsplit(dashboard.origin).port)
    sent: Sent = [("Host", host.format(port=port)), dashboard.cookie]
    sent = [*sent, *([("Origin", origin.format(port=port))] if origin else [])]
    assert shake_hands(dashboard.origin, sent).status == expected
    for method, path in (("POST", "/_stcore/agent/interact"), ("PUT", "/_stcore/upload_file/a/b"), ("OPTIONS", "/")):
        answer = request(dashboard.origin, path, sent, method)
        assert (answer.body in FOREIGN) == (expected == 403), answer
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    reads = request(dashboard.origin, "/", sent).status
    assert reads == (200 if expected == 101 or origin is None else 403)


@pytest.mark.proves("G174")
def test_two_origins_or_two_hosts_are_none(dashboard: Dashboard) -> None:
    """A header that stands twice is refused, whichever of the two would have been right."""
    own, port = dashboard.origin, urlsplit(dashboard.origin).port
    twice: list[Sent] = [
        [("Origin", own), ("Origin", "http://evil.example")],
        [("Origin", own), ("Host", f"127.0.0.1:{port}"), ("Host", "evil.example")],
    ]
    for sent in twice:  # by a write, as the library that speaks WebSocket refuses some of it by itself
        answer = request(own, "/_stcore/upload_file/a/b", [dashboard.cookie, *sent], "PUT")
        assert answer.body in FOREIGN or answer.status == 400
    assert shake_hands(own, [dashboard.cookie, ("Origin", own)]).status == 101


@pytest.mark.proves("G171", "H1")
def test_no_header_makes_anybody_else_of_who_acts(dashboard: Dashboard) -> None:
    """H1: the page is the user's who started it, whatever a client says of a proxy, or in the gate's own header."""
    forged = [
        ("X-Forwarded-Email", "boss@example.com"),
        ("X-Forwarded-User", "boss"),
        ("X-Forwarded-Preferred-Username", "boss"),
        (PERSON_HEADER, "boss"),
        (PERSON_HEADER.upper(), "0123456789abcdef0123456789abcdef platform boss"),
        (PERSON_HEADER.replace("-", "_"), "0123456789abcdef0123456789abcdef system boss"),
    ]
    with tab(dashboard.origin, dashboard.origin, [dashboard.cookie, *forged]) as draw:
        text = draw().text
    assert f" · {current_user()}" in text
    assert "boss" not in text


@pytest.mark.proves("G175")
def test_settings_go_with_the_process_and_not_with_its_working_folder(dashboard: Dashboard) -> None:
    """Started in another folder the dashboard is its own package, looks as ours and opens nothing that is closed."""
    own = [dashboard.cookie, ("Origin", dashboard.origin)]
    with tab(dashboard.origin, dashboard.origin, [dashboard.cookie]) as draw:
        text = draw().text
    assert "#1E7BBB" in text
    assert "#BADBAD" not in text
    assert request(dashboard.origin, "/_stcore/agent/interact", own, "POST").status in {403, 404, 405, 503}
    assert "enableAgentApi" in request(dashboard.origin, "/_stcore/agent/openapi.json", own).body


@pytest.mark.proves("G173")
def test_an_open_tab_loses_a_role_that_is_taken_away(dashboard: Dashboard) -> None:
    """What a tab draws again by itself is by the settings of that moment; wrong ones are said, and put right again."""
    file = dashboard.folder / "turnout.toml"
    with tab(dashboard.origin, dashboard.origin, [dashboard.cookie]) as draw:
        first = draw()
        bar, page, *_ = first.fragments
        assert "you may only look" not in first.text
        try:
            file.write_text('[roles]\noperators = ["boss"]\n')
            assert "no role: you may only look" in draw(bar).text
            file.write_text('[roles]\noperator = ["boss"]\n')
            assert "roles.operator" in draw(page).text.replace("\\", "")
        finally:
            file.unlink()
        assert "you may only look" not in draw(bar).text


@pytest.mark.proves("G175")
def test_every_answer_has_the_headers_that_confine_it(dashboard: Dashboard) -> None:
    """A page, a file, a refusal, an error and a refused websocket: none can be framed, sniffed or made to run more."""
    script = request(dashboard.origin, "/", [dashboard.cookie]).body.partition('src="./static/js/')[2].partition('"')[0]
    answers = [
        request(dashboard.origin, "/healthz"),
        request(dashboard.origin, "/runbooks/turnoutgroupdown"),
        request(dashboard.origin, "/"),
        request(dashboard.origin, f"/?token={dashboard.token}"),
        request(dashboard.origin, "/", [dashboard.cookie]),
        request(dashboard.origin, f"/static/js/{script}", [dashboard.cookie]),
        request(dashboard.origin, "/game/_stcore/health", [dashboard.cookie]),
        request(dashboard.origin, "/media/none.csv", [dashboard.cookie]),
        shake_hands(dashboard.origin),
    ]
    assert [answer.status for answer in answers] == [200, 200, 401, 200, 200, 200, 404, 404, 403]
    for answer in answers:
        assert {name: answer.headers.get_all(name) for name in ALWAYS} == {name: [is_] for name, is_ in ALWAYS.items()}
        (policy,) = answer.headers.get_all("Content-Security-Policy") or [""]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert (rules["default-src"], rules["frame-ancestors"], rules["base-uri"]) == ("'none'", "'none'", "'none'")
        assert "unsafe" not in rules["script-src"]
        assert "server" not in answer.headers


def test_health_is_for_everybody_and_says_nothing(dashboard: Dashboard) -> None:
    """A probe without a token, by any host name, learns that the dashboard answers, and only by reading."""
    answer = request(dashboard.origin, "/healthz", [("Host", "10.0.0.7:8501")])
    assert (answer.status, answer.body) == (200, "ok")
    assert request(dashboard.origin, "/healthz", method="POST").status == 405


def test_runbooks_are_for_everybody_and_nothing_else_is_below_their_address(dashboard: Dashboard) -> None:
    """Whom an alert wakes reads its runbook without the token; no other file comes out there."""
    answer = request(dashboard.origin, "/runbooks/turnoutgroupdown")
    assert answer.status == 200
    assert "<h1>TurnoutGroupDown</h1>" in answer.body
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    for name in ("", "none", "../walk", "%2e%2e/walk", "../../turnout"):
        refused = request(dashboard.origin, f"/runbooks/{name}")
        assert (refused.status, refused.body.partition(".")[0]) == (404, "Unknown runbook")
    assert request(dashboard.origin, "/runbooks/turnoutgroupdown", method="POST").status == 405


def test_a_signed_in_person_gets_the_runbook_filled_in(dashboard: Dashboard) -> None:
    """The link of an alert leads to the page of the dashboard, with what it names, and to no other host."""
    answer = request(
        dashboard.origin, "/runbooks/turnoutgroupdown?group=a&name=%2F%2Fevil&game=%0d%0a", [dashboard.cookie]
    )
    assert (answer.status, answer.headers["Location"]) == (
        303, "/runbook?name=turnoutgroupdown&group=a&game=%0D%0A",
    )  # fmt: skip


def test_sigterm_ends_it_and_leaves_nothing(dashboard: Dashboard) -> None:
    """The command is the server itself: SIGTERM ends it with 0 while a tab is open, and nobody listens any more."""
    children = Path(f"/proc/{dashboard.process.pid}/task/{dashboard.process.pid}/children").read_text()
    assert children == ""
    with tab(dashboard.origin, dashboard.origin, [dashboard.cookie]) as draw:
        draw()
        dashboard.process.terminate()
        assert dashboard.process.wait(timeout=60) == 0
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", urlsplit(dashboard.origin).port or 0)) != 0
    assert "leaked" not in (dashboard.folder / "app.log").read_text("utf-8"), "a library wrote about its own objects"
