"""What a simulator's producer hears of its events behind an edge: counted, and kept in a file for the demo.

`turnout simulate --via edge --follow` writes the file, `turnout demo` reads it.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pipeline.base.names import shown
from pipeline.base.private_files import PUBLIC, write_file

if TYPE_CHECKING:
    from pipeline.edge.followed import EdgeFollowing
    from pipeline.edge.outcomes import EventOutcome

FILE: Final = "followed.json"
"""The file's name, in the environment's folder."""

SOON_SECONDS: Final = 10.0
"""A pipeline that keeps up tells a producer of a refused event within this time."""

_WAIT_SECONDS: Final = 0.2
_WRITE_SECONDS: Final = 0.5

_log: Final = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class HeardRefusal:
    """A refused event that came back to its producer."""

    event_id: str
    game: str
    reason: str
    detail: str
    seconds: float  # since its acknowledgement

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s after its acknowledgement: {shown(self.game)}, {self.reason} ({self.detail})"


@dataclass(frozen=True, slots=True)
class Heard:
    """What a producer has heard of its acknowledged events so far."""

    is_sent: bool = False  # every event is acknowledged, or refused by the edge
    landed: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # by reason
    unknown: int = 0
    waiting: int = 0  # without an outcome, also where nobody follows them any more
    untracked: int = 0  # that get none
    first: HeardRefusal | None = None
    quickest: HeardRefusal | None = None
    refused_at: float | None = None  # Unix seconds of the last refusal

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what the newest simulator of an environment has written; nothing where there is no file."""
        try:
            found = json.loads((folder / FILE).read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        for name in ("first", "quickest"):
            found[name] = None if found[name] is None else HeardRefusal(**found[name])
        return cls(**found)

    @property
    def is_whole(self) -> bool:
        """Whether each acknowledged event has one outcome."""
        return self.is_sent and not (self.waiting or self.untracked or self.unknown)

    @property
    def refusals(self) -> int:
        """The number of refused events that came back."""
        return sum(self.refused.values())


class EdgeFollower:
    """Takes the outcomes of a client's events in a thread, until it is closed."""

    def __init__(self, following: "EdgeFollowing", folder: Path) -> None:
        """Follow, and write the file into a folder."""
        self._following, self._file = following, folder / FILE
        self._heard, self._refused = Heard(), Counter[str]()
        self._is_sent, self._closed = threading.Event(), threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._run, name="edge follower", daemon=True)
        self._thread.start()

    def close(self, stop: threading.Event) -> Heard:
        """Wait until each acknowledged event has an outcome, or for a signal to stop; return what was heard."""
        self._is_sent.set()
        while self._thread.is_alive() and not (self._heard.is_sent and self._heard.waiting == 0):
            if stop.wait(_WAIT_SECONDS):
                break
        self._closed.set()
        self._thread.join()
        self._write()
        return self._heard

    def _run(self) -> None:
        from grpc import RpcError

        due = time.monotonic()
        try:
            while (outcome := self._following.wait(_WAIT_SECONDS)) is not None or not self._closed.is_set():
                if outcome is not None:
                    self._take(outcome)
                if outcome is None or time.monotonic() > due:
                    self._write()
                    due = time.monotonic() + _WRITE_SECONDS
        except RpcError as error:
            _log.warning("the edge tells this producer nothing more: %s", " ".join(str(error).split())[:300])

    def _take(self, outcome: "EventOutcome") -> None:
        from pipeline.edge.outcomes import EventLanded, EventRefused

        heard = self._heard
        if isinstance(outcome, EventLanded):
            self._heard = replace(heard, landed=heard.landed + (not outcome.was_refused))
        elif isinstance(outcome, EventRefused):
            row = HeardRefusal(outcome.event_id, outcome.game, outcome.reason, outcome.detail, outcome.seconds or 0.0)
            quickest = row if heard.quickest is None or row.seconds < heard.quickest.seconds else heard.quickest
            if heard.first is None:
                _log.info("the first refused event came back %s", row)
            self._refused[row.reason] += 1
            self._heard = replace(heard, first=heard.first or row, quickest=quickest, refused_at=time.time())
        else:
            self._heard = replace(heard, unknown=heard.unknown + 1)

    def _write(self) -> None:
        is_sent = self._is_sent.is_set()  # before the counts: no event is acknowledged after it
        self._heard = replace(
            self._heard,
            is_sent=is_sent,
            refused=dict(self._refused),
            waiting=self._following.waiting,
            untracked=self._following.untracked,
        )
        write_file(self._file, json.dumps(asdict(self._heard)), PUBLIC)


class Hearing:
    """Says what came back to the producer of a live demo: its first refused event, and the first one within 10 s."""

    def __init__(self, folder: Path) -> None:
        """Forget what an earlier run has heard."""
        self._folder, self._said, self._is_soon = folder, False, False
        (folder / FILE).unlink(missing_ok=True)

    @property
    def heard(self) -> Heard:
        """What the producer has heard so far."""
        return Heard.read(self._folder)

    def look(self) -> str | None:
        """Return what to say now, each line once."""
        heard = self.heard
        if heard.quickest is not None and heard.quickest.seconds <= SOON_SECONDS and not self._is_soon:
            self._said = self._is_soon = True
            return f"a refused event came back to its producer {heard.quickest}"
        if heard.first is not None and not self._said:
            self._said = True
            return f"the first refused event came back to its producer {heard.first}"
        return None
