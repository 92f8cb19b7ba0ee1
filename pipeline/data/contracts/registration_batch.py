"""Registrations in the control store: read, planned on top of each other, and written in one transaction.

Called by the registry only. Rows are added, never changed: a repeated registration of a schema replaces its earlier one
in every later schema set.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from sqlalchemy import Connection, insert, select

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import first_lines
from pipeline.data.contracts.ages import UNKNOWN, Age, Ages, after
from pipeline.data.contracts.declared_types import FORMAT, without_older
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.formats.supported import message
from pipeline.data.contracts.game_types import (
    Typed,
    acceptance,
    first_of,
    judged,
    names_of,
    other_type,
    refusal,
    rename,
    restored,
    undeclared,
    withdrawn,
)
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.kept_registrations import REMARK, Kept, in_older_store
from pipeline.data.contracts.model import remarks
from pipeline.data.contracts.plans import TYPE, RegistrationPlan, Step
from pipeline.data.contracts.policies import Policies, lands
from pipeline.data.contracts.registrations import CheckedRegistration, Registered, by_rules, unattended
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.contracts.shape import has_columns, placed_columns, table_schema
from pipeline.data.contracts.stored_registrations import REGISTERED, placement_values, take_up
from pipeline.data.contracts.stored_schemas import read_ages, read_ids, read_schemas, write_schema
from pipeline.data.contracts.structs import by_struct, free_name, require_room, taken_names
from pipeline.store.database.tables import placements, registrations
from pipeline.store.writers import latest_number

_SHOWN_REASONS: Final = 10


class RegistrationBatch:
    """The store's content for the games; each registration is planned on top of it and of those before."""

    def __init__(
        self, connection: Connection, registrations: list[CheckedRegistration], ids: NewIds | None = None
    ) -> None:
        """Read the store's content for these registrations; `ids` are those of new schemas."""
        self._connection = connection
        self._new_ids = ids or NewIds(connection, None)
        self.registrations = by_rules(connection, registrations)
        self._now = time.time()
        keys = {checked.key for checked in registrations}
        only = next(iter(keys)) if len(keys) == 1 else None
        self._held: dict[GameKey, dict[int, FieldPlacement]] = {}
        self._versions: dict[tuple[GameKey, int], int] = {}  # the newest of each game and schema
        self._newest: dict[GameKey, int] = {}
        self._began: dict[GameKey, dict[int, str | None]] = {}  # in the order of first registrations, and from where
        self._ages: Mapping[int, Age] | None = None  # as registries say; None: not read yet
        self._read_registered(only)
        self._ids = read_ids(connection, {checked.fingerprint for checked in registrations})
        used = {schema_id for key in keys for schema_id in self._held.get(key, {})}
        used |= {self._ids[checked.fingerprint] for checked in registrations if checked.fingerprint in self._ids}
        self._schemas = read_schemas(connection, used)
        self.registrations = [self._as_it_came(checked) for checked in self.registrations]

    def _as_it_came(self, checked: CheckedRegistration) -> CheckedRegistration:
        """Return an acceptance with the policies by which its schema came, as of a registry, below those chosen now."""
        schema_id = self._ids.get(checked.fingerprint)
        if not checked.new_type or schema_id is None:
            return checked
        query = select(placements.c.policies).join(registrations).order_by(registrations.c.registration_id)
        came: dict[str, str] = {}
        for text in self._connection.scalars(
            query.where(registrations.c.game_key == checked.key, registrations.c.schema_id == schema_id)
        ):
            came |= json.loads(text)
        return replace(checked, policies=Policies(tuple(sorted({**came, **dict(checked.policies.chosen)}.items()))))

    def plan_all(self) -> list[RegistrationPlan]:
        """Return what all of them would do, each on top of those before; nothing is written."""
        plans = []
        for checked in self.registrations:
            plans.append(plan := self.require_possible(checked))
            for each in sorted([plan, *plan.with_it], key=lambda one: one.version):
                self._adopt(checked, each, self._ids[each.fingerprint])
        return plans

    def plan(self, checked: CheckedRegistration) -> RegistrationPlan:
        """Return what a registration would do now."""
        if checked.withdraws:
            return self._withdrawal(checked)
        if checked.undeclares:
            return self._undeclaration(checked)
        if checked.nests is not None:
            return self._nesting(checked, checked.nests or None)
        return self._of_schema(checked)

    def _of_schema(self, checked: CheckedRegistration) -> RegistrationPlan:
        """Return what the registration of a schema would do."""
        held = self._held.get(checked.key, {})
        schema_id = self._ids.get(checked.fingerprint)
        before = None if schema_id is None else held.get(schema_id)
        is_other = before is not None and before.other_type
        stays = before is not None and (before.quarantined is None or (checked.unattended and not is_other))
        if schema_id is not None and before is not None and stays:
            version = self._versions[checked.key, schema_id]
            return RegistrationPlan(
                checked.game, checked.message, checked.fingerprint, version, new=False, steps=(), placement=before
            )
        version = self._newest.get(checked.key, 0) + 1
        notes = tuple(remarks(message(checked.schema)))
        kept, unattended = self._new_ids.kept(checked.key), checked.unattended
        if (
            settled := in_older_store(checked.game, checked.fingerprint, kept, held, unattended=unattended)
        ) is not None:
            new, notes = before is None or settled.quarantined is None, (*notes, REMARK)
            return RegistrationPlan(
                checked.game, checked.message, checked.fingerprint, version, new, (), settled, notes
            )
        typed = self._typed(checked)
        with_it: list[RegistrationPlan] = []
        if typed.is_other:
            steps, placement = other_type(first_of(self._types(checked.key)), checked.message)
        else:
            held, coming = dict(held), self._coming(checked, typed.struct)
            places = list(self._began.get(checked.key, ()))
            place = places.index(schema_id) if schema_id is not None and is_other else len(places)
            earlier = [each for each in coming if places.index(each) < place]
            with_it += [self._comes(checked, each, held, version + at, typed) for at, each in enumerate(earlier)]
            version += len(earlier)
            steps, placement = self._evolve(checked, held, typed.struct)
            if schema_id is not None:
                held[schema_id] = placement
            later = coming[len(earlier) :]
            with_it += [self._comes(checked, each, held, version + at, typed) for at, each in enumerate(later, start=1)]
            waited = [self._versions[checked.key, each] for each in coming]
            if typed.accepted and typed.struct is not None:
                steps = (acceptance(checked.message, typed.struct, waited), *steps)
            if typed.continues is not None:
                steps = (rename(checked.message, typed.continues, waited), *steps)
            elif before is not None:
                typed = replace(typed, continues=before.continues)
        placement = replace(placement, continues=typed.continues)
        new = before is None or placement.quarantined is None or is_other != placement.other_type
        return RegistrationPlan(
            checked.game, checked.message, checked.fingerprint, version, new, steps, placement, notes, tuple(with_it)
        )

    def _withdrawal(self, checked: CheckedRegistration) -> RegistrationPlan:
        """Return the plan by which the next rows of a schema wait, and those that landed stay."""
        schema_id = self._ids.get(checked.fingerprint, 0)
        at = self._held.get(checked.key, {}).get(schema_id)
        if at is None or at.other_type or at.struct is None:
            raise Refused(
                f"{shown(checked.message)} is not a further event type of the game {shown(checked.game)}. "
                f"`turnout schemas types` shows which are."
            )
        what = f"is no event type of the game any more; the column {at.struct} stays"
        step = Step(checked.message, TYPE, "withdraw", what, new_rows="go to quarantine")
        version, placement = self._newest.get(checked.key, 0) + 1, withdrawn(checked.message, at)
        return RegistrationPlan(checked.game, checked.message, checked.fingerprint, version, True, (step,), placement)

    def _undeclaration(self, checked: CheckedRegistration) -> RegistrationPlan:
        """Return the plan by which an event type goes by its superset again instead of by a declared schema."""
        placed = self.placed(checked.key)
        own, name = self._ids.get(checked.fingerprint, 0), event_type(checked.message)
        of_type = [(schema, at) for schema, at in placed if event_type(schema.message) == name]
        found = next((at for schema, at in of_type if schema.schema_id == own and schema.format == FORMAT), None)
        if found is None or found.quarantined is not None or all(schema.format != UNDECLARED for schema, _ in of_type):
            raise Refused(
                f"{shown(checked.message)} of the game {shown(checked.game)} has no such declared schema beside the "
                f"columns of its documents."
            )
        what = "is declared no more; its columns stay"
        step = Step(checked.message, TYPE, "undeclare", what, new_rows="land by what documents of the type held")
        version = self._newest.get(checked.key, 0) + 1
        given = checked.game, checked.message, checked.fingerprint, version
        return RegistrationPlan(*given, True, (step,), undeclared(found))

    def _nesting(self, checked: CheckedRegistration, struct: str | None) -> RegistrationPlan:
        """Return the plan by which a schema's fields lie in a column of its type, or are columns of the table again.

        Rows that landed before follow by a rebuild.
        """
        schema_id, held = self._ids.get(checked.fingerprint, 0), self._held.get(checked.key, {})
        at = held.get(schema_id)
        if at is None or at.other_type or at.struct == struct:
            raise Refused(
                f"The fields of {shown(checked.message)} in the game {shown(checked.game)} lie there already."
            )
        placement = replace(at, struct=struct)
        if struct is None:
            _require_distinct(checked, placement, by_struct((self._schemas[e], one) for e, one in held.items()).keys())
        where = "are columns of the table again" if struct is None else f"lie in the column {struct}"
        kind = None if struct is None else "struct"
        old = "follow by the rebuild"
        policy = "flatten" if struct is None else "nest"
        step = Step(checked.message, TYPE, policy, f"its fields {where}", struct, kind, old)
        version = self._newest.get(checked.key, 0) + 1
        return RegistrationPlan(checked.game, checked.message, checked.fingerprint, version, True, (step,), placement)

    def _types(self, key: GameKey) -> dict[str | None, tuple[str, ...]]:
        """Return the names of each of a game's event types, the newest one last, by the column of its fields.

        None before its first schema. A name that one of its schemas had before, as an alias says, is one of them,
        whichever came first.
        """
        held = self._held.get(key, {}).items()  # beside a schema that is declared no more stands its superset
        own = {each: at for each, at in held if not at.other_type and not at.undeclared}
        structs = sorted({at.struct for at in own.values()}, key=lambda each: each or "")
        return {
            each: self._names(key, {number: at for number, at in own.items() if at.struct == each}) for each in structs
        }

    def _names(self, key: GameKey, held: Mapping[int, FieldPlacement]) -> tuple[str, ...]:
        """Return the names of one event type, by its schemas."""
        began = (each for each in self._began.get(key, {}) if each in held and held[each].continues is None)
        named = [self._schemas[each].message for each in islice(began, 1)]
        named += [self._schemas[each].message for each, at in held.items() if at.continues is not None]
        before = [message(self._schemas[each]).aliases for each in held]
        return tuple(dict.fromkeys(event_type(each) for each in [*sorted({*chain(*before)}), *named]))

    def _typed(self, checked: CheckedRegistration) -> Typed:
        types = self._types(checked.key)
        typed = judged(types, checked.game, checked.message, checked.continues, message(checked.schema).aliases)
        if typed.is_other and checked.new_type and not (checked.unattended and self._was_withdrawn(checked)):
            return Typed(struct=self._struct_of(checked), accepted=True)
        if typed.is_other and not checked.unattended:
            raise refusal(first_of(types), checked.game, checked.message)
        return typed

    def _was_withdrawn(self, checked: CheckedRegistration) -> bool:
        """Whether a person withdrew the event type, which no rule accepts again."""
        held, names = self._held.get(checked.key, {}), names_of(checked.schema)
        return any(at.withdrawn and names & names_of(self._schemas[each]) for each, at in held.items())

    def _struct_of(self, checked: CheckedRegistration) -> str:
        """Return the column of an event type that is accepted: the one that it had, or a new one."""
        held, names = self._held.get(checked.key, {}), names_of(checked.schema)
        placed = [(self._schemas[each], at) for each, at in held.items()]
        had = (at.struct for schema, at in placed if at.withdrawn and names & names_of(schema))
        return next((each for each in had if each is not None), None) or free_name(checked.message, taken_names(placed))

    def _coming(self, checked: CheckedRegistration, struct: str | None) -> list[int]:
        """Return what waits as another type and is of the schema's with this one, in the order of registration."""
        held, own = self._held.get(checked.key, {}), self._ids.get(checked.fingerprint)
        waiting = [each for each in self._began.get(checked.key, ()) if held[each].other_type and each != own]
        names = {*self._types(checked.key).get(struct, ()), *names_of(checked.schema)}
        coming: set[int] = set()
        while more := {each for each in waiting if event_type(self._schemas[each].message) in names} - coming:
            coming |= more
            names |= {name for each in more for name in names_of(self._schemas[each])}
        return [each for each in waiting if each in coming]

    def _comes(
        self, checked: CheckedRegistration, schema_id: int, held: dict[int, FieldPlacement], version: int, typed: Typed
    ) -> RegistrationPlan:
        """Return the plan of versions that waited as another type, and add it to `held`; a refused change waits on."""
        by = {"actor": checked.actor, "registry": checked.registry}
        again = unattended(checked.game, checked.key, self._schemas[schema_id], checked.policies, **by)
        self._ids[again.fingerprint] = schema_id
        steps, placement = self._evolve(again, held, typed.struct)
        held.pop(schema_id)
        held[schema_id] = placement
        return RegistrationPlan(again.game, again.message, again.fingerprint, version, True, steps, placement)

    def _evolve(
        self, checked: CheckedRegistration, held: Mapping[int, FieldPlacement], struct: str | None
    ) -> tuple[tuple[Step, ...], FieldPlacement]:
        """Return what a schema changes among those of its event type, and where its fields will lie."""
        schema_id = self._ids.get(checked.fingerprint)
        before = None if schema_id is None else held.get(schema_id)
        if before is not None and before.withdrawn:
            return (), restored(before)
        others = [(self._schemas[each], at) for each, at in held.items() if each != schema_id]
        listed = {schema.schema_id: at for schema, at in without_older(others)}
        own = {e: at for e, at in listed.items() if not at.other_type and at.struct == struct}
        known = tuple((self._schemas[each], at) for each, at in own.items())
        if before is not None and before.undeclared:
            _require_columns(checked, restored(before), known)
            return (), restored(before)
        taken = (
            frozenset(each.lower() for each in by_struct(others) if each is not None) if struct is None else frozenset()
        )
        try:
            if checked.format == UNDECLARED:  # its columns were decided when it was computed
                steps, placement = tuple[Step, ...](), FieldPlacement(superset_of(checked.schema).column_names())
            else:
                ages = self._age(checked, own, schema_id)
                steps, placement = evolve(known, checked.schema, checked.policies, ages, taken)
            placement = replace(placement, struct=struct)
            require_room((*others, (checked.schema, placement)))
        except Refused as refused:
            if not checked.unattended:
                raise
            return (), FieldPlacement(quarantined=f"needs a person: {one_line(str(refused))}", struct=struct)
        if struct is not None:
            steps = tuple(
                each if each.column is None else replace(each, column=f"{struct}.{each.column}") for each in steps
            )
        waiting = next((str(step) for step in steps if step.policy == "refuse"), None)
        if checked.unattended and waiting is not None:
            kept = (replace(step, policy="quarantine") if step.policy == "refuse" else step for step in steps)
            return tuple(kept), FieldPlacement(quarantined=f"needs a person: {waiting}", struct=struct)
        return steps, placement

    def _age(self, checked: CheckedRegistration, own: Collection[int], schema_id: int | None) -> Ages:
        """Return how old a game's schemas are, and a new one.

        A registry counts its versions, and people register theirs in order. A person's new schema is newer than all;
        one that a registry gave before it is not.
        """
        began = self._began.get(checked.key, {})
        if self._ages is None:
            self._ages = read_ages(self._connection, self._schemas)
        ages = {each: self._ages.get(each, UNKNOWN) for each in (*own, *([] if schema_id is None else [schema_id]))}
        for place, (each, registry) in enumerate(began.items()):
            if registry is None and each in ages:
                ages[each] |= {("people", place)}
        held = tuple(ages[each] for each in own)
        new = UNKNOWN if schema_id is None else ages[schema_id]
        if not checked.unattended and schema_id not in began:
            new |= after(held, new)
        return Ages(held, new)

    def write(self) -> list[Registered]:
        """Register all of them.

        Raises:
            Refused: a change is refused, or a plan is not the one that was shown.
        """
        return [self._write(checked) for checked in self.registrations]

    def placed(self, key: GameKey) -> tuple[tuple[Schema, FieldPlacement], ...]:
        """Return a game's schemas with their placements, in the order of their registration, as they are by now."""
        return tuple((self._schemas[each], at) for each, at in self._held.get(key, {}).items())

    def require_possible(self, checked: CheckedRegistration) -> RegistrationPlan:
        """Return what a registration would do now, where it can be done.

        Raises:
            Refused: a change is refused, or the plan is not the one that was shown.
        """
        plan = self.plan(checked)
        if checked.plan_hash is not None and plan.hash != checked.plan_hash:
            raise Refused(
                f"The plan for {shown(checked.message)} of the game {shown(checked.game)} is {plan.hash} now, not "
                f"{checked.plan_hash}: other schemas or policies were registered meanwhile. Review the plan again."
            )
        if plan.refused:
            raise Refused(
                f"The message {shown(checked.message)} cannot follow version {plan.version - 1} of the game "
                f"{shown(checked.game)}; keep the existing fields, or choose a policy:"
                f"{_listed([f'{each} ({each.kind}={lands(each.kind)})' for each in plan.refused])}"
            )
        return plan

    def _write(self, checked: CheckedRegistration) -> Registered:
        plan = self.require_possible(checked)
        schema_id = self._schema_id(checked)
        if not plan.new:
            return Registered(schema_id, self._versions[checked.key, schema_id], new=False)
        for each in sorted([plan, *plan.with_it], key=lambda one: one.version):
            self._insert(checked, each, self._ids[each.fingerprint])
        return Registered(schema_id, plan.version, new=True)

    def _insert(self, checked: CheckedRegistration, plan: RegistrationPlan, schema_id: int) -> None:
        """Write a plan's registration, or that of a version that comes with it."""
        values = {"game_key": checked.key, "game": checked.game, "version": plan.version}
        number = latest_number(self._connection) + 1
        query = insert(registrations).values(registration_id=number, **values, schema_id=schema_id)
        origin = {"actor": checked.actor, "registry": checked.registry}
        self._connection.execute(query.values(created_at=self._now, **origin))
        if plan.placement != PLAIN or checked.policies.chosen:
            self._connection.execute(
                insert(placements).values(registration_id=number, **placement_values(plan, checked.policies))
            )
        self._new_ids.keep(Kept(checked.key, schema_id, plan.fingerprint, plan.message, plan.placement))
        self._adopt(checked, plan, schema_id)

    def _adopt(self, checked: CheckedRegistration, plan: RegistrationPlan, schema_id: int) -> None:
        held = self._held.setdefault(checked.key, {})
        held.pop(schema_id, None)
        held[schema_id] = plan.placement
        self._began.setdefault(checked.key, {}).setdefault(schema_id, checked.registry)
        self._versions[checked.key, schema_id] = self._newest[checked.key] = plan.version

    def _read_registered(self, key: GameKey | None) -> None:
        """Read a game's registrations, or all games', in one statement.

        Two statements would see two states of an SQLite store, and take a used version for free.
        """
        query = REGISTERED if key is None else REGISTERED.where(registrations.c.game_key == key)
        for row in self._connection.execute(query):
            take_up(self._held.setdefault(GameKey(row.game_key), {}), row)
            self._began.setdefault(GameKey(row.game_key), {}).setdefault(row.schema_id, row.registry)
            self._versions[row.game_key, row.schema_id] = self._newest[row.game_key] = row.version

    def _schema_id(self, checked: CheckedRegistration) -> int:
        if checked.fingerprint not in self._ids:
            values = checked.fingerprint, checked.format, checked.message, checked.definition
            schema_id = write_schema(self._connection, self._new_ids, *values, self._now)
            self._ids[checked.fingerprint] = schema_id
            self._schemas[schema_id] = Schema(schema_id, checked.format, checked.message, checked.definition)
        return self._ids[checked.fingerprint]


def _require_distinct(checked: CheckedRegistration, placement: FieldPlacement, structs: Collection[str | None]) -> None:
    """Check that no field of a type whose fields become columns of the table has the name of another type's column."""
    flat = {each.lower() for each in table_schema(((checked.schema, placement),)).names}
    if both := sorted(flat & {each.lower() for each in structs if each is not None}):
        raise Refused(
            f"The field {shown(both[0])} of {shown(checked.message)} cannot be a column of the table: it is the column "
            f"of an event type."
        )


def _require_columns(
    checked: CheckedRegistration, placement: FieldPlacement, known: tuple[tuple[Schema, FieldPlacement], ...]
) -> None:
    """Check that the columns of a schema that is declared again are still those of its event type."""
    if not has_columns(table_schema(known), placed_columns(checked.schema, placement)):
        raise Refused(
            f"Columns of {shown(checked.message)} in the game {shown(checked.game)} were merged since this schema was "
            f"withdrawn. Declare the type as it is now: `turnout schemas declare`."
        )


def _listed(reasons: Iterable[str]) -> str:
    return "".join(f"\n  - {each}" for each in first_lines(list(reasons), _SHOWN_REASONS))
