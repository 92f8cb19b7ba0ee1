"""The demo's S3 server as a process: the one that every test machine has, and the command line of an installed one."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.demo.object_server import ObjectServer
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

# Prints its arguments and the key, and refuses every request, as a real one does without a signature.
_STAND_IN = """#!{python}
import http.server, os, sys
class Refusing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(403)
print(sys.argv[1:], os.environ["ROOT_ACCESS_KEY"], os.environ["ROOT_SECRET_KEY"], flush=True)
host, port = sys.argv[sys.argv.index("--port") + 1].split(":")
http.server.HTTPServer((host, int(port)), Refusing).serve_forever()
"""


@pytest.fixture
def without_versitygw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def test_a_name_in_a_bucket_is_given_once(
    tmp_path: Path, without_versitygw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two writers of one name one gets True, as commits need it; the folder is one server's until `stop`."""
    for name, value in (("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with ObjectServer.start(tmp_path / "objects", "key", "secret") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        server.make_bucket("tables")
        server.make_bucket("tables")
        file = located("s3://tables/one.json")
        given = [file.put_if_absent(each, drafted="draft_commit", published="publish_commit") for each in (b"1", b"2")]
        assert (given, file.read()) == ([True, False], b"1")
        with pytest.raises(Refused, match="already runs on"):
            ObjectServer.start(tmp_path / "objects", "key", "secret")
        _require_others_go_on(server, file)
        _require_one_of_eight(server)
    assert not server.running


def _require_others_go_on(server: ObjectServer, file: Location) -> None:
    """Require answers while clients stand still: one before its request, one within it, one before its answer."""
    request = b"PUT /tables/two.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nab"
    with ExitStack() as stack:
        for sent in (b"", request, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            stopped = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            stopped.sendall(sent)
        assert file.read() == b"1"


def _require_one_of_eight(server: ObjectServer) -> None:
    """Require that of eight writers of one name at one time one gets it."""
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            file = located(f"s3://tables/raced-{number}.json")
            put = partial(file.put_if_absent, drafted="draft_commit", published="publish_commit")
            assert sum(pool.map(put, (bytes([each]) for each in range(8)))) == 1
    assert server.running


def test_an_installed_server_is_preferred_and_its_secret_is_not_shown(
    tmp_path: Path, without_versitygw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets are kept where they can be, wherever the demo was started, and other users read no secret in `ps`."""
    program = without_versitygw / "versitygw"
    program.write_text(_STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with ObjectServer.start(Path("objects"), "the key", "the secret") as server:
        server.make_bucket("tables")
    buckets = tmp_path / "objects" / "buckets"
    assert (buckets / "tables").is_dir()
    arguments, noted = (tmp_path / "objects" / "object-server.log").read_text().splitlines()[0].rsplit("] ", 1)
    assert noted == "the key the secret"
    assert "secret" not in arguments
    assert arguments.endswith(f"'--port', '127.0.0.1:{server.port}', 'posix', '{buckets}'")


def test_without_a_server_the_command_is_named(
    tmp_path: Path, without_versitygw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an ordinary set-up a person learns what to run, and no folder is left behind."""
    monkeypatch.setattr("pipeline.demo.object_server.find_spec", lambda _: None)
    with pytest.raises(Refused, match=r"Run \./turnout setup --s3"):
        ObjectServer.start(tmp_path / "objects", "key", "secret")
    assert not (tmp_path / "objects").exists()
