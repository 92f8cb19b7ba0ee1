"""A thread of a driver that looks again and again, beside what the driver does."""

import logging
import threading
from collections.abc import Callable
from typing import Final

_log: Final = logging.getLogger("turnout")


class Ticking:
    """Calls a look periodically, and again at once while it returns true. A look that fails is logged."""

    def __init__(self, name: str, seconds: float, look: Callable[[], bool | None], complaint: str) -> None:
        """Prepare, with the time between two looks; the log has `complaint` beside the error of a look."""
        self._name, self._seconds, self._look, self._complaint = name, seconds, look, complaint
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the running look should end soon."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Look until `stop`; the second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Let the running look end, and begin no other."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def rest(self, seconds: float) -> bool:
        """Wait within a look; return whether to go on."""
        return not self._stopping.wait(seconds)

    def _run(self) -> None:
        while self.rest(self._seconds):
            try:
                while not self.is_stopping and self._look():
                    pass
            except Exception:  # noqa: BLE001 - the edge of a thread; the next look may find the trouble gone
                _log.exception(self._complaint)
