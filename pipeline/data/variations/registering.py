"""Registers the shapes of one game's documents that nobody declared: from needs to columns, ids and variations.

Each effect can be the last one before a crash. What is kept beside bronze without being in the store is computed again
from its range, before anything else, and is the same then.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, select

from pipeline.base.errors import Conflict, Refused, Transient
from pipeline.base.failpoints import effect
from pipeline.base.names import GameKey, shown
from pipeline.data.contracts import declared_types
from pipeline.data.contracts.declared_types import FORMAT, SchemasByType, type_named
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.caps import USUAL, Caps
from pipeline.data.contracts.formats.json.choices import chosen
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.shapes import count, form
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.given_ids import GivenId, GivenIds, NewIds, with_ids
from pipeline.data.contracts.kept_registrations import NOTHING
from pipeline.data.contracts.layout import layout
from pipeline.data.contracts.origins import Origin, Place
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import Registration, unattended
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape_needs import SHAPES, of_writer
from pipeline.data.contracts.structs import by_struct
from pipeline.data.variations.bronze_view import BronzeView, KeptFiles
from pipeline.data.variations.computing import Computed, RangeJob, compute, computed_by
from pipeline.data.variations.documents import Documents, FirstRows, Span
from pipeline.lake.storage.location import Location
from pipeline.store.database.tables import registrations, schemas
from pipeline.store.games import Game
from pipeline.store.schema_needs import OpenNeed, end_needs
from pipeline.store.variations import Variation, write_variations

FIRST_ROWS: Final = 1_000
"""The first range of an event type has at most as many of its rows."""
FIRST_SECONDS: Final = 10.0
"""It also ends with the first seq that landed this much later than its first row."""
LATER_ROWS: Final = 100_000
"""Each later range has at most as many rows of its event type."""

_LOOK_BACK: Final = 1_000  # seqs in which rows are looked for that came before the game was approved
_AT_ONCE: Final = 200  # event types of one transaction
_POLL_SECONDS: Final = 1.0  # between two looks whether a first range has ended
_ALL_ROWS: Final = 2**62
_END: Final = 2**31 - 1  # behind the last place of a seq
_ATTEMPTS: Final = 5
_NO_ROWS: Final = Span((0, 0), (0, 0))

_log: Final = logging.getLogger("turnout")


class Superseded(Conflict):
    """Another process registered shapes of the same event type meanwhile; nothing was written."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An event type that a newer superset is needed for."""

    name: str
    place: Place  # of the first row that needs it
    newest: Schema | None  # its newest superset


class Registrar:
    """Registers shapes, of one game after another. Not for several threads."""

    def __init__(self, engine: Engine, bronze: Location, environment: str, caps: Caps = USUAL) -> None:
        """Use a control store and a bronze; `caps` are those with which event types begin."""
        self._engine, self._bronze, self._environment, self._caps = engine, bronze, environment, caps
        self._registry = LocalRegistry(engine, bronze)
        self._given = GivenIds(bronze)
        self._firsts: dict[GameKey, dict[str, FirstRows]] = {}  # of event types whose first range has not ended
        self._view: tuple[float, BronzeView] | None = None  # when it was opened, by the steady clock
        self._kept_files = KeptFiles()
        self._stands: tuple[int, float] = (-1, 0.0)  # bronze's head, and since when it was seen

    def serve(
        self, game: Game, needs: Collection[OpenNeed], now: float, steady: float, before: Place | None = None
    ) -> float | None:
        """Register what a game's open needs ask for; return the seconds until the next look, None once none is left.

        Args:
            game: whose needs they are.
            needs: its needs of shapes.
            now: Unix seconds.
            steady: seconds by a clock that nobody sets back.
            before: the game has no schema yet, and its row at this place waits for another registry: it decides the
                event type of the table's own columns, so later ones wait.

        Raises:
            Refused: what is kept cannot be computed again; the sentence says why.
            OSError, Transient: bronze's folder or the store does not serve; try again.
        """
        later = _POLL_SECONDS
        for _ in range(_ATTEMPTS):
            self._given.refresh()
            schemas_now = self._registry.snapshot()
            try:
                if self._undeclared(game, schemas_now) or self._restored(game, schemas_now):
                    later = 0.0  # after other games had their turn
                    continue
                wanted = self._wanted(game, needs, schemas_now)
                if not wanted:
                    self._firsts.pop(game.key, None)
                    return None
                rest = self._register(game, needs, wanted, schemas_now, now, steady, before)
            except Superseded:
                continue
            if rest is not None:
                return rest
        return later

    def rest(self) -> None:
        """Forget what several games may need; called once all games that wait have been served."""
        self._kept_files.clear()

    def choose(self, game: Game, name: str, choice: tuple[str, ...]) -> int | None:
        """Register a choice about an event type; return the id of its superset, None if that was chosen before.

        Raises:
            Refused: the event type has no superset, or what is kept cannot be computed again.
            OSError, Transient, TableNotFoundError: bronze, its folder or the store does not serve; try again.
        """
        for _ in range(_ATTEMPTS):
            self._given.refresh()
            known = self._registry.snapshot()
            try:
                if self._undeclared(game, known) or self._restored(game, known):
                    continue
                newest = newest_supersets(known, game.key).get(event_type(name))
                if newest is None:
                    raise Refused(
                        f"{shown(name)} of the game {shown(game.name)} has no columns of undeclared documents."
                    )
                job = RangeJob(newest.message, superset_of(newest), known.fingerprints[newest.schema_id], _NO_ROWS, 0)
                if chosen(job.known, choice) == job.known:
                    return None
                job.steps.append(computed_by(game.key, job, choice))
                self._write(game, [job], (), _by_fingerprint(known, game.key))
            except Superseded:
                continue
            return newest_supersets(self._registry.snapshot(), game.key)[event_type(name)].schema_id
        raise Transient(f"others registered shapes of {game.key} during all {_ATTEMPTS} attempts")

    def _undeclared(self, game: Game, known: SchemaSet) -> bool:
        """Withdraw a declared schema again whose withdrawal is kept beside bronze only; return whether there was one.

        While it counts, its type's superset does not grow, and later ones may have other columns.
        """
        kept, newest = self._given.kept.by_game.get(game.key, NOTHING), newest_supersets(known, game.key)
        for schema, at in known.placed(game.key):
            if schema.format != FORMAT or at.quarantined is not None or event_type(schema.message) not in newest:
                continue
            own = kept.get(known.fingerprints[schema.schema_id])
            if own is not None and not own.lands and not own.placement.other_type:
                again = Registration(game.name, schema.message, schema.definition, format=FORMAT, undeclares=True)
                self._registry.register_many([again])
                _log.info("%s: withdrew the declared schema %d again", game.key, schema.schema_id)
                return True
        return False

    def _restored(self, game: Game, known: SchemaSet) -> bool:
        """Compute one superset again that is kept beside bronze and that the store lacks; return whether there was one.

        A killed registration left it, or the store is an older copy.
        """
        held = _by_fingerprint(known, game.key)
        lost = self._kept(game.key).keys() - held.keys()
        for own, (given, origin) in self._kept(game.key).items():
            if own in held or (origin.previous in lost):
                continue
            before = superset_of(held[origin.previous]) if origin.previous in held else Superset(caps=origin.caps)
            span, name = Span(origin.first, origin.last), given.message
            job = RangeJob(name, before, origin.previous, span, _ALL_ROWS, frozenset(origin.taken))
            if origin.choice:
                job.steps.append(computed_by(game.key, job, origin.choice))
            else:
                view = BronzeView(self._bronze, self._environment)
                compute(game.key, [job], Documents(view, game, known).read, rounds=1)
            if [(each.fingerprint, each.origin.rows) for each in job.steps] != [(own, origin.rows)]:
                raise Refused(
                    f"The columns of {shown(name)} of the game {shown(game.name)} cannot be computed again: bronze no "
                    f"longer has its rows of seqs {origin.first[0]} to {origin.last[0]} as they were. Restore the "
                    f"newest copy of the control store."
                )
            self._write(game, [job], (), held)
            _log.info("%s: registered the columns of %s again, as schema %d", game.key, name, given.schema_id)
            return True
        return False

    def _wanted(self, game: Game, needs: Collection[OpenNeed], known: SchemaSet) -> list[_Wanted]:
        """Return the event types that need a newer superset, in the order of their rows; end the needs of others."""
        placed = known.placed(game.key)
        newest = newest_supersets(known, game.key)
        room = declared_types.MOST_TYPES - len({event_type(schema.message) for schema, _ in placed})
        types = SchemasByType(placed)
        wanted: dict[str, _Wanted] = {}
        ended = list[bytes]()
        for need in sorted(needs, key=lambda each: (each.seq, each.pos)):
            given, had = of_writer(need.writer)
            name, version = type_named(placed, given), types.known_version(given)
            if version is None or version > had:
                ended.append(need.writer)
            elif name in wanted or name in newest or room > 0:  # beyond, its rows are refused in the next schema set
                room -= name not in wanted and name not in newest
                wanted.setdefault(name, _Wanted(name, (need.seq, need.pos), newest.get(name)))
        if ended:
            with self._engine.begin() as connection:
                end_needs(connection, SHAPES, ended, game.key)
        return list(wanted.values())[:_AT_ONCE]

    def _register(
        self,
        game: Game,
        needs: Collection[OpenNeed],
        wanted: Sequence[_Wanted],
        known: SchemaSet,
        now: float,
        steady: float,
        before: Place | None,
    ) -> float | None:
        """Register the event types whose range has ended; return None where some did."""
        view = self._opened(steady)
        documents = Documents(view, game, known)
        self._count_firsts(game, documents, [each for each in wanted if each.newest is None], known)
        jobs, rest = list[RangeJob](), _POLL_SECONDS
        placed = known.placed(game.key)
        is_first, taken = not placed, _taken(placed)
        for each in wanted:
            span = self._later(each, view) if each.newest is not None else self._first(game, each, view, now, steady)
            place = each.place if span is None else min(each.place, span.first)
            if is_first and (span is None or (before is not None and place > before)):
                break  # the first row decides whose fields are the table's own columns
            if span is None:
                continue
            superset = Superset(caps=self._caps) if each.newest is None else superset_of(each.newest)
            previous = "" if each.newest is None else known.fingerprints[each.newest.schema_id]
            most = FIRST_ROWS if each.newest is None else LATER_ROWS
            jobs.append(RangeJob(each.name, superset, previous, span, most, taken.get(each.name, frozenset())))
            if is_first:
                break  # of the others it is known then that they are further types
        if not jobs:
            return rest
        with effect("read_range"):
            compute(game.key, jobs, documents.read)
        if unchanged := [job.type for job in jobs if not job.steps]:
            _log.error("%s: tasks find documents of %s without columns, which have some", game.key, unchanged[0])
        if not any(job.steps for job in jobs):
            raise Refused(
                f"A document of {shown(jobs[0].type)} of the game {shown(game.name)} waits for columns that it has. "
                f"Start drivers of one version of turnout."
            )
        own = type_named(placed, "")
        jobs.sort(key=lambda job: job.type != own)  # the column of a type that a rule accepts gets a name beside these
        self._write(game, jobs, needs, _by_fingerprint(known, game.key))
        for job in jobs:
            self._firsts.get(game.key, {}).pop(job.type, None)
        return None

    def _count_firsts(self, game: Game, documents: Documents, wanted: Sequence[_Wanted], known: SchemaSet) -> None:
        """Count the rows of event types without a superset, as far as that was not done before."""
        found = self._firsts.setdefault(game.key, {})
        back = 0 if known.of(game.key) else _LOOK_BACK
        for each in wanted:
            found.setdefault(each.name, FirstRows(max(0, each.place[0] - 1 - back)))
        documents.count({each.name: found[each.name] for each in wanted}, FIRST_ROWS)

    def _first(self, game: Game, wanted: _Wanted, view: BronzeView, now: float, steady: float) -> Span | None:
        """Return the first range of an event type, None as long as it has not ended."""
        rows = self._firsts[game.key][wanted.name]
        if rows.first is None:
            return None  # its rows are in a version of bronze that comes
        if rows.count >= FIRST_ROWS:
            return Span(rows.first, (view.head, _END))
        if (end := view.first_landed(rows.first[0], rows.landed_at + FIRST_SECONDS)) is not None:
            return Span(rows.first, (end, _END))
        if self._stands[0] != view.head:
            self._stands = (view.head, steady)
        stands = max(now - view.landed_at, steady - self._stands[1]) >= FIRST_SECONDS
        return Span(rows.first, (view.head, _END)) if stands else None

    def _opened(self, steady: float) -> BronzeView:
        """Return bronze as it was a moment ago: games whose first ranges have not ended look for the end together."""
        if self._view is None or not 0 <= steady - self._view[0] < _POLL_SECONDS / 2:
            self._view = steady, BronzeView(self._bronze, self._environment, self._kept_files)
        return self._view[1]

    def _later(self, wanted: _Wanted, view: BronzeView) -> Span | None:
        return Span(wanted.place, (view.head, _END)) if wanted.place[0] <= view.head else None

    def _write(
        self, game: Game, jobs: Iterable[RangeJob], needs: Collection[OpenNeed], held: Mapping[str, Schema]
    ) -> None:
        """Take ids, keep the registrations and write them into the store, all or none.

        Raises:
            Superseded: the store, or the folder beside bronze, has others of the same event types by now, or the table
                has another column of a name that is opened.
        """
        steps = [each for job in jobs for each in job.steps]
        types = {each.schema.message for each in steps}
        seen = self._kept(game.key).keys() | {each.fingerprint for each in steps}

        def act(connection: Connection, ids: NewIds) -> None:
            if _registered(connection, game.key, types) - held.keys() or self._kept(game.key).keys() - seen:
                raise Superseded(f"others registered shapes of {game.key}")
            ids.origins = {each.fingerprint: each.origin for each in steps}
            checked = [unattended(game.name, game.key, each.schema, DEFAULTS, registry=SHAPES) for each in steps]
            batch = RegistrationBatch(connection, checked, ids)
            done = batch.write()
            taken = _taken(batch.placed(game.key))
            if both := [name for each in steps for name in _opened(each) & taken.get(_type(each), frozenset())]:
                raise Superseded(f"the table of {game.key} has a column {shown(both[0])} by now")
            for each, registered in zip(steps, done, strict=True):
                begun = _variations(game.key, each, registered.schema_id)
                write_variations(connection, game.key, each.schema.message, begun)
            answered = [each.writer for each in needs if of_writer(each.writer)[0] in types]
            end_needs(connection, SHAPES, answered, game.key)

        with effect("commit_registration"):
            with_ids(self._engine, self._given, lambda _: True, act)
        for each in steps:
            _log.info(
                "%s: %s has %d columns by its registration %d, with %d new variations",
                game.key, each.schema.message, each.superset.columns(), each.superset.version, len(each.variations),
            )  # fmt: skip

    def _kept(self, key: GameKey) -> dict[str, tuple[GivenId, Origin]]:
        """Return a game's supersets that are kept beside bronze, by fingerprint, without those that were given up."""
        placed = self._given.kept.by_game.get(key, {})
        kept = self._given.computed(key).items()
        return {own: each for own, each in kept if own not in placed or not placed[own].given_up}


def newest_supersets(known: SchemaSet, key: GameKey) -> dict[str, Schema]:
    """Return the newest superset of each event type of a game."""
    newest: dict[str, Schema] = {}
    for schema, _ in known.placed(key):
        if schema.format == UNDECLARED:
            name = event_type(schema.message)
            newest[name] = max(newest.get(name, schema), schema, key=lambda each: version_of(each.definition))
    return newest


def _variations(key: GameKey, step: Computed, schema_id: int) -> Iterable[Variation]:
    for begun in step.variations:
        (seq, pos), at = begun.document.place, begun.document.landed_at
        yield Variation(
            key, step.schema.message, begun.fingerprint, form(begun.shape), count(begun.shape), seq, pos, at, at, 1,
            schema_id, _stored(begun.document.producer),
        )  # fmt: skip


def _stored(producer: str | None) -> str | None:
    """Return a producer as any control store takes it: PostgreSQL has no text with NUL."""
    return producer and producer[:_LONGEST_PRODUCER].replace("\0", "\ufffd")


_LONGEST_PRODUCER: Final = 255


def _registered(connection: Connection, key: GameKey, types: Collection[str]) -> set[str]:
    """Return the fingerprints of the JSON schemas that the store has for a game's event types.

    Also of declared ones: no superset may follow such a schema of its type.
    """
    query = (
        select(schemas.c.fingerprint, schemas.c.message)
        .join(registrations, registrations.c.schema_id == schemas.c.schema_id)
        .where(registrations.c.game_key == key, schemas.c.format.in_([UNDECLARED, FORMAT]))
    )
    return {row.fingerprint for row in connection.execute(query) if event_type(row.message) in types}


def _by_fingerprint(known: SchemaSet, key: GameKey) -> dict[str, Schema]:
    return {known.fingerprints[each.schema_id]: each for each in known.of(key)}


def _type(step: Computed) -> str:
    return event_type(step.schema.message)


def _opened(step: Computed) -> frozenset[str]:
    """Return the names, in lower case, of the columns of its type that a superset opens."""
    version, slots = step.superset.version, step.superset.root.slots.values()
    return frozenset(slot.name.lower() for each in slots for slot in each if slot.since == version)


def _taken(placed: Sequence[tuple[Schema, FieldPlacement]]) -> dict[str, frozenset[str]]:
    """Return, by event type, the names in lower case that its new columns leave to others."""
    groups = by_struct(placed)
    structs = frozenset(each.lower() for each in groups if each is not None)
    taken: dict[str, frozenset[str]] = {}
    for struct, held in groups.items():
        declared = tuple((schema, at) for schema, at in held if schema.format != UNDECLARED)
        names = frozenset(each.lower() for each in layout(declared).columns())
        for schema, _ in held:
            taken[event_type(schema.message)] = names | structs if struct is None else names
    return taken
