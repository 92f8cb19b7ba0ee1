"""How tables stay small and quick to read."""

from dataclasses import dataclass
from typing import Annotated

from pipeline.base.names import Backend
from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How tables stay small and quick to read: see docs/maintenance.md."""

    backend: Backend = "local"
    """Who runs maintenance. `local`: the controller, as a process beside it; it waits while a process that you started
    runs, and never stops that one. `databricks`: a job of the workspace, by the job's own schedule; `turnout status`
    judges its last round. `none`: not turnout, and neither `turnout status` nor an alert reports its absence. The next
    controller stops what an earlier one started."""

    interval_minutes: Annotated[float, Range(1, 1440)] = 15.0
    """Time between the end of a round and the next one."""

    hours: str = ""
    """Hours of the day in UTC, such as `22-6`: maintenance works from the first until the second begins. A round
    that runs out of time pauses between two tables until the hours return. Empty means all day. `turnout maintain
    --once` ignores it."""

    small_files: Annotated[int, Range(2, 10_000)] = 10
    """Fewest small files of a game's table, a metrics table or quarantine that maintenance merges."""

    bronze_commits: Annotated[int, Range(2, 100_000)] = 1_000
    """Fewest bronze commits that maintenance sorts into one run."""

    bronze_age_minutes: Annotated[float, Range(1, 100_000)] = 60.0
    """Maintenance leaves younger bronze files as ingest wrote them."""

    run_megabytes: Annotated[int, Range(1, 100_000)] = 512
    """Most megabytes of one run of bronze or quarantine. A longer run makes reading one game cheaper; sorting it needs
    as much room in the temporary folder, and no more memory."""

    file_megabytes: Annotated[int, Range(1, 1024)] = 32
    """Approximate size of merged files. Maintenance merges files of a game's table in memory, a few times this size."""

    file_retention_hours: Annotated[float, Range(24, 168)] = 168.0
    """How long maintenance keeps files that left a table, and files of killed writers. No reader may take longer for
    one query, and no writer may pause longer between a file and its commit. A week is the most: tables with a
    raised protocol forget removed files after it."""

    log_retention_hours: Annotated[float, Range(24, 87_600)] = 720.0
    """Most time for which readers can read old versions of a table. A streaming reader further behind stops with an
    error. A table with many commits keeps less: see `maintenance.log_megabytes`."""

    log_megabytes: Annotated[int, Range(1, 100_000)] = 40
    """Most megabytes of one table's log on disk, at least 4 kB a file. Above it maintenance deletes the oldest
    versions, but none of the last hour. 40 hold about two hours of a game that commits every second."""

    derived_days: Annotated[float, Range(0, 7)] = 7.0
    """Most days for which maintenance keeps the versions and files of a game's table that a derived stream in force
    has not read. A stream further behind begins a new generation. It comes before `maintenance.log_megabytes`: a game
    that commits every second takes up to 0.7 GB a day while a stream stands still. 0 keeps nothing."""

    series_days: Annotated[int, Range(2, 400)] = 7
    """Whole days for which the metrics tables with minutes, and `process_sample`, keep their rows.
    Pages show at most 24 hours, which reach into the day before; a week lets you compare with the same hour a week
    ago."""
