"""One part of the value check: decodes some of bronze's rows again and compares them with the tables' rows.

Runs in a process of its own or in the caller's; `values` distributes the parts. Reads Parquet files only.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import MALFORMED
from pipeline.data.contracts.event_types import event_type
from pipeline.data.output_contracts.rules import REASON
from pipeline.data.verify.applying import KnownSchema, applied, decoder, has_landed_by, id_of
from pipeline.data.verify.cells import differences
from pipeline.data.verify.opening import Contents, Sources, Unopened, contents
from pipeline.data.verify.promises import refusing
from pipeline.data.verify.routing import key_of
from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import without_views

MAX_NAMED: Final = 20  # of each part and game
_ROWS: Final = 200_000  # bronze rows that are looked up in the tables together
_BYTES: Final = 64 * 1024 * 1024  # their records, unless a single batch has more
_DECODED_ROWS: Final = 10_000  # of one game, at once
_BATCH: Final = 2_048
_OWN: Final = ("_schema_id", "_event_time", "_event_id", "_source_time")
_TIME: Final = pa.timestamp("us", "UTC")
_OWN_TYPES: Final = (pa.int64(), _TIME, pa.string(), _TIME)
_READ: Final = pa.schema(
    [
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("seq", pa.int64()),
        ("pos", pa.int32()),
        ("source_time", _TIME),
        ("raw", pa.binary()),
        ("profile", pa.int32()),
        ("registry", pa.string()),
        ("writer", pa.binary()),
    ]
)
"""The columns to read from bronze."""
_POSITIONS: Final = 2**31  # a pos is an int

Places = npt.NDArray[np.int64]
"""Rows of bronze, each as one number: see `place`."""


@dataclass(frozen=True, slots=True)
class ValueSubject:
    """The comparison: the pinned files of all tables, the schemas, and the selected rows."""

    tables: Mapping[str, Sequence[tuple[str, tuple[int, int]]]]  # game key → data files, each with its seqs
    schemas: Mapping[str, Mapping[int, KnownSchema]]  # game key → schema id
    chosen: str | None  # a file with the places of a sample; None: every row
    quarantined: str  # a file with the places in quarantine
    sources: Sources = field(default_factory=Sources)


@dataclass(frozen=True, slots=True)
class ValuePart:
    """Some row groups of bronze's files."""

    groups: tuple[tuple[str, int], ...]  # path, number of the row group


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One value in a game's table that differs from bronze."""

    game_key: str
    game: str | None
    seq: int
    pos: int
    column: str | None  # None: the row should not exist
    expected: str
    found: str


@dataclass(slots=True)
class ValueOutcome:
    """The findings of parts; only the first mismatches are named."""

    rows: int = 0
    values: int = 0
    mismatches: Counter[str] = field(default_factory=Counter)  # by game key
    named: list[Mismatch] = field(default_factory=list)
    decodable: Counter[str] = field(default_factory=Counter)  # quarantined rows that decode today, by their reason
    undecodable: Counter[str] = field(default_factory=Counter)

    def add(self, other: "ValueOutcome") -> None:
        """Add the findings of another part."""
        self.rows += other.rows
        self.values += other.values
        for total, part in (
            (self.mismatches, other.mismatches),
            (self.decodable, other.decodable),
            (self.undecodable, other.undecodable),
        ):
            total.update(part)
        self.named += other.named


def place(seqs: Any, positions: Any) -> Places:
    """Return places as numbers, in the order of (seq, pos)."""
    numbers: Places = np.asarray(seqs, dtype=np.int64) * _POSITIONS + np.asarray(positions, dtype=np.int64)
    return numbers


def run(part: ValuePart, subject: ValueSubject) -> ValueOutcome:
    """Compare one part.

    Raises:
        Refused: a data file is missing or damaged.
    """
    work = _Work(subject)
    try:
        for rows in _portions(part):
            work.take(rows)
    except (OSError, pa.ArrowException) as error:
        raise damaged(error) from error
    return work.outcome


def damaged(error: Exception) -> Refused:
    """Return the error text of a data file that cannot be read."""
    reason = first_line(error)
    return Refused(
        f"A data file cannot be read: {reason}. If VACUUM has just run, verify again; otherwise restore that file."
    )


def _portions(part: ValuePart) -> Iterator[pa.Table]:
    """Yield bronze's rows in portions to decode together."""
    waiting: list[pa.Table] = []
    for path, group in part.groups:
        file = parquet.open_file(path)
        stored_names = [name for name in _READ.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=_BATCH, row_groups=[group], columns=stored_names, use_threads=False):
            columns = [
                batch.column(each.name).cast(each.type)
                if each.name in stored_names
                else pa.nulls(batch.num_rows, each.type)
                for each in _READ
            ]
            waiting.append(pa.table(columns, schema=_READ))
            if sum(each.num_rows for each in waiting) >= _ROWS or sum(each.nbytes for each in waiting) >= _BYTES:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def expected_rows(
    key: str, rows: pa.Table, schemas: Mapping[int, KnownSchema], sources: Sources
) -> Iterator[tuple[int, int, pa.Table | None]]:
    """Yield seq, pos and the expected columns of each row of bronze, None where it is refused.

    Args:
        key: the game's key.
        rows: rows of bronze, with the columns game, seq, pos, source_time, raw, profile, registry and writer.
        schemas: the game's schemas by id.
        sources: what profiles and writers mean.
    """
    places = place(rows.column("seq").to_numpy(), rows.column("pos").to_numpy())
    for row in _open(rows, key, places, sources):
        schema_id = None if row.held is None else applied(row.held, schemas, landed=True)
        schema = None if schema_id is None else schemas.get(schema_id)
        decoded = None
        if row.held is not None and schema is not None and (not schema.quarantined or schema.withdrawn):
            table, refused = decoder(schema, landed=True).decode([row.held.payload])
            decoded = None if refused else _with_own(table, [row], schema, schemas)
        yield *divmod(row.place, _POSITIONS), decoded


@dataclass(frozen=True, slots=True)
class _Opened:
    """A row of bronze with what it holds; `held` is None when it cannot be opened."""

    key: str
    name: str | None
    place: int
    source_time: int | None
    held: Contents | None
    reason: str | None  # why it cannot be opened


class _Work:
    """The comparison of some portions, game by game."""

    def __init__(self, subject: ValueSubject) -> None:
        self._subject = subject
        self._chosen = None if subject.chosen is None else np.load(subject.chosen, mmap_mode="r")
        quarantined = np.load(subject.quarantined)
        self._quarantined: Places = quarantined["place"]
        self._reasons = quarantined["reason"]
        self._names = quarantined["names"].tolist()
        self.outcome = ValueOutcome()

    def take(self, rows: pa.Table) -> None:
        """Compare a portion."""
        places = place(rows.column("seq").to_numpy(), rows.column("pos").to_numpy())
        refused = _is_among(self._quarantined, places)
        selected = refused if self._chosen is None else refused | _is_among(self._chosen, places)
        rows = rows if self._chosen is None else rows.filter(pa.array(selected))
        for key, part in self._by_game(rows):
            self._game(key, part)

    def _by_game(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows game by game; those with the malformed key go with the game they name."""
        keys = rows.column("game_key").combine_chunks().dictionary_encode()
        by_game: dict[str, list[pa.Table]] = {}
        for number, key in enumerate(keys.dictionary.to_pylist()):
            part = rows.filter(pc.equal(keys.indices, number))
            if key != MALFORMED:
                by_game.setdefault(key, []).append(part)
                continue
            names = part.column("game").to_pylist()
            homes = [self._home(name) for name in names]
            for home in sorted(set(homes)):
                chosen = pa.array([each == home for each in homes])
                by_game.setdefault(home, []).append(part.filter(chosen))
        for key, parts in by_game.items():
            yield key, pa.concat_tables(parts)

    def _home(self, name: str | None) -> str:
        """Return the key of the game that has this name and a schema, or the malformed key."""
        key = MALFORMED if name is None else _key_of(name)
        return key if key in self._subject.schemas else MALFORMED

    def _game(self, key: str, rows: pa.Table) -> None:
        rows = rows.sort_by([("seq", "ascending"), ("pos", "ascending")])
        places = place(rows.column("seq").to_numpy(), rows.column("pos").to_numpy())
        if key != MALFORMED:
            for landed, which in self._landed(key, places):
                self._opened(key, rows, places, which).compare(landed, which)
        refused = np.flatnonzero(_is_among(self._quarantined, places))
        for start in range(0, len(refused), _DECODED_ROWS):
            indices = refused[start : start + _DECODED_ROWS]
            game = self._opened(key, rows, places, indices)
            for row in indices.tolist():
                self._judge_refused(game, row, int(places[row]))

    def _opened(self, key: str, rows: pa.Table, places: Places, which: Places) -> "_Game":
        needed = np.unique(which)
        rows_open = _open(rows.take(pa.array(needed)), key, places[needed], self._subject.sources)
        opened = dict(zip(needed.tolist(), rows_open, strict=True))
        return _Game(self._subject, key, opened, self.outcome)

    def _landed(self, key: str, places: Places) -> Iterator[tuple[pa.Table, Places]]:
        """Yield the rows of a game's files that are among the places, and the places of each row."""
        low, high = int(places[0]) // _POSITIONS, int(places[-1]) // _POSITIONS
        chosen = places if self._chosen is None else places[_is_among(self._chosen, places)]
        if not len(chosen):
            return
        for path, (first, last) in self._subject.tables.get(key, ()):
            if first > high or last < low:
                continue
            for batch in parquet.open_file(path).iter_batches(_DECODED_ROWS, use_threads=False):
                landed = without_views(pa.Table.from_batches([batch]))
                landed = landed.filter(pc.and_(pc.is_valid(landed.column("_seq")), pc.is_valid(landed.column("_pos"))))
                landed_places = place(landed.column("_seq").to_numpy(), landed.column("_pos").to_numpy())
                matches = _is_among(chosen, landed_places)
                if matches.any():
                    yield (
                        landed.filter(pa.array(matches)),
                        np.searchsorted(places, landed_places[matches]).astype(np.int64),
                    )

    def _judge_refused(self, game: "_Game", row: int, at: int) -> None:
        reason = self._names[self._reasons[np.searchsorted(self._quarantined, at)]]
        if reason == "kills_worker":
            return  # not decoded: it may kill this process, too
        (self.outcome.undecodable if game.refusal(row) else self.outcome.decodable)[reason] += 1


class _Game:
    """One game's rows of a portion."""

    def __init__(self, subject: ValueSubject, key: str, opened: Mapping[int, _Opened], outcome: ValueOutcome) -> None:
        self._key, self._opened, self._outcome = key, opened, outcome
        self._schemas = subject.schemas.get(key, {})

    def compare(self, landed: pa.Table, which: Places) -> None:
        """Compare rows of one file with the rows of bronze at `which`."""
        self._outcome.rows += landed.num_rows
        named = landed.column("_schema_id").to_pylist()
        ids = [self._landed_by(row, each) for row, each in zip(which.tolist(), named, strict=True)]
        for schema_id in sorted({each for each in ids if each is not None}):
            chosen = np.flatnonzero(np.array([each == schema_id for each in ids]))
            self._compare_schema(landed.take(pa.array(chosen)), which[chosen], schema_id)
        for index in (index for index, each in enumerate(ids) if each is None):
            row = int(which[index])
            self._should_not_be_there(row, self.refusal(row) or "unknown")

    def _compare_schema(self, landed: pa.Table, which: Places, schema_id: int) -> None:
        rows = [self._opened[row] for row in which.tolist()]
        expected, refused = decoder(self._schemas[schema_id], landed=True).decode([_held(row).payload for row in rows])
        for index, error in refused.items():
            self._should_not_be_there(int(which[index]), error.reason)
        good = [index for index in range(len(rows)) if index not in refused]
        if not good:
            return
        expected = _with_own(expected, [rows[index] for index in good], self._schemas[schema_id], self._schemas)
        held = landed.take(pa.array(good)).drop_columns(["_seq", "_pos"])
        self._outcome.values += held.num_rows * len({*expected.column_names, *held.column_names})
        count, named = differences(expected, held, self._room())
        self._outcome.mismatches[self._key] += count
        for each in named:
            self._name(int(which[good[each.row]]), each.column, each.expected, each.found)

    def refusal(self, row: int) -> str | None:
        """Return the reason for which a row belongs in quarantine, None when it decodes."""
        schema_id = self._schema_of(row)
        opened = self._opened[row]
        if opened.held is None:
            return opened.reason
        if not self._schemas:
            return "unknown_game"
        if schema_id is None:
            closest = applied(opened.held, self._schemas)
            known = None if closest is None else self._schemas.get(closest)
            return "unknown_schema" if known is None else known.reason
        known = self._schemas[schema_id]
        decoded, refused = decoder(known).decode([opened.held.payload])
        if refused:
            return refused[0].reason
        if known.contracts and refusing(
            _with_own(decoded, [opened], known, self._schemas), known.struct, known.contracts
        ):
            return REASON
        return None

    def _schema_of(self, row: int, *, landed: bool = False) -> int | None:
        """Return the schema to decode a row with, None without one."""
        held = self._opened[row].held
        schema_id = None if held is None else applied(held, self._schemas, landed=landed)
        schema = None if schema_id is None else self._schemas.get(schema_id)
        if schema is None or (schema.quarantined and not (landed and schema.withdrawn)):
            return None
        return schema_id

    def _landed_by(self, row: int, named: int | None) -> int | None:
        """Return the schema by which a row of the table landed, None where it should not be there."""
        held = self._opened[row].held
        if held is not None and named is not None and has_landed_by(held, named, self._schemas):
            return named
        return self._schema_of(row, landed=True)

    def _should_not_be_there(self, row: int, reason: str) -> None:
        self._outcome.mismatches[self._key] += 1
        if self._room():
            self._name(row, None, f"no row: {reason}", "a row")

    def _room(self) -> int:
        return max(0, MAX_NAMED - sum(each.game_key == self._key for each in self._outcome.named))

    def _name(self, row: int, column: str | None, expected: str, found: str) -> None:
        opened = self._opened[row]
        seq, pos = divmod(opened.place, _POSITIONS)
        self._outcome.named.append(Mismatch(self._key, opened.name, seq, pos, column, expected, found))


def _open(rows: pa.Table, key: str, places: Places, sources: Sources) -> Iterator[_Opened]:
    times = rows.column("source_time").cast(pa.int64()).to_pylist()
    columns = [rows.column(name).to_pylist() for name in ("game", "raw", "profile", "registry", "writer")]
    for at, time, name, raw, profile, registry, writer in zip(places.tolist(), times, *columns, strict=True):
        try:
            yield _Opened(key, name, at, time, contents(raw, profile, registry, writer, sources), None)
        except Unopened as error:
            yield _Opened(key, name, at, time, None, error.reason)


def _held(row: _Opened) -> Contents:
    assert row.held is not None
    return row.held


def _with_own(
    expected: pa.Table, rows: Sequence[_Opened], known: KnownSchema, schemas: Mapping[int, KnownSchema]
) -> pa.Table:
    """Return the payloads' columns, inside of their event type's struct where it has one, and the table's own."""
    if known.struct is not None and expected.num_columns:
        inside = [each.combine_chunks() for each in expected.columns]
        expected = pa.table({known.struct: pa.StructArray.from_arrays(inside, names=expected.column_names)})
    types = pa.repeat(pa.scalar(event_type(known.schema.message)), len(rows))
    expected = expected.append_column("_type", types) if expected.num_columns else pa.table({"_type": types})
    own = [_own(row, id_of(known, _held(row), schemas)) for row in rows]
    for number, (name, kind) in enumerate(zip(_OWN, _OWN_TYPES, strict=True)):
        expected = expected.append_column(name, pa.array([each[number] for each in own], kind))
    return expected


def _own(row: _Opened, schema_id: int) -> tuple[int, int | None, str | None, int | None]:
    """Return the expected values of a table's own columns."""
    held = _held(row)
    return schema_id, held.event_time, held.event_id, row.source_time


_key_of = lru_cache(maxsize=100_000)(key_of)


def _is_among(ordered: Places, places: Places) -> npt.NDArray[np.bool_]:
    """Return for each place whether it is among the ordered ones."""
    if not len(ordered):
        return np.zeros(len(places), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ordered, places), len(ordered) - 1)
    same: npt.NDArray[np.bool_] = ordered[at] == places
    return same
