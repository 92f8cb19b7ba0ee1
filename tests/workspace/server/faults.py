"""Trouble on purpose: faults at the n-th call, too many requests, stale reads; and the journal of requests."""

import copy
import json
import re
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.workspace.server.calls import Json
from tests.workspace.server.state import Data


@dataclass(slots=True)
class Fault:
    """One failure that waits for its request: before the handler, or after it took effect (the lost answer).

    As [cli testserver/fault.go] has them; a connection that is cut is ours.
    "kill" ends the caller [cli testserver/kill.go].
    """

    method: str
    pattern: str
    nth: int
    status: int | Literal["cut", "kill"]
    when: Literal["before", "after"]
    retry_after: int | None
    seen: int = 0


@dataclass(slots=True)
class Throttle:
    """At most `limit` requests within `seconds` that match; more are 429."""

    method: str
    pattern: str
    limit: int
    seconds: float
    retry_after: int | None
    at: deque[float] = field(default_factory=deque)


class Faults:
    """Keeps what was ordered, under the world's lock."""

    def __init__(self, journal: Path) -> None:
        """Write each request as a line of JSON to `journal`."""
        self._journal = journal
        self._faults: list[Fault] = []
        self._throttles: list[Throttle] = []
        self.requests: list[Json] = []
        self._stale: re.Pattern[str] | None = None
        self._past: Data | None = None
        self._fresh: set[str] = set()

    def add(self, fault: Fault) -> None:
        """Wait for the n-th request from here on that matches."""
        self._faults.append(fault)

    def throttle(self, throttle: Throttle | None) -> None:
        """Refuse requests above a rate from here on; None lets all pass again."""
        self._throttles = [] if throttle is None else [*self._throttles, throttle]

    def calm(self) -> None:
        """Forget all that was ordered and has not happened."""
        self._faults, self._throttles = [], []
        self.read_stale(None)

    def due(self, method: str, target: str) -> Fault | None:
        """Count a request, and return the fault that meets it."""
        found = None
        for each in list(self._faults):
            if _matches(each.method, each.pattern, method, target):
                each.seen += 1
                if each.seen == each.nth and found is None:
                    found = each
                    self._faults.remove(each)
        return found

    def too_many(self, method: str, target: str) -> Throttle | None:
        """Count a request against the rates, and return the one that it exceeds."""
        now = time.monotonic()
        for each in self._throttles:
            if _matches(each.method, each.pattern, method, target):
                while each.at and each.at[0] <= now - each.seconds:
                    each.at.popleft()
                if len(each.at) >= each.limit:
                    return each
                each.at.append(now)
        return None

    def read_stale(self, pattern: str | None) -> None:
        """Let the first read of each address after a write answer from before it [cli testserver/eventual.go].

        `pattern` limits that to addresses; None ends it.
        """
        self._stale = None if pattern is None else re.compile(pattern)
        self._past = None
        self._fresh.clear()

    def remember(self, data: Data) -> Data | None:
        """Return a copy of what a write will change, where stale reads are on."""
        return copy.deepcopy(data) if self._stale is not None else None

    def written(self, past: Data | None) -> None:
        """Say that a write took effect."""
        if past is not None:
            self._past = past
            self._fresh.clear()

    def seen_by(self, target: str, data: Data) -> Data:
        """Return the data that a read of this address sees."""
        if self._past is None or self._stale is None or target in self._fresh or not self._stale.search(target):
            return data
        self._fresh.add(target)
        return self._past

    def note(self, method: str, target: str, who: str | None, status: int | str) -> None:
        """Write a request into the journal."""
        self.requests.append({"method": method, "path": target, "who": who, "status": status})
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.requests[-1]) + "\n")


def _matches(wanted: str, pattern: str, method: str, target: str) -> bool:
    return wanted in {method, "*"} and re.search(pattern, target) is not None
