"""The settings of posts about complete games: `[through]`; pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

from pipeline.settings.parsing import Range

_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[^\s\"'<>{}\\@]*)?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class ThroughSettings:
    """Posts that a game is complete through a time: see docs/through.md."""

    webhook: str = field(default="", repr=False)
    """Address that ingest posts to once for each game and interval: https, or http on this machine. The path may hold a
    token: it appears in no log. Empty means nobody."""

    webhook_minutes: Annotated[int, Range(1, 1440)] = 60
    """Minutes of an interval, counted from midnight UTC of 1970-01-01."""


def through_problems(through: ThroughSettings) -> Iterator[str]:
    """Yield the problems of these settings, a sentence each; shows no address."""
    if through.webhook and not _is_address(through.webhook):
        yield "through.webhook: expected an https address, or an http address of this machine (not shown)"


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_safe = parts.scheme == "https" or parts.hostname in _LOOPBACK
        return _ADDRESS.fullmatch(text) is not None and bool(parts.hostname) and parts.port != 0 and is_safe
    except ValueError:
        return False
