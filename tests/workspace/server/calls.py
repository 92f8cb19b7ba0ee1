"""One request as its handler sees it, what a handler answers or raises, and the table of routes.

Errors have the body of databricks-sdk's `errors` ([sdk errors/parser.py]): `error_code`, `message`, `details`.
"""

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.workspace.server.state import Data, World

Json = dict[str, Any]

_CODES: Final = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "ABORTED",
    429: "REQUEST_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    501: "NOT_IMPLEMENTED",
    503: "TEMPORARILY_UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""The code of each status, where nothing else is known [sdk errors/platform.py]."""


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.metadata = status, code, dict(metadata or {})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: bytes of a type, with headers."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass(slots=True)
class Call:
    """One request. `data` is what the handler may look at: of a stale read, the state before the last write."""

    world: "World"
    data: "Data"
    who: Json
    method: str
    path: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        """The JSON object that was sent.

        Raises:
            ApiError: the body is no object.
        """
        try:
            body = json.loads(self.raw or b"{}")
        except ValueError as error:
            raise ApiError(400, "MALFORMED_REQUEST", "Could not parse request object.") from error
        if not isinstance(body, dict):
            raise ApiError(400, "MALFORMED_REQUEST", "Could not parse request object: an object was expected.")
        return body

    def needed(self, name: str) -> Any:
        """Return a field of the body that must be there."""
        value = self.body.get(name)
        if value in (None, ""):
            raise invalid(f"Missing required field: {name}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number of the query."""
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise invalid(f"{name} must be a number.")
        return int(text)

    def says(self, name: str) -> bool:
        """Return a switch of the query: `true` or `false` [sdk core.py, `_fix_query_string`]."""
        return self.query.get(name, "false") == "true"


Handler = Callable[[Call], "Json | Answer"]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path, `{name}` for a part and `{name*}` for all that is left."""

    method: str
    pattern: re.Pattern[str]
    handler: Handler
    open: bool  # without a token


ROUTES: Final[list[Route]] = []


def route(method: str, path: str, *, is_open: bool = False) -> Callable[[Handler], Handler]:
    """Let the function answer this method at this path."""
    text = re.sub(r"\{(\w+)\\\*\}", r"(?P<\1>.*)", re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", text))

    def keep(handler: Handler) -> Handler:
        ROUTES.append(Route(method, pattern, handler, is_open))
        return handler

    return keep


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the route of a request, with the parts of its path.

    Raises:
        ApiError: there is none.
    """
    for each in ROUTES:
        if each.method == method and (found := each.pattern.fullmatch(path)):
            return each, found.groupdict()
    raise ApiError(404, "ENDPOINT_NOT_FOUND", f"No API found for '{method} {path}'")


def said(error: ApiError) -> Answer:
    """Return an error as the workspace writes it; SCIM and tokens have forms of their own, which raise `Worded`."""
    details: list[Json] = [
        {"@type": "type.googleapis.com/google.rpc.RequestInfo", "request_id": str(uuid.uuid4()), "serving_data": ""}
    ]
    if error.metadata:
        details.insert(
            0,
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": error.code,
                "domain": "databricks.com",
                "metadata": error.metadata,
            },
        )
    return as_json({"error_code": error.code, "message": str(error), "details": details}, error.status)


def failed(status: int, message: str = "The stand-in was set to fail here.") -> ApiError:
    """Return an error of a status, with the code that belongs to it."""
    return ApiError(status, _CODES.get(status, "UNKNOWN"), message)


def as_json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return JSON as an answer."""
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})


def invalid(message: str) -> ApiError:
    """Return the error of a request that cannot be meant."""
    return ApiError(400, "INVALID_PARAMETER_VALUE", message)


def denied(message: str) -> ApiError:
    """Return the error of a caller without the right."""
    return ApiError(403, "PERMISSION_DENIED", message)


def missing(message: str) -> ApiError:
    """Return the error of something that does not exist."""
    return ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)


def page_of(rows: Sequence[Any], size: int, token: str | None) -> tuple[list[Any], str | None, str | None]:
    """Return one page of rows, and the tokens of the next and of the one before; tokens are opaque to clients.

    A page may begin within rows that have changed meanwhile: a token holds a position.
    """
    start = _position(token) if token else 0
    shown = list(rows[start : start + size])
    following = _token(start + size) if start + size < len(rows) else None
    before = _token(max(0, start - size)) if start else None
    return shown, following, before


def _token(position: int) -> str:
    return base64.urlsafe_b64encode(f"at:{position}".encode()).decode()


def _position(token: str) -> int:
    try:
        word, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        if word == "at":
            return int(number)
    except ValueError:
        pass
    raise invalid("Invalid page_token.")
