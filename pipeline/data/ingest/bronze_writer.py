"""The work of an ingest task on the wrappers of one micro-batch.

`land` runs on an executor: it opens the wrappers, gives every row its place (seq, pos, prev_seq) and writes Parquet
files into the tables' folders, slice by slice. The driver commits all of them at once (law L9).
"""

import json
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import MALFORMED
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.ingest.evidence.records import RECORD_COLUMNS, records_of
from pipeline.data.ingest.name_sketch import sketched
from pipeline.data.ingest.profiled import NumberedProfile, ProfiledRows, needs_of, open_profiled
from pipeline.data.ingest.sources.kind import IMPOSSIBLE_TIME, INPUT, SOURCE
from pipeline.data.ingest.sources.landing_log import file_name
from pipeline.lake.delta.bronze import BRONZE, FRAMED, SLICE_BYTES, sliced, whole
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Onboarding

_TIME: Final = pa.timestamp("us", "UTC")
_UNKNOWN: Final = "unknown_game"
_NO_TIME: Final = "the record's time is outside of what 64 bits of microseconds hold"
# Names under one prefix that a micro-batch reports: an hour's games, with room for refused ones.
_CANDIDATES: Final = 100


@dataclass(frozen=True, slots=True)
class SourceJob:
    """What a task knows of the source of one stream."""

    profile: NumberedProfile | None = None  # None: turnout's wrapper with turnout's ids
    landing_times: Mapping[str, int] | None = None  # landing file → when it was added, microseconds; None for Kafka
    landing: Location | None = None  # the landing table
    prefix: str = ""  # before the names of its files


@dataclass(frozen=True, slots=True)
class IngestJob:
    """The input of a task that lands one micro-batch."""

    seq: int  # of its first slice; each further slice has the next seq
    last_seqs: Mapping[str, int]  # the last seq of each game before this one
    known: Mapping[str, str]  # exact name → key of the games; no other name gets a key
    onboarding: Onboarding  # what to report of names without a game
    bronze: Location
    quarantine: Location
    bronze_files: int
    sources: tuple[SourceJob, ...] = (SourceJob(),)  # of each stream of the query
    prefixes: tuple[str, ...] = ()  # of onboarding rules, the longest first
    slice_bytes: int = SLICE_BYTES  # a larger micro-batch has several seqs, so that memory holds at most this many rows


def land(batches: Iterator[pa.RecordBatch], job: IngestJob) -> Iterator[pa.RecordBatch]:
    """Write the rows of one micro-batch and yield a row for each slice: a JSON report of the files."""
    last_seqs = dict(job.last_seqs)
    earlier: Counter[str] = Counter()
    columns = INPUT if len(job.sources) == 1 else (*INPUT, SOURCE)
    rows_of = (batch.select(columns) for batch in batches)
    for seq, rows in enumerate(sliced(rows_of, job.slice_bytes), job.seq):
        report = _land_slice(rows, replace(job, seq=seq, last_seqs=last_seqs), earlier)
        last_seqs.update(dict.fromkeys(report["counts"], seq))
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})


def _land_slice(rows: pa.Table, job: IngestJob, earlier: Counter[str]) -> dict[str, Any]:
    """Write the rows of one slice; `earlier` counts those of each landing file in the slices before."""
    if len(job.sources) == 1:
        only = _of_source(rows, job, job.sources[0], 0, earlier)
        report = _write(only.bronze, only.detail, job)
        return {**report, "needs": only.needs, "oldest_of_each": [report["oldest_source_at"]]}
    found: list[_Rows | None] = []
    first = 0
    for number, source in enumerate(job.sources):  # so pos follows from the records alone
        own = rows.filter(pc.equal(rows.column(SOURCE), str(number))).drop_columns(SOURCE)
        found.append(_of_source(own, job, source, first, earlier) if own.num_rows else None)
        first += own.num_rows
    there = [each for each in found if each is not None]
    bronze = pa.concat_tables([each.bronze for each in there], promote_options="default")
    needs = [need for each in there for need in each.needs]
    oldest = [None if each is None else _seconds(pc.min(each.bronze.column("source_time"))) for each in found]
    details = pa.chunked_array([each.detail for each in there])
    return {**_write(bronze, details, job), "needs": needs, "oldest_of_each": oldest}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one source in a slice."""

    bronze: pa.Table
    detail: pa.Array  # the sentences that explain refusals
    needs: list[list[Any]]


def _of_source(rows: pa.Table, job: IngestJob, source: SourceJob, first_pos: int, earlier: Counter[str]) -> _Rows:
    """Return the rows of one source with bronze's columns, in their order."""
    order = ["topic", "partition", "offset"]
    if source.landing_times is not None:
        rows = _placed_in_landing(rows, source, source.landing_times, earlier)
        order = ["source_time", "topic", "offset"]
    rows = rows.sort_by([(name, "ascending") for name in order]).combine_chunks()
    bronze, detail = _bronze_rows(rows, job, source.profile, first_pos)
    return _Rows(bronze, detail, [] if source.profile is None else needs_of(bronze, source.profile))


def _placed_in_landing(rows: pa.Table, source: SourceJob, times: Mapping[str, int], earlier: Counter[str]) -> pa.Table:
    """Give landing rows their position: the file's name, the row's number in it, and when the file was added.

    Spark reads one file from start to end, so the number is the count so far; a file that has left the landing table
    has no known time.
    """
    files = whole(rows.column("topic")).dictionary_encode()
    inside = [file_name(uri, source.landing) for uri in files.dictionary.to_pylist()]
    names = [source.prefix + name for name in inside]
    of_row = files.indices.to_numpy()
    order = np.argsort(of_row, kind="stable")
    counts = np.bincount(of_row, minlength=len(names))
    starts = np.concatenate(([0], np.cumsum(counts)))[:-1]
    before = np.array([earlier[name] for name in names], dtype=np.int64)
    offsets = np.empty(rows.num_rows, dtype=np.int64)
    offsets[order] = np.arange(rows.num_rows) - (starts - before)[of_row[order]]
    earlier.update(dict(zip(names, counts.tolist(), strict=True)))
    placed = {
        "topic": pa.array(names, pa.string()).take(files.indices),
        "offset": pa.array(offsets),
        "source_time": pa.array([times.get(name) for name in inside], pa.int64()).cast(_TIME).take(files.indices),
    }
    for name, column in placed.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _bronze_rows(
    rows: pa.Table, job: IngestJob, profile: NumberedProfile | None, first_pos: int
) -> tuple[pa.Table, pa.Array]:
    """Return the rows with bronze's columns, and the sentences that explain the refusals."""
    count = rows.num_rows
    raw = whole(rows.column("value"))
    opened = _open_wrappers(raw) if profile is None else open_profiled(rows, profile)
    impossible = pc.fill_null(pc.equal(whole(rows.column("source_time")).cast(pa.int64()), IMPOSSIBLE_TIME), False)
    if pc.any(impossible).as_py():
        rows, opened = _without_times(rows, opened, impossible)
    names = opened.columns["game"].dictionary_encode()
    keys = [job.known.get(name, MALFORMED) for name in names.dictionary.to_pylist()]
    ordinals = pc.fill_null(names.indices, len(keys)).to_numpy(zero_copy_only=False)
    keys.append(MALFORMED)
    if opened.refused.null_count < count:  # a profile may refuse rows of known games; no game's chain has them
        ordinals = np.where(opened.refused.is_valid().to_numpy(zero_copy_only=False), len(keys) - 1, ordinals)
    known = np.array([key != MALFORMED for key in keys])[ordinals]
    refused = pc.if_else(pa.array(known), opened.refused, pc.coalesce(opened.refused, pa.scalar(_UNKNOWN)))
    detail = pc.if_else(pc.equal(refused, _UNKNOWN), pa.scalar("no game of this name is onboarded"), opened.detail)
    now = pa.scalar(int(time.time() * 1_000_000), _TIME)
    columns = {
        "game_key": pa.array(keys, pa.string()).take(pa.array(ordinals)),
        "seq": pa.array(np.full(count, job.seq)),
        "pos": pa.array(np.arange(first_pos, first_pos + count, dtype=np.int32)),
        "prev_seq": pa.array(np.array([job.last_seqs.get(key, 0) for key in keys])[ordinals]),
        "refused": refused,
        "ingest_time": pa.repeat(now, count),
        "raw": raw,
        "headers": _headers(whole(rows.column("headers"))),
    }
    wanted = [name for name in BRONZE.names if name not in FRAMED or profile is not None]
    for name in wanted:
        if name not in columns:
            columns[name] = opened.columns[name] if name in opened.columns else whole(rows.column(name))
    table = pa.table({name: columns[name].cast(BRONZE.field(name).type) for name in wanted})
    return table, detail


def _open_wrappers(raw: pa.BinaryArray) -> ProfiledRows:
    opened = open_wrappers(raw)
    columns = {name: opened.batch.column(name) for name in opened.batch.schema.names if name != "payload"}
    return ProfiledRows(columns, opened.refused, opened.detail)


def _without_times(rows: pa.Table, opened: ProfiledRows, impossible: pa.Array) -> tuple[pa.Table, ProfiledRows]:
    """Refuse the rows whose time is none, and leave it out."""
    times = pc.if_else(impossible, pa.scalar(None, _TIME), whole(rows.column("source_time")))
    detail = pc.if_else(impossible, pa.scalar(_NO_TIME), opened.detail)
    refused = pc.if_else(impossible, pa.scalar("impossible_time"), opened.refused)
    rows = rows.set_column(rows.column_names.index("source_time"), "source_time", times)
    return rows, ProfiledRows(opened.columns, refused, detail)


def _headers(given: pa.Array) -> pa.Array:
    """Return null for an empty list: bronze has headers or null."""
    return pc.if_else(pc.equal(pc.list_value_length(given), 0), pa.scalar(None, given.type), given)


def _write(bronze: pa.Table, detail: pa.Array, job: IngestJob) -> dict[str, Any]:
    """Write bronze's files (all rows of a game in one, law L2) and the quarantine's, and report them."""
    keys = bronze.column("game_key").combine_chunks().dictionary_encode()
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    unique = keys.dictionary.to_pylist()
    bucket_of_key = np.array([zlib.crc32(key.encode()) % job.bronze_files for key in unique])
    buckets = bucket_of_key[keys.indices.to_numpy()]
    files = []
    for bucket in np.unique(buckets):
        chosen = bronze.filter(pa.array(buckets == bucket)).sort_by([("game_key", "ascending"), ("pos", "ascending")])
        files.append(write_file(chosen, job.bronze, ["seq", "game_key"], "zstd").as_dict())
    refused = pc.is_valid(bronze.column("refused"))
    rejects = bronze.append_column("detail", detail).filter(refused)
    quarantine = None
    if rejects.num_rows:
        quarantine = write_file(_quarantine_rows(rejects), job.quarantine, ["seq", "game_key"]).as_dict()
    routed = pc.unique(bronze.filter(pc.invert(refused)).column("game")).to_pylist()
    return {
        "seq": job.seq,
        "files": files,
        "quarantine": quarantine,
        "rows": bronze.num_rows,
        "routed": {job.known[name]: name for name in routed},
        "counts": _counts(bronze.column("game_key")),
        "reasons": _counts(rejects.column("refused")),
        "clocks": _counts(pc.fill_null(bronze.column("source_clock"), "unknown")),
        "unknown": _unknown(rejects, job),
        "oldest_source_at": _seconds(pc.min(bronze.column("source_time"))),
        "last": _last_records(bronze),
    }


def _last_records(bronze: pa.Table) -> list[list[Any]]:
    """Return topic, partition, offset, time (ms) and hashes of key and value of the last record of each partition."""
    places = bronze.select(["topic", "partition"]).append_column("row", pa.array(np.arange(bronze.num_rows)))
    places = places.filter(pc.is_valid(bronze.column("partition")))
    last = places.group_by(["topic", "partition"]).aggregate([("row", "max")])  # of a partition, offsets ascend
    rows = bronze.select(RECORD_COLUMNS).take(last.column("row_max"))
    return [[topic, number, *record.as_list()] for topic, number, record in records_of(rows)]


def _unknown(rejects: pa.Table, job: IngestJob) -> dict[str, Any] | None:
    """Return the report on names without a game: a sketch, and the busiest names under each prefix of a rule."""
    rejects = rejects.filter(pc.equal(rejects.column("refused"), _UNKNOWN))
    names = rejects.column("game")
    if not len(names):
        return None
    counts = pc.value_counts(names)
    distinct, rows = counts.field("values"), counts.field("counts")
    order = pc.array_sort_indices(rows, "descending")
    taken = pa.array(np.zeros(len(distinct), dtype=bool))
    candidates = {}
    for prefix in job.prefixes:  # of two matching prefixes the longer one counts
        fits = pc.and_not(pc.starts_with(distinct, prefix), taken)
        taken = pc.or_(taken, fits)
        candidates[prefix] = distinct.take(order.filter(fits.take(order))[:_CANDIDATES]).to_pylist()
    limit = job.onboarding.max_pending
    sources = _sources(rejects, distinct.take(order[:limit]))
    return {
        "sketch": sketched(distinct, rows, time.time(), limit, sources).dumps(),
        "candidates": candidates,
    }


def _sources(rejects: pa.Table, names: pa.Array) -> dict[str, list[str]]:
    """Return for each of these names the topics and landing tables that it came from."""
    rejects = rejects.filter(pc.is_in(rejects.column("game"), value_set=names))
    places = whole(pc.fill_null(rejects.column("topic"), "")).dictionary_encode()
    labels = pa.array([_source(place) for place in places.dictionary.to_pylist()], pa.string()).take(places.indices)
    pairs = pa.table({"game": rejects.column("game"), "source": labels}).group_by(["game", "source"]).aggregate([])
    found: dict[str, list[str]] = {}
    for game, source in zip(pairs.column("game").to_pylist(), pairs.column("source").to_pylist(), strict=True):
        found.setdefault(game, []).append(source)
    return {game: sorted(each) for game, each in found.items()}


def _source(topic: str) -> str:
    """Return the topic, or the landing table of a file: `delta:` and its id, or `landing` for our own."""
    if not topic.endswith(".parquet"):
        return topic or "unknown"
    return topic.split("/", 1)[0] if topic.startswith("delta:") else "landing"


def _quarantine_rows(rejects: pa.Table) -> pa.Table:
    now = pa.scalar(int(time.time() * 1_000_000), _TIME)
    columns = {name: rejects.column(name) for name in QUARANTINE.names if name in rejects.column_names}
    columns["reason"] = rejects.column("refused")
    columns["quarantined_at"] = pa.chunked_array([pa.repeat(now, rejects.num_rows)])
    columns["field"] = pa.nulls(rejects.num_rows, pa.string())  # the reason says it
    return pa.table({name: columns[name] for name in QUARANTINE.names}).cast(QUARANTINE)


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in pc.value_counts(column).to_pylist()}


def _seconds(moment: pa.Scalar) -> float | None:
    micros = moment.cast(pa.int64()).as_py()
    return None if micros is None else micros / 1e6
