"""The registry of payload schemas, kept in the control store: who may send what, since which version.

Append-only. A schema set is a pure function of its version, so a pass can pin one by its number.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from pipeline.contracts.evolution import Breaking, compare, defects
from pipeline.contracts.messages import FORMAT, canonical, describe, fingerprint, shown
from pipeline.contracts.schemas import Schema, SchemaSet
from pipeline.contracts.shape import columns
from pipeline.errors import Refused, Transient
from pipeline.names import GameKey, game_key, is_game_name
from pipeline.store.tables import registrations, schemas

__all__ = ["LocalRegistry", "Registered", "Registration", "Schema", "SchemaSet"]

_ATTEMPTS: Final = 20
_KEPT_SETS: Final = 4
_IDS_PER_QUERY: Final = 10_000  # databases limit the parameters of a statement
_SHOWN_REASONS: Final = 10


@dataclass(frozen=True, slots=True)
class Registration:
    """A wish to let a game send a message."""

    game: str
    message: str  # full name
    descriptor_set: bytes  # a serialised FileDescriptorSet with all imports


@dataclass(frozen=True, slots=True)
class Registered:
    """What became of it."""

    schema_id: int
    version: int  # counts the game's schemas: 1, 2, …
    new: bool  # False when the game already had this very schema


@dataclass(frozen=True, slots=True)
class _Wish:
    game: str
    key: GameKey
    message: str
    descriptor: bytes  # canonical
    fingerprint: str


class LocalRegistry:
    """Registers schemas in the control store and reads them back."""

    def __init__(self, engine: Engine) -> None:
        """Use an opened control store."""
        self._engine = engine
        self._sets: dict[int, SchemaSet] = {}
        self._schemas: dict[int, Schema] = {}

    def register(self, game: str, message: str, descriptor_set: bytes) -> Registered:
        """Register one schema; see `register_many`."""
        return self.register_many([Registration(game, message, descriptor_set)])[0]

    def register_many(self, wishes: Iterable[Registration]) -> list[Registered]:
        """Register schemas in the given order, all or none. A schema that a game already has changes nothing.

        Raises:
            Refused: a name, a definition, or a change that earlier schemas of the game do not allow.
            Transient: the control store is busy or away, or others kept registering the same.
        """
        ready = _ready(wishes)
        for _ in range(_ATTEMPTS):
            try:
                with self._engine.begin() as connection:
                    return _Writer(connection, ready).write()
            except IntegrityError:
                # Another process registered in between and took an id or a version: look again at what is there now.
                continue
            except OperationalError as error:
                raise Transient(f"the control store did not take the registration: {error.orig}") from error
        raise Transient(f"others registered schemas of the same games at each of {_ATTEMPTS} attempts")

    def latest_version(self) -> int:
        """Return the version of the newest schema set; 0 when nothing is registered."""
        with self._engine.connect() as connection:
            return _latest(connection)

    def snapshot(self, at_version: int | None = None) -> SchemaSet:
        """Return the schema set of a version, the newest when none is named.

        Raises:
            Refused: that version does not exist yet.
        """
        if at_version is not None and at_version in self._sets:
            return self._sets[at_version]
        with self._engine.connect() as connection:
            latest = _latest(connection)
            version = latest if at_version is None else at_version
            if not 0 <= version <= latest:
                raise Refused(f"Schema set {version} does not exist; the newest is {latest}. Name one up to that.")
            if version not in self._sets:
                found = self._read(connection, version)
                self._sets = dict([*self._sets.items(), (version, found)][-_KEPT_SETS:])
                return found
        return self._sets[version]

    def _read(self, connection: Connection, version: int) -> SchemaSet:
        query = select(registrations.c.game_key, registrations.c.schema_id).where(
            registrations.c.registration_id <= version
        )
        games: dict[GameKey, list[int]] = {}
        for key, schema_id in connection.execute(query.order_by(registrations.c.registration_id)):
            games.setdefault(GameKey(key), []).append(schema_id)
        used = {schema_id for ids in games.values() for schema_id in ids}
        if missing := used - self._schemas.keys():
            self._schemas |= _read_schemas(connection, missing)
        return SchemaSet(
            version=version,
            games={key: tuple(ids) for key, ids in games.items()},
            schemas={schema_id: self._schemas[schema_id] for schema_id in sorted(used)},
        )


def _latest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(registrations.c.registration_id))).scalar() or 0)


def _read_schemas(connection: Connection, ids: set[int]) -> dict[int, Schema]:
    query = select(schemas.c.schema_id, schemas.c.format, schemas.c.message, schemas.c.descriptor)
    wanted = sorted(ids)
    found: dict[int, Schema] = {}
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        some = query.where(schemas.c.schema_id.in_(wanted[start : start + _IDS_PER_QUERY]))
        found |= {row.schema_id: Schema(*row) for row in connection.execute(some)}
    return found


def _ready(wishes: Iterable[Registration]) -> list[_Wish]:
    """Check everything that needs no store; equal definitions are checked once."""
    known: dict[tuple[str, bytes], tuple[bytes, str]] = {}
    ready = []
    for wish in wishes:
        _check_game(wish.game)
        source = (wish.message, wish.descriptor_set)
        if source not in known:
            descriptor = canonical(wish.message, wish.descriptor_set)
            _check_columns(wish.message, descriptor)
            known[source] = descriptor, fingerprint(wish.message, descriptor)
        ready.append(_Wish(wish.game, game_key(wish.game), wish.message, *known[source]))
    return ready


def _check_game(game: str) -> None:
    try:
        game.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"The game name {shown(game)} is not valid UTF-8 text. Correct its encoding.") from error
    if not is_game_name(game):
        raise Refused(f"{shown(game)} cannot name a game: use 1 to 256 bytes of UTF-8 without NUL.")


def _check_columns(message: str, descriptor: bytes) -> None:
    if reasons := defects(describe(message, descriptor)):
        raise Refused(f"No table can hold the message {shown(message)}; change its definition:{_listed(reasons)}")
    columns(Schema(0, FORMAT, message, descriptor))


def _listed(reasons: tuple[str, ...]) -> str:
    more = [f"and {len(reasons) - _SHOWN_REASONS} more"] if len(reasons) > _SHOWN_REASONS else []
    return "".join(f"\n  - {reason}" for reason in [*reasons[:_SHOWN_REASONS], *more])


class _Writer:
    """Writes wishes in one transaction, on top of what the store holds now."""

    def __init__(self, connection: Connection, wishes: list[_Wish]) -> None:
        if connection.dialect.name == "postgresql":
            # Ids must become visible in their order, or a schema set could still grow after it was pinned.
            connection.execute(text("LOCK TABLE registrations IN SHARE ROW EXCLUSIVE MODE"))
        self._connection = connection
        self._wishes = wishes
        self._now = time.time()
        self._games = self._held_games({wish.key for wish in wishes})
        self._schemas = self._held_schemas({wish.fingerprint for wish in wishes})
        self._changes: dict[tuple[int, int], Breaking | None] = {}

    def write(self) -> list[Registered]:
        results: list[Registered] = []
        rows: list[Mapping[str, object]] = []
        for wish in self._wishes:
            schema_id = self._schema_id(wish)
            held = self._games.setdefault(wish.key, [])
            if new := schema_id not in held:
                self._check(wish, held, schema_id)
                held.append(schema_id)
                rows.append(
                    {
                        "game_key": wish.key,
                        "game": wish.game,
                        "version": len(held),
                        "schema_id": schema_id,
                        "created_at": self._now,
                    }
                )
            results.append(Registered(schema_id, held.index(schema_id) + 1, new))
        if rows:
            self._connection.execute(insert(registrations), rows)
        return results

    def _held_games(self, keys: set[GameKey]) -> dict[GameKey, list[int]]:
        query = select(registrations.c.game_key, registrations.c.schema_id).order_by(registrations.c.version)
        if len(keys) == 1:
            query = query.where(registrations.c.game_key == next(iter(keys)))
        held: dict[GameKey, list[int]] = {}
        for key, schema_id in self._connection.execute(query):
            held.setdefault(GameKey(key), []).append(schema_id)
        return held

    def _held_schemas(self, fingerprints: set[str]) -> dict[int, Schema]:
        self._ids: dict[str, int] = {}
        query = select(schemas.c.fingerprint, schemas.c.schema_id)
        if len(fingerprints) == 1:
            query = query.where(schemas.c.fingerprint == next(iter(fingerprints)))
        for mark, schema_id in self._connection.execute(query):
            self._ids[mark] = schema_id
        wanted = {wish.key for wish in self._wishes}
        used = {schema_id for key in wanted for schema_id in self._games.get(key, [])}
        used |= {self._ids[mark] for mark in fingerprints if mark in self._ids}
        return _read_schemas(self._connection, used) if used else {}

    def _schema_id(self, wish: _Wish) -> int:
        if wish.fingerprint not in self._ids:
            values = {
                "fingerprint": wish.fingerprint,
                "format": FORMAT,
                "message": wish.message,
                "descriptor": wish.descriptor,
                "created_at": self._now,
            }
            query = insert(schemas).values(values).returning(schemas.c.schema_id)
            schema_id = int(self._connection.execute(query).scalar_one())
            self._ids[wish.fingerprint] = schema_id
            self._schemas[schema_id] = Schema(schema_id, FORMAT, wish.message, wish.descriptor)
        return self._ids[wish.fingerprint]

    def _check(self, wish: _Wish, held: list[int], schema_id: int) -> None:
        for version, earlier in enumerate(held, start=1):
            pair = (earlier, schema_id)
            if pair not in self._changes:
                old, new = (self._schemas[each] for each in pair)
                change = compare(describe(old.message, old.descriptor), describe(new.message, new.descriptor))
                self._changes[pair] = change if isinstance(change, Breaking) else None
            if (breaking := self._changes[pair]) is not None:
                raise Refused(
                    f"The message {shown(wish.message)} cannot follow version {version} of the game "
                    f"{shown(wish.game)}; keep what is there and only add:{_listed(breaking.reasons)}"
                )
