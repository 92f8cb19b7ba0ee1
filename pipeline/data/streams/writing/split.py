"""The work of an executor on bronze rows: decodes each with its own schema and writes one Parquet file per game.

`split` is the body of a Spark task. It commits nothing: it reports files, links and refused rows (law L9). A game whose
rows cannot be written is reported with its error; the others go on (law L6).
"""

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey, shown
from pipeline.data.contracts.declared_types import versions_of
from pipeline.data.contracts.decoded import Refusal, Rows
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.formats.supported import decoder, prepare
from pipeline.data.contracts.placing import pad, placed
from pipeline.data.contracts.schemas import Schema
from pipeline.data.streams.needs import Need, lowest
from pipeline.data.streams.writing.arrivals import arrivals
from pipeline.data.streams.writing.columns import OWN_COLUMNS, by_layout
from pipeline.data.streams.writing.job import Place, SplitJob
from pipeline.data.streams.writing.opening import CLOSED, OpenRows, open_rows
from pipeline.data.streams.writing.placed_rows import PlacedRows, RowsByTarget, by_file
from pipeline.data.streams.writing.portions import portions
from pipeline.data.streams.writing.promises import keep_promised
from pipeline.data.streams.writing.reports import (
    DETAIL_LIMIT,
    count_landed,
    count_shapes,
    count_type,
    fault,
    undeclared,
)
from pipeline.lake.delta.bronze import sliced, whole
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.storage.location import Location

_SCHEMA_ID: Final = OWN_COLUMNS.get_field_index("_schema_id")

_WRITES: Final = 8  # files of one task that are on their way to a store
_MOST_GROWTH: Final = 4  # the most that held decoded values may take, as a multiple of a slice


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
        self._undeclared = undeclared(job.schema_set.schemas.values())
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
        self._refuse(routed, [Refusal(int(row), "kills_worker", why) for row in np.flatnonzero(deadly)])
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
            game.update(rejects={}, types={}, broken={}, needs=[need.as_json() for need in lowest(needs)])
            try:
                discard(self.job.tables / key, [DataFile(**file) for file in game["files"]])
            except OSError as error:  # law L6: they stay as orphans
                game["error"] = fault(error)
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
                for game in np.unique(games[chosen]).tolist()
                if (why := self._refusal_of(names[game], int(schema_id))) is not None
            }
            if refused_games:
                is_refused = np.isin(games[chosen], list(refused_games))
                refusals += [Refusal(row, *refused_games[int(games[row])]) for row in chosen[is_refused].tolist()]
                chosen = chosen[~is_refused]
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
                    self.games[names[game]]["error"] = fault(error)
        self._refuse(routed, refusals, part)
        return part.again(again) if again else None

    def _decode_portion(
        self, part: OpenRows, portion: Rows, schema: Schema, of: "_Games", decoded: RowsByTarget
    ) -> tuple[list[Refusal], dict[int, int]]:
        """Decode rows of one schema; return the refused ones, and for each that another one is tried for, its id."""
        payloads = decoder(schema).decode(part.payload.take(pa.array(portion)))
        self._held += payloads.batch.nbytes
        good = portion[payloads.rows]
        broke: list[Refusal] = []
        name = event_type(schema.message)
        for target, placement, members in by_layout(self.job.schema_set, good, of.games, of.names, schema.schema_id):
            types = pa.repeat(pa.scalar(name), members.size)
            payload = placed(_rows_of(payloads.batch, members), schema, placement)
            payload = pad(payload, pa.schema(list(target)[len(OWN_COLUMNS) :]))
            rows = pa.array(good[members])
            own = of.own.take(rows)
            if payloads.versions is not None:
                firsts = self._firsts(schema, payloads.versions[members], of.games[good[members]], of.names)
                own = own.set_column(_SCHEMA_ID, own.schema.field(_SCHEMA_ID), pa.array(firsts))
            keys = part.routed.column("game_key").take(rows)
            made = PlacedRows(keys, pa.table([*own.columns, types, *payload.columns], target.names))
            if self.job.schema_set.contracts:
                held = good[members], self.job.schema_set, schema, placement, self.games
                made, breaking = keep_promised(made, *held)
                broke += breaking
            decoded[target].append(made)
        bad = [each._replace(row=int(portion[each.row])) for each in payloads.refused]
        late = portion[payloads.uncovered].tolist()
        again = part.next_of([*(each.row for each in bad), *late], schema.schema_id)
        refused = [*broke, *(each for each in bad if each.row not in again)]
        if late := [row for row in late if row not in again]:
            refused += self._wait(part, late, schema)
        return refused, again

    def _wait(self, part: OpenRows, rows: list[int], schema: Schema) -> list[Refusal]:
        """Note what rows need that a superset does not cover; return those that are refused instead."""
        if not part.registers:
            return [Refusal(row, "unknown_schema", "no schema has its shape") for row in rows]
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
        count_landed(self.games, keys.dictionary, games[order], table.column("_type"))
        ids = table.column("_schema_id").to_numpy()
        count_shapes(self.games, keys.dictionary, games[order], ids, self._undeclared)
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

    def _write_game(self, key: str, rows: pa.Table) -> None:
        try:
            file = write_file(rows, self.job.tables / key, ["_seq"], settled=False)
            if self.job.trial is None:
                self.games[key]["files"].append(file.as_dict())
            else:
                discard(self.job.tables / key, [file])
            hit("mid_data_files")
        except Exception as error:  # noqa: BLE001 - law L6: one game's failure must not stop the others
            self.games[key]["error"] = fault(error)

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
                self.games[key]["error"] = fault(error)
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
                self.games[key]["error"] = fault(error)
            return None

    def _refuse(self, routed: pa.Table, refusals: list[Refusal], part: OpenRows | None = None) -> None:
        """Keep rows for quarantine; where they were opened, `part` has their event ids and the ids of their schemas."""
        if not refusals:
            return
        places = pa.array([each.row for each in refusals], pa.int64())
        refused = routed.take(places)
        now = pa.scalar(int(time.time() * 1_000_000), pa.timestamp("us", "UTC"))
        given = {
            "reason": pa.array([each.reason for each in refusals], pa.string()),
            "detail": pa.array([each.detail[:DETAIL_LIMIT] for each in refusals], pa.string()),
            "field": pa.array([each.field or None for each in refusals], pa.string()),
            "quarantined_at": pa.repeat(now, len(refusals)),
            "event_id": pa.nulls(len(refusals), pa.string()) if part is None else part.event_id.take(places),
        }
        columns = [given[name] if name in given else refused.column(name) for name in QUARANTINE.names]
        self.rejects.append(pa.table(columns, names=QUARANTINE.names).cast(QUARANTINE))
        keys = refused.column("game_key").to_pylist()
        for key, each in zip(keys, refusals, strict=True):
            reasons = self.games[key]["rejects"]
            reasons[each.reason] = reasons.get(each.reason, 0) + 1
        known = self.job.schema_set.schemas
        for key, each in zip(keys, refusals, strict=True):
            if part is not None and (schema := known.get(int(part.ids[each.row]))) is not None:
                count_type(self.games, key, event_type(schema.message), 1, 1)


def _rows_of(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    return batch if rows.size == batch.num_rows else batch.take(pa.array(rows))


def _ipc(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
