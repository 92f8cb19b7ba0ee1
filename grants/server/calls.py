"""One request as its handler sees it, the errors handlers raise, and how both become HTTP.

All handlers run one after another in one thread, each in a transaction: what one request does, no other sees half done.
"""

import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

MAX_BYTES: Final = 1_048_576  # of a body: some thousand columns
_MAX_LETTERS: Final = 4_096  # of one text

_log = logging.getLogger(__name__)


class ApiError(Exception):
    """A request that is answered with an error, in Databricks' form."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(slots=True)
class ServerState:
    """What the server has between requests."""

    rows: sqlite3.Connection
    port: int
    own_token: str = field(repr=False)  # what a client lets us prove that we know


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an authenticated caller."""

    state: ServerState
    caller: sqlite3.Row  # of principals
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> sqlite3.Connection:
        """The catalog's rows, in this request's transaction."""
        return self.state.rows

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text of the body; without a default it must be there."""
        return as_text(self.body.get(name, default), name)

    def number(self, name: str, default: int) -> int:
        """Return a number of the query that is not negative."""
        raw = self.query.get(name, str(default))
        if not (raw.isascii() and raw.isdecimal() and len(raw) < 10):
            raise invalid(f"{name} must be a number from 0 on, not {raw!r}.")
        return int(raw)

    def require_admin(self) -> None:
        """Let only the metastore's admin go on."""
        if not self.caller["admin"]:
            raise denied("Only the metastore admin may do that.")

    def commit(self) -> None:
        """Keep what was done so far even when the rest of this request fails."""
        self.rows.execute("COMMIT")
        self.rows.execute("BEGIN IMMEDIATE")


Handler = Callable[[Call], Mapping[str, Any]]


def endpoint(state: ServerState, handler: Handler, status: int = 200) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler as Starlette calls it: the body read up to its limit, one transaction, JSON out."""

    async def answer(request: Request) -> Response:
        try:
            body = await _body(request)
            call = Call(state, request.scope["caller"], request.path_params, request.query_params, body)
            return JSONResponse(_in_one_transaction(call, handler), status)
        except ApiError as wrong:
            return said(wrong)

    return answer


def said(wrong: ApiError) -> JSONResponse:
    """Return an error as Databricks writes it."""
    return JSONResponse({"error_code": wrong.code, "message": str(wrong)}, wrong.status)


async def no_such_endpoint(_request: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    return said(ApiError(status, "ENDPOINT_NOT_FOUND", "The endpoint does not exist, or does not accept this method."))


async def broken(request: Request, error: Exception) -> Response:
    """Answer an internal error; the traceback goes to the log, not to the caller."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return said(ApiError(500, "INTERNAL_ERROR", "The catalog failed. See its log."))


def invalid(message: str) -> ApiError:
    """Return the error of a request that cannot be meant."""
    return ApiError(400, "INVALID_PARAMETER_VALUE", message)


def denied(message: str) -> ApiError:
    """Return the error of a caller without the right."""
    return ApiError(403, "PERMISSION_DENIED", message)


def as_text(value: object, name: str) -> str:
    """Return a text that can be kept: UTF-8 without control characters, neither empty nor endless."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_LETTERS:
        raise invalid(f"{name} must be a text of 1 to {_MAX_LETTERS} letters.")
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 or 0xD800 <= ord(letter) < 0xE000 for letter in value):
        raise invalid(f"{name} contains a character that is not allowed.")
    return value


def as_list(value: object, name: str, kind: type) -> list[Any]:
    """Return a list of which every element has the type; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise invalid(f"{name} must be a list of {'objects' if kind is dict else 'texts'}.")
    return value


async def _body(request: Request) -> Mapping[str, Any]:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BYTES:
            raise ApiError(413, "REQUEST_TOO_LARGE", f"A request may have at most {MAX_BYTES} bytes.")
    try:
        body = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "MALFORMED_REQUEST", "The body is not JSON.") from error
    if not isinstance(body, dict):
        raise ApiError(400, "MALFORMED_REQUEST", "The body must be a JSON object.")
    return body


def _in_one_transaction(call: Call, handler: Handler) -> Mapping[str, Any]:
    call.rows.execute("BEGIN IMMEDIATE")
    try:
        answer = handler(call)
        call.rows.execute("COMMIT")
    except BaseException:
        call.rows.execute("ROLLBACK")
        raise
    return answer


def now() -> float:
    """Return the catalog's clock, in Unix seconds."""
    return time.time()
