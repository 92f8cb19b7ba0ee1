"""Bronze's position in a source, from bronze's own columns: reads the newest files first, and no more than needed."""

import json
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.ingest.evidence.marks import LastRecord
from pipeline.data.ingest.evidence.records import RECORD_COLUMNS, records_of
from pipeline.data.ingest.lineage import OwnRows, up_to
from pipeline.lake.delta.bronze import whole
from pipeline.lake.delta.files import read_file
from pipeline.lake.delta.log import read_commit
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location

PLAN: Final = "sparkOffsets"
"""Key in a batch's commit info: Spark's file of the batch's planned offsets."""

FOREIGN: Final = "delta:"
"""Begins the names that files of a landing table elsewhere have in bronze; the table's id follows."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The newest landing commit with files in bronze."""

    version: int
    files: frozenset[str]  # its files in bronze


def last_seq(bronze: Location, version: int | None = None) -> float:
    """Return the last seq with rows in bronze, 0 without any; infinite where a file lacks statistics."""
    return next((top for top, _ in newest_first(bronze, 0, version)), 0)


def last_offsets(bronze: Location, topic: str, since_seq: int, wanted: AbstractSet[int]) -> dict[int, int]:
    """Return the last offset of each partition of a topic among the rows above a seq, if it has rows there.

    Reads until it has found each wanted partition; offsets grow with seq, so older files cannot hold a later one.
    """
    return {number: offset for number, (_, offset, _) in _ends(bronze, topic, OwnRows(since_seq), wanted).items()}


def last_records(
    bronze: Location, topic: str, own: OwnRows, wanted: AbstractSet[int], at_most: Mapping[int, int] | None = None
) -> dict[int, LastRecord]:
    """Return the last record of each wanted partition of a topic, up to some offset; absent where bronze has none."""
    ends = _ends(bronze, topic, own, wanted, at_most or {}) if wanted else {}
    found: dict[int, LastRecord] = {}
    for file in {str(file): file for _, _, file in ends.values()}.values():
        rows = read_file(file, RECORD_COLUMNS)
        here = {number: offset for number, (_, offset, at) in ends.items() if str(at) == str(file)}
        for number, offset in here.items():
            place = pc.and_(pc.equal(rows["partition"], number), pc.equal(rows["offset"], offset))
            row = rows.filter(pc.and_(pc.equal(rows["topic"], topic), place)).slice(0, 1)
            found.update((number, record) for _, number, record in records_of(row))
    return found


def _ends(
    bronze: Location, topic: str, own: OwnRows, wanted: AbstractSet[int], at_most: Mapping[int, int] | None = None
) -> dict[int, tuple[int, int, Location]]:
    """Return seq, offset and file of the last row of each partition."""
    by_partition: dict[int, tuple[int, int, Location]] = {}
    for newest, file in newest_first(bronze, own.since):
        if wanted <= by_partition.keys() and all(seq > newest for seq, _, _ in by_partition.values()):
            break
        rows = read_file(file, ["seq", "topic", "partition", "offset"])
        of_topic = pc.and_(pc.equal(rows["topic"], topic), pc.is_valid(rows["partition"]))
        rows = up_to(own.of(rows.filter(of_topic)), at_most or {})
        last = rows.group_by("partition").aggregate([("seq", "max"), ("offset", "max")])
        for row in last.to_pylist():
            before = by_partition.get(row["partition"], (0, -1, file))
            if (row["seq_max"], row["offset_max"]) > before[:2]:
                by_partition[row["partition"]] = row["seq_max"], row["offset_max"], file
    return by_partition


def last_commit(bronze: Location, since_seq: int, commits: Mapping[str, int], prefix: str = "") -> LastCommit | None:
    """Return the newest landing commit with files among the rows above a seq; None without landing rows.

    `commits` gives the commit of each file that the landing table's log still has; others get version -1. `prefix`
    stands before names of its files in bronze; without one, they are all names that have none. Reads until it finds a
    file of an older commit, and then the rest of that micro-batch: commits are read in order, but Spark reads the
    files of one micro-batch in any order, and a large one has several seqs.
    """
    newest_of = _NewestCommit()
    older_seq, batch_begin = -math.inf, -math.inf
    for newest, file in newest_first(bronze, since_seq):
        if newest_of.older_seq > older_seq:
            older_seq = newest_of.older_seq
            batch_begin = _first_seq_of_batch(bronze, older_seq)
        if newest < batch_begin:
            break
        rows = read_file(file, ["seq", "topic", "partition"])
        rows = rows.filter(pc.and_(pc.is_null(rows["partition"]), pc.greater(rows["seq"], since_seq)))
        has_prefix = pc.starts_with(rows["topic"], prefix or FOREIGN)
        rows = rows.filter(has_prefix if prefix else pc.invert(has_prefix))
        for row in rows.group_by("topic").aggregate([("seq", "max")]).to_pylist():
            name = row["topic"].removeprefix(prefix)
            newest_of.take(name, commits.get(name, -1), row["seq_max"])
    return newest_of.found


class _NewestCommit:
    """Collects (file, commit, seq) and keeps the files of the newest commit."""

    def __init__(self) -> None:
        self.found: LastCommit | None = None
        self.older_seq = -math.inf  # a seq with a file of an older commit: nothing before its micro-batch is newer
        self._seq = -math.inf

    def take(self, file: str, version: int, seq: int) -> None:
        if self.found is None or version > self.found.version:
            if self.found is not None:
                self.older_seq = max(self.older_seq, self._seq)
            self.found, self._seq = LastCommit(version, frozenset({file})), seq
        elif version == self.found.version:
            self.found = LastCommit(version, self.found.files | {file})
            self._seq = max(self._seq, seq)
        else:
            self.older_seq = max(self.older_seq, seq)


def plan_of(bronze: CursorTable, batch_app: str, batch: int) -> str | None:
    """Return the offsets that Spark had planned for a batch of one ingest generation, as bronze's commit keeps them.

    None where the log no longer has its commit, or the commit is of an earlier version of turnout.
    """
    version = bronze.version
    while (actions := read_commit(bronze.path, version)) is not None:
        if any(each.get("txn", {}).get("appId") == batch_app for each in actions):
            moved = any(each.get("txn", {}).get("version") == batch for each in actions)
            infos = (each["commitInfo"] for each in actions if "commitInfo" in each)
            return next((str(each[PLAN]) for each in infos if PLAN in each), None) if moved else None
        version -= 1
    return None


def _first_seq_of_batch(bronze: Location, seq: float) -> float:
    """Return the first seq of this seq's micro-batch; minus infinity where bronze's log no longer has it.

    A micro-batch is one commit that only adds files and moves a cursor, unlike a repair or a restore.
    """
    version = open_table(bronze).version()
    while (actions := read_commit(bronze, version)) is not None:
        if any("txn" in action for action in actions) and not any("remove" in action for action in actions):
            stats = [json.loads(action["add"].get("stats") or "{}") for action in actions if "add" in action]
            first = min((each.get("minValues", {}).get("seq", -math.inf) for each in stats), default=math.inf)
            last = max((each.get("maxValues", {}).get("seq", math.inf) for each in stats), default=-math.inf)
            if first <= seq <= last:
                return float(first)
        version -= 1
    return -math.inf


def newest_first(bronze: Location, since_seq: int, version: int | None = None) -> Iterator[tuple[float, Location]]:
    """Yield the largest seq and the path of each file with rows above a seq, files without statistics first."""
    actions = pa.table(open_table(bronze, version).get_add_actions(flatten=True))
    if actions.num_rows == 0:
        return
    paths = whole(actions.column("path")).to_pylist()
    known = "max.seq" in actions.column_names
    tops = whole(actions.column("max.seq")).to_pylist() if known else [None] * len(paths)
    newest = [(math.inf if top is None else top, path) for top, path in zip(tops, paths, strict=True)]
    for top, path in sorted(newest, reverse=True):
        if top > since_seq:
            yield top, bronze / path
