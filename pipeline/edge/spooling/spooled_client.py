"""A client of the edge that keeps events on disk until each has an outcome, also while no edge answers.

A process that starts again on the same folder sends what is left, with the same event ids.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pipeline.edge.client import EdgeClient, EdgeEvent, EdgeOutcome
from pipeline.edge.spooling.spool import Spool, Spooled
from protos.turnout.v1.wrapper_pb2 import Wrapper

SPOOL_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of a spool by default: about a million events of 200 bytes."""

MAX_EVENT_BYTES: Final = 2 * 1024 * 1024
"""Largest event, with its wrapper: an edge never takes a larger one."""

_LOOK_SECONDS: Final = 0.2
_AGAIN_SECONDS: Final = 1.0
_log: Final = logging.getLogger("turnout")


def _ignore(_: EdgeOutcome) -> None:
    """Take an outcome, and do nothing."""


class SpooledEdgeClient:
    """Takes events onto disk, and sends them in order by a client of its own. Safe to use from any thread."""

    def __init__(
        self,
        client: EdgeClient,
        folder: Path,
        outcome: Callable[[EdgeOutcome], None] = _ignore,
        *,
        most_bytes: int = SPOOL_BYTES,
        sync_seconds: float = 1.0,
    ) -> None:
        """Begin with what another process has left in the folder.

        Args:
            client: sends the events, and is closed with this one.
            folder: of this client alone.
            outcome: called once or more for each event, in a thread of the client's, before the event leaves the disk.
            most_bytes: of the folder; `send` raises above it.
            sync_seconds: how long an event may be missing after a power cut; 0: `send` puts each on disk.

        Raises:
            OSError: the folder cannot be used, or another process uses it.
        """
        self._client, self._outcome = client, outcome
        self._spool = Spool(folder, most_bytes, sync_seconds)
        self._again: deque[Spooled] = deque()  # that the client has given up
        self._not_before = 0.0  # when they are tried again
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge spool", daemon=True)
        self._thread.start()

    def send(self, event: EdgeEvent) -> str:
        """Take an event; return its id. It is with the operating system, and so outlives this process.

        Raises:
            SpoolFull: there is no room: the edge has been away for too long.
            OSError: the disk fails.
            ValueError: the event is larger than an edge takes, or the client is closed.
            RuntimeError: the process was forked behind the client's beginning.
        """
        wrapper, event_id = self._client.wrapped(event)
        if len(wrapper) > MAX_EVENT_BYTES:
            raise ValueError(f"the event has {len(wrapper):,} bytes, and an edge takes {MAX_EVENT_BYTES:,}")
        self._spool.append(wrapper)
        return event_id

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of events without an outcome, and of some that have one."""
        return self._spool.size_bytes

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until each event has an outcome; return whether all have."""
        return self._spool.wait_settled(timeout)

    def close(self, timeout: float | None = 0.0) -> bool:
        """Flush, and end; return whether each event has an outcome. The others are sent by the next process."""
        done = self.flush(timeout)
        self._closing.set()
        self._client.close(0.0)
        self._thread.join()
        self._spool.close()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                spooled = self._following()
                if spooled is not None:
                    event_id = Wrapper.FromString(spooled.record).event_id
                    future = self._client.send_wrapper(spooled.record, event_id)
                    future.add_done_callback(partial(self._ended, spooled))
            except ValueError:  # the client is closed
                return
            except OSError as error:
                _log.error("the spool cannot be read: %s", error)
                self._closing.wait(_AGAIN_SECONDS)

    def _following(self) -> Spooled | None:
        if self._again:
            self._closing.wait(max(0.0, self._not_before - time.monotonic()))
            return self._again.popleft()
        return self._spool.following(_LOOK_SECONDS)

    def _ended(self, spooled: Spooled, future: "Future[EdgeOutcome]") -> None:
        if future.exception() is not None:  # nobody knows, so it stays on disk and is tried again
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            self._again.append(spooled)
            return
        try:
            self._outcome(future.result())
        finally:
            self._spool.settle(spooled)
