"""Runs the split job over the rows of many games, and finds the record that kills a worker.

A dying worker takes its whole task with it. The games are halved until one remains, then its records; the record found
is refused without decoding, and all other rows are split in the same pass (law L6).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipeline.base.reasons import innermost
from pipeline.data.streams.writing.job import Place, SplitJob
from pipeline.data.streams.writing.rows import Rows

_DEADLY_RECORDS: Final = 8  # most of one game in one pass; with more, the whole game is left behind
_TRIALS: Final = 40  # most runs spent on finding them: one record of a thousand takes twenty
_DIED = (Py4JJavaError, PySparkException)


@dataclass
class TaskResult:
    """The reports of the tasks, and the games whose rows could not be split."""

    rows: list[Any] = field(default_factory=list)
    culprits: dict[str, str] = field(default_factory=dict)  # game key → reason, one line


def run(source: Rows, job: SplitJob) -> TaskResult:
    """Split the rows of the job's games.

    Raises:
        PySparkException, Py4JJavaError: the rows cannot be read at all, whichever game they belong to.
    """
    try:
        return TaskResult(source.split(job))
    except _DIED:
        source.split(replace(job, cursors={}))  # a failure without any game is shared, and fails the query
    result = TaskResult()
    waiting = [dict(job.cursors)]
    while waiting:
        part = waiting.pop()
        try:
            result.rows += source.split(replace(job, cursors=part))
        except _DIED as error:
            keys = list(part)
            if len(keys) > 1:
                half = len(keys) // 2
                waiting += [{key: part[key] for key in keys[:half]}, {key: part[key] for key in keys[half:]}]
            else:
                _without_deadly(source, replace(job, cursors=part), keys[0], innermost(str(error)), result)
    return result


def _without_deadly(source: Rows, job: SplitJob, key: str, cause: str, result: TaskResult) -> None:
    """Split one game's rows without the records that kill a worker, or record why that is impossible."""
    places = source.places(key, job.cursors[key])
    deadly = _deadly(source, job, places)
    if not deadly:
        result.culprits[key] = f"its {len(places)} rows above seq {job.cursors[key]} kill the worker: {cause}"
        return
    try:
        result.rows += source.split(replace(job, deadly=frozenset(deadly)))
    except _DIED as error:
        result.culprits[key] = f"its rows above seq {job.cursors[key]} kill the worker: {innermost(str(error))}"


def _deadly(source: Rows, job: SplitJob, places: Sequence[Place]) -> list[Place]:
    """Return the records that kill a worker on their own, found by halving; none when there are too many to find."""
    deadly: list[Place] = []
    waiting, trials = [places], 0
    while waiting:
        part, trials = waiting.pop(), trials + 1
        if trials > _TRIALS or len(deadly) > _DEADLY_RECORDS:
            return []
        if not part or _survives(source, replace(job, trial=(part[0], part[-1]))):
            continue
        if len(part) == 1:
            deadly.append(part[0])
        else:
            half = len(part) // 2
            waiting += [part[:half], part[half:]]
    return deadly


def _survives(source: Rows, job: SplitJob) -> bool:
    try:
        source.split(job)
    except _DIED:
        return False
    return True
