"""The acting person in a Databricks App: the one whom the platform's proxy names, and nobody without one."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.runtime.context import StreamlitHeaders

from app import server
from app.gate import PERSON_HEADER, Person, platform, seal
from app.person import identity
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.settings.storage import read_link
from tests.browser.seed import Seeded, seed
from tests.browser.served import free_port, started
from tests.raw_client import Sent, request, shake_hands, tab

pytestmark = pytest.mark.timeout(300)

STRANGER = "Nobody is signed in: the platform named no person for this request. Open the app from the workspace."
OWN = "https://turnout-1234.aws.databricksapps.com"
HOST = ("X-Forwarded-Host", "turnout-1234.aws.databricksapps.com")
ANN = ("X-Forwarded-Email", "Ann@Example.com")
APP = {
    "DATABRICKS_APP_NAME": "turnout",
    "DATABRICKS_APP_PORT": "8000",
    "DATABRICKS_CLIENT_ID": "c0ffee",
    "DATABRICKS_HOST": "https://example.cloud.databricks.com",
}


@dataclass
class DeployedApp:
    folder: Path
    origin: str  # of the socket, which only the proxy reaches


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedApp]:
    """Start the app with app.yaml's command and the variables of a Databricks App."""
    folder, port = tmp_path_factory.mktemp("deployed"), free_port()
    seed(folder, [Seeded("Chess", "a", {})], now=time.time(), history=False)
    command = ["-m", "app.server", "--databricks-app", "--env-dir", str(folder)]
    # as the platform sets them; Streamlit's own protection is off there
    environ = {**APP, "DATABRICKS_APP_PORT": str(port), "STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION": "false"}
    with started(command, port, folder / "app.log", environ=environ):
        yield DeployedApp(folder, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-Forwarded-Email", "")],
        [("X-Forwarded-Preferred-Username", "ann@example.com")],
        [ANN, ("X-Forwarded-Email", "boss@example.com")],
        [ANN, ("X-Forwarded-User", "1"), ("X-Forwarded-User", "2")],
        [("X-Forwarded-Email", "ann@example.com, boss@example.com")],
        [("X-Forwarded-Email", "group:admins")],
        [("X-Forwarded-Email", "(controller)")],
        [("X-Forwarded-User", "ann smith")],
        [("X_Forwarded_Email", "ann@example.com")],
        [("Cookie", "turnout-8000=x"), ("X-Turnout-Person", "x platform ann@example.com")],
    ],
)
@pytest.mark.proves("G172")
def test_who_is_not_named_sees_one_sentence(app: DeployedApp, headers: Sent) -> None:
    """Without one name from the proxy nothing is shown, and neither the process's user nor a second name stands in."""
    for path in ("/", "/?token=x", "/_stcore/host-config", "/_stcore/metrics"):
        answer = request(app.origin, path, [HOST, *headers])
        assert (answer.status, answer.body) == (401, STRANGER)
    assert shake_hands(app.origin, [HOST, ("Origin", OWN), *headers]).status == 401


@pytest.mark.proves("G174")
def test_only_pages_of_the_app_itself_speak_to_it(app: DeployedApp) -> None:
    """The origin must be the host that the browser asked, as the proxy names it, and by https."""
    for origin in ("http://turnout-1234.aws.databricksapps.com", "https://evil.example", app.origin, "null"):
        assert shake_hands(app.origin, [HOST, ANN, ("Origin", origin)]).status == 403
    assert shake_hands(app.origin, [HOST, ANN]).status == 403
    assert shake_hands(app.origin, [HOST, HOST, ANN, ("Origin", OWN)]).status == 403
    assert shake_hands(app.origin, [HOST, ANN, ("Origin", OWN)]).status == 101


@pytest.mark.proves("G172")
def test_the_person_is_the_proxys_and_without_roles_may_only_look(app: DeployedApp) -> None:
    """The page is the signed-in person's; roles of the settings count for them, and no roles let nobody act."""
    settings = app.folder / "turnout.toml"
    with tab(app.origin, OWN, [HOST, ANN, ("X-Forwarded-Access-Token", "dapi-secret")]) as draw:
        first = draw()
        fragment, *_ = first.fragments  # the first has the frame
        assert "· ann@example.com · no roles are set: you may only look" in first.text
        settings.write_text('[roles]\noperators = ["Ann@example.com"]\n')
        assert "· ann@example.com · operator" in draw(fragment).text
        settings.unlink()
        last = draw(fragment).text
    assert "no roles are set" in last
    assert f" · {current_user()}" not in first.text + last
    with tab(app.origin, OWN, [HOST, ("X-Forwarded-User", "4711@1234")]) as draw:
        assert "· 4711@1234 · no roles are set" in draw().text


@pytest.mark.proves("G172")
def test_a_header_that_this_process_did_not_seal_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages believe the gate's own header only, once; a tab that was just closed stays its person's to the end."""
    monkeypatch.setattr(st, "session_state", {})

    def known(*values: str) -> Person | None:
        headers = StreamlitHeaders([(PERSON_HEADER, value) for value in values])
        monkeypatch.setattr(st, "context", SimpleNamespace(headers=headers))
        try:
            return identity.person()
        except Refused:
            return None

    sealed = dict(seal([], Person("ann@example.com", by_platform=True), OWN))[PERSON_HEADER.lower().encode()].decode()
    forged = f"{'0' * len(sealed.partition(' ')[0])} platform boss"
    assert (known(), known("boss"), known(forged), known(sealed, forged), known(forged, sealed)) == (None,) * 5
    assert known(sealed) == Person("ann@example.com", by_platform=True)
    assert known() == Person("ann@example.com", by_platform=True)
    assert known(forged) is None
    assert known() is None


@pytest.mark.proves("G172")
def test_headers_count_in_a_databricks_app_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where one of the platform's variables is missing nothing listens: the headers would be anybody's."""
    assert platform(APP)[1] == 8000
    for missing in APP:
        with pytest.raises(Refused, match=f"{missing} is not set"):
            platform({name: value for name, value in APP.items() if name != missing})
    with pytest.raises(Refused, match="DATABRICKS_APP_PORT is 'x'"):
        platform({**APP, "DATABRICKS_APP_PORT": "x"})
    assert server.main(["--databricks-app", "--env-dir", str(tmp_path)]) == 2
    assert "This is not a Databricks App" in capsys.readouterr().err


def test_the_dashboard_of_a_machine_needs_its_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that was started without `turnout dashboard` has no token, and lets nobody in by having none."""
    for text in (None, "", "\n"):
        if text is not None:
            (tmp_path / "dashboard.token").write_text(text)
        assert server.main(["--port", "8501", "--env-dir", str(tmp_path)]) == 2
        assert "holds no token. Start the dashboard with `turnout dashboard`" in capsys.readouterr().err


def test_the_environment_of_an_app_is_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An app starts by a fixed command: the URL of its tables comes from the deployment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name, value in APP.items():
        monkeypatch.setenv(name, value)
    shown: list[Path] = []
    monkeypatch.setattr(server, "_serve", lambda *_: shown.append(Path(sys.argv[2])))
    monkeypatch.setattr("os.chdir", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["app"])
    for named in ("", "ftp://bucket/prod"):
        monkeypatch.setenv("TURNOUT_ENV_DIR", named)
        assert server.main(["--databricks-app"]) == 2
    said = capsys.readouterr().err
    assert "No environment is named. Set TURNOUT_ENV_DIR" in said
    assert "'ftp://bucket/prod' cannot be an environment" in said
    monkeypatch.setenv("TURNOUT_ENV_DIR", "s3://bucket/prod/")
    assert server.main(["--databricks-app"]) == 0
    assert server.main(["--databricks-app", "--env-dir", str(tmp_path)]) == 0
    assert [read_link(folder) for folder in shown] == ["s3://bucket/prod", ""]
    assert shown[1] == tmp_path.resolve()
