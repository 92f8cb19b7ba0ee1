"""Races planted into the real code, one at a time: each must be found, or the scheduler proves nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pipeline.data.contracts import registration_batch
from pipeline.data.contracts.game_types import Typed
from pipeline.data.contracts.registries.answers import Absent, Answer, Away, SchemaResolver
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived import silver, source_log
from pipeline.data.pins import ChunkPin, SetPin
from pipeline.data.repair import rebuild, replay
from pipeline.data.repair.places import PLACES
from pipeline.data.streams import demux, passes
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import Demux
from pipeline.data.streams.needs import is_open
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.stream import Link, Position, Stream, connects
from pipeline.data.streams.writing import opening
from pipeline.data.variations import registering
from pipeline.data.variations.bronze_view import BronzeView
from pipeline.data.variations.documents import Span
from pipeline.data.variations.registering import Registrar
from pipeline.lake.delta import rewrite as delta_rewrite
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable, TableConflict

Change = tuple[Any, str, Any]
"""An object, the name of what it has, and what it has instead."""


@dataclass(frozen=True)
class Mutant:
    """One planted race."""

    changes: Callable[[], list[Change]]
    signs: Sequence[str]  # words of the problems that it makes
    focus: Sequence[str] = ()  # what somebody does in each schedule, so that it comes to the place
    is_rare: bool = False  # found after fifteen schedules or more, or dear ones: a long test

    def is_seen(self, problems: Sequence[str]) -> bool:
        """Return whether it is among these problems, and not only something else."""
        return any(sign in problem for problem in problems for sign in self.signs)

    @contextmanager
    def planted(self) -> Iterator[None]:
        made = self.changes()
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in made]
        for owner, name, value in made:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


class _NowTable(CursorTable):
    """A table that takes rows whatever they follow from."""

    def commit(self, files: Any, expected: Any, *rest: Any, **more: Any) -> None:
        del expected
        super().commit(files, self.cursor, *rest, **more)


def _silver_follows_from_now() -> list[Change]:
    return [(silver, "CursorTable", _NowTable)]


def _silver_sees_no_removal() -> list[Change]:
    return [(source_log, "changes", lambda _removed: False)]


def _generation_of_now() -> list[Change]:
    """A new generation replaces what the table is now, not what it was when the driver looked."""
    overwrite, open_table = silver.__dict__["overwrite"], silver.__dict__["open_table"]

    def of_now(path: Any, _table: Any, *rest: Any) -> None:
        overwrite(path, open_table(path), *rest)

    return [(silver, "overwrite", of_now)]


class _AnyTable(str):
    """The id of a generation that is also each other one's of its table."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.partition("@")[0] == other.partition("@")[0]

    __hash__ = str.__hash__


def _repair_names_no_generation() -> list[Change]:
    """A repair names a table only, so whoever comes later repairs it again."""
    return [(silver, "generation_id", lambda table_id, number: _AnyTable(f"{table_id}@{number}"))]


class _NoClaims(dict[str, str]):
    """Claims that nobody ever has."""

    def update(self, *_: Any, **__: Any) -> None:
        pass


def _without_claims() -> list[Change]:
    begin = Roster.__init__

    def begun(self: Roster, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        self._claims = _NoClaims()

    return [(Roster, "__init__", begun), (Roster, "_release", lambda _self, _reader: None)]


def _position_of_now() -> list[Change]:
    commit = Stream.commit

    def now(self: Stream, files: list[DataFile], expected: Position, cursor: int, target: pa.Schema) -> None:
        del expected
        commit(self, files, self.position, cursor, target)

    return [(Stream, "commit", now)]


class _NoLock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _without_turns() -> list[Change]:
    """Two threads number their commits from one view of a table, and count it on each by itself."""
    begin, publish = CursorTable.__init__, CursorTable._publish

    def begun(self: CursorTable, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        self._lock = _NoLock()  # type: ignore[assignment]

    def published(self: CursorTable, *arguments: Any) -> None:
        before = self._version
        publish(self, *arguments)
        if self._version == before + 1:
            pass  # nobody was between
        else:
            self._version += 1

    return [*_without_claims(), (CursorTable, "__init__", begun), (CursorTable, "_publish", published)]


def _anything_connects() -> list[Change]:
    return [(passes, "connects", lambda _cursor, _links: True)]


def _reaches_too_far() -> list[Change]:
    def off_by_one(cursor: int, links: Sequence[Link]) -> bool:
        if links and links[0].seq > cursor and links[0].prev_seq == cursor + 1:
            links = [Link(links[0].seq, cursor), *links[1:]]
        return connects(cursor, links)

    return [(passes, "connects", off_by_one)]


def _no_compare_and_set() -> list[Change]:
    return [(CursorTable, "_require", lambda _self, _expected: None)]


def _all_are_whole() -> list[Change]:
    """Without the roster's second look, too: either of the two is enough."""
    return [
        (Demux, "_is_whole", lambda _self, _stream, *, heard: heard or True),
        (Roster, "_recheck_complete", lambda _self, _stream: None),
    ]


def _generation_is_not_followed() -> list[Change]:
    return [(Stream, "_follow_rebuild", lambda _self, _table: None)]


def _quarantine_comes_last() -> list[Change]:
    write, apply = Passes._write_quarantine, Passes._apply

    def kept(self: Any, *arguments: Any, **more: Any) -> None:
        self.left = (arguments, more)

    def applied(self: Any, *arguments: Any, **more: Any) -> Any:
        outcome = apply(self, *arguments, **more)
        write(self, *self.left[0], **self.left[1])
        return outcome

    return [(Passes, "_write_quarantine", kept), (Passes, "_apply", applied)]


def _pins_are_ignored() -> list[Change]:
    def proposed(_folder: Any, _batch_id: int, propose: Callable[[], SetPin]) -> SetPin:
        return propose()

    return [(demux, "pin_set", proposed), (ChunkPin, "find", lambda *_: None)]


def _let_go_at_once() -> list[Change]:
    sync = Roster.sync

    class Leaving(dict[str, Stream]):
        pass

    def early(self: Roster) -> None:
        claims, self._claims = self._claims, {}
        try:
            sync(self)
        finally:
            self._claims = {**claims, **self._claims}

    return [(Roster, "sync", early)]


def _replay_does_not_look() -> list[Change]:
    return [(replay, "landed", lambda _table, _folder, _chosen: PLACES.empty_table())]


def _compaction_does_not_look() -> list[Change]:
    return [(delta_rewrite, "_hinders", lambda _action, _leaving: False)]


def _own_query_takes_what_is_read() -> list[Change]:
    chosen = Roster.for_pass

    def anyway(self: Roster, frontier_seq: int, key: str | None = None) -> dict[str, Stream]:
        claims, self._claims = self._claims, {}
        try:
            return chosen(self, frontier_seq, key)
        finally:
            self._claims = {**claims, **self._claims}

    return [(Roster, "for_pass", anyway)]


def _chunk_takes_what_is_read() -> list[Change]:
    def anyway(self: Roster, wanted: Mapping[str, Stream]) -> dict[str, Stream]:
        return {key: stream for key, stream in wanted.items() if self.streams.get(key) is stream}

    behind = Roster.behind

    def all_behind(self: Roster, *arguments: Any) -> list[Stream]:
        claims, self._claims = self._claims, {}
        try:
            return behind(self, *arguments)
        finally:
            self._claims = claims

    return [(Roster, "for_chunk", anyway), (Roster, "behind", all_behind)]


def _claims_end_early() -> list[Change]:
    apply = Passes._split

    def early(self: Any, source: Any, streams: Mapping[str, Stream], schemas: Any) -> Any:
        done = apply(self, source, streams, schemas)
        for stream in streams.values():
            for each in rosters:
                if each.streams.get(stream.game_key) is stream:
                    each._claims = {key: reader for key, reader in each._claims.items() if key not in streams}
        return done

    begin = Roster.__init__
    rosters: list[Roster] = []

    def begun(self: Roster, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        rosters.append(self)
        del rosters[:-4]

    return [*_position_of_now(), (Passes, "_split", early), (Roster, "__init__", begun)]


def _chunk_begins_too_late() -> list[Change]:
    following = CatchUp._next

    def skipping(self: CatchUp, behind: Sequence[Stream], head: int) -> Any:
        chunk, low, high, version = following(self, behind, head)
        return chunk, low + 1, high, version

    return [(CatchUp, "_next", skipping)]


def _cursor_before_rows() -> list[Change]:
    def early(self: Stream, files: list[DataFile], expected: Position, cursor: int, target: pa.Schema) -> None:
        if self.table is None:
            self.table = self.target.writer.create(self.path, target, self.app_id, self.game)
            self._read_cursor()
        if self.position != expected:
            raise TableConflict("moved")
        self.table.add_missing_columns(target)
        try:
            self.table.commit([], expected.cursor or None, cursor)
        except TableConflict:
            self._read_cursor()
            raise
        self.cursor = self.complete_through = cursor
        assert isinstance(self.table, CursorTable)
        self.table.append(files)

    return [(Stream, "commit", early)]


def _replays_are_not_counted() -> list[Change]:
    """A replay commits whatever other repairs came since it looked at the table."""
    commit = replay.Replay._commit

    def uncounted(self: Any, game: Any, table: CursorTable | None, repairs: int | None, work: Any) -> None:
        if table is not None:
            table.refresh()
            repairs = table.cursor
        commit(self, game, table, repairs, work)

    return [(replay.Replay, "_commit", uncounted)]


def _rebuild_has_the_schemas_of_its_beginning() -> list[Change]:
    return [(rebuild._Rebuild, "_holds", lambda _self, _version_of: True)]


def _past_a_need() -> list[Change]:
    add = passes._add

    def added(report: Any, game: Mapping[str, Any]) -> None:
        add(report, {**game, "needs": []})

    return [(passes, "_add", added)]


def _unknown_is_refused() -> list[Change]:
    return [(opening, "is_open", lambda *_: False)]


def _away_is_absent() -> list[Change]:
    class Denying:
        def __init__(self, resolver: SchemaResolver) -> None:
            self._resolver = resolver

        def resolve(self, writer: bytes) -> Answer:
            answer = self._resolver.resolve(writer)
            return Absent(answer.detail) if isinstance(answer, Away) else answer

    begin = Resolution.__init__

    def begun(
        self: Resolution, engine: Any, resolvers: Mapping[str, SchemaResolver], *arguments: Any, **more: Any
    ) -> None:
        begin(self, engine, {name: Denying(each) for name, each in resolvers.items()}, *arguments, **more)

    return [(Resolution, "__init__", begun)]


def _held_by_any_need() -> list[Change]:
    def held(self: Stream, schemas: SchemaSet) -> bool:
        waits = self.waits
        return waits is not None and waits.first.seq > self.cursor and is_open(waits.first, self.game_key, schemas)

    return [(Stream, "is_held", held)]


def _all_wait_for_one() -> list[Change]:
    without_held = CatchUp._without_held

    def none(self: CatchUp, behind: Sequence[Stream]) -> list[Stream]:
        left = without_held(self, behind)
        return left if len(left) == len(behind) else []

    return [(CatchUp, "_without_held", none)]


def _rebuild_has_the_writers_of_its_beginning() -> list[Change]:
    return [(SchemaSet, "judges_as", lambda self, earlier, key: self.placed(key) == earlier.placed(key))]


def _rebuild_has_the_types_of_its_beginning() -> list[Change]:
    """A rebuild looks which schemas a game has, and not whether their types are accepted."""
    return [(SchemaSet, "judges_as", lambda self, earlier, key: self.of(key) == earlier.of(key))]


def _any_type_lands() -> list[Change]:
    """A schema of another event type is taken for a further version of the game's first one."""
    return [(registration_batch, "judged", _first_type)]


def _first_type(types: Mapping[str | None, Sequence[str]], *_: object) -> Typed:
    return Typed(struct=None) if types else Typed()


def _shapes_begin_too_late() -> list[Change]:
    """A later range begins behind the row that needs it."""

    def later(_self: Registrar, wanted: Any, view: BronzeView) -> Span | None:
        seq, pos = wanted.place
        return Span((seq, pos + 1), (view.head, registering._END)) if seq <= view.head else None

    return [(Registrar, "_later", later)]


def _range_ends_with_bronze_of_now() -> list[Change]:
    """A registration keeps bronze's end as of its write, which may be behind the rows that it read."""
    write = Registrar._write

    def written(self: Registrar, game: Any, jobs: Any, *others: Any) -> None:
        head = BronzeView(self._bronze, self._environment).head
        for job in jobs:
            job.steps = [
                replace(each, origin=replace(each.origin, last=(head, registering._END))) for each in job.steps
            ]
        write(self, game, jobs, *others)

    return [(Registrar, "_write", written)]


def _need_is_judged_by_its_set() -> list[Change]:
    """A stream that met a need takes it for open whatever was registered since."""

    def held(self: Stream, _schemas: SchemaSet) -> bool:
        return self.waits is not None and self.waits.first.seq > self.cursor

    return [(Stream, "is_held", held)]


_TWICE: Final = ("rows twice",)
_OTHERWISE: Final = ("computed otherwise", "two commits", "moved from")
_AT_ONCE: Final = ("at once",)
_DEPARTED: Final = ("leave the table",)
_GONE: Final = ("is lost", "missing below")
_REFUSED: Final = ("decodes, and is in quarantine",)

MUTANTS: Final[Mapping[str, Mutant]] = {
    "defect 1 again": Mutant(lambda: [*_position_of_now(), *_without_claims()], _TWICE),
    "claims end before the commit": Mutant(_claims_end_early, _AT_ONCE),
    "a pass takes what is being read": Mutant(_own_query_takes_what_is_read, _AT_ONCE, ("own query",)),
    "a chunk takes what is being read": Mutant(_chunk_takes_what_is_read, _AT_ONCE),
    "two threads number commits of one table": Mutant(
        _without_turns, ("its log has",), ("own query",) * 4, is_rare=True
    ),
    "compare-and-set removed": Mutant(_no_compare_and_set, _TWICE, ("rival",)),
    "chain check removed": Mutant(_anything_connects, _GONE, ("pause",)),
    "reach off by one": Mutant(_reaches_too_far, _GONE, ("pause",)),
    "every stream is whole": Mutant(_all_are_whole, ("stuck", "charged"), ("crash",), is_rare=True),
    "generation not followed": Mutant(
        _generation_is_not_followed, ("stuck", "charged", *_GONE), ("rebuild",), is_rare=True
    ),
    "a rebuild has the schemas of its beginning": Mutant(
        _rebuild_has_the_schemas_of_its_beginning, _DEPARTED, ("schema in held rebuild",)
    ),
    "quarantine after the commit": Mutant(_quarantine_comes_last, _GONE, ("crash",), is_rare=True),
    "pins ignored": Mutant(_pins_are_ignored, ("was judged",), ("crash", "schema"), is_rare=True),
    "let go before the pass ends": Mutant(_let_go_at_once, _AT_ONCE, ("leases", "two groups", "move", "move", "move")),
    "replay does not look at the table": Mutant(_replay_does_not_look, _TWICE, ("replays",)),
    "replays are not counted": Mutant(_replays_are_not_counted, _TWICE, ("replays",), is_rare=True),
    "compaction does not look who was first": Mutant(
        _compaction_does_not_look, (*_TWICE, *_GONE), (*["compaction"] * 4, "rebuild", "twins"), is_rare=True
    ),
    "a chunk begins too late": Mutant(_chunk_begins_too_late, ("stuck", "charged", *_GONE)),
    "the cursor moves before the rows": Mutant(_cursor_before_rows, _GONE),
    "a chunk goes past a needed row": Mutant(_past_a_need, _GONE, ("foreign",)),
    "a row of an unknown writer is refused": Mutant(_unknown_is_refused, _REFUSED, ("foreign",)),
    "a registry that is away has no schema": Mutant(_away_is_absent, _REFUSED, ("foreign", "registry away")),
    "rows before a need wait with it": Mutant(_held_by_any_need, ("stuck",), ("foreign", "registry away")),
    "one game's need holds all games": Mutant(_all_wait_for_one, ("stuck",), ("foreign", "registry away")),
    "a rebuild has the writers of its beginning": Mutant(
        _rebuild_has_the_writers_of_its_beginning, _DEPARTED, ("foreign", "upload in rebuild"), is_rare=True
    ),
    "a rebuild has the types of its beginning": Mutant(
        _rebuild_has_the_types_of_its_beginning, _DEPARTED, ("types", "schema in held rebuild")
    ),
    "any type lands": Mutant(_any_type_lands, ("was never accepted", "other values"), ("types",)),
    "shapes are registered from behind their row": Mutant(
        _shapes_begin_too_late, ("stuck",), ("shapes",), is_rare=True
    ),
    "a range ends with bronze of now": Mutant(_range_ends_with_bronze_of_now, ("computed otherwise",), ("shapes",)),
    "a need is judged by the set that met it": Mutant(
        _need_is_judged_by_its_set, ("stuck",), ("shapes",), is_rare=True
    ),
    "a pass goes past documents without columns": Mutant(_past_a_need, _GONE, ("shapes",)),
    "silver commits to where it is now": Mutant(_silver_follows_from_now, _OTHERWISE, ("derived", "two groups")),
    "silver reads on past a rebuild": Mutant(_silver_sees_no_removal, _OTHERWISE, ("derived", "rebuild")),
    "a silver generation begins whoever was first": Mutant(
        _generation_of_now, _OTHERWISE, ("derived", "two groups", "rebuild"), is_rare=True
    ),
    "a repair of silver names no generation": Mutant(
        _repair_names_no_generation, ("for no reason", "stuck"), ("derived", "two groups")
    ),
    "a replay of found rows does not look": Mutant(_replay_does_not_look, _TWICE, ("foreign", "upload")),
}
