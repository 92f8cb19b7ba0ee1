"""What one contender did in one measured window, and the summary of its windows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from bench.load import Arrivals
from bench.log import Commit
from bench.numbers import Spread, applied_at, quantile, spread
from bench.text import ranged, table


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window; times in Unix seconds."""

    contender: str
    begin: float
    end: float
    cpu_seconds: float  # of the contender's whole process tree
    cpu_by_role: Mapping[str, float]
    rss_mib: float  # of the tree, at the window's end
    threads: int
    load_cores: float  # of simulator and ingest
    other_cores: Mapping[str, float]  # of anything else on the machine, by command
    settled: bool  # it had caught up with bronze when the window began


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one window."""

    cores: float
    commits: int  # of tables, with rows
    empty_commits: int
    cpu_ms_per_commit: float | None
    rows_per_second: float
    cpu_ms_per_1000_rows: float | None
    p50_seconds: float | None  # bronze commit to table commit, over games and bronze commits
    p99_seconds: float | None
    worst_game_p99_seconds: float | None
    commits_per_game_and_trigger: float
    rss_mib: float
    threads: int


SHOWN: Final = (
    ("cpu_ms_per_commit", "CPU-ms per table commit"),
    ("cores", "cores used"),
    ("commits", "table commits"),
    ("empty_commits", "empty table commits"),
    ("commits_per_game_and_trigger", "commits per game and trigger"),
    ("rows_per_second", "events/s into tables"),
    ("cpu_ms_per_1000_rows", "CPU-ms per 1,000 events"),
    ("p50_seconds", "bronze→table p50, s"),
    ("p99_seconds", "bronze→table p99, s"),
    ("worst_game_p99_seconds", "worst game's p99, s"),
    ("rss_mib", "RSS, MiB"),
    ("threads", "threads"),
)


def measure(window: Window, logs: Mapping[str, Sequence[Commit]], work: Arrivals, trigger_seconds: float) -> Measured:
    """Join a window with the logs of the contender's tables and with what bronze brought."""
    seconds = window.end - window.begin
    inside = [each for log in logs.values() for each in log if window.begin <= each.at < window.end]
    commits = [each for each in inside if each.rows]
    rows = sum(each.rows for each in commits)
    latencies = {key: each for key, each in _latencies(window, logs, work).items() if each.size}
    everything = np.concatenate(list(latencies.values())) if latencies else np.empty(0)
    worst = [found for each in latencies.values() if (found := quantile(each, 0.99)) is not None]
    cpu_ms = window.cpu_seconds * 1000
    return Measured(
        cores=window.cpu_seconds / seconds,
        commits=len(commits),
        empty_commits=sum(1 for each in inside if not each.rows and each.seq_to is None),
        cpu_ms_per_commit=cpu_ms / len(commits) if commits else None,
        rows_per_second=rows / seconds,
        cpu_ms_per_1000_rows=cpu_ms / rows * 1000 if rows else None,
        p50_seconds=quantile(everything, 0.5),
        p99_seconds=quantile(everything, 0.99),
        worst_game_p99_seconds=max(worst, default=None),
        commits_per_game_and_trigger=len(commits) / len(logs) / (seconds / trigger_seconds),
        rss_mib=window.rss_mib,
        threads=window.threads,
    )


def exact(log: Sequence[Commit], seqs: Sequence[int], rows: Sequence[int]) -> bool:
    """Return whether a table got as many rows as bronze has between its first seq and its last one.

    `seqs` and `rows` are the game's bronze commits and how many rows each brought.
    """
    first = min((each.seq_from for each in log if each.seq_from is not None), default=None)
    last = max((each.seq_to for each in log if each.rows and each.seq_to is not None), default=None)
    if first is None or last is None:
        return False
    expected = sum(count for seq, count in zip(seqs, rows, strict=True) if first <= seq <= last)
    return sum(each.rows for each in log) == expected


def summarise(measured: Sequence[Measured]) -> dict[str, Spread | None]:
    """Return median and range of each number over the windows; None where one window does not have it."""
    result: dict[str, Spread | None] = {}
    for name, _ in SHOWN:
        values = [value for each in measured if (value := getattr(each, name)) is not None]
        result[name] = spread(values) if len(values) == len(measured) else None
    return result


def render_summaries(summaries: Mapping[str, Mapping[str, Spread | None]]) -> str:
    """Return the summaries as a table: a line per number, a column per contender, medians with their ranges."""
    rows = [[label, *(ranged(summary[name]) for summary in summaries.values())] for name, label in SHOWN]
    return table(["median (lowest–highest)", *summaries], rows)


def as_json(summary: Mapping[str, Spread | None]) -> dict[str, Any]:
    """Return a summary as plain values."""
    return {name: None if each is None else asdict(each) for name, each in summary.items()}


def _latencies(
    window: Window, logs: Mapping[str, Sequence[Commit]], work: Arrivals
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return per game the seconds from bronze commit to table commit of what was committed in the window."""
    result = {}
    for number, key in enumerate(work.keys):
        if key in logs:
            mine = work.game == number
            reached = [(each.seq_to, each.at) for each in logs[key] if each.seq_to is not None]
            done = np.array(applied_at(work.seq[mine].tolist(), reached))
            chosen = (done >= window.begin) & (done < window.end)
            result[key] = (done - work.bronze_at[mine])[chosen]
    return result
