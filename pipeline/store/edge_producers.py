"""Producers of the edge: who may send events of which games, and by which token or client certificate.

Each application of a file adds a whole set with the next number, and the newest set counts. Of a token only the SHA-256
is stored.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, insert, select

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.store import audit
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import edge_producers
from pipeline.store.processes.leases import store_now

_LISTS: Final = ("games", "prefixes")


@dataclass(frozen=True, slots=True)
class EdgeProducer:
    """One producer; it may send events of its games and of all names that begin with one of its prefixes."""

    name: str
    token_sha256: str = ""  # 64 hexadecimal digits; empty: no token
    games: tuple[str, ...] = ()  # exact names
    prefixes: tuple[str, ...] = ()  # an empty one: of all games
    expires_at: float | None = None  # Unix seconds; None: never
    events_per_second: int | None = None  # None: unlimited
    revoked: bool = False  # its token and certificate are refused for ever; another producer may have its name
    certificate: str = ""  # the name in its client certificate: uri:…, dns:… or cn:…; empty: none

    @property
    def credentials(self) -> tuple[str, ...]:
        """Identities under which a call is this producer."""
        return tuple(each for each in (self.token_sha256, self.certificate) if each)

    def may_send(self, game: str) -> bool:
        """Return whether it may send events of a name."""
        return game in self.games or any(game.startswith(each) for each in self.prefixes)

    def is_valid(self, now: float) -> bool:
        """Return whether its token and certificate count at this time."""
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class ProducerSet:
    """The producers that are in force."""

    number: int = 0  # of the application; 0: none was ever applied
    producers: tuple[EdgeProducer, ...] = ()
    actor: str = ""  # who applied it
    applied_at: float = 0.0  # Unix seconds by the store's clock


def sha256_of(token: str) -> str:
    """Return what the store keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def by_credential(producers: Iterable[EdgeProducer]) -> dict[str, EdgeProducer]:
    """Return producers by the SHA-256 of their tokens and the names of their certificates, which never look alike."""
    return {credential: each for each in producers for credential in each.credentials}


def read_producers(engine: Engine) -> ProducerSet:
    """Return the producers in force."""
    with engine.connect() as connection:
        return _producers_in(connection)


def apply(
    engine: Engine, producers: Sequence[EdgeProducer], seen: int, actor: str, reason: str, *, action: str, target: str
) -> ProducerSet:
    """Write producers as the newest set, with its audit entry, if the newest is still the one that was seen.

    Raises:
        Refused: another person has changed producers meanwhile.
    """
    trees = [asdict(each) for each in producers]
    act = audit.Act(actor, action, (target,), None, {"producers": trees, "reason": reason})
    with writing(engine) as connection:
        audit.lock_log(connection)  # so another one of the same moment waits here, and sees this one then
        if _producers_in(connection).number != seen:
            raise Refused("Other producers were applied after you looked. Plan again.")
        audit.begin(connection, act)
        values = {"number": seen + 1, "producers": json.dumps(trees), "actor": actor, "reason": reason}
        connection.execute(insert(edge_producers).values(applied_at=store_now(), **values))
        audit.end(connection, act, "succeeded")
        return _producers_in(connection)


def revoke(engine: Engine, name: str, actor: str, reason: str) -> ProducerSet:
    """Refuse a producer's token and certificate for ever, with an audit entry.

    Raises:
        Refused: there is no such producer, its token is revoked already, or others were applied at the same moment.
    """
    known = read_producers(engine)
    found = require_revocable(known, name)
    rest = [each for each in known.producers if each is not found]
    then = sorted([*rest, replace(found, revoked=True)], key=_is_revoked)  # those without a token come last
    return apply(engine, then, known.number, actor, reason, action="revoke an edge producer", target=name)


def require_revocable(known: ProducerSet, name: str) -> EdgeProducer:
    """Return the producer of a name that is not revoked.

    Raises:
        Refused: there is none.
    """
    named = [each for each in known.producers if each.name == name]
    found = next((each for each in named if not each.revoked), None)
    if found is None and named:
        raise Refused(f"The producer {shown(name)} is revoked already.")
    if found is None:
        raise Refused(f"There is no producer {shown(name)}. `turnout edge producers list` prints them.")
    return found


def _producers_in(connection: Connection) -> ProducerSet:
    query = select(edge_producers).order_by(edge_producers.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return ProducerSet() if row is None else _read(row)


def _is_revoked(producer: EdgeProducer) -> bool:
    return producer.revoked


def _read(row: Row[Any]) -> ProducerSet:
    return ProducerSet(row.number, tuple(map(_producer, json.loads(row.producers))), row.actor, row.applied_at)


def _producer(tree: dict[str, Any]) -> EdgeProducer:
    return EdgeProducer(**{**tree, **{name: tuple(tree[name]) for name in _LISTS}})
