"""Opens bronze rows: their payloads, and turnout's id of the schema that each one's writer names.

Whether a row is decoded, refused, or waits depends on it and on the schema set alone (law L13).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import GameKey, shown
from pipeline.data.contracts.declared_types import SchemasByType
from pipeline.data.contracts.decoded import Refusal, Rows
from pipeline.data.contracts.envelopes.framing import FRAMINGS
from pipeline.data.contracts.envelopes.index_paths import index_path
from pipeline.data.contracts.envelopes.opening import payloads_of
from pipeline.data.contracts.envelopes.spans import present
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import SchemaSet, WriterId
from pipeline.data.contracts.shape_needs import SHAPES, writer_of
from pipeline.data.streams.needs import Need, is_open, lowest
from pipeline.lake.delta.bronze import whole

CLOSED: Final = -1
"""Stands for a schema's id if the row is refused, or waits."""

_TURNOUT: Final = ""  # in place of a registry: the ids are turnout's own


@dataclass
class OpenRows:
    """Some rows of bronze, opened."""

    routed: pa.Table  # the rows themselves
    payload: pa.BinaryArray
    event_time: pa.Array
    event_id: pa.Array
    ids: Rows  # turnout's id of each row's schema, or CLOSED
    refused: list[Refusal] = field(default_factory=list)
    # The schema that is tried for a game's rows that another one does not decode: (game key, id) → id
    further: dict[tuple[str, int], int] = field(default_factory=dict)
    needs: dict[str, tuple[Need, ...]] = field(default_factory=dict)  # by game key
    number: int = 0  # of their profile
    registers: bool = False  # rows that no superset covers wait for one; False: they are refused

    def next_of(self, rows: Collection[int], schema_id: int) -> dict[int, int]:
        """Return the id of the next schema to try for rows that one did not decode, for those that have one."""
        if not self.further:
            return {}
        keys = self.routed.column("game_key").take(pa.array(rows, pa.int64())).to_pylist()
        found = {row: self.further.get((key, schema_id)) for row, key in zip(rows, keys, strict=True)}
        return {row: after for row, after in found.items() if after is not None}

    def again(self, ids: Mapping[int, int]) -> "OpenRows":
        """Return some rows, each with the id of the schema to try."""
        rows = pa.array(list(ids))
        times, event_ids = self.event_time.take(rows), self.event_id.take(rows)
        tried = np.array(list(ids.values()), np.int64)
        return replace(
            self, routed=self.routed.take(rows), payload=self.payload.take(rows), event_time=times, event_id=event_ids,
            ids=tried, refused=[], needs={},
        )  # fmt: skip

    def uncovered(self, rows: Collection[int], version: int) -> dict[str, tuple[Need, ...]]:
        """Return by game key what rows need that their type's superset of this version does not cover."""
        columns = self.routed.select(["game_key", "writer", "seq", "pos"]).take(pa.array(rows, pa.int64()))
        in_order = columns.sort_by([("seq", "ascending"), ("pos", "ascending")])
        of_writers = in_order.group_by(["game_key", "writer"], use_threads=False)
        needs: dict[str, list[Need]] = {}
        for row in of_writers.aggregate([("seq", "first"), ("pos", "first")]).to_pylist():
            writer = writer_of(event_type(row["writer"].decode()), version)
            need = Need(row["seq_first"], row["pos_first"], self.number, SHAPES, writer)
            needs.setdefault(row["game_key"], []).append(need)
        return {key: lowest(each) for key, each in needs.items()}

    def close(self, keys: Collection[str]) -> None:
        """Neither decode nor refuse any row of these games."""
        wanted = pa.array(sorted(keys), pa.string())
        closed = pc.is_in(whole(self.routed.column("game_key")), wanted).to_numpy(zero_copy_only=False)
        self.ids = np.where(closed, CLOSED, self.ids)
        self.refused = [each for each in self.refused if not closed[each.row]]


def open_rows(routed: pa.Table, schemas: SchemaSet) -> Iterator[OpenRows]:
    """Open rows that ingest did not refuse, those of each profile together; most tasks have turnout's own only."""
    numbers = routed.column("profile")
    if numbers.null_count == len(numbers):
        yield _own(routed)
        return
    for number in pc.unique(numbers).to_pylist():
        if number is None:
            yield _own(routed.filter(pc.is_null(numbers)))
        else:
            yield from _foreign(routed.filter(pc.equal(numbers, number)).combine_chunks(), number, schemas)


def _own(routed: pa.Table) -> OpenRows:
    batch = open_wrappers(whole(routed.column("raw")), known_good=True).batch  # ingest refused the others
    payload, event_time, event_id = (batch.column(name) for name in ("payload", "event_time", "event_id"))
    return OpenRows(routed, present(payload), event_time, event_id, routed.column("schema_id").to_numpy())


def _foreign(routed: pa.Table, number: int, schemas: SchemaSet) -> Iterator[OpenRows]:
    profile = schemas.profiles.get(number)
    if profile is None:
        yield _without_profile(routed, number)
        return
    opened = payloads_of(whole(routed.column("raw")), profile)
    writers = whole(routed.column("writer"))
    registries = whole(routed.column("registry").fill_null(_TURNOUT))
    for run in FRAMINGS[profile.framing].bodies(opened.payload, writers):
        start, count = run.start, len(run.bodies)
        times, event_ids = opened.event_time.slice(start, count), opened.event_id.slice(start, count)
        ids = np.full(count, CLOSED, np.int64)
        rows = OpenRows(routed.slice(start, count), run.bodies, times, event_ids, ids)
        rows.refused = [each._replace(row=each.row - start) for each in run.refusals]
        their_registries = registries.slice(start, count)
        their_writers = _with_paths(rows, their_registries, writers.slice(start, count), schemas)
        if profile.framing == "type":
            _judge_types(rows, their_writers, number, profile, schemas)
            yield rows
            continue
        _judge(rows, their_registries, their_writers, number, schemas)
        yield rows


def _without_profile(routed: pa.Table, number: int) -> OpenRows:
    """Let all rows wait: the schema set is older than their profile."""
    count = routed.num_rows
    times, ids = pa.nulls(count, pa.timestamp("us", "UTC")), pa.nulls(count, pa.string())
    rows = OpenRows(routed, pa.nulls(count, pa.binary()), times, ids, np.full(count, CLOSED, np.int64))
    in_order = routed.select(["game_key", "seq", "pos"]).sort_by([("seq", "ascending"), ("pos", "ascending")])
    first = in_order.group_by("game_key", use_threads=False).aggregate([("seq", "first"), ("pos", "first")])
    rows.needs = {row["game_key"]: (Need(row["seq_first"], row["pos_first"], number),) for row in first.to_pylist()}
    return rows


def _with_paths(
    rows: OpenRows, registries: pa.StringArray, writers: pa.BinaryArray, schemas: SchemaSet
) -> pa.BinaryArray:
    """Return the writers, with the index path of those whose payloads begin with one; these are cut off there."""
    distinct, codes = _encoded(registries, writers)
    is_indexed = np.array([(found := schemas.writers.get(each)) is not None and found.indexed for each in distinct])
    chosen = is_indexed[codes] & ~_marks(len(codes), rows.refused)
    if not chosen.any():
        return writers
    indexed, mask = np.flatnonzero(chosen), pa.array(chosen)
    read = index_path(rows.payload.filter(mask))
    rows.payload = pc.replace_with_mask(rows.payload, mask, read.rests)
    rows.refused += [each._replace(row=int(indexed[each.row])) for each in read.bad]
    joined = pc.binary_join_element_wise(writers.filter(mask), read.paths.fill_null(b""), b"")
    return pc.replace_with_mask(writers, mask, joined)


def _judge(
    rows: OpenRows, registries: pa.StringArray, writers: pa.BinaryArray, number: int, schemas: SchemaSet
) -> None:
    """Find each row's schema; a row without one is refused, or its game has a need."""
    distinct, codes = _encoded(registries, writers)
    games = whole(rows.routed.column("game_key")).dictionary_encode()
    pairs, of_row = np.unique(games.indices.to_numpy() * len(distinct) + codes, return_inverse=True)
    is_bad, seqs = _marks(len(codes), rows.refused), rows.routed.column("seq").to_numpy()
    places = rows.routed.column("pos").to_numpy()
    names = games.dictionary.to_pylist()
    needs: dict[str, list[Need]] = {}
    order = np.argsort(of_row, kind="stable")  # once: a task may have thousands of pairs
    together = np.split(order, np.searchsorted(of_row[order], np.arange(1, len(pairs))))
    for pair, rows_of_pair in zip(pairs.tolist(), together, strict=True):
        key, (registry, writer) = names[pair // len(distinct)], distinct[pair % len(distinct)]
        members = rows_of_pair[~is_bad[rows_of_pair]]
        if not members.size:
            continue
        seq = seqs[members].min()
        need = Need(int(seq), int(places[members][seqs[members] == seq].min()), number, registry, writer)
        found = schemas.writers.get((registry, writer))
        if registry == _TURNOUT:
            rows.ids[members] = int.from_bytes(writer[1:])
        elif is_open(need, GameKey(key), schemas):
            needs.setdefault(key, []).append(need)
        elif found is not None and found.schema_id is not None:
            rows.ids[members] = found.schema_id
        else:
            why = "its registry has no schema for it" if found is None or found.refused is None else found.refused
            rows.refused += [Refusal(row, "unknown_schema", why) for row in members.tolist()]
    rows.needs = {key: lowest(each) for key, each in needs.items()}


def _judge_types(
    rows: OpenRows, writers: pa.BinaryArray, number: int, profile: SourceProfile, schemas: SchemaSet
) -> None:
    """Find the schemas of each row's event type; a row of a type without one is refused, or its game has a need."""
    rows.number, rows.registers = number, profile.undeclared == "register"
    columns = {"key": rows.routed.column("game_key"), "writer": writers, "row": np.arange(len(writers))}
    is_bad = _marks(len(writers), rows.refused)
    without = list[int]()  # rows of types that have no superset yet
    types: dict[
        str, SchemasByType
    ] = {}  # by game key: a task may have thousands of names, and a game hundreds of types
    for each in pa.table(columns).group_by(["key", "writer"]).aggregate([("row", "list")]).to_pylist():
        key, name = each["key"], each["writer"].decode()
        members = np.array(each["row_list"], np.int64)
        members = members[~is_bad[members]]
        if not members.size:
            continue
        if (known := types.get(key)) is None:
            known = types[key] = SchemasByType(schemas.placed(GameKey(key)))
        if found := known.candidates(name):
            rows.ids[members] = found[0]
            rows.further |= {(key, tried): after for tried, after in pairwise(found)}
        elif rows.registers and known.known_version(name) is not None:
            without += members.tolist()
        else:
            what = f"schema of the event type {shown(name)}" if name else "JSON Schema"
            rows.refused += [Refusal(row, "unknown_schema", f"the game has no {what}") for row in members.tolist()]
    rows.needs = rows.uncovered(without, 0)


def _encoded(registries: pa.StringArray, writers: pa.BinaryArray) -> tuple[list[WriterId], Rows]:
    """Return the distinct writers, and the place of each row's among them."""
    names, ids = registries.dictionary_encode(), writers.dictionary_encode()
    pairs = names.indices.to_numpy().astype(np.int64) * len(ids.dictionary) + ids.indices.to_numpy()
    known, codes = np.unique(pairs, return_inverse=True)
    texts, values = names.dictionary.to_pylist(), ids.dictionary.to_pylist()
    return [(texts[pair // len(values)], values[pair % len(values)]) for pair in known.tolist()], codes


def _marks(count: int, refused: list[Refusal]) -> npt.NDArray[np.bool_]:
    marks = np.zeros(count, dtype=np.bool_)
    marks[[each.row for each in refused]] = True
    return marks
