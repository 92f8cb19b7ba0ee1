"""Sends metrics to an OTLP endpoint periodically, on a thread of its own; losing it touches nothing else.

Headers may hold secrets: they, and what a server answers, appear in no log and no error.
"""

import json
import logging
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry, Metric

from listeners.otlp.encoding import requests_of

HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's own: `name=value,…`, values percent-encoded
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/)."""

SEND_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 5.0

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[ -~]*")
_ANSWER_BYTES: Final = 65_536

_log = logging.getLogger(__name__)


def read_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the standard variable names; none without it.

    Raises:
        ValueError: it cannot be read; the text does not contain it.
    """
    headers = {}
    for number, part in enumerate(filter(None, map(str.strip, environ.get(HEADERS_VARIABLE, "").split(","))), 1):
        name, equals, value = part.partition("=")
        name, value = name.strip(), unquote(value.strip())
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"header {number} of {HEADERS_VARIABLE} is not name=value (not shown)")
        headers[name] = value
    return headers


class OtlpSender:
    """Sends metrics until `stop`.

    Args:
        collect: returns what is sent; a state that is newer replaces what could not be sent.
        endpoint: the address without `/v1/metrics`.
        headers: sent with each request.
        instance: tells this process from the others, as `service.instance.id`.
        labels: attributes that each data point gets unless it has them.
        counts_since: when the counters began (Unix seconds); None: at several times.
        every_seconds: the time between two sendings.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        endpoint: str,
        headers: Mapping[str, str],
        instance: str,
        labels: Mapping[str, str],
        *,
        counts_since: float | None,
        every_seconds: float = SEND_SECONDS,
    ) -> None:
        self._collect, self._labels = collect, dict(labels)
        self._url = f"{endpoint.rstrip('/')}/v1/metrics"
        self._headers = {**headers, "Content-Type": "application/json"}
        self._resource = {"service.name": "turnout", "service.instance.id": instance}
        self._since, self._every = counts_since, every_seconds
        # A redirect would carry the headers to another server.
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="send-otlp", daemon=True)
        self._thread.start()

    @property
    def failures(self) -> int:
        """Sendings that failed, or of which the receiver refused a part, since the start."""
        return self._failures

    def stop(self) -> None:
        """Stop after a last sending; nothing remains of the process but what was sent."""
        self._stopping.set()
        self._thread.join(3 * TIMEOUT_SECONDS)

    def _run(self) -> None:
        while True:
            self._try()
            if self._stopping.wait(self._every):
                break
        self._try()

    def _try(self) -> None:
        try:
            now = time.time()
            for body in requests_of(self._collect(), self._resource, self._labels, self._since, now):
                self._post(body)
        except Exception as error:  # noqa: BLE001 - the thread's edge: a lost sending never stops the next one
            self._failures += 1
            _log.warning("sending metrics to %s failed: %s", _shown(self._url), _reason(error))

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310 - settings check it
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            refused = _refused_points(answer.read(_ANSWER_BYTES))
        if refused:
            raise _PartlyRefusedError(f"the receiver refused {refused} data points")


class _PartlyRefusedError(Exception):
    """The receiver took a request and refused some of its data points."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect: urllib then raises the answer as an error."""


def send(
    registry: CollectorRegistry, endpoint: str, headers: Mapping[str, str], instance: str, labels: Mapping[str, str]
) -> OtlpSender:
    """Send a process's registry, whose counters begin now, periodically, until `stop()` of the result."""
    return OtlpSender(registry.collect, endpoint, headers, instance, labels, counts_since=time.time())


def _refused_points(answer: bytes) -> int:
    """Return how many data points the receiver says that it refused; an answer that says nothing refuses none."""
    try:
        return int(json.loads(answer or b"{}")["partialSuccess"]["rejectedDataPoints"])
    except (ValueError, KeyError, TypeError):
        return 0


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        error.close()  # the error is the response, whose socket stays open
        return f"status {error.code}"
    is_plain = isinstance(error, OSError | _PartlyRefusedError) and not isinstance(error, HTTPException)
    return str(error) if is_plain else type(error).__name__  # other errors may quote headers


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
