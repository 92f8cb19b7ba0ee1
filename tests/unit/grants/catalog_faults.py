"""The embedded catalog with what a real one does that hurts: a client that works with all of it works with Databricks.

Run as a program, it serves a folder at a port. `PUT /turnout/troubles` makes the troubles of its body from then on.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grants.server.calls import ServerState
from grants.server.gate import Gate
from grants.server.securables import PREFIX
from grants.server.serving import routes, serve
from pipeline.base.errors import Refused
from tests.forgetful import wait_for_no_disk

SWITCH = "/turnout/troubles"
FAILED = {"error_code": "INTERNAL_ERROR", "message": "The catalog failed: an injected fault."}
BUSY = {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "Too many requests."}


@dataclass(frozen=True, slots=True)
class Troubles:
    """Which troubles are made; the default is none.

    `every` counts requests of all callers; 0 is never.
    """

    late_reads: bool = False  # reads of permissions show what was when this began; enforcement is never late
    page_rows: int = 150  # most rows of one page
    empty_pages: bool = False  # before each page comes an empty one that says there is more
    unknown_privileges: bool = False  # every assignment carries a privilege that nobody knows
    other_casing: bool = False  # privileges, types and principals come in another casing than they were given
    busy_every: int = 0  # these requests get 429 with Retry-After
    retry_after_seconds: int = 1
    failing_every: int = 0  # these get 500, and nothing is done
    lost_every: int = 0  # these are done, and get 500 all the same
    slow_every: int = 0  # these are done `slow_seconds` late
    slow_seconds: float = 30.0
    deaf: str = ""  # changes of grants whose path or body has this text get 200, and nothing is done

    @property
    def spoil(self) -> bool:
        """Whether answers are other ones than the catalog's own."""
        own = Troubles()
        names = ("late_reads", "page_rows", "empty_pages", "unknown_privileges", "other_casing")
        return any(getattr(self, name) != getattr(own, name) for name in names)


class Faults:
    """Stands between the catalog's gate and its routes."""

    def __init__(self, state: ServerState, troubles: Troubles) -> None:
        self._app, self._state, self._troubles, self._requests = routes(state), state, troubles, 0
        self._late = self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == SWITCH:
            self._troubles, self._requests = Troubles(**await Request(scope, receive).json()), 0
            self._late = routes(replace(self._state, rows=_copied(self._state.rows)))
            await JSONResponse(asdict(self._troubles))(scope, receive, send)
            return
        self._requests += 1
        troubles = self._troubles
        if self._due(troubles.busy_every):
            await JSONResponse(BUSY, 429, {"Retry-After": str(troubles.retry_after_seconds)})(scope, receive, send)
        elif self._due(troubles.failing_every):
            await JSONResponse(FAILED, 500)(scope, receive, send)
        elif self._due(troubles.lost_every):
            await answer(self._app, scope, receive)
            await JSONResponse(FAILED, 500)(scope, receive, send)
        else:
            if self._due(troubles.slow_every):
                await asyncio.sleep(troubles.slow_seconds)
            if troubles.deaf and scope["method"] == "PATCH" and "permissions/" in scope["path"]:
                body = await Request(scope, receive).body()
                if troubles.deaf.encode() in scope["path"].encode() + body:
                    await JSONResponse({})(scope, receive, send)
                    return
                receive = _again(body)
            if troubles.spoil and scope["path"].startswith(PREFIX):
                await (await self._spoilt(scope, receive))(scope, receive, send)
            else:
                await self._app(scope, receive, send)

    def _due(self, every: int) -> bool:
        return bool(every) and self._requests % every == 0

    async def _spoilt(self, scope: Scope, receive: Receive) -> Response:
        troubles, is_about_grants = self._troubles, "permissions/" in scope["path"]
        query = dict(parse_qsl(scope["query_string"].decode()))
        is_empty, offset, query["page_token"] = _place(query.get("page_token", ""))
        status, body = await answer(self._app, {**scope, "query_string": urlencode(query).encode()}, receive)
        if status == 200 and is_about_grants and troubles.late_reads:
            status, body = await answer(self._late, {**scope, "method": "GET"}, _nothing)
        if status != 200 or scope["method"] != "GET":
            return Response(body, status, media_type="application/json")
        reported = json.loads(body)
        for each in reported.get("privilege_assignments", []):
            if troubles.unknown_privileges:
                each["privileges"] += _unknown(each["privileges"])
            if troubles.other_casing:
                each.update(principal=each["principal"].swapcase(), privileges=[*map(_cased, each["privileges"])])
        if troubles.empty_pages and is_empty:
            reported = {"next_page_token": f"+{offset}:{query['page_token']}"}
        else:
            most = min(int(query.get("max_results", 0)) or troubles.page_rows, troubles.page_rows)
            reported = _page(reported, offset, most, query["page_token"])
        return JSONResponse(reported)


async def answer(app: ASGIApp, scope: Scope, receive: Receive) -> tuple[int, bytes]:
    """Return the status and the whole body of an answer, and send nothing."""
    kept: list[Message] = []

    async def keep(message: Message) -> None:
        kept.append(message)

    await app(scope, receive, keep)
    return kept[0]["status"], b"".join(each.get("body", b"") for each in kept[1:])


def _again(body: bytes) -> Receive:
    """Return what receives a request whose body was read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _nothing() -> Message:
    """Receive a request without a body."""
    return {"type": "http.request", "body": b"", "more_body": False}


def _copied(rows: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    copy.row_factory = sqlite3.Row
    rows.backup(copy)
    return copy


def _place(token: str) -> tuple[bool, int, str]:
    """Return whether an empty page comes first, and with which row of which of the catalog's pages a page begins."""
    offset, _, inner = token.removeprefix("+").partition(":")
    return not token.startswith("+"), int(offset or 0), inner


def _page(reported: dict[str, Any], offset: int, most: int, token: str) -> dict[str, Any]:
    """Return a part of a page, and where the next part or page begins."""
    name = next((name for name, value in reported.items() if isinstance(value, list)), None)
    if name is None:
        return reported
    end, following = offset + max(1, most), reported.pop("next_page_token", None)
    more = f"{end}:{token}" if end < len(reported[name]) else f"0:{following}" if following else None
    return {name: reported[name][offset:end], **({"next_page_token": more} if more else {})}


def _unknown(privileges: list[Any]) -> list[Any]:
    """Return a privilege that nobody knows, once for each place that the privileges of a principal are given on."""
    new = "READ_SOMETHING_NEW"
    if isinstance(privileges[0], str):
        return [new]
    return list({str({**each, "privilege": new}): {**each, "privilege": new} for each in privileges}.values())


def _cased(privilege: Any) -> Any:
    if isinstance(privilege, str):
        return privilege.swapcase()
    return {name: text if name == "inherited_from_name" else text.swapcase() for name, text in privilege.items()}


def run(folder: Path, port: int, troubles: Mapping[str, Any]) -> None:
    """Serve the catalog with these troubles until SIGTERM."""
    wait_for_no_disk()
    serve(folder, port, lambda state: Gate(Faults(state, Troubles(**troubles)), state))


def run_forked(printed: Connection, folder: Path, port: int, troubles: Mapping[str, Any]) -> None:
    """Serve as `run` does, in a process that was forked, and print to a pipe."""
    sys.stdout = open(printed.fileno(), "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115 - to its end
    run(folder, port, troubles)


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
    except Refused as error:
        sys.exit(f"turnout: {error}")
