"""The registry of payload schemas in the control store: which game may send which schemas, since which version.

Append-only. A schema set is a pure function of its version, so a pass can pin one by its number.
"""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import IntegrityError, OperationalError

from pipeline.contracts.plans import RegistrationPlan
from pipeline.contracts.policies import DEFAULTS, Policies
from pipeline.contracts.registrations import (
    Registered,
    Registration,
    RegistrationBatch,
    lock,
    read_placed,
    read_schemas,
    ready,
)
from pipeline.contracts.schemas import PLAIN, Schema, SchemaSet
from pipeline.errors import Refused, Transient
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import registrations

__all__ = ["LocalRegistry", "Registered", "Registration", "Schema", "SchemaSet"]

_ATTEMPTS: Final = 20
_KEPT_SETS: Final = 4


class LocalRegistry:
    """Registers schemas in the control store and reads them back."""

    def __init__(self, engine: Engine) -> None:
        """Use an opened control store."""
        self._engine = engine
        self._sets: dict[int, SchemaSet] = {}
        self._schemas: dict[int, Schema] = {}

    def plan(self, registration: Registration) -> RegistrationPlan:
        """Return what a registration would do now; writes nothing, and the plan may have refused changes.

        Raises:
            Refused: a name, or a definition that no table can hold.
        """
        registrations = ready([registration])
        with self._engine.connect() as connection:
            return RegistrationBatch(connection, registrations).plan(registrations[0])

    def register(self, game: str, message: str, definition: bytes, policies: Policies = DEFAULTS) -> Registered:
        """Register one schema; see `register_many`."""
        return self.register_many([Registration(game, message, definition, policies)])[0]

    def register_many(self, registering: Iterable[Registration]) -> list[Registered]:
        """Register schemas in the given order, all or none, each exactly as planned.

        A schema that a game already has changes nothing. A schema with quarantined rows may be registered again, with
        policies by which its rows land from then on.

        Raises:
            Refused: a name, a definition, a change whose policy is to refuse, or a plan other than the one shown.
            Transient: the control store is busy or away, or others kept registering the same.
        """
        registrations = ready(registering)
        for _ in range(_ATTEMPTS):
            try:
                with writing(self._engine) as connection:
                    lock(connection)
                    return RegistrationBatch(connection, registrations).write()
            except IntegrityError:
                # Another process has just registered and taken an id or a version: read again.
                continue
            except OperationalError as error:
                raise Transient(f"the control store did not take the registration: {error.orig}") from error
        raise Transient(f"others registered schemas of the same games during all {_ATTEMPTS} attempts")

    def latest_version(self) -> int:
        """Return the version of the newest schema set; 0 when nothing is registered."""
        with self._engine.connect() as connection:
            return _latest(connection)

    def snapshot(self, at_version: int | None = None) -> SchemaSet:
        """Return the schema set of a version, the newest by default.

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
                schemas = self._read(connection, version)
                self._sets = dict([*self._sets.items(), (version, schemas)][-_KEPT_SETS:])
                return schemas
        return self._sets[version]

    def _read(self, connection: Connection, version: int) -> SchemaSet:
        games = read_placed(connection, version)
        used = {schema_id for held in games.values() for schema_id in held}
        if missing := used - self._schemas.keys():
            self._schemas |= read_schemas(connection, missing)
        elsewhere = {key: {each: at for each, at in held.items() if at != PLAIN} for key, held in games.items()}
        return SchemaSet(
            version=version,
            games={key: tuple(held) for key, held in games.items()},
            schemas={schema_id: self._schemas[schema_id] for schema_id in sorted(used)},
            placements={key: held for key, held in elsewhere.items() if held},
        )


def _latest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(registrations.c.registration_id))).scalar() or 0)
