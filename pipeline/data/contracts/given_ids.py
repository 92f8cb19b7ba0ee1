"""The schema ids that were given, with what each means: small files in `registrations`, the folder beside bronze.

Bronze's rows have these ids for ever, and a control store that is an older copy would give them again. So a number is
taken here, once, before the store has it. Called by what registers schemas, and by what reads schema sets.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import IntegrityError

from pipeline.base.errors import Conflict, Refused, Transient
from pipeline.base.failpoints import effect
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.kept_registrations import (
    NOTHING,
    PREFIX,
    Kept,
    KeptRegistrations,
    as_line,
    of_line,
    stored_registrations,
)
from pipeline.data.contracts.origins import Origin
from pipeline.lake.storage.location import Location
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import schemas
from pipeline.store.writers import lock

_T = TypeVar("_T")
_ATTEMPTS: Final = 20
_FOLDER: Final = "registrations"
_log: Final = logging.getLogger("turnout")
_AT_ONCE: Final = 16  # requests to a bucket
_MOST_SHOWN: Final = 5


class IdTaken(Conflict):
    """Another process took the same numbers first; nothing was taken."""


@dataclass(frozen=True, slots=True)
class GivenId:
    """One number, and what it means."""

    schema_id: int
    fingerprint: str
    format: str
    message: str  # full name, for people
    origin: Origin | None = field(default=None, compare=False)  # of a schema that nobody declared


class GivenIds:
    """The numbers that were ever given in one environment.

    Each file has the numbers of one registration, one in most cases, and is named by the lowest number that was free
    then: processes that take numbers at the same time, even with two stores, want the same name, and one gets it. A
    number without a schema in the store was lost with an older copy of it, or its registration was killed; only the
    very same schema gets it again.
    """

    def __init__(self, bronze: Location) -> None:
        """Read and write beside this table; nothing is read yet."""
        self.folder = bronze.parent / _FOLDER
        self._files: Mapping[int, tuple[GivenId, ...]] = {}
        self.by_id: Mapping[int, GivenId] = {}
        self.by_fingerprint: Mapping[str, GivenId] = {}
        self.highest = 0
        """The highest number that is taken."""
        self.kept = KeptRegistrations()
        """What games registered, in files beside those of the numbers."""
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read what was taken since the last time.

        Raises:
            Refused: a file is damaged.
            OSError: the place cannot be read.
        """
        with self._lock:
            names = [each.name for each in self.folder.files() if each.name.isascii()]
            new = {int(each) for each in names if each.isdigit()} - self._files.keys()
            placed = {each.removeprefix(PREFIX) for each in names if each.startswith(PREFIX)}
            new_placed = {int(each) for each in placed if each.isdigit()} - self.kept.files.keys()
            self._adopt({**self._files, **self._read_all("", new, _of_json)})
            self.kept.adopt(self._read_all(PREFIX, new_placed, of_line))

    def take(self, new: Iterable[GivenId]) -> None:
        """Take numbers, all or none, durably. Nothing is taken without any.

        Raises:
            IdTaken: another process took numbers since the last `refresh`.
            OSError: the place cannot be written.
        """
        taken = tuple(sorted(new, key=lambda each: each.schema_id))
        if not taken:
            return
        with self._lock:
            name = self.highest + 1
            self._put(
                str(name), (json.dumps(_as_json(each), ensure_ascii=True) for each in taken), published="publish_id"
            )
            self._adopt({**self._files, name: taken})

    def keep(self, registrations: Iterable[Kept]) -> None:
        """Keep registrations, all or none, durably; those that are kept like this already change nothing.

        Raises:
            IdTaken: another process kept some since the last `refresh`.
            OSError: the place cannot be written.
        """
        with self._lock:
            if new := self.kept.new(registrations):
                number = self.kept.next_file
                self._put(f"{PREFIX}{number}", map(as_line, new), published="publish_placed")
                self.kept.adopt({number: new})

    def computed(self, key: GameKey) -> dict[str, tuple[GivenId, Origin]]:
        """Return the schemas of a game that nobody declared, as last read, by fingerprint in the order of their ids.

        A game with the same columns as another one has that one's schema, which its own registration says.
        """
        found = {each.fingerprint: (each, each.origin) for each in self.by_id.values() if each.origin is not None}
        own = {name: pair for name, pair in found.items() if pair[1].game_key == key}
        for name, origin in self.kept.origins.get(key, {}).items():
            if name not in own and (given := self.by_fingerprint.get(name)) is not None:
                own[name] = given, origin
        return dict(sorted(own.items(), key=lambda each: each[1][0].schema_id))

    def _put(self, name: str, lines: Iterable[str], *, published: str) -> None:
        file, content = self.folder / name, "".join(f"{line}\n" for line in lines).encode()
        with effect("make_folder"):
            self.folder.make()
        # A lost reply is no lost race, nor is another process that took the same numbers for the same schemas.
        if not file.put_if_absent(content, drafted="draft_id", published=published) and file.read() != content:
            raise IdTaken(f"{file} was written by another process")

    def _read_all(self, prefix: str, numbers: Iterable[int], parsed: Callable[[str], _T]) -> dict[int, tuple[_T, ...]]:
        new, read = sorted(numbers), partial(self._read, prefix, parsed)
        if self.folder.is_far and len(new) > 1:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return dict(zip(new, pool.map(read, new), strict=True))
        return {each: read(each) for each in new}

    def _read(self, prefix: str, parsed: Callable[[str], _T], number: int) -> tuple[_T, ...]:
        file = self.folder / f"{prefix}{number}"
        try:
            return tuple(parsed(line) for line in file.read_text().split("\n") if line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(
                f"{file} is damaged, so which schemas have which ids is not known ({error}). Put it back from a backup."
            ) from error

    def _adopt(self, files: Mapping[int, tuple[GivenId, ...]]) -> None:
        by_id: dict[int, GivenId] = {}
        by_fingerprint: dict[str, GivenId] = {}
        for each in (each for _, held in sorted(files.items()) for each in held):
            by_id.setdefault(each.schema_id, each)
            by_fingerprint.setdefault(each.fingerprint, each)
        self._files, self.by_id, self.by_fingerprint = files, by_id, by_fingerprint
        self.highest = max([0, *files, *by_id])


class NewIds:
    """The ids of new schemas in one transaction; the store's lock is held until its end."""

    def __init__(self, connection: Connection, given: GivenIds | None) -> None:
        """Take ids where `given` says, as it was last read; None: the store alone counts, as in tests."""
        self._connection, self._given = connection, given
        self.origins: Mapping[str, Origin] = {}
        """The origins of the schemas to register that nobody declared, by fingerprint."""
        self._stored: dict[int, str] | None = None  # fingerprints by id; None: not read yet
        self._highest = 0 if given is None else given.highest
        self._new: list[GivenId] = []
        self._registered: list[Kept] = []

    def of(self, fingerprint: str, format_name: str, message: str) -> int:
        """Return the id of a schema that the store lacks: the one it once had, or the next free one."""
        if self._stored is None:
            self._stored = stored_ids(self._connection)
            self._highest = max([self._highest, *self._stored])
        known = None if self._given is None else self._given.by_fingerprint.get(fingerprint)
        if known is not None and known.schema_id not in self._stored:
            schema_id = known.schema_id
        else:
            schema_id = self._highest = self._highest + 1
            self._new.append(GivenId(schema_id, fingerprint, format_name, message, self.origins.get(fingerprint)))
        self._stored[schema_id] = fingerprint
        return schema_id

    def kept(self, key: GameKey) -> Mapping[str, Kept]:
        """Return what a game ever registered, by fingerprint, also where the store has lost it."""
        return NOTHING if self._given is None else self._given.kept.by_game.get(key, NOTHING)

    def keep(self, registration: Kept) -> None:
        """Note a registration; `take` keeps it."""
        self._registered.append(replace(registration, origin=self.origins.get(registration.fingerprint)))

    def take(self) -> None:
        """Take ids and keep registrations; call it last, right before the commit: what is refused takes none.

        Raises:
            IdTaken: another process was first; read what is given, and repeat the transaction.
            OSError: the place cannot be written.
        """
        if self._new and self._given is not None:
            new = {each.schema_id for each in self._new}
            earlier = (each for each in untaken(self._connection, self._given) if each.schema_id not in new)
            self._given.take([*earlier, *self._new])
        if self._given is not None:
            self._given.keep(self._registered)


def with_ids(
    engine: Engine,
    given: GivenIds | None,
    is_new: Callable[[Connection], bool],
    act: Callable[[Connection, NewIds], _T],
) -> _T:
    """Run a transaction that may add schemas, under the lock of the store's numbers, and take the ids of new ones.

    Args:
        engine: the control store.
        given: where ids are taken; it is read before the store is locked, and only where something is new.
        is_new: whether the store lacks one of the schemas or registrations.
        act: the transaction's work; it is repeated where another process was first.

    Raises:
        OSError: the place where ids are taken cannot be used; nothing was written.
        Transient: other processes were first each time.
    """
    for attempt in range(_ATTEMPTS):
        if given is not None:
            with engine.connect() as connection:
                reads = attempt > 0 or is_new(connection)
            if reads:
                given.refresh()
        try:
            with writing(engine) as connection:
                lock(connection)
                ids = NewIds(connection, given)
                done = act(connection, ids)
                ids.take()
                return done
        except (IntegrityError, IdTaken):  # another process has just taken an id or a version: read again
            continue
    raise Transient(f"others registered schemas of the same games during all {_ATTEMPTS} attempts")


class StoreAge:
    """Whether the control store is an older copy than the tables, for one driver.

    Rows of ids that the store has lost go to quarantine; this says so before one comes, and until the store has them.
    """

    def __init__(self, engine: Engine, bronze: Location) -> None:
        """Look now, and take the ids of the store that nobody took: an earlier turnout gave them.

        Raises:
            OSError: the place where ids are taken cannot be used.
        """
        self._engine, self._given = engine, GivenIds(bronze)
        _take_stored(engine, self._given)
        self._lost = self._look()
        if self._lost:
            _log.warning("%s", shown_lost(self._lost))

    def trouble(self) -> str | None:
        """Return that the store is older, as a clause, as long as it is; a store that does not answer raises."""
        if self._lost:
            self._lost = self._look()
        return shown_lost(self._lost) if self._lost else None

    def _look(self) -> dict[int, str]:
        with self._engine.connect() as connection:
            return lost(stored_ids(connection), self._given)


def _take_stored(engine: Engine, given: GivenIds) -> None:
    for _ in range(_ATTEMPTS):
        given.refresh()
        with engine.connect() as connection:
            missing, stored = untaken(connection, given), stored_registrations(connection)
        kept = given.kept.by_game
        try:
            given.take(missing)
            given.keep(each for each in stored if each.fingerprint not in kept.get(each.game_key, NOTHING))
        except IdTaken:
            continue
        return


def untaken(connection: Connection, given: GivenIds) -> list[GivenId]:
    """Return the ids of the store that nobody took: an earlier turnout gave them, or files were lost."""
    missing = sorted(stored_ids(connection).keys() - given.by_id.keys())
    return [] if not missing else [each for each in _rows(connection) if each.schema_id in set(missing)]


def lost(stored: Mapping[int, str], given: GivenIds) -> dict[int, str]:
    """Return what the ids mean that were given, as last read, and that the store lacks or has for another schema.

    `stored` are the fingerprints of the store by id.
    """
    return {number: each.message for number, each in given.by_id.items() if stored.get(number) != each.fingerprint}


def shown_lost(ids: Mapping[int, str]) -> str:
    """Return for people that a store has lost ids, as a clause."""
    number = len(ids)
    named = join_limited([f"{schema_id} ({shown(message)})" for schema_id, message in sorted(ids.items())], _MOST_SHOWN)
    return (
        f"the control store is older than bronze by {number} registration{'' if number == 1 else 's'}: "
        f"restore its newest copy, or register again schema {named}"
    )


def lacks_schemas(connection: Connection, fingerprints: Iterable[str]) -> bool:
    """Return whether the store lacks one of these schemas."""
    wanted = set(fingerprints)
    return bool(wanted) and not wanted <= set(stored_ids(connection).values())


def stored_ids(connection: Connection) -> dict[int, str]:
    """Return the fingerprints of the store's schemas by id."""
    rows = connection.execute(select(schemas.c.schema_id, schemas.c.fingerprint))
    return {row.schema_id: row.fingerprint for row in rows}


def _rows(connection: Connection) -> list[GivenId]:
    columns = (schemas.c.schema_id, schemas.c.fingerprint, schemas.c.format, schemas.c.message)
    return [GivenId(*row) for row in connection.execute(select(*columns).order_by(schemas.c.schema_id))]


def _as_json(each: GivenId) -> Mapping[str, Any]:
    own = {"id": each.schema_id, "fingerprint": each.fingerprint, "format": each.format, "message": each.message}
    return own if each.origin is None else own | {"origin": each.origin.as_json()}


def _of_json(line: str) -> GivenId:
    kept = json.loads(line)
    origin = None if "origin" not in kept else Origin.of_json(kept["origin"])
    return GivenId(int(kept["id"]), str(kept["fingerprint"]), str(kept["format"]), str(kept["message"]), origin)
