"""Stands before the dashboard: who may reach it and as whom, from which page, and with which headers it answers.

Pure ASGI around Streamlit's application, for HTTP and WebSocket alike; `app/server.py` builds it. What it has verified
reaches the pages as one sealed header, which no client can write: `app/person/identity.py` reads it.
"""

import base64
import hashlib
import hmac
import html
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.base.errors import Refused

PERSON_HEADER: Final = "X-Turnout-Person"
TOKEN: Final = "token"  # noqa: S105 - the name of the parameter
_SEAL: Final = secrets.token_hex(16)  # of this process: a header without it was not written here
_RUNBOOKS: Final = "/runbooks/"
_READS: Final = frozenset({"GET", "HEAD"})
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})

_EMAIL, _USER, _PREFERRED = "X-Forwarded-Email", "X-Forwarded-User", "X-Forwarded-Preferred-Username"
_PLATFORM: Final = ("DATABRICKS_APP_NAME", "DATABRICKS_APP_PORT", "DATABRICKS_CLIENT_ID", "DATABRICKS_HOST")
"""Variables of every Databricks App; all of them must be there before a header of its proxy counts."""

_NAME: Final = re.compile(r"[A-Za-z0-9][!#-'*+\-./0-9=?@A-Z^_`a-z{|}~]{0,253}")
"""A name of a person of the platform: no space, colon or bracket, so that none is a `group:NAME` or turnout itself."""

_HIDDEN: Final = (b"x-forwarded-", b"x-turnout-", b"x-real-", b"forwarded")
"""What begins so never reaches a page: the proxy's tokens, and anything that claims to be ours."""


@dataclass(frozen=True, slots=True)
class Person:
    """The acting person, and who vouches for them."""

    name: str
    by_platform: bool  # False: the user of the operating system who started the dashboard


class Identity(Protocol):
    """How a request is known to be a person's."""

    @property
    def unauthenticated(self) -> str:
        """The one sentence for a request that is nobody's."""

    def origin(self, headers: Headers) -> str | None:
        """Return the origin of the dashboard's own pages, as a browser names it; None where the host is not ours."""

    def person(self, headers: Headers) -> Person | None:
        """Return whose request this is, None where nobody vouches for it."""

    def cookie(self, query: str) -> str | None:
        """Return the cookie that a URL which was printed is exchanged for, None for any other."""


@dataclass(frozen=True, slots=True)
class LocalUser:
    """Gate of one machine: the token of the printed URL stands for the user who started the dashboard."""

    user: str
    token: str
    port: int

    @property
    def unauthenticated(self) -> str:
        """Say where the token is."""
        return (
            "Open the URL that `turnout dashboard` or `turnout demo` printed: it carries this dashboard's token. "
            "If you followed a link from another site, press Enter in the address bar."
        )

    def origin(self, headers: Headers) -> str | None:
        """Accept names of this machine only, so that no foreign name can lead here; the port may be a tunnel's."""
        host = _only(headers, "host")
        if host is None or urlsplit(f"//{host}").hostname not in _LOCAL_HOSTS:
            return None
        return f"http://{host}"

    def person(self, headers: Headers) -> Person | None:
        """Return the user of this process where the request has the cookie."""
        for each in ";".join(headers.getlist("cookie")).split(";"):  # of one name there may be several, of other ports
            name, _, value = each.strip().partition("=")
            if name == self._name and hmac.compare_digest(value.encode(), self._value.encode()):
                return Person(self.user, by_platform=False)
        return None

    def cookie(self, query: str) -> str | None:
        """Return the cookie for the right token: not readable by scripts, not sent along from other sites."""
        given = [value for name, value in parse_qsl(query) if name == TOKEN]
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self.token.encode()):
            return None
        return f"{self._name}={self._value}; Path=/; HttpOnly; SameSite=Strict"

    @property
    def _name(self) -> str:
        return f"turnout-{self.port}"  # cookies know no ports: two dashboards must not overwrite each other's

    @property
    def _value(self) -> str:
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Platform:
    """Behind the proxy of Databricks Apps, which alone reaches the socket and sets the headers that name a person."""

    @property
    def unauthenticated(self) -> str:
        """Say who would have to name the person."""
        return "Nobody is signed in: the platform named no person for this request. Open the app from the workspace."

    def origin(self, headers: Headers) -> str | None:
        """Return the origin that the browser asked, as the proxy names it."""
        name = "x-forwarded-host" if "x-forwarded-host" in headers else "host"
        host = _only(headers, name)
        return None if host is None else f"https://{host}"

    def person(self, headers: Headers) -> Person | None:
        """Return the person by their e-mail address, in lower case, else by their identifier; a header twice is none.

        The preferred user name is not used: with many identity providers people choose it themselves.
        """
        if any(len(headers.getlist(name)) > 1 for name in (_EMAIL, _USER, _PREFERRED)):
            return None
        name = headers.get(_EMAIL) or headers.get(_USER) or ""
        return Person(name.lower(), by_platform=True) if _NAME.fullmatch(name) else None

    def cookie(self, _query: str) -> None:
        """Exchange nothing: each request has its person."""


def platform(environ: Mapping[str, str]) -> tuple[Platform, int]:
    """Return how people are known in a Databricks App, and the port it listens on.

    Raises:
        Refused: this process is not a Databricks App.
    """
    missing = [name for name in _PLATFORM if not environ.get(name)]
    if missing:
        raise Refused(
            f"This is not a Databricks App: {', '.join(missing)} is not set. Anybody could forge its headers. "
            "Start the dashboard with `turnout dashboard`."
        )
    port = environ["DATABRICKS_APP_PORT"]
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise Refused(f"DATABRICKS_APP_PORT is {port!r}. Set it to a port, 1 to 65535.")
    return Platform(), int(port)


def seal(headers: Sequence[tuple[bytes, bytes]], person: Person, own: str) -> list[tuple[bytes, bytes]]:
    """Return a request's headers with the person in them, and without what a proxy or a client claimed of one.

    The host is the one the browser asked, which Streamlit compares with the origin once more.
    """
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() != b"host" and not name.lower().replace(b"_", b"-").startswith(_HIDDEN)
    ]
    by = "platform" if person.by_platform else "system"
    sealed = f"{_SEAL} {by} {quote(person.name, safe='')}"
    return [*kept, (b"host", urlsplit(own).netloc.encode()), (PERSON_HEADER.lower().encode(), sealed.encode())]


def read_person(values: Sequence[str]) -> Person | None:
    """Return the person whom this process has sealed into a header, None where the values are anything else."""
    mark, by, name = values[0].split(" ") if len(values) == 1 and values[0].count(" ") == 2 else ("", "", "")
    if not hmac.compare_digest(mark.encode(), _SEAL.encode()):
        return None
    return Person(unquote(name), by_platform=by == "platform")


def hash_of(script: str) -> str:
    """Return what a Content-Security-Policy calls an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


class Gate:
    """Lets through what an identity vouches for, from the dashboard's own pages."""

    def __init__(
        self,
        app: ASGIApp,
        identity: Identity,
        inline_scripts: Sequence[str] = (),
        runbooks: Mapping[str, str] | None = None,
    ) -> None:
        """Guard an application whose page has these inline scripts; everybody reads the runbooks, by their names."""
        self._app, self._identity, self._runbooks = app, identity, runbooks or {}
        policy = {
            "default-src": "'none'",
            "script-src": " ".join(["'self'", *map(hash_of, inline_scripts)]),
            "style-src": "'self' 'unsafe-inline'",  # Streamlit writes its styles into the page
            "img-src": "'self' data: blob:",
            "font-src": "'self' data:",
            "connect-src": "'self'",
            "manifest-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        headers = {
            "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on with the person sealed into it."""
        if scope["type"] not in {"http", "websocket"}:  # the start and the end of the server
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                message = {**message, "headers": self._with_ours(message.get("headers", ()))}
            await send(message)

        headers = Headers(scope=scope)
        own, person = self._identity.origin(headers), self._identity.person(headers)
        answer = self._answer(scope, headers, own, is_known=own is not None and person is not None)
        if answer is not None or own is None or person is None:
            # Of status 403 Streamlit's page says that CORS is to blame.
            refusal = PlainTextResponse(self._identity.unauthenticated, 401)
            await (answer or refusal)(scope, receive, guarded)
            return
        await self._app({**scope, "headers": seal(scope["headers"], person, own)}, receive, guarded)

    def _answer(self, scope: Scope, headers: Headers, own: str | None, *, is_known: bool) -> Response | None:
        """Return the answer that does not depend on who the person is; None where it does."""
        http = scope["type"] == "http"
        if http and scope["path"] == "/healthz":
            return PlainTextResponse("ok") if scope["method"] in _READS else PlainTextResponse("GET only", 405)
        if http and scope["path"].startswith(_RUNBOOKS):
            return self._runbook(scope, is_known=is_known)
        origins = headers.getlist("origin")
        if own is None:
            return PlainTextResponse("This host name is not the dashboard's.", 403)
        if len(origins) > 1 or any(each != own for each in origins):
            return PlainTextResponse("Only the dashboard's own pages may do this.", 403)
        if not origins and not (http and scope["method"] in _READS):
            return PlainTextResponse("A request without an Origin header may only read.", 403)
        cookie = self._identity.cookie(scope["query_string"].decode("latin-1"))
        if cookie is None or not http or scope["method"] != "GET":
            return None
        return _exchanged(scope, cookie)

    def _runbook(self, scope: Scope, *, is_known: bool) -> Response:
        """Answer with a runbook, which says nothing of any fleet: an alert wakes anybody.

        A known person gets the dashboard's page, which fills it with the incident's names.
        """
        if scope["method"] not in _READS:
            return PlainTextResponse("GET only", 405)
        name = scope["path"].removeprefix(_RUNBOOKS)
        page = self._runbooks.get(name)
        if page is None:
            return PlainTextResponse("Unknown runbook. See docs/runbooks of turnout.", 404)
        if not is_known:
            return HTMLResponse(page)
        about = [
            ("name", name),
            *(each for each in parse_qsl(scope["query_string"].decode("latin-1")) if each[0] != "name"),
        ]
        return RedirectResponse(f"/runbook?{urlencode(about)}", 303)

    def _with_ours(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Replace headers of the same names by ours; pages of other origins are allowed nothing."""
        names = {name for name, _ in self._headers}
        kept = [
            (name, value)
            for name, value in headers
            if name.lower() not in names and not name.lower().startswith(b"access-control-")
        ]
        return [*kept, *self._headers]


def _exchanged(scope: Scope, cookie: str) -> Response:
    """Set the cookie, and go on to the same page without the token.

    A redirect would not do: a browser that came from another site would follow it without this cookie.
    """
    rest = urlencode([each for each in parse_qsl(scope["query_string"].decode("latin-1")) if each[0] != TOKEN])
    place = f"/{quote(scope['path'].lstrip('/'))}{f'?{rest}' if rest else ''}"  # one slash: two would be another host
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={html.escape(place)}">'
    return HTMLResponse(page, headers={"set-cookie": cookie, "cache-control": "no-store"})


def _only(headers: Headers, name: str) -> str | None:
    """Return a header's value where it is a host and stands there once."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 and re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", values[0]) else None
