"""Sends metrics to an OTLP endpoint.

Headers may hold secrets: they, and what a server answers, appear in no log and no error.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import unquote

from prometheus_client import Metric

from listeners.otlp.encoding import requests_of
from listeners.periodic import NoRedirect, PeriodicSender

HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's own: `name=value,…`, values percent-encoded
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/)."""

SEND_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 5.0

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[ -~]*")
_ANSWER_BYTES: Final = 65_536


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


def send(
    collect: Callable[[], Iterable[Metric]],
    endpoint: str,
    headers: Mapping[str, str],
    instance: str,
    labels: Mapping[str, str],
    *,
    counts_since: float | None,
) -> PeriodicSender:
    """Send metrics at once and then periodically, until `stop()` of the result, which sends a last time.

    Args:
        collect: returns what is sent.
        endpoint: the address without `/v1/metrics`.
        headers: sent with each request.
        instance: tells this process from the others, as `service.instance.id`.
        labels: attributes that each data point gets unless it has them.
        counts_since: when the counters began (Unix seconds); None: at several times.
    """
    url = f"{endpoint.rstrip('/')}/v1/metrics"
    all_headers = {**headers, "Content-Type": "application/json"}
    resource = {"service.name": "turnout", "service.instance.id": instance}
    opener = urllib.request.build_opener(NoRedirect)  # it would carry the headers

    def send_once() -> None:
        now = time.time()
        for body in requests_of(collect(), resource, labels, counts_since, now):
            request = urllib.request.Request(url, body, all_headers, method="POST")  # noqa: S310 - settings check it
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                refused = _refused_points(answer.read(_ANSWER_BYTES))
            if refused:
                raise _PartlyRefusedError(f"the receiver refused {refused} data points")

    return PeriodicSender("sending metrics", url, send_once, send_once, _reason, SEND_SECONDS, TIMEOUT_SECONDS)


class _PartlyRefusedError(Exception):
    """The receiver took a request and refused some of its data points."""


def _refused_points(answer: bytes) -> int:
    """Return how many data points the receiver says that it refused; an answer that says nothing refuses none."""
    try:
        return int(json.loads(answer or b"{}")["partialSuccess"]["rejectedDataPoints"])
    except (ValueError, KeyError, TypeError):
        return 0


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"status {error.code}"
    is_plain = isinstance(error, OSError | _PartlyRefusedError) and not isinstance(error, HTTPException)
    return str(error) if is_plain else type(error).__name__  # other errors may quote headers
