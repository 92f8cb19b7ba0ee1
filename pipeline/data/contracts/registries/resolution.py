"""Answers what games wait for: asks registries for the schemas of writers and keeps the answers in the control store.

Runs in threads of drivers, one for each registry, so that a slow one keeps no other one's games waiting. A registry
that does not answer decides nothing (law L14): its games wait, and it is asked again later.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Transient, first_line
from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.given_ids import GivenIds, NewIds, lacks_schemas, with_ids
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registries.answers import (
    Absent,
    Answer,
    Away,
    Found,
    SchemaResolver,
    Unusable,
)
from pipeline.data.contracts.registries.notes import Need, Notes
from pipeline.data.contracts.registries.patience import DEFAULT_PATIENCE, Patience, in_turns, left
from pipeline.data.contracts.registries.recording import record, settle, understood
from pipeline.data.contracts.writer_ids import id_length, shown_writer
from pipeline.lake.storage.location import Location
from pipeline.settings.registries import split_key
from pipeline.store.database.engine import STORE_AWAY, writing
from pipeline.store.database.states import RegistryState
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_needs import (
    OpenNeed,
    RegistryHealth,
    needs_of,
    note_answer,
    read_needs,
    read_states,
    write_state,
)
from pipeline.store.writers import WriterRow, lock, newest_refused, newest_writers, sampled_writer, write_writers

_log: Final = logging.getLogger("turnout")
_MOST_REMEMBERED: Final = 10_000  # refused writers that were asked for again
_ASKS_PER_STEP: Final = 50  # so that new needs are seen in between
_GATHERED_SECONDS: Final = 5.0  # answers are kept after that time at the latest,
_GATHERED_BYTES: Final = 16 * 1024 * 1024  # or once their definitions together are as large
_GAMES_TOGETHER: Final = 50  # whose schemas one transaction registers
_STORE_SECONDS: Final = 5.0  # after the control store did not answer
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(slots=True)
class _Asking:
    """What is remembered of one registry; only its own thread changes it."""

    resolver: SchemaResolver
    refused_at: float  # when refused writers are asked for without a need; this and other moments by the steady clock
    sampled: int | None = None  # the number of the period whose sample was looked at; None: no look at a period yet
    failures: int = 0  # answers in a row that were none
    retry_at: float = 0.0
    asked_again: dict[bytes, float] = field(default_factory=dict)  # when a refused writer was last asked for
    unanswered: dict[bytes, int] = field(default_factory=dict)  # how often it was away when asked for a writer
    wake: threading.Event = field(default_factory=threading.Event)


class NotSet:
    """Stands for a registry that the settings lack."""

    def __init__(self, registry: str) -> None:
        """Know its name."""
        self._registry = registry

    def resolve(self, _writer: bytes) -> Answer:
        """Answer that nothing is known."""
        return Away(
            f"The settings have no registry {self._registry}. Add its table with this generation, or let what games "
            f"wait for go to quarantine by `turnout schemas give-up {self._registry}`."
        )


class Resolution:
    """Asks registries for what games need."""

    def __init__(
        self,
        engine: Engine,
        resolvers: Mapping[str, SchemaResolver],
        clock: Callable[[], float] | None = None,
        *,
        steady: Callable[[], float] = time.monotonic,
        policies: Mapping[str, Policies] = _NOTHING,
        others: Callable[[str], SchemaResolver] = NotSet,
        patience: Patience = DEFAULT_PATIENCE,
        bronze: Location | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            engine: the control store.
            resolvers: by the key of answers, see `registry_settings.key_of`.
            clock: Unix seconds, of moments that all drivers compare; None: by the control store's clock.
            steady: seconds that no one sets back, for the waits of this process.
            policies: of registrations, by generation; the defaults where it has none.
            others: makes the client of a further key, such as that of a source that the settings had before.
            patience: how long to wait.
            bronze: beside which new schemas get their ids; None: the store alone counts.
        """
        self._engine = engine
        self._given = None if bronze is None else GivenIds(bronze)
        self._clock = partial(store_time, engine) if clock is None else clock
        self._steady = steady
        self._policies = policies
        self._others = others
        self._patience = patience
        self._stop: threading.Event | None = None  # None: the threads were not started
        self._asking = {name: self._begun(each) for name, each in resolvers.items()}
        self._notes = Notes(engine, steady, patience.idle)
        self._lock = threading.Lock()

    def note(self, needs: Iterable[Need], *, again: bool = False) -> None:
        """Take needs of games that are onboarded, and wake the threads; never waits.

        Args:
            needs: what is lacking; streams repeat theirs twice a second, which reaches the store each half minute.
            again: ask also for writers that were refused.
        """
        noted = {need.registry for need in needs if self._notes.add(need, again=again)}
        with self._lock:
            for registry in noted:
                if registry not in self._asking:
                    self._asking[registry] = self._begun(self._others(registry))
                    if self._stop is not None:
                        self._serve(registry, self._stop)
                self._asking[registry].wake.set()

    def _begun(self, resolver: SchemaResolver) -> _Asking:
        return _Asking(resolver, self._steady() + self._patience.refused_unasked)

    def start(self, stop: threading.Event) -> None:
        """Start a thread for each registry; they end after `stop` is set and `wake` was called."""
        with self._lock:
            self._stop = stop
            for registry in self._asking:
                self._serve(registry, stop)

    def wake(self) -> None:
        """Wake all threads, such as when they should end."""
        with self._lock:
            for asking in self._asking.values():
                asking.wake.set()

    def step(self) -> float:
        """Do for every registry what is due; return after how many seconds to come back."""
        return min([self.step_of(registry) for registry in list(self._asking)], default=self._patience.idle)

    def step_of(self, registry: str) -> float:
        """Do for one registry what is due; return after how many seconds to come back.

        Raises:
            STORE_AWAY: the control store does not answer; what was noted stays so.
        """
        asking, now = self._asking[registry], self._clock()
        self._notes.write(now)
        waiting: dict[bytes, list[OpenNeed]] = {}
        with self._engine.connect() as connection:
            health = read_states(connection).get(registry)
            for need in read_needs(connection, registry):
                waiting.setdefault(need.writer, []).append(need)
        if waiting:
            waiting = self._settle(registry, waiting)
        if health is not None and health.state == "mistrusted":
            return self._patience.idle
        if (rest := asking.retry_at - self._steady()) > 0:
            return rest
        due = {writer: self._due(asking, writer, needs, now) for writer, needs in waiting.items()}
        period = int(now // self._patience.sample)
        if asking.sampled is None:
            asking.sampled = period
        asking.unanswered = {writer: times for writer, times in asking.unanswered.items() if writer in waiting}
        asks = in_turns({writer: needs for writer, needs in waiting.items() if due[writer] <= 0}, asking.unanswered)
        asked = self._ask(registry, asks[:_ASKS_PER_STEP], waiting)
        for writer in list(asking.asked_again)[:-_MOST_REMEMBERED]:
            del asking.asked_again[writer]
        if asked is None:
            return self._until_retry(asking)
        if asked < len(asks):
            return 0.0
        if period != asking.sampled and not self._sample(registry, asking, period):
            return self._until_retry(asking)
        if self._steady() >= asking.refused_at and not self._ask_refused(registry, asking):
            return self._until_retry(asking)
        later = [rest for rest in due.values() if rest > 0] + [self._patience.absent] * bool(asks)
        return min([self._patience.idle, *later])

    def _until_retry(self, asking: _Asking) -> float:
        return max(0.0, asking.retry_at - self._steady())

    def _serve(self, registry: str, stop: threading.Event) -> None:
        name = f"registry-{registry}"
        threading.Thread(target=self._run, args=(registry, stop), name=name, daemon=True).start()

    def _run(self, registry: str, stop: threading.Event) -> None:
        asking = self._asking[registry]
        while not stop.is_set():
            asking.wake.clear()
            try:
                rest = self.step_of(registry)
            except STORE_AWAY as error:
                _log.warning("registry %s: the control store does not answer: %s", registry, first_line(error))
                rest = _STORE_SECONDS
            except Exception:  # noqa: BLE001 - the edge of a thread: games of this registry wait, all else goes on
                _log.exception("registry %s: resolving failed", registry)
                rest = self._patience.away_most
            if not stop.is_set():
                asking.wake.wait(rest)

    def _settle(self, registry: str, waiting: dict[bytes, list[OpenNeed]]) -> dict[bytes, list[OpenNeed]]:
        """Register what is known already, which takes no registry; return what is left to ask."""
        with self._engine.connect() as connection:
            rows = newest_writers(connection, registry, waiting)
        known = {
            writer
            for writer, needs in waiting.items()
            if (row := rows.get(writer)) is not None and (row.refused is None or not _again(needs))
        }
        self._register(registry, known)
        return {writer: needs for writer, needs in waiting.items() if writer not in known}

    def _due(self, asking: _Asking, writer: bytes, needs: Collection[OpenNeed], now: float) -> float:
        """Return how many seconds are left until the next question about a writer."""
        rests = [left(need.asked_at, self._patience.absent, now) for need in needs if need.asked_at is not None]
        if (again := asking.asked_again.get(writer)) is not None:
            rests.append(again + self._patience.refused - self._steady())
        return max(rests, default=0.0)

    def _ask(self, registry: str, writers: Sequence[bytes], waiting: Mapping[bytes, list[OpenNeed]]) -> int | None:
        """Ask for writers in turn, and keep the answers; return how many answers it got.

        Schemas that were found within a few seconds are registered together. Return None where the registry is away or
        mistrusted.
        """
        asking = self._asking[registry]
        found: list[tuple[bytes, Found]] = []
        answered: set[bytes] = set()
        away: str | None = None
        asked, until = 0, self._steady() + _GATHERED_SECONDS
        for writer in writers:
            if _again(waiting[writer]):
                asking.asked_again[writer] = self._steady()
            answer = asking.resolver.resolve(writer)
            hit("after_registry_answer")
            asked += 1
            match answer:
                case Away(detail):
                    away = detail
                    asking.unanswered[writer] = asking.unanswered.get(writer, 0) + 1
                    break
                case Found():
                    found.append((writer, answer))
                case Absent(detail):
                    said = f"has no schema {shown_writer(writer)}: {detail}"
                    self._keep_refusal(registry, writer, said, is_absent=True)
                    answered.add(writer)
                case Unusable(detail):
                    said = f"has schema {shown_writer(writer)}, which turnout cannot use: {detail}"
                    self._keep_refusal(registry, writer, said, is_absent=False)
                    answered.add(writer)
            asking.failures = 0
            if self._steady() > until or sum(len(each.definition) for _, each in found) > _GATHERED_BYTES:
                break
        is_trusted = True
        for writer, each in found:
            known = self._keep(registry, each, writer, waiting)
            if known is None:
                is_trusted = False
                break
            answered |= known
        self._register(registry, answered, answered)
        if not is_trusted:
            return None
        if away is not None:
            self._note_away(registry, asking, away)
        return asked if away is None else None

    def _keep(self, registry: str, found: Found, writer: bytes, wanted: Collection[bytes]) -> set[bytes] | None:
        """Keep a schema; return its writers.

        None where it contradicts an earlier answer, which then counts, or where a new schema gets no id now.
        """
        schema, now = understood(found, writer, wanted, split_key(registry)[1]), self._clock()

        def keep(connection: Connection, ids: NewIds) -> str | None:
            contradiction = record(connection, ids, registry, schema, now)
            _note_health(connection, registry, contradiction, now)
            return contradiction

        new = {each.fingerprint for each in schema.meanings if each.fingerprint is not None}
        try:
            contradiction = with_ids(self._engine, self._given, lambda store: lacks_schemas(store, new), keep)
        except (OSError, Transient) as error:
            self._note_no_place(registry, f"schema {shown_writer(writer)} of {registry} gets no id", error)
            return None
        if contradiction is None:
            return {writer, schema.writer, *(schema.writer + each.path for each in schema.meanings)}
        _log.error("%s", contradiction)
        return None

    def _keep_refusal(self, registry: str, writer: bytes, said: str, *, is_absent: bool) -> None:
        """Refuse a writer, where the answer counts already; what is known to be usable stays so."""
        reason, now = one_line(f"registry {registry} {said}"), self._clock()
        with writing(self._engine) as connection:
            lock(connection)
            row = newest_writers(connection, registry, [writer]).get(writer)
            if row is None:
                note_answer(connection, registry, writer, reason, now, absent=is_absent)
                if not is_absent or self._is_final(needs_of(connection, registry, [writer]), now):
                    write_writers(connection, [WriterRow(registry, writer, refused=reason)], now)
                    _log.warning("%s", reason)
            _note_health(connection, registry, None, now)

    def _register(self, registry: str, writers: Collection[bytes], asked: Collection[bytes] = ()) -> None:
        """Register what is known for the games that need one of these writers, some games at a time.

        So a game that fails keeps few others waiting.
        """
        with self._engine.connect() as connection:
            keys = sorted({need.game_key for need in needs_of(connection, registry, writers)})
        policies = self._policies.get(split_key(registry)[0], DEFAULTS)
        for start in range(0, len(keys), _GAMES_TOGETHER):
            part, now = keys[start : start + _GAMES_TOGETHER], self._clock()

            def register(connection: Connection, ids: NewIds, part: list[GameKey] = part, now: float = now) -> None:
                settle(connection, ids, registry, part, policies, now, asked)

            try:
                with_ids(self._engine, self._given, lambda _: True, register)
            except (OSError, Transient) as error:
                self._note_no_place(registry, f"schemas of {registry} are not registered", error)
                return

    def _note_no_place(self, registry: str, what: str, error: Exception) -> None:
        """Let games wait where nothing can be taken or kept beside bronze; it is tried again."""
        where = "" if self._given is None else f" in {self._given.folder}"
        _log.warning("%s%s: %s", what, where, first_line(error))
        self._asking[registry].retry_at = self._steady() + _STORE_SECONDS

    def _is_final(self, needs: Collection[OpenNeed], now: float) -> bool:
        """Return whether a registry said often and long enough that it has no such schema."""
        return any(
            need.absences >= self._patience.absences and now - need.absent_since >= self._patience.absent_for
            for need in needs
            if need.absent_since is not None
        )

    def _note_away(self, registry: str, asking: _Asking, detail: str) -> None:
        now = self._clock()
        wait = min(self._patience.away_most, self._patience.away * 2.0 ** min(asking.failures, 30))
        asking.failures += 1
        asking.retry_at = self._steady() + wait
        if asking.failures == 1:
            _log.warning("registry %s is away: %s", registry, detail)
        with writing(self._engine) as connection:
            lock(connection)
            write_state(connection, RegistryHealth(registry, "away", now, one_line(detail), now, now + wait))

    def _sample(self, registry: str, asking: _Asking, period: int) -> bool:
        """Ask again for one known id: a registry that gives it another schema is not trusted with new ones."""
        asking.sampled = period
        with self._engine.connect() as connection:
            writer = sampled_writer(connection, registry, period)
        if writer is None or id_length(writer) is None:
            return True
        answer = asking.resolver.resolve(writer)
        if isinstance(answer, Away):
            self._note_away(registry, asking, answer.detail)
            return False
        return not isinstance(answer, Found) or self._keep_unasked(registry, answer, writer)

    def _ask_refused(self, registry: str, asking: _Asking) -> bool:
        """Ask again for what was refused last: a schema may have come late, and its rows need no person then."""
        asking.refused_at = self._steady() + self._patience.refused_unasked
        with self._engine.connect() as connection:
            refused = newest_refused(connection, registry, _ASKS_PER_STEP)
        for writer in refused:
            answer = asking.resolver.resolve(writer)
            if isinstance(answer, Away):
                break  # no game waits for it
            if isinstance(answer, Found) and not self._keep_unasked(registry, answer, writer):
                return False
        return True

    def _keep_unasked(self, registry: str, found: Found, writer: bytes) -> bool:
        """Keep a schema for which no need was looked at; return False where it contradicts an earlier answer."""
        known = self._keep(registry, found, writer, ())
        if known is not None:
            self._register(registry, known, known)
        return known is not None


def _again(needs: Iterable[OpenNeed]) -> bool:
    return any(need.again for need in needs)


def _note_health(connection: Connection, registry: str, contradiction: str | None, now: float) -> None:
    state: RegistryState = "ok" if contradiction is None else "mistrusted"
    write_state(connection, RegistryHealth(registry, state, now, contradiction, now))
