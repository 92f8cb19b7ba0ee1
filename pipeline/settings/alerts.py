"""The settings of alerts' servers and webhooks: `[alerts]`; pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final
from urllib.parse import urlsplit

_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[^\s\"'<>{}\\@]*)?")
_SERVERS: Final = ("alertmanager_url", "prometheus_url")
_WEBHOOKS: Final = ("page_webhook", "ticket_webhook", "watchdog_webhook")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Where alerts go, and where the dashboard reads which of them fire: see docs/alerts.md."""

    alertmanager_url: str = ""
    """Address of an Alertmanager, without user and password. Prometheus sends alerts there, and the dashboard reads
    from there which alerts fire. Empty means none."""

    prometheus_url: str = ""
    """Address of the Prometheus that has turnout's rules. The dashboard reads from there which alerts fire where
    `alerts.alertmanager_url` is empty. Where both are empty, it says that alerts are unknown."""

    page_webhook: str = field(default="", repr=False)
    """Address that Alertmanager posts alerts with the severity `page` to. Empty means nobody. Write a secret into
    `alerts.token_file`, not here: `turnout alerts write` copies the address into a file."""

    ticket_webhook: str = field(default="", repr=False)
    """Address that Alertmanager posts alerts with the severity `ticket` to. Empty means nobody."""

    watchdog_webhook: str = field(default="", repr=False)
    """Address that Alertmanager posts TurnoutWatchdog to, every minute: a service that calls you when the posts stop.
    Empty means nobody."""

    token_file: str = ""
    """Absolute path of a file with a bearer token for the three webhooks, which Alertmanager reads at each post. Empty
    means none."""


def alert_problems(alerts: AlertSettings) -> Iterator[str]:
    """Yield the problems of these settings, a sentence each; reads no file, and shows no address."""
    for leaf in (*_SERVERS, *_WEBHOOKS):
        text = getattr(alerts, leaf)
        if text and not _is_address(text):
            yield f"alerts.{leaf}: expected an address such as https://alerts.example.com (not shown)"
        elif leaf in _SERVERS and "?" in text:
            yield f"alerts.{leaf}: expected an address without a query (not shown)"
    if alerts.token_file and not PurePath(alerts.token_file).is_absolute():
        yield "alerts.token_file: expected the absolute path of a file"


def _is_address(text: str) -> bool:
    try:
        return _ADDRESS.fullmatch(text) is not None and bool(urlsplit(text).hostname and urlsplit(text).port != 0)
    except ValueError:
        return False
