"""The embedded catalog's port is free while it is down: a program that takes it learns no token."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from grants.catalog import CatalogUnavailable
from grants.catalogs.embedded import Embedded
from grants.catalogs.opening import embedded
from grants.catalogs.rest import Rest
from grants.proof import proof
from pipeline.settings.tree import Paths, Settings, load
from tests.unit.grants.catalog_world import FakeClock, Server, served

Answer = Callable[[bytes], bytes]


class Squatter:
    """Listens where the catalog should, keeps all it is sent, and answers each request as it is told to."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.got = b""
        self._answer = answer
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the listener is shut down at the end
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                with suppress(OSError):  # a client that has heard enough closes
                    while request := connection.recv(65_536):
                        self.got += request
                        self._reply(connection, request)

    def _reply(self, connection: socket.socket, request: bytes) -> None:
        connection.sendall(self._answer(request))

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        while self._thread.is_alive():  # it may have accepted one more
            for each in self._open:
                with suppress(OSError):  # it is closed already
                    each.shutdown(socket.SHUT_RDWR)
            self._thread.join(0.1)
        for each in (*self._open, self._listener):
            each.close()


class Dripper(Squatter):
    """Answers, and then says the same again and again, without an end."""

    def _reply(self, connection: socket.socket, request: bytes) -> None:
        first, again = self._answer(request).split(b"|")
        connection.sendall(first)
        while True:
            connection.sendall(again)
            time.sleep(0.02)


@contextmanager
def squatted(answer: Answer, port: int = 0, kind: type[Squatter] = Squatter) -> Iterator[Squatter]:
    squatter = kind(answer, port)
    try:
        yield squatter
    finally:
        squatter.end()


def ok(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def environment(folder: Path, port: int) -> tuple[Settings, Paths]:
    settings, paths = load(folder, {})
    return replace(settings, access=replace(settings.access, catalog="embedded", port=port)), paths


TOKEN = "the-token-of-the-metastores-admin"
ANSWERS: dict[str, Answer] = {
    "as if it were the catalog": lambda _: ok('{"Resources": [], "totalResults": 0}'),
    "nothing": lambda _: ok(""),
    "no HTTP": lambda _: b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "that it wants the token": lambda _: b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
    "that it is elsewhere": lambda _: b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "an endless page": lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"0" * 65_536,
    "an older proof": lambda _: ok(proof(TOKEN, 0, "0" * 64)),
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.proves("G121")
def test_a_program_that_takes_the_port_gets_no_token(answer: str, tmp_path: Path) -> None:
    """A program that listens where the catalog should gets one question and no token, whatever it answers."""
    with squatted(ANSWERS[answer]) as squatter:
        settings, paths = environment(tmp_path, squatter.port)
        paths.catalog.mkdir()
        (paths.catalog / "token").write_text(TOKEN)
        with pytest.raises(
            CatalogUnavailable, match=rf"The server at 127.0.0.1:{squatter.port} is not this environment"
        ):
            embedded(settings.access, paths).directory()
        assert squatter.got.startswith(b"GET /turnout/proof/")
        assert TOKEN.encode() not in squatter.got
        assert b"authorization" not in squatter.got.lower()
        assert squatter.got.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("said", [
    b"|HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: |a",
    b"HTTP/1.1 200 OK\r\n|X: a\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n|0",
])  # fmt: skip
def test_a_program_that_never_finishes_its_answer_holds_nobody(said: bytes) -> None:
    """The whole proof has a time limit, not each byte of it: commands and the controller end in that time."""
    with squatted(lambda _: said, kind=Dripper) as squatter:
        url = f"http://127.0.0.1:{squatter.port}"
        with pytest.raises(CatalogUnavailable, match="is not this environment's catalog"):
            Embedded(Rest(url, TOKEN, shared_token=TOKEN, timeout_seconds=1)).directory()
        assert TOKEN.encode() not in squatter.got


@pytest.mark.proves("G121")
def test_a_proof_passed_on_from_another_port_does_not_count(tmp_path: Path) -> None:
    """A program that asks the true catalog at its other port gets an answer that counts for that port only."""
    with served(tmp_path / "catalog") as server:

        def pass_on(request: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", server.port)) as true:
                request = request.replace(f":{squatter.port}".encode(), f":{server.port}".encode())
                true.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                answers.append(b"".join(iter(lambda: true.recv(65_536), b"")))
                return answers[-1]

        answers: list[bytes] = []
        with squatted(pass_on) as squatter:
            token = server.token
            with pytest.raises(CatalogUnavailable, match="is not this environment's catalog"):
                Embedded(Rest(f"http://127.0.0.1:{squatter.port}", token, shared_token=token)).directory()
            assert answers[0].startswith(b"HTTP/1.1 200 OK")
            assert token.encode() not in squatter.got


@pytest.mark.proves("G121")
def test_each_connection_is_proven(tmp_path: Path) -> None:
    """A client that has spoken with the catalog sends no token to a program that takes the port after that."""
    server = Server(tmp_path / "catalog")
    catalog = Embedded(Rest(server.url, server.token, shared_token=server.token, clock=FakeClock()))
    catalog.directory()
    server.kill()
    with squatted(ANSWERS["as if it were the catalog"], server.port) as squatter:
        with pytest.raises(CatalogUnavailable, match="is not this environment's catalog"):
            catalog.directory()
        assert squatter.got.startswith(b"GET /turnout/proof/")
        assert server.token.encode() not in squatter.got


def test_a_principals_token_is_kept_from_others_too(tmp_path: Path) -> None:
    """The token made for a trial read goes out on a proven connection only, like the admin's."""
    server = Server(tmp_path / "catalog")
    server.make("Users", "ann@example.com")
    catalog = Embedded(Rest(server.url, server.token, shared_token=server.token))
    minted = catalog.token_of("ann@example.com")
    server.kill()
    with squatted(ANSWERS["nothing"], server.port) as squatter:
        with pytest.raises(CatalogUnavailable, match="is not this environment's catalog"):
            catalog.location(minted, "some-table")
        assert minted.encode() not in squatter.got


def test_the_catalog_answers_only_a_number_without_a_token(tmp_path: Path) -> None:
    """What is answered without a token is the proof alone, to a number of the right length."""
    number = "ab" * 32
    with served(tmp_path / "catalog") as server:

        def call(path: str) -> tuple[int, str]:
            answer = server.call("GET", path, token="nobody")
            return answer.status_code, answer.text

        assert call(f"/turnout/proof/{number}") == (200, proof(server.token, server.port, number))
        wrong = (number[:-1], f"{number}00", number.upper(), "")
        assert [call(f"/turnout/proof/{each}")[0] for each in wrong] == [401] * len(wrong)
