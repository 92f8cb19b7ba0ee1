"""What every request passes first: is it meant for this host, and who calls?"""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from grants.proof import NONCE_BYTES, PROOF_PATH, proof
from grants.server.calls import MAX_BYTES, ApiError, ServerState, said
from grants.server.tokens import caller_of

_PROOF: Final = re.compile(rf"{PROOF_PATH}([0-9a-f]{{{2 * NONCE_BYTES}}})")


class Gate:
    """Lets a request through to the routes, its caller known.

    A page of another site that points its own name at this machine sends that name as the host, and is refused.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not spoken here")  # uvicorn closes the connection
        try:
            self._meant_for_us(scope)
            requested = _PROOF.fullmatch(scope["path"])
            if requested is not None:  # the only answer without a token: the client sends none before it has this
                proven = proof(self._state.own_token, self._state.port, requested[1])
                await PlainTextResponse(proven)(scope, receive, send)
                return
            scope["caller"] = caller_of(self._state.rows, Headers(scope=scope).get("authorization", ""))
        except ApiError as wrong:
            await said(wrong)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _meant_for_us(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if headers.get("host") not in {f"127.0.0.1:{self._state.port}", f"localhost:{self._state.port}"}:
            raise ApiError(400, "BAD_REQUEST", "Address this host as 127.0.0.1 or localhost, with its port.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MAX_BYTES:
            raise ApiError(413, "REQUEST_TOO_LARGE", f"A request may have at most {MAX_BYTES} bytes.")
