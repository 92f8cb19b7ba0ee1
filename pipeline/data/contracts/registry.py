"""The registry of payload schemas in the control store: which game may send which schemas, since which version.

Append-only, with the writers that registries of others answered, the profiles of sources and the output contracts. A
schema set is a pure function of its version, so a pass can pin one by its number.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey
from pipeline.data.contracts.given_ids import GivenIds, NewIds, lost, stored_ids, with_ids
from pipeline.data.contracts.kept_registrations import lacks_any
from pipeline.data.contracts.plans import RegistrationPlan
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.profile import SourceProfile, dumps, loads
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import CheckedRegistration, Registered, Registration, ready
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema, SchemaSet, Writer
from pipeline.data.contracts.stored_registrations import read_names, read_placed
from pipeline.data.contracts.stored_schemas import read_schemas
from pipeline.data.output_contracts.rules import OutputContract, by_game
from pipeline.data.output_contracts.rules import loads as contracts_of
from pipeline.lake.delta.bronze import PROFILE, profile_texts
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.storage.location import Location
from pipeline.store.database.engine import STORE_AWAY
from pipeline.store.output_contracts import contracts_in
from pipeline.store.writers import latest_and_mark, latest_number, number_of_definition, read_profiles, read_writers

__all__ = ["LocalRegistry", "Registered", "Registration", "Schema", "SchemaSet", "number_of_profile"]

_log: Final = logging.getLogger("turnout")
_KEPT_SETS: Final = 4
_EMPTY: Final = SchemaSet(0, {}, {})


class LocalRegistry:
    """Registers schemas in the control store and reads them back."""

    def __init__(self, engine: Engine, bronze: Location | None = None) -> None:
        """Use an opened control store.

        Args:
            engine: the store.
            bronze: whose properties say what the profiles of its rows are, and beside which the given schema ids stand,
                also where the store has lost them; None: the store alone counts.
        """
        self._engine, self._bronze = engine, bronze
        self._given = None if bronze is None else GivenIds(bronze)
        self._in_bronze: dict[int, SourceProfile] | None = None  # None: not read yet
        self._sets: dict[int, SchemaSet] = {}
        self._newest = _EMPTY  # a newer one is read on top of it
        self._schemas: dict[int, Schema] = {}
        self._meanings: dict[Writer, Writer] = {}  # equal ones are one object: a pickled set is a third as long

    def plan(self, registration: Registration) -> RegistrationPlan:
        """Return what a registration would do now; writes nothing, and the plan may have refused changes.

        Raises:
            Refused: a name, or a definition that no table can hold; or the store has lost schemas of the game; or the
                place beside bronze cannot be reached, where registrations are kept.
        """
        registrations = ready([registration])
        with self._planning(registrations) as batch:
            return batch.plan(batch.registrations[0])

    def plan_all(self, registering: Iterable[Registration]) -> list[RegistrationPlan]:
        """Return what registrations of known schemas would do now, each on top of those before; writes nothing.

        Raises:
            Refused: as of `register_many`.
        """
        registrations = ready(registering)
        with self._planning(registrations) as batch:
            return batch.plan_all()

    def require_possible(self, registration: Registration) -> RegistrationPlan:
        """Return what a registration would do now, where it can be done; writes nothing.

        Raises:
            Refused: as of `register_many`.
        """
        registrations = ready([registration])
        with self._planning(registrations) as batch:
            return batch.require_possible(batch.registrations[0])

    @contextmanager
    def _planning(self, registrations: list[CheckedRegistration]) -> Iterator[RegistrationBatch]:
        with self._engine.connect() as connection:
            if self._given is not None and _lacks(registrations)(connection):
                try:
                    self._given.refresh()
                except OSError as error:
                    raise self._no_place(error) from error
            yield RegistrationBatch(connection, registrations, NewIds(connection, self._given))

    def register(self, game: str, message: str, definition: bytes, policies: Policies = DEFAULTS) -> Registered:
        """Register one schema; see `register_many`."""
        return self.register_many([Registration(game, message, definition, policies)])[0]

    def register_many(
        self,
        registering: Iterable[Registration],
        within: Callable[[Connection, list[Registered]], None] | None = None,
    ) -> list[Registered]:
        """Register schemas in the given order, all or none, each exactly as planned.

        `within` is called in the same transaction: where it refuses, nothing is registered.

        A schema that a game already has changes nothing. A schema with quarantined rows may be registered again, with
        policies by which its rows land from then on.

        Raises:
            Refused: a name, a definition, a change whose policy is to refuse, or a plan other than the one shown; the
                store has lost schemas of the game; or the place beside bronze cannot be reached, where the ids of new
                schemas are taken.
            Transient: the control store is busy or away, or others kept registering the same.
        """
        registrations = ready(registering)

        def register(connection: Connection, ids: NewIds) -> list[Registered]:
            done = RegistrationBatch(connection, registrations, ids).write()
            if within is not None:
                within(connection, done)
            return done

        try:
            return with_ids(self._engine, self._given, _lacks(registrations), register)
        except STORE_AWAY as error:
            raise Transient(f"the control store did not take the registration: {first_line(error)}") from error
        except OSError as error:
            raise self._no_place(error) from error

    def _no_place(self, error: OSError) -> Refused:
        return Refused(
            f"A new schema gets its id in {self._given and self._given.folder}, which does not serve "
            f"({first_line(error)}), so nothing was registered. Make it reachable, then register again."
        )

    def latest_version(self) -> int:
        """Return the version of the newest schema set; 0 when nothing is registered."""
        with self._engine.connect() as connection:
            return latest_number(connection)

    def snapshot(self, at_version: int | None = None) -> SchemaSet:
        """Return the schema set of a version, the newest by default.

        Raises:
            Refused: that version does not exist yet.
        """
        if at_version is not None and at_version in self._sets:
            return self._sets[at_version]
        with self._engine.connect() as connection:
            newest = self._newest
            latest, mark = latest_and_mark(connection, newest.version)
            if newest.version > latest or mark != newest.mark:
                self._forget()  # an older copy of the store was restored: its numbers mean others
            version = latest if at_version is None else at_version
            if not 0 <= version <= latest:
                raise Refused(f"Schema set {version} does not exist; the newest is {latest}. Name one up to that.")
            if version not in self._sets:
                schemas = self._read(connection, version)
                self._newest = max(self._newest, schemas, key=_version)
                self._sets = dict([*self._sets.items(), (version, schemas)][-_KEPT_SETS:])
                return schemas
        return self._sets[version]

    def _forget(self) -> None:
        self._newest, self._schemas, self._sets, self._in_bronze = _EMPTY, {}, {}, None

    def look_in_bronze(self) -> None:
        """Read the profiles of bronze's rows again, such as when no schema set has the profile of a row.

        Read the given ids beside it, too.
        """
        before, self._in_bronze = self._in_bronze, {} if self._bronze is None else _kept_in(self._bronze)
        if self._given is not None:
            self._given.refresh()
        if before != self._in_bronze:
            self._newest, self._sets = _EMPTY, {}

    def _read(self, connection: Connection, version: int) -> SchemaSet:
        if self._in_bronze is None:
            self.look_in_bronze()
        base = self._newest if self._newest.version <= version else _EMPTY

        def before(key: GameKey) -> dict[int, FieldPlacement]:
            return {schema_id: base.placement(key, schema_id) for schema_id in base.games.get(key, ())}

        changed = read_placed(connection, base.version, version, before)
        used = {schema_id for held in changed.values() for schema_id in held}
        if missing := used - self._schemas.keys():
            self._schemas |= read_schemas(connection, missing)
        elsewhere = {key: {each: at for each, at in held.items() if at != PLAIN} for key, held in changed.items()}
        known = {schema_id: self._schemas[schema_id] for schema_id in used}
        stored = stored_ids(connection)
        gone = {} if self._given is None else lost(stored, self._given)
        games = {**base.games, **{key: tuple(held) for key, held in changed.items()}}
        if others := gone.keys() & stored.keys():  # rows of these ids mean schemas that this store does not have
            games = {key: tuple(each for each in held if each not in others) for key, held in games.items()}
        schemas = dict(sorted({**base.schemas, **known}.items()))
        return SchemaSet(
            version=version,
            games=games,
            schemas=schemas,
            fingerprints={schema_id: stored[schema_id] for schema_id in schemas},
            lost=gone,
            mark=latest_and_mark(connection, version)[1],
            placements={key: held for key, held in {**base.placements, **elsewhere}.items() if held},
            writers={**base.writers, **self._read_writers(connection, base.version, version)},
            # Rows have the numbers of bronze: an older copy of the store may have given one away again.
            profiles={**base.profiles, **_read_profiles(connection, base.version, version), **(self._in_bronze or {})},
            contracts=_read_contracts(connection, version),
        )

    def _read_writers(self, connection: Connection, above: int, up_to: int) -> dict[tuple[str, bytes], Writer]:
        found = {}
        for row in read_writers(connection, above, up_to):
            writer = Writer(row.schema_id, row.refused, row.indexed)
            found[sys.intern(row.registry), row.writer] = self._meanings.setdefault(writer, writer)
        return found


def _lacks(registrations: list[CheckedRegistration]) -> Callable[[Connection], bool]:
    wanted = {(each.key, each.fingerprint) for each in registrations}
    return lambda connection: lacks_any(connection, wanted)


def number_of_profile(engine: Engine, profile: SourceProfile) -> int:
    """Return a profile's number, giving it one the first time; a changed profile gets another number."""
    return number_of_definition(engine, dumps(profile))


def _read_contracts(connection: Connection, version: int) -> dict[GameKey, tuple[OutputContract, ...]]:
    """Return the output contracts that count at a version, by game."""
    listed = contracts_of(contracts_in(connection, 0, version).contracts)
    names = read_names(connection, version) if any(each.prefixes or each.by_rules for each in listed) else {}
    return by_game(listed, names)


def _read_profiles(connection: Connection, above: int, up_to: int) -> dict[int, SourceProfile]:
    return {number: loads(text) for number, text in read_profiles(connection, above, up_to).items()}


def _kept_in(bronze: Location) -> dict[int, SourceProfile]:
    """Return the profiles that bronze's properties hold; rows wait whose one cannot be read (law L14)."""
    try:
        texts = profile_texts(bronze)
    except TableNotFoundError:
        return {}
    kept = {}
    for number, text in texts.items():
        try:
            kept[number] = loads(text)
        except Refused as refused:
            _log.error("bronze's table property %s%d cannot be used: %s", PROFILE, number, refused)
    return kept


def _version(schemas: SchemaSet) -> int:
    return schemas.version
