"""Sends something periodically, on a thread of its own; losing it touches nothing else."""

import logging
import re
import threading
import urllib.request
from collections.abc import Callable
from typing import Final
from urllib.error import HTTPError

_ADDRESS: Final = re.compile(r"(https?://)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?(?![^/?#])")

_log = logging.getLogger(__name__)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would carry secrets to another server: urllib raises the answer as an error."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


class PeriodicSender:
    """Sends at once and then periodically, until `stop`.

    Args:
        verb: names the sending in the log, such as `pushing metrics`.
        address: where it goes; the log has its scheme, host and port only, as the rest may hold a password.
        send: sends what is known now; a state that is newer replaces what could not be sent.
        last: is called once at the end, after or instead of a `send`.
        reason: returns of a failure what may be in the log.
        every_seconds: the time between two sendings.
        timeout_seconds: of one request.
    """

    def __init__(
        self,
        verb: str,
        address: str,
        send: Callable[[], None],
        last: Callable[[], None],
        reason: Callable[[Exception], str],
        every_seconds: float,
        timeout_seconds: float,
    ) -> None:
        found = _ADDRESS.match(address)
        shown = found[0] if found and "@" not in address else "an address (not shown)"
        self._what = f"{verb} to {shown}"
        self._send, self._last, self._reason = send, last, reason
        self._every_seconds, self._timeout_seconds = every_seconds, timeout_seconds
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="send-metrics", daemon=True)
        self._thread.start()

    @property
    def failures(self) -> int:
        """Sendings that failed, or of which the receiver refused a part, since the start."""
        return self._failures

    def stop(self) -> None:
        """Stop after the last sending."""
        self._stopping.set()
        self._thread.join(3 * self._timeout_seconds)

    def _run(self) -> None:
        self._try(self._send)
        while not self._stopping.wait(self._every_seconds):
            self._try(self._send)
        self._try(self._last)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the thread's edge: a lost sending never stops the next one
            self._failures += 1
            if isinstance(error, HTTPError):
                error.close()  # the error is the response, whose socket stays open
            _log.warning("%s failed: %s", self._what, self._reason(error))
