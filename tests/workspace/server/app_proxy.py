"""The proxy before an app: it knows who is signed in, and says so in headers; WebSockets pass.

`X-Forwarded-{Host, User, Email, Preferred-Username, Access-Token}`, `X-Real-Ip`, `X-Request-Id` [doc
databricks-apps/http-headers]. No page says that headers of these names which a client sends are taken out: they pass,
and the app sees them twice. The real proxy speaks TLS: an origin of this one reaches the app as `https`.

A request is of whoever has its bearer token, or its cookie, which `?standin_user=NAME` sets.
"""

import contextlib
import secrets
import socket
import threading
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.workspace.server import rights
from tests.workspace.server.calls import ApiError, Json
from tests.workspace.server.listening import caller
from tests.workspace.server.people import named
from tests.workspace.server.state import WORKSPACE_ID, World

COOKIE: Final = "standin_user"
_HEAD_BYTES: Final = 65_536
_BYTES: Final = 65_536
_SECONDS: Final = 5.0


class AppProxy:
    """Listens for one app, for all its life; `upstream` is the port of its process, 0 without one."""

    def __init__(self, world: World, app: str) -> None:
        """Listen on a free port."""
        self._world, self._app = world, app
        self.upstream = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop to listen."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head, rest = _read_head(client)
            if not head:
                return
            request, *lines = head.decode("latin-1").split("\r\n")
            fields = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            method, target, version = request.split(" ", 2)
            refusal, who, token = self._person(target, fields)
            if refusal is not None or who is None:
                client.sendall(refusal or b"")
                return
            passed = self._headers(fields, who, token)
            try:
                app = socket.create_connection(("127.0.0.1", self.upstream or 1), _SECONDS)
            except OSError:
                client.sendall(_answer(502, "App Not Available"))
                return
            with app:
                app.settimeout(None)
                app.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                text = "\r\n".join([f"{method} {target} {version}", *(f"{name}: {value}" for name, value in passed)])
                app.sendall(f"{text}\r\n\r\n".encode("latin-1") + rest)
                back = threading.Thread(target=_pump, args=(client, app), daemon=True)
                back.start()
                _pump(app, client)

    def _person(self, target: str, fields: list[tuple[str, str]]) -> tuple[bytes | None, Json | None, str]:
        """Return whose request this is with a token of theirs, or what is answered instead."""
        headers = {name.lower(): value for name, value in fields}
        query = dict(parse_qsl(urlsplit(target).query))
        with self._world.lock:
            try:
                if "authorization" in headers:
                    who = caller(self._world, headers["authorization"])
                    token = headers["authorization"].partition(" ")[2]
                else:
                    found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
                    name = query.get(COOKIE) or (found.value if found else "")
                    known = named(self._world.data, name)
                    if known is None:
                        return _answer(401, "Sign in first: add ?standin_user=NAME."), None, ""
                    who, token = known, self._token_of(known)
            except ApiError as error:
                return _answer(401, str(error)), None, ""
            if not rights.allows(self._world.data, who, "apps", self._app, "CAN_USE"):
                return _answer(403, "You do not have permission to access this app."), None, ""
        if COOKIE in query and "authorization" not in headers:
            return _signed_in(target, query[COOKIE]), None, ""
        return None, who, token

    def _token_of(self, who: Json) -> str:
        kept: dict[str, str] = self._world.alive.setdefault("tokens of people", {})
        if who["id"] not in kept:
            kept[who["id"]] = self._world.mint(who["id"])
        return kept[who["id"]]

    def _headers(self, fields: list[tuple[str, str]], who: Json, token: str) -> list[tuple[str, str]]:
        is_upgrade = any(name.lower() == "upgrade" for name, _ in fields)
        host = next((value for name, value in fields if name.lower() == "host"), "")
        dropped = {"authorization"} if is_upgrade else {"authorization", "connection"}
        kept = [
            (
                name,
                value.replace(f"http://{host}", f"https://{host}") if name.lower() in {"origin", "referer"} else value,
            )
            for name, value in fields
            if name.lower() not in dropped
        ]
        ours = [
            ("X-Forwarded-Host", host),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-User", f"{who['id']}@{WORKSPACE_ID}"),
            ("X-Forwarded-Email", who["name"]),
            ("X-Forwarded-Preferred-Username", who["display"]),
            ("X-Forwarded-Access-Token", token),
            ("X-Real-Ip", "127.0.0.1"),
            ("X-Request-Id", secrets.token_hex(16)),
        ]
        # one request a connection: the next may be somebody else's
        return [*kept, *ours, *([] if is_upgrade else [("Connection", "close")])]


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = client.recv(_BYTES)
        if not part or len(raw) > _HEAD_BYTES:
            return b"", b""
        raw += part
    head, _, rest = raw.partition(b"\r\n\r\n")
    return head, rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on bytes until the source ends; then the target gets no more."""
    with contextlib.suppress(OSError):
        while part := source.recv(_BYTES):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _signed_in(target: str, name: str) -> bytes:
    """Set the cookie, and go on to the same page without the name."""
    parsed = urlsplit(target)
    query = urlencode([each for each in parse_qsl(parsed.query) if each[0] != COOKIE])
    place = f"{parsed.path}{f'?{query}' if query else ''}"
    return _answer(303, "", f"Location: {place}\r\nSet-Cookie: {COOKIE}={name}; Path=/; HttpOnly\r\n")


def _answer(status: int, text: str, more: str = "") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("latin-1") + body
