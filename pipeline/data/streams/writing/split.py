"""The work of an executor on bronze rows: decodes each with its own schema and writes one Parquet file per game.

`split` is the body of a Spark task. It commits nothing: it reports files, links and refused rows (law L9). A game whose
rows cannot be written is reported with its error; the others go on (law L6).
"""

import itertools
import json
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey, shown
from pipeline.data.contracts.declared_types import versions_of
from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.formats.json.undeclared_format import UNDECLARED
from pipeline.data.contracts.formats.supported import decoder, prepare
from pipeline.data.contracts.placing import pad, placed
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import table_schema
from pipeline.data.streams.lanes import classify
from pipeline.data.streams.needs import Need, lowest
from pipeline.data.streams.writing.arrivals import arrivals
from pipeline.data.streams.writing.opening import CLOSED, OpenRows, open_rows
from pipeline.data.streams.writing.placed_rows import PlacedRows, RowsByTarget, by_file
from pipeline.data.streams.writing.portions import portions
from pipeline.lake.delta.bronze import SLICE_BYTES, sliced, whole
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.meanings import with_meanings
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.storage.location import Location

READ: Final = (
    "game_key", "game", "schema_id", "seq", "pos", "prev_seq", "refused",
    "topic", "partition", "offset", "source_time", "raw", "profile", "registry", "writer",
)  # fmt: skip
"""The columns of bronze that a pass reads."""

OWN_COLUMNS: Final = pa.schema(
    [
        ("_seq", pa.int64()),
        ("_pos", pa.int32()),
        ("_schema_id", pa.int64()),
        ("_event_time", pa.timestamp("us", "UTC")),
        ("_event_id", pa.string()),
        ("_source_time", pa.timestamp("us", "UTC")),
        ("_type", pa.string()),
    ]
)
"""The columns of every game table before the payload's fields."""

_SCHEMA_ID: Final = OWN_COLUMNS.get_field_index("_schema_id")

REPORT: Final = "report string, rejects binary"
_WRITES: Final = 8  # files of one task that are on their way to a store
_DETAIL_LIMIT: Final = 500
_MOST_GROWTH: Final = 4  # the most that held decoded values may take, as a multiple of a slice

Place: TypeAlias = tuple[int, int]
"""A row of bronze: its seq and pos."""


@dataclass(frozen=True, slots=True)
class SplitJob:
    """The games to split, their cursors and schemas: the same job on the same rows has the same result."""

    cursors: Mapping[str, int]
    schema_set: SchemaSet
    tables: Location  # below it each game's files are written, in a folder named by its key
    quarantine: Location | None = None  # where refused rows are written; None: they are returned, as Arrow IPC
    deadly: frozenset[Place] = frozenset()  # refused without decoding: each kills a worker
    # A trial: does a worker survive these rows, first to last? nothing is kept.
    trial: tuple[Place, Place] | None = None
    slice_bytes: int = SLICE_BYTES  # a task with more rows splits them one slice after the other


def target_schema(schema_set: SchemaSet, key: str) -> pa.Schema:
    """Return the columns of a game's table: our own, then the union of its registered schemas."""
    return _target(schema_set.placed(GameKey(key)))


def landing_schema(schema_set: SchemaSet, key: str) -> pa.Schema:
    """Return the same columns for a commit of rows: they carry what the game's schema ids mean."""
    ids = schema_set.games.get(GameKey(key), ())
    marks = {each: schema_set.fingerprints[each] for each in ids if each in schema_set.fingerprints}
    return with_meanings(target_schema(schema_set, key), marks)


def _type_schema(schema_set: SchemaSet, key: str, struct: str | None) -> pa.Schema:
    """Return the columns of a game's rows of one event type, as a file has them."""
    return _target(_of_struct(schema_set.placed(GameKey(key)), struct))


@lru_cache(maxsize=4096)
def _of_struct(
    schemas: tuple[tuple[Schema, FieldPlacement], ...], struct: str | None
) -> tuple[tuple[Schema, FieldPlacement], ...]:
    """Return the schemas of one event type; where the game has no other, the very same tuple."""
    own = tuple(each for each in schemas if each[1].struct == struct)
    return schemas if len(own) == len(schemas) else own


@lru_cache(maxsize=4096)
def _target(schemas: tuple[tuple[Schema, FieldPlacement], ...]) -> pa.Schema:
    return pa.schema([*OWN_COLUMNS, *(table_schema(schemas) if schemas else ())])


def split(batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
    """Split the rows of one task and yield a row for each slice: a JSON report, refused rows that were not written."""
    for rows in sliced(batches, job.slice_bytes):
        yield _split_slice(rows, job)


def _split_slice(rows: pa.Table, job: SplitJob) -> pa.RecordBatch:
    seqs = pc.min_max(rows.column("seq")).as_py()
    own_rows = _of_my_games(rows, job.cursors)
    if job.trial is not None:
        own_rows = _within(own_rows, *job.trial)
    worker = _Split(own_rows, job)
    del rows, own_rows  # payloads are large: the copies are freed
    worker.run()
    worker.settle()
    rejects = pa.concat_tables([QUARANTINE.empty_table(), *worker.rejects])
    refused = None
    if job.quarantine is not None:
        refused, rejects = worker.write_rejects(rejects, job.quarantine), rejects.slice(0, 0)
    report = {
        "seq_from": seqs["min"],
        "seq_to": seqs["max"],
        "games": worker.games,
        "refused": refused,
        "seconds": worker.seconds,
    }
    return pa.RecordBatch.from_pydict({"report": [json.dumps(report)], "rejects": [_ipc(rejects)]})


def _of_my_games(rows: pa.Table, cursors: Mapping[str, int]) -> pa.Table:
    """Keep the rows above the cursor of each game of the job."""
    keys = whole(rows.column("game_key")).dictionary_encode()
    floor = np.array([cursors.get(key, np.iinfo(np.int64).max) for key in keys.dictionary.to_pylist()])
    is_above_cursor = rows.column("seq").to_numpy() > floor[keys.indices.to_numpy()]
    return rows if is_above_cursor.all() else rows.filter(pa.array(is_above_cursor))  # copying all payloads costs time


def _within(rows: pa.Table, first: Place, last: Place) -> pa.Table:
    places = zip(rows.column("seq").to_pylist(), rows.column("pos").to_pylist(), strict=True)
    return rows.filter(pa.array([first <= place <= last for place in places], pa.bool_()))


@dataclass(frozen=True, slots=True)
class _Games:
    """The games of a part's rows, and their columns of our own."""

    games: np.ndarray  # of each row, its place among the names
    names: list[str]
    own: pa.Table


class _Split:
    """The work of one slice; `games` and `rejects` are its outcome."""

    def __init__(self, rows: pa.Table, job: SplitJob) -> None:
        self.job = job
        self.rows = rows.combine_chunks()
        self.games: dict[str, dict[str, Any]] = {}
        self.rejects: list[pa.Table] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self.needs: dict[str, list[Need]] = defaultdict(list)  # by game key
        self._most_bytes = _MOST_GROWTH * job.slice_bytes
        self._held = 0  # bytes of decoded values

    def run(self) -> None:
        if not self.rows.num_rows:
            return
        self._note_links()
        refused = self.rows.column("refused")
        routed = self.rows if refused.null_count == len(refused) else self.rows.filter(pc.is_null(refused))
        if self.job.deadly:
            routed = self._without_deadly(routed)
        decoded: RowsByTarget = defaultdict(list)
        if routed.num_rows:
            self._decode(routed, decoded)
        if self.needs:
            self._hold_back(decoded)
        del routed
        self.rows = self.rows.schema.empty_table()
        self._write_all(decoded)

    def _without_deadly(self, routed: pa.Table) -> pa.Table:
        places = zip(routed.column("seq").to_pylist(), routed.column("pos").to_pylist(), strict=True)
        deadly = np.array([place in self.job.deadly for place in places], dtype=bool)
        why = "a worker that read this record died"
        self._refuse(routed, [(int(row), "kills_worker", why) for row in np.flatnonzero(deadly)])
        return routed.filter(pa.array(~deadly))

    def _note_links(self) -> None:
        """Record the seqs of each game's rows, refused ones included: the cursor moves over them too."""
        links = self.rows.group_by(["game_key", "seq", "prev_seq"]).aggregate([])
        for row in links.to_pylist():
            game = self.games.setdefault(
                row["game_key"],
                {"links": [], "arrivals": [], "files": [], "rejects": {}, "types": {}, "error": None, "needs": []},
            )
            game["links"].append([row["seq"], row["prev_seq"]])

    def _decode(self, routed: pa.Table, decoded: RowsByTarget) -> None:
        """Decode all rows, part by part; values may be much larger than bronze's, so some are written in between."""
        since, written = time.perf_counter(), self.seconds["write"]
        for part in open_rows(routed, self.job.schema_set):
            for key, needs in part.needs.items():
                self.needs[key] += needs
            if self.needs:
                part.close(self.needs)
            left: OpenRows | None = part
            while left is not None:
                left = self._decode_part(left, decoded)
        self.seconds["decode"] += time.perf_counter() - since - (self.seconds["write"] - written)

    def _hold_back(self, decoded: RowsByTarget) -> None:
        """Drop the rows of games for which the schema set lacks something: none lands or is refused (law L14)."""
        waiting = pa.array(sorted(self.needs), pa.string())
        self.rejects = [each.filter(pc.invert(pc.is_in(each.column("game_key"), waiting))) for each in self.rejects]
        for target, parts in decoded.items():
            decoded[target] = [each.without(waiting) for each in parts]
        for key, needs in self.needs.items():
            game = self.games[key]
            game.update(rejects={}, types={}, needs=[need.as_json() for need in lowest(needs)])
            try:
                discard(self.job.tables / key, [DataFile(**file) for file in game["files"]])
            except OSError as error:  # law L6: they stay as orphans
                game["error"] = _fault(error)
            game["files"] = []

    def _decode_part(self, part: OpenRows, decoded: RowsByTarget) -> OpenRows | None:
        """Decode by schema id, over all games at once, and lay each row out in its game's columns.

        Return the rows that another schema is to be tried for.
        """
        again: dict[int, int] = {}
        routed, ids, refusals = part.routed, part.ids, part.refused
        keys = whole(routed.column("game_key")).dictionary_encode()
        names = keys.dictionary.to_pylist()
        games = keys.indices.to_numpy()
        own = self._own_columns(part)
        sizes = pc.fill_null(pc.binary_length(part.payload), 0).to_numpy(zero_copy_only=False)
        of_rows = np.unique(ids)
        known = self.job.schema_set.schemas
        prepare([known[each] for each in of_rows.tolist() if each in known])
        for schema_id in of_rows:
            if schema_id == CLOSED:
                continue
            chosen = np.flatnonzero(ids == schema_id)
            refused_games = {
                game: why
                for game, name in enumerate(names)
                if (why := self._refusal_of(name, int(schema_id))) is not None
            }
            allowed = np.array([game not in refused_games for game in range(len(names))])[games[chosen]]
            refusals += [(row, *refused_games[int(games[row])]) for row in chosen[~allowed].tolist()]
            chosen = chosen[allowed]
            if not chosen.size:
                continue
            try:
                schema = known[int(schema_id)]
                for portion in portions(chosen, sizes[chosen], schema, self._most_bytes):
                    bad, more = self._decode_portion(part, portion, schema, _Games(games, names, own), decoded)
                    again |= more
                    refusals += bad
                    if self._held > self._most_bytes:
                        self._write_all(decoded)
            except Exception as error:  # noqa: BLE001 - law L6: games without this schema go on
                for game in np.unique(games[chosen]):
                    self.games[names[game]]["error"] = _fault(error)
        self._refuse(routed, refusals, ids)
        return part.again(again) if again else None

    def _decode_portion(
        self, part: OpenRows, portion: Rows, schema: Schema, of: "_Games", decoded: RowsByTarget
    ) -> tuple[list[tuple[int, str, str]], dict[int, int]]:
        """Decode rows of one schema; return the refused ones, and for each that another one is tried for, its id."""
        payloads = decoder(schema).decode(part.payload.take(pa.array(portion)))
        self._held += payloads.batch.nbytes
        good = portion[payloads.rows]
        for target, placement, members in self._by_layout(good, of.games, of.names, schema.schema_id):
            types = pa.repeat(pa.scalar(event_type(schema.message)), members.size)
            payload = placed(_rows_of(payloads.batch, members), schema, placement)
            payload = pad(payload, pa.schema(list(target)[len(OWN_COLUMNS) :]))
            rows = pa.array(good[members])
            own = of.own.take(rows)
            if payloads.versions is not None:
                firsts = self._firsts(schema, payloads.versions[members], of.games[good[members]], of.names)
                own = own.set_column(_SCHEMA_ID, own.schema.field(_SCHEMA_ID), pa.array(firsts))
            keys = part.routed.column("game_key").take(rows)
            decoded[target].append(PlacedRows(keys, pa.table([*own.columns, types, *payload.columns], target.names)))
        bad = [(int(portion[index]), reason, detail) for index, reason, detail in payloads.refused]
        late = portion[payloads.uncovered].tolist()
        again = part.next_of([*(row for row, _, _ in bad), *late], schema.schema_id)
        refused = [each for each in bad if each[0] not in again]
        if late := [row for row in late if row not in again]:
            refused += self._wait(part, late, schema)
        return refused, again

    def _wait(self, part: OpenRows, rows: list[int], schema: Schema) -> list[tuple[int, str, str]]:
        """Note what rows need that a superset does not cover; return those that are refused instead."""
        if not part.registers:
            return [(row, "unknown_schema", "no schema has its shape") for row in rows]
        for key, needs in part.uncovered(rows, version_of(schema.definition)).items():
            self.needs[key] += needs
        return []

    def _firsts(self, newest: Schema, versions: Rows, games: np.ndarray, names: list[str]) -> Rows:
        """Return the id of each row's first superset that covers it: which one it is does not depend on the newest."""
        ids = np.empty(len(versions), np.int64)
        for game in np.unique(games).tolist():
            known = sorted(versions_of(self.job.schema_set.placed(GameKey(names[game])), newest).items())
            rows = games == game
            at = np.searchsorted([version for version, _ in known], versions[rows])
            ids[rows] = np.array([each for _, each in known], np.int64)[at]
        return ids

    def _own_columns(self, part: OpenRows) -> pa.Table:
        columns = [part.routed.column("seq"), part.routed.column("pos"), pa.array(part.ids)]
        columns += [part.event_time, part.event_id, part.routed.column("source_time")]
        own = pa.schema([each for each in OWN_COLUMNS if each.name != "_type"])
        return pa.table(columns, names=own.names).cast(own)

    def _refusal_of(self, name: str, schema_id: int) -> tuple[str, str] | None:
        """Return why a game's rows of a schema are refused without decoding, None when they are not."""
        schema_set = self.job.schema_set
        if schema_id not in schema_set.games.get(GameKey(name), ()):
            if (message := schema_set.lost.get(schema_id)) is not None:
                lost = f"the control store has lost schema {schema_id}, {shown(message)}"
                return "unknown_schema", f"{lost}: restore its newest copy, or register the schema again"
            return "unknown_schema", f"schema {schema_id} is not registered for this game"
        placement = schema_set.placement(GameKey(name), schema_id)
        return None if placement.quarantined is None else (placement.reason, placement.quarantined)

    def _by_layout(
        self, good: np.ndarray, games: np.ndarray, names: list[str], schema_id: int
    ) -> list[tuple[pa.Schema, FieldPlacement, np.ndarray]]:
        """Group rows by the columns of their game's table and their layout: most games share a few layouts."""
        schema_set = self.job.schema_set
        layouts: dict[tuple[int, FieldPlacement], tuple[pa.Schema, list[int]]] = {}
        for game in np.unique(games[good]).tolist():
            placement = schema_set.placement(GameKey(names[game]), schema_id)
            target = _type_schema(schema_set, names[game], placement.struct)
            key = id(target), placement
            layouts.setdefault(key, (target, []))[1].append(game)
        if len(layouts) == 1:
            (((_, placement), (target, _)),) = layouts.items()
            return [(target, placement, np.arange(good.size))]
        marks = np.zeros(len(names), dtype=np.int64)
        for mark, (_, members) in enumerate(layouts.values()):
            marks[members] = mark
        of_row = marks[games[good]]
        return [
            (target, placement, np.flatnonzero(of_row == mark))
            for mark, ((_, placement), (target, _)) in enumerate(layouts.items())
        ]

    def _write_all(self, decoded: RowsByTarget) -> None:
        started, self._held = time.perf_counter(), 0
        for rows in by_file(decoded):
            self._write(rows)
        self.seconds["write"] += time.perf_counter() - started

    def _write(self, placed_rows: PlacedRows) -> None:
        keys, table = whole(placed_rows.keys).dictionary_encode(), placed_rows.rows
        games = keys.indices.to_numpy()
        # By number, not by name: sorting compares, and comparing texts is slow.
        order = np.lexsort((table.column("_pos").to_numpy(), table.column("_seq").to_numpy(), games))
        table = table.take(pa.array(order)).combine_chunks()
        for game, arrival in arrivals(games[order], table):
            self.games[keys.dictionary[game].as_py()]["arrivals"].append(arrival)
        self._count_landed(keys.dictionary, games[order], table.column("_type"))
        self._count_shapes(keys.dictionary, games[order], table.column("_schema_id").to_numpy())
        ends = np.flatnonzero(np.diff(games[order], append=-1)) + 1

        def write(start: int, end: int) -> None:
            self._write_game(keys.dictionary[int(games[order[start]])].as_py(), table.slice(start, end - start))

        starts = [0, *ends.tolist()]
        if not self.job.tables.is_far:
            for start, end in itertools.pairwise(starts):
                write(start, end)
            return
        with ThreadPoolExecutor(_WRITES) as pool:  # each waits for its store: 300 games one after another are seconds
            list(pool.map(write, starts, starts[1:]))

    def _count_landed(self, keys: pa.Array, games: np.ndarray, types: pa.ChunkedArray) -> None:
        named = whole(types).dictionary_encode()
        many = len(named.dictionary)
        counts = np.bincount(games * many + named.indices.to_numpy())
        for place in np.flatnonzero(counts).tolist():
            self._count_type(keys[place // many].as_py(), named.dictionary[place % many].as_py(), 0, int(counts[place]))

    def _count_shapes(self, keys: pa.Array, games: np.ndarray, ids: np.ndarray) -> None:
        """Count the rows of each schema that nobody declared, for the statistics of variations."""
        known = [each.schema_id for each in self.job.schema_set.schemas.values() if each.format == UNDECLARED]
        if not known or not (chosen := np.isin(ids, known)).any():
            return
        pairs, counts = np.unique(np.stack([games[chosen], ids[chosen]]), axis=1, return_counts=True)
        for game, schema_id, rows in zip(*pairs.tolist(), counts.tolist(), strict=True):
            counted = self.games[keys[game].as_py()].setdefault("shapes", {})
            counted[str(schema_id)] = counted.get(str(schema_id), 0) + rows  # a slice may write several times

    def _write_game(self, key: str, rows: pa.Table) -> None:
        try:
            file = write_file(rows, self.job.tables / key, ["_seq"], settled=False)
            if self.job.trial is None:
                self.games[key]["files"].append(file.as_dict())
            else:
                discard(self.job.tables / key, [file])
            hit("mid_data_files")
        except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
            self.games[key]["error"] = _fault(error)

    def settle(self) -> None:
        """Put the games' files on disk before they are reported: this task may run on another machine than the driver.

        In threads, for all games at once, and not while the driver commits.
        """
        started = time.perf_counter()
        names = {key: [f"{key}/{file['path']}" for file in game["files"]] for key, game in self.games.items()}
        try:
            self.job.tables.settle([name for of_game in names.values() for name in of_game])
        except OSError as error:  # law L6: games without a file here go on
            for key in (key for key, of_game in names.items() if of_game):
                self.games[key]["error"] = _fault(error)
        self.seconds["write"] += time.perf_counter() - started

    def write_rejects(self, rejects: pa.Table, folder: Location) -> dict[str, Any] | None:
        """Write refused rows as a file below quarantine's folder; return it with the games in it."""
        if not rejects.num_rows or self.job.trial is not None:
            return None
        keys = pc.unique(rejects.column("game_key")).to_pylist()
        try:
            return {"file": write_file(rejects, folder, ["seq", "game_key"]).as_dict(), "games": keys}
        except Exception as error:  # noqa: BLE001 - law L6: games without refused rows go on
            for key in keys:
                self.games[key]["error"] = _fault(error)
            return None

    def _refuse(self, routed: pa.Table, refusals: list[tuple[int, str, str]], ids: Rows | None = None) -> None:
        """Keep rows for quarantine; `ids` are those of the schemas by which rows were opened, where they were."""
        if not refusals:
            return
        refused = routed.take(pa.array([row for row, _, _ in refusals], pa.int64()))
        now = pa.scalar(int(time.time() * 1_000_000), pa.timestamp("us", "UTC"))
        given = {
            "reason": pa.array([reason for _, reason, _ in refusals], pa.string()),
            "detail": pa.array([detail[:_DETAIL_LIMIT] for _, _, detail in refusals], pa.string()),
            "quarantined_at": pa.repeat(now, len(refusals)),
        }
        columns = [given[name] if name in given else refused.column(name) for name in QUARANTINE.names]
        self.rejects.append(pa.table(columns, names=QUARANTINE.names).cast(QUARANTINE))
        keys = refused.column("game_key").to_pylist()
        for key, (_, reason, _) in zip(keys, refusals, strict=True):
            reasons = self.games[key]["rejects"]
            reasons[reason] = reasons.get(reason, 0) + 1
        known = self.job.schema_set.schemas
        for key, (row, _, _) in zip(keys, refusals, strict=True):
            if ids is not None and (schema := known.get(int(ids[row]))) is not None:
                self._count_type(key, event_type(schema.message), 1, 1)

    def _count_type(self, key: str, name: str, place: int, rows: int) -> None:
        """Add rows of an event type to those that landed (place 0) or were refused (1)."""
        self.games[key]["types"].setdefault(name, [0, 0])[place] += rows


def _fault(error: Exception) -> dict[str, str]:
    evidence = "".join(traceback.format_exception_only(error)).strip()[:_DETAIL_LIMIT]
    return {"kind": classify(error), "evidence": evidence}


def _rows_of(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    return batch if rows.size == batch.num_rows else batch.take(pa.array(rows))


def _ipc(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
