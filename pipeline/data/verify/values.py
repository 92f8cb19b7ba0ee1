"""`turnout verify --values`: decodes bronze again and compares every value with the game's table.

Distributes parts of bronze to a few processes and adds up their findings. Called by `balance`, on the files it has
pinned.
"""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.game_types import joined_types
from pipeline.data.contracts.promised import promised
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import beyond
from pipeline.data.verify import meanings, readings
from pipeline.data.verify.applying import KnownSchema
from pipeline.data.verify.opening import Sources
from pipeline.data.verify.value_tasks import (
    Mismatch,
    ValueOutcome,
    ValuePart,
    ValueSubject,
    damaged,
    place,
    run,
)
from pipeline.lake.delta import parquet
from pipeline.lake.delta.scratch import Database, scratch_folder

_MAX_PROCESSES: Final = 8
_PART_ROWS: Final = 200_000
_PART_BYTES: Final = 256 * 1024 * 1024
_ALONE_ROWS: Final = 20_000  # up to this size without further processes, which take a second to start
_MAX_NAMED: Final = 5  # mismatches per game
_MAX_NAMED_OF_ALL: Final = 100

_CHOSEN: Final = """
SELECT seq, pos FROM (
    SELECT seq, pos, count(*) OVER (PARTITION BY ord) AS many,
        row_number() OVER (PARTITION BY ord ORDER BY seq, pos) AS number
    FROM (SELECT DISTINCT ord, seq, pos FROM entries WHERE side = 'table' AND seq >= 0 AND pos >= 0)
) WHERE many <= $limit OR (number * $limit) // many <> ((number - 1) * $limit) // many
"""
"""All rows of a small game, and of each other game a sample, spread evenly over the order of their places."""

_QUARANTINED: Final = "SELECT DISTINCT seq, pos, reason FROM odd WHERE quarantined = 1 AND seq >= 0 AND pos >= 0"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The reference for the values, and the number of rows to compare."""

    schemas: (
        SchemaSet | Callable[[], SchemaSet]
    )  # read after the tables were pinned, so that it has their rows' schemas
    sample: int | None = None  # most rows per game; None: all


@dataclass(frozen=True, slots=True)
class Values:
    """The findings of the comparison."""

    compared: int  # values
    rows: int  # rows of game tables with these values
    sample: int | None  # most rows per game; None: every landed row was compared
    seconds: float
    mismatches: int
    by_game: Mapping[str, int]  # mismatches by game key
    named: tuple[Mismatch, ...]  # the first of each game
    decodable: Mapping[str, int]  # quarantined rows that decode with today's schemas, by the reason of their refusal
    undecodable: Mapping[str, int]  # likewise those that do not; rows that kill a worker are in neither


def compare(database: Database, reading: readings.PinnedTables, wanted: Wanted) -> Values:
    """Compare the values of all landed rows, or of a sample, with bronze.

    Args:
        database: the entries of the reading, judged: `rules.ODD` has been run.
        reading: the pinned files.
        wanted: the schemas, and how many rows.

    Raises:
        Refused: a data file is missing or damaged, or a process died of a row.
    """
    started = time.perf_counter()
    with scratch_folder("values") as folder:
        subject = _subject(database, reading, wanted, folder)
        outcome = _run_all(list(_parts(reading.bronze.paths)), subject)
    return Values(
        compared=outcome.values,
        rows=outcome.rows,
        sample=wanted.sample,
        seconds=time.perf_counter() - started,
        mismatches=outcome.mismatches.total(),
        by_game={key: count for key, count in sorted(outcome.mismatches.items()) if count},
        named=tuple(outcome.named),
        decodable=dict(sorted(outcome.decodable.items())),
        undecodable=dict(sorted(outcome.undecodable.items())),
    )


def _subject(database: Database, reading: readings.PinnedTables, wanted: Wanted, folder: Path) -> ValueSubject:
    chosen = None
    if wanted.sample is not None:
        sampled = database.execute(_CHOSEN, {"limit": wanted.sample}).fetchnumpy()
        chosen = str(folder / "chosen.npy")
        np.save(chosen, np.sort(place(sampled["seq"], sampled["pos"])))
    refused = database.execute(_QUARANTINED).fetchnumpy()
    places = place(refused["seq"], refused["pos"])
    reasons, numbers = np.unique(np.asarray(refused["reason"], dtype=str), return_inverse=True)
    order = np.argsort(places, kind="stable")
    quarantined = str(folder / "quarantined.npz")
    np.savez(quarantined, place=places[order], reason=numbers[order].astype(np.int16), names=reasons)
    registered = wanted.schemas if isinstance(wanted.schemas, SchemaSet) else wanted.schemas()
    schemas = {str(key): _trusted(registered, key, reading) for key in registered.games}
    tables = {key: readings.spans(database, table) for key, table in reading.tables.items()}
    return ValueSubject(tables, schemas, chosen, quarantined, Sources.of(registered))


def _trusted(schemas: SchemaSet, key: GameKey, reading: readings.PinnedTables) -> dict[int, KnownSchema]:
    """Return a game's schemas without those whose ids mean something else: no row of theirs should be in its table."""
    table = reading.tables.get(str(key))
    others = meanings.doubtful(schemas, key, reading.given, "" if table is None else table.meanings)
    merges = "" if table is None else table.merges
    return {each: schema for each, schema in known_schemas(schemas, key, merges).items() if each not in others}


def known_schemas(schemas: SchemaSet, key: GameKey, merges: str) -> dict[int, KnownSchema]:
    """Return a game's schemas for the value check, by id; `merges` are those of its table, as JSON.

    Rows of two event types never lie in the same columns, unless one was registered as the other's new name, or an
    alias says that it is: whatever else lands there after the first type should be in quarantine.
    """
    placed = schemas.placed(key)
    parts: dict[str | None, list[tuple[Schema, FieldPlacement]]] = {}
    for each, at in placed:
        parts.setdefault(at.struct, []).append((each, at))
    known = {schema_id: one for part in parts.values() for schema_id, one in _known_of_type(part).items()}
    of_game, later = schemas.contracts.get(key, ()), beyond((each for each, _ in placed), merges)
    promising = {
        each.schema_id: replace(known[each.schema_id], contracts=promised(of_game, each, at)) if of_game
        else known[each.schema_id]
        for each, at in placed
    }  # fmt: skip
    return promising | {each: replace(promising[each], beyond=True) for each in later}


def _known_of_type(placed: Sequence[tuple[Schema, FieldPlacement]]) -> dict[int, KnownSchema]:
    """Return the schemas that lie in the same columns, of which only those of one event type may land."""
    own = [each.message for each, at in placed if at.has_columns and at.continues is None][:1]
    renamed = [(each.message, at.continues) for each, at in placed if at.continues is not None]
    joined = joined_types(each for each, at in placed if not at.other_type or at.withdrawn)
    types = {joined.get(each, each) for each in map(event_type, (*own, *chain(*renamed)))}
    known = {}
    for schema, at in placed:
        is_other = (at.other_type and not at.withdrawn) or joined[event_type(schema.message)] not in types
        reason = "other_type" if is_other else at.reason
        known[schema.schema_id] = KnownSchema(
            schema,
            at.names,
            quarantined=at.quarantined is not None or is_other,
            reason=reason,
            struct=at.struct,
            withdrawn=at.withdrawn and not is_other,
            landed=at.landed and not is_other,
        )
    return known


def _parts(bronze: Iterable[str]) -> Iterator[tuple[int, ValuePart]]:
    """Cut bronze's files into parts of about equal work; yield the rows of each and the part."""
    rows, size, groups = 0, 0, list[tuple[str, int]]()
    for path in sorted(bronze):
        try:
            metadata = parquet.metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise damaged(error) from error
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            groups.append((path, number))
            rows, size = rows + group.num_rows, size + group.total_byte_size
            if rows >= _PART_ROWS or size >= _PART_BYTES:
                yield rows, ValuePart(tuple(groups))
                rows, size, groups = 0, 0, []
    if groups:
        yield rows, ValuePart(tuple(groups))


def _run_all(parts: Sequence[tuple[int, ValuePart]], subject: ValueSubject) -> ValueOutcome:
    outcome = ValueOutcome()
    processes = min(_MAX_PROCESSES, os.cpu_count() or 1, len(parts))
    if processes <= 1 or sum(rows for rows, _ in parts) <= _ALONE_ROWS:
        for _, part in parts:
            _take(outcome, run(part, subject))
        return outcome
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (subject,)) as pool:
        try:
            for part_outcome in pool.map(_run_here, (part for _, part in parts)):
                _take(outcome, part_outcome)
        except BrokenProcessPool as error:
            raise Refused(
                "A process of the value check has died, perhaps out of memory. Free memory, or compare fewer rows with "
                "--sample."
            ) from error
    return outcome


def _take(outcome: ValueOutcome, more: ValueOutcome) -> None:
    outcome.add(more)
    outcome.named = list(islice(_first(outcome.named), _MAX_NAMED_OF_ALL))


def _first(named: Iterable[Mismatch]) -> Iterator[Mismatch]:
    """Yield the first mismatches of each game."""
    counted: Counter[str] = Counter()
    for each in sorted(named, key=lambda one: (one.seq, one.pos, one.game_key, one.column or "")):
        counted[each.game_key] += 1
        if counted[each.game_key] <= _MAX_NAMED:
            yield each


_subject_here: ValueSubject | None = None
"""Set up a process of the pool with the data that its parts share."""


def _begin(subject: ValueSubject) -> None:
    global _subject_here  # noqa: PLW0603 - the only way to share data with a pool's processes once
    _subject_here = subject


def _run_here(part: ValuePart) -> ValueOutcome:
    assert _subject_here is not None
    return run(part, _subject_here)
