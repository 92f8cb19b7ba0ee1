"""People who look at the dashboard, without a browser: each holds a WebSocket and refreshes what the page asks for.

The server does for them what it does for browsers, the compression of messages included; nothing is drawn.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin, Subprotocol

_PROTOCOLS: Final = (Subprotocol("streamlit"), Subprotocol("PLACEHOLDER_AUTH_TOKEN"))  # as Streamlit's page sends them
_KEPT_RUNS: Final = 2  # runs of a fragment in which the page keeps a large message that was not sent again


@dataclass(slots=True)
class Looker:
    """One person: which page they look at, and what the server sent."""

    page: str  # such as "groups"; empty: the first page
    query: str = ""
    runs: list[tuple[str, int, float]] = field(default_factory=list)  # fragment, bytes, seconds; "": the whole page
    problem: str | None = None

    async def look(self, address: str, cookie: str) -> None:
        """Look until cancelled."""
        place = urlsplit(address).netloc
        try:
            async with connect(
                f"ws://{place}/_stcore/stream",
                subprotocols=_PROTOCOLS,
                origin=Origin(address),
                additional_headers={"Cookie": cookie},
                max_size=None,
            ) as socket:
                await _Page(socket, self).live()
        except (OSError, WebSocketException) as error:
            self.problem = repr(error)


class _Page:
    """What Streamlit's page does with messages: timers of fragments, and large messages that it need not get again."""

    def __init__(self, socket: ClientConnection, looker: Looker) -> None:
        self._socket, self._looker = socket, looker
        self._hash = ""
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._kept: dict[str, tuple[str, int]] = {}  # hash of a message: its fragment, and in which run of that
        self._ended: dict[str, int] = defaultdict(int)  # fragment: how many runs
        self._running, self._bytes, self._begun = "", 0, time.monotonic()

    async def live(self) -> None:
        await self._ask("")
        try:
            async for data in self._socket:
                assert isinstance(data, bytes)
                self._bytes += len(data)
                self._take(ForwardMsg.FromString(data))
        finally:
            for each in self._timers.values():
                each.cancel()

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._hash = message.new_session.page_script_hash
            self._running = next(iter(message.metadata.run.fragment_ids), "")
            self._bytes, self._begun = 0, time.monotonic()
            if not self._running:
                while self._timers:
                    self._timers.popitem()[1].cancel()
        elif kind == "auto_rerun":
            self._refresh(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "delta" and message.metadata.cacheable:
            self._kept[message.hash] = message.delta.fragment_id, self._ended[message.delta.fragment_id]
        elif kind == "ref_hash":
            fragment, _ = self._kept[message.ref_hash]  # unknown: a page would have to ask for it
            self._kept[message.ref_hash] = fragment, self._ended[fragment]
        elif kind == "script_finished":
            self._looker.runs.append((self._running, self._bytes, time.monotonic() - self._begun))
            self._ended[self._running] += 1
            self._kept = {
                each: (of, run) for each, (of, run) in self._kept.items() if self._ended[of] - run <= _KEPT_RUNS
            }

    def _refresh(self, fragment: str, seconds: float) -> None:
        if (before := self._timers.pop(fragment, None)) is not None:
            before.cancel()

        async def tick() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self._ask(fragment)

        self._timers[fragment] = asyncio.create_task(tick())

    async def _ask(self, fragment: str) -> None:
        asked = BackMsg()
        state = asked.rerun_script
        state.query_string, state.page_script_hash, state.fragment_id = self._looker.query, self._hash, fragment
        state.page_name = "" if self._hash else self._looker.page
        state.is_auto_rerun = bool(fragment)
        state.cached_message_hashes.extend(self._kept)
        await self._socket.send(asked.SerializeToString())


@contextmanager
def looking(url: str, lookers: Sequence[Looker]) -> Iterator[None]:
    """Let people look at the dashboard of a printed URL, which has the token, while the block runs."""
    address, cookie = f"http://{urlsplit(url).netloc}", _cookie(url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lookers")
    thread.start()
    tasks = [asyncio.run_coroutine_threadsafe(each.look(address, cookie), loop) for each in lookers]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
        asyncio.run_coroutine_threadsafe(_settle(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    for each in tasks:
        if not each.cancelled():
            each.result(0)  # raises what it did not expect


async def _settle() -> None:
    """Wait until all that was cancelled has ended."""
    others = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)


def _cookie(url: str) -> str:
    """Exchange the token of a printed URL for the cookie, as opening it does."""
    jar = HTTPCookieProcessor()
    with build_opener(jar).open(url, timeout=20):
        return "; ".join(f"{each.name}={each.value}" for each in jar.cookiejar)
