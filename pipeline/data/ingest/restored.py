"""Detects that bronze is an older copy of itself: something records a later seq than bronze has.

Checked at each start of ingest, which must not give a seq twice: a table that holds rows of the first would take those
of the second for applied. `adopt` reads the lost seqs and the games that hold rows of them.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy import Engine

from pipeline.base import names
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.data.ingest import bronze_progress
from pipeline.data.ingest.last_seqs import read_snapshot
from pipeline.lake.delta import generation, lost_seqs
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.log import Action, infos
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.marks import info_of
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths
from pipeline.store.games import generations
from pipeline.store.processes.drivers import last_commit

_THREADS: Final = 8  # cursors are read while waiting for storage
_log = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True, order=True)
class LostSeqEvidence:
    """A seq that bronze once had."""

    seq: int
    sentence: str  # the record of it, as a clause


def snapshot_file(paths: Paths) -> Location:
    """Return the path of ingest's snapshot of the heads."""
    return paths.ingest / "last_seqs.json"


def require_newest(paths: Paths, environment: str, engine: Engine, bronze: CursorTable) -> None:
    """Refuse to write to an older copy of bronze.

    Raises:
        Refused: a later seq is recorded elsewhere; the message has the record and the fixes.
    """
    cursors = game_cursors(paths, environment, engine)
    known = highest(paths, engine, bronze, cursors)
    if known.seq > (bronze.cursor or 0):
        bronze.refresh()  # another ingest that is about to end may have written meanwhile
    head = bronze.cursor or 0
    if known.seq > head:
        raise Refused(
            f"Bronze was restored from an older copy: {bronze.path} ends at seq {head}, but {known.sentence}. "
            "Restore the newest copy, or run `turnout ingest adopt`: it reads the lost records from the source again, "
            "and names the games to rebuild."
        )
    losses = lost_seqs.read(bronze.transaction_version, environment)
    _require_rows(bronze.path, [each for each in _evidence(engine, cursors) if _is_kept(each, losses)])


class RolledBack(Refused):
    """`RESTORE TABLE` has removed rows from bronze."""

    def __init__(self, sentence: str, last_seq: float) -> None:
        """Say it in a sentence; `last_seq` is that of the rows that are left."""
        super().__init__(sentence)
        self.last_seq = last_seq


def heed_restores(bronze: CursorTable) -> None:
    """Let bronze take no further row while `RESTORE TABLE` has removed rows, also where ingest runs meanwhile.

    A row above the lost ones would hide the loss from the next start.
    """

    def heed(version: int, actions: Sequence[Action]) -> None:
        if info_of(actions).get("operation") != "RESTORE":
            return
        before = bronze_progress.last_seq(bronze.path, version - 1)
        gone = taken_back_at(bronze.path, before) if math.isfinite(before) else version
        if gone is not None:
            left = bronze_progress.last_seq(bronze.path, gone)
            raise RolledBack(
                _rolled_back(bronze.path, gone, left, f"ingest has landed rows up to seq {before:g}"), left
            )

    bronze.heed = heed


def _is_kept(known: LostSeqEvidence, losses: Iterable[LostSeqs]) -> bool:
    return not any(known.seq in lost for lost in losses)


def _require_rows(bronze: Location, evidence: Iterable[LostSeqEvidence]) -> None:
    """Refuse where `RESTORE TABLE` removed rows: it keeps the log's transactions, and so bronze's head.

    Rows that were deleted by hand are not searched: they are a gap of their games, and ingest goes on.

    Raises:
        Refused: rows of a seq that was given are gone, and bronze's history has a restore.
    """
    known, top = max(evidence, default=None), bronze_progress.last_seq(bronze)
    if known is None or known.seq <= top:
        return
    version = taken_back_at(bronze, known.seq)
    if version is not None:
        raise RolledBack(_rolled_back(bronze, version, top, known.sentence), top)


def _rolled_back(bronze: Location, version: int, top: float, said: str) -> str:
    return (
        f"RESTORE TABLE rolled back bronze: version {version} of {bronze} has rows up to seq {top:g}, but {said}. Run "
        f"RESTORE TABLE ... TO VERSION AS OF {version - 1}, or restore a copy of its folder and, if that copy is "
        f"older, run `turnout ingest adopt`."
    )


def taken_back_at(bronze: Location, seq: float) -> int | None:
    """Return the version of the restore that removed rows of this seq, None without one.

    Versions without these rows, and versions that brought them back, end the search; everything before is irrelevant. A
    restore whose neighbour versions are gone counts as the reason.
    """
    restores = [version for version, info in infos(bronze) if info.get("operation") == "RESTORE"]
    for version in sorted(restores, reverse=True):
        try:
            before, after = (bronze_progress.last_seq(bronze, each) for each in (version - 1, version))
        except (DeltaError, OSError):
            return int(version)
        if after >= seq:
            return None
        if before >= seq:
            return int(version)
    return None


def highest(paths: Paths, engine: Engine, bronze: CursorTable, cursors: Mapping[GameKey, int]) -> LostSeqEvidence:
    """Return the highest seq with a record outside of bronze."""
    evidence = _evidence(engine, cursors)
    kept = read_snapshot(snapshot_file(paths))
    if kept is not None and kept.table_id == bronze.table_id:
        evidence.append(LostSeqEvidence(kept.seq, f"{snapshot_file(paths)} was written at seq {kept.seq}"))
    return max(evidence)


def _evidence(engine: Engine, cursors: Mapping[GameKey, int]) -> list[LostSeqEvidence]:
    """Return the records of seqs with rows."""
    reported = last_commit(engine)
    evidence = [LostSeqEvidence(reported, f"ingest has reported seq {reported}")]
    evidence += [LostSeqEvidence(seq, f"the table of {key} has rows up to seq {seq}") for key, seq in cursors.items()]
    return evidence


def game_cursors(paths: Paths, environment: str, engine: Engine) -> dict[GameKey, int]:
    """Return the cursor of each game's table; an unreadable one is skipped, with a line in the log."""
    known = generations(engine)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="cursors") as pool:
        read = pool.map(partial(_cursor, paths, environment), known.items())
        return {GameKey(key): cursor for key, cursor in zip(known, read, strict=True) if cursor is not None}


def holding_lost_rows(cursors: Mapping[GameKey, int], losses: Iterable[LostSeqs]) -> list[GameKey]:
    """Return the games whose tables have rows of seqs that bronze lost."""
    every = tuple(losses)
    return sorted(key for key, cursor in cursors.items() if any(cursor in lost for lost in every))


def _cursor(paths: Paths, environment: str, game: tuple[str, int]) -> int | None:
    key, known = GameKey(game[0]), game[1]
    try:
        table = open_table(paths.table(key))
        newest = generation.newest(table.transaction_version, environment, key, known)
        return table.transaction_version(names.stream_app_id(environment, key, newest))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        _log.warning("cannot compare the cursor of %s with bronze: %s", key, error)
        return None
