"""The games that a driver is processing, kept for after its death: one of them may have killed it.

They are in a file of this machine, and in the control store where the controller may be on another one. Nothing depends
on it; a torn or missing file is ignored.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from sqlalchemy import Engine

from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.store.processes.runs import DEATHS_COUNT_SECONDS, needs_active_games, record_active_games


class StoredGames:
    """The games of all queries of a driver, in its run's row of the control store.

    That costs two writes for each pass, so it is done only after a death of the group, as long as that one counts.
    """

    def __init__(self, engine: Engine, run_id: int) -> None:
        """Keep them for this run."""
        self._engine, self._run_id = engine, run_id
        self._games: dict[str, list[str]] = {}  # by query
        self._written: list[str] = []
        self._until = time.monotonic() + DEATHS_COUNT_SECONDS
        self._lock = threading.Lock()

    def keep(self, query: str, games: Sequence[str]) -> None:
        """Write down what a query has in hand from now on."""
        if time.monotonic() > self._until:
            games = ()
        with self._lock:
            self._games[query] = list(games)
            together = sorted({game for each in self._games.values() for game in each})
            if together == self._written:
                return
            with tolerate_store_outage("the games in hand are not written down"):
                record_active_games(self._engine, self._run_id, together)
                self._written = together


def stored_games(engine: Engine, run_id: int | None) -> StoredGames | None:
    """Return where a driver's run keeps its games in the store; None where the file is enough, or nobody has died."""
    if run_id is None or not needs_active_games(engine, run_id):
        return None
    return StoredGames(engine, run_id)


class ActiveGames:
    """The games of one query's pass, or of the running chunk."""

    def __init__(self, checkpoint: Path, name: str, stored: StoredGames | None = None) -> None:
        """Delete the file of an earlier process of this group."""
        self._name, self._stored = name, stored
        self._file = _folder(checkpoint) / f"{name}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)

    @contextmanager
    def track(self, games: Sequence[str]) -> Iterator[None]:
        """Record these games while the block runs; a block that raises has killed the driver only if Spark is gone."""
        with contextlib.suppress(OSError):  # such as a full disk: the games stay unknown
            self._file.write_text(json.dumps(list(games)), "utf-8")
        self._store(games)
        is_over = True
        try:
            yield
        except (Py4JError, ConnectionError) as error:
            is_over = isinstance(error, Py4JJavaError)  # else the JVM has died, as of too little memory
            raise
        finally:
            if is_over:
                with contextlib.suppress(OSError):
                    self._file.unlink(missing_ok=True)
                self._store(())

    def _store(self, games: Sequence[str]) -> None:
        if self._stored is not None:
            self._stored.keep(self._name, games)


def read_leftover(checkpoint: Path) -> list[str]:
    """Return the games that a dead driver of this machine was processing."""
    keys: set[str] = set()
    for file in _folder(checkpoint).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # such as a truncated file
            keys.update(json.loads(file.read_text("utf-8")))
    return sorted(keys)


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "active_games"
