"""What the edge knows of games, schemas and producers, read again every two seconds; it never waits for the store.

While the control store is away the edge goes on by what it read last. Called by the process and by tests.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import game_key, plain
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.edge.callers import Caller
from pipeline.edge.statuses import unauthenticated
from pipeline.lake.storage.location import Location
from pipeline.store.edge_producers import EdgeProducer, by_credential, read_producers
from pipeline.store.onboarding import onboarded_names
from pipeline.store.onboarding_rules import RuleSet, read_rules

_log: Final = logging.getLogger("turnout")
REFRESH_SECONDS: Final = 2.0
"""Time between two looks at the store: a revoked producer's streams end within this time and a request's."""

_MOST_NAME: Final = 200  # characters of a certificate's name that an answer repeats


@dataclass(frozen=True, slots=True)
class Known:
    """One look at the control store."""

    schemas: SchemaSet
    producers: Mapping[str, EdgeProducer]  # by the SHA-256 of their tokens and by the names of their certificates
    games: frozenset[str] | None = None  # exact names; None: unknown games pass, so nothing needs them
    rules: RuleSet = field(default_factory=RuleSet)

    def require_producer(self, caller: Caller, now: float) -> EdgeProducer:
        """Return the producer that calls.

        Raises:
            EdgeStatus: it is not known, has expired or was revoked; or its certificate has expired.
        """
        what = "certificate" if caller.has_certificate else "token"
        if caller.problem:
            raise unauthenticated("UNUSABLE_CERTIFICATE", caller.problem)
        producer = self.producers.get(caller.credential)
        if producer is None and caller.has_certificate:
            name = plain(caller.credential)[:_MOST_NAME]
            raise unauthenticated("UNKNOWN_CERTIFICATE", f"no producer has the certificate {name}")
        if producer is None:
            raise unauthenticated("UNKNOWN_TOKEN", "the call has no token that turnout knows: authorization: Bearer …")
        if producer.revoked:
            raise unauthenticated(f"{what.upper()}_REVOKED", f"the {what} of {producer.name} was revoked")
        if not producer.is_valid(now) or (caller.expires_at is not None and now >= caller.expires_at):
            raise unauthenticated(f"{what.upper()}_EXPIRED", f"the {what} of {producer.name} has expired")
        return producer

    def is_no_game(self, name: str) -> bool:
        """Return whether ingest, as of this look, would refuse a name, and the edge does too."""
        if self.games is None or name in self.games or game_key(name) in self.schemas.games:
            return False
        return self.rules.match(name) is None and self.rules.waiting_for_format(name) is None


class Knowledge:
    """The newest look, kept up to date by a thread."""

    def __init__(self, engine: Engine, bronze: Location | None, *, refuses_unknown: bool) -> None:
        """Read the store for the first time.

        Raises:
            Refused: the store cannot be used.
            Transient: it is away.
        """
        self._engine, self._registry, self._refuses_unknown = engine, LocalRegistry(engine, bronze), refuses_unknown
        self._stop = threading.Event()
        self._is_away = False
        self.now = self._read()
        self._thread = threading.Thread(target=self._run, name="edge knowledge", daemon=True)
        self._changed: Callable[[Known], None] = lambda _: None

    def start(self, changed: Callable[[Known], None]) -> None:
        """Read again every two seconds; `changed` is called in the thread, after each look."""
        self._changed = changed
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            try:
                self.now = self._read()
            except (SQLAlchemyError, OSError, Refused, Transient) as error:
                if not self._is_away:
                    _log.warning("the control store cannot be read, so the edge keeps to its last look: %s",
                                 first_line(error))  # fmt: skip
                self._is_away = True
            else:
                self._is_away = False
            self._changed(self.now)  # also of an old look: what has expired meanwhile ends its streams

    def _read(self) -> Known:
        schemas = self._registry.snapshot()
        producers = by_credential(read_producers(self._engine).producers)
        if not self._refuses_unknown:
            return Known(schemas, producers)
        games = frozenset(onboarded_names(self._engine).values())
        return Known(schemas, producers, games, read_rules(self._engine))
