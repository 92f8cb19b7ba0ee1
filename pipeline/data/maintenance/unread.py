"""What of a game's table is kept for derived streams in force that have yet to read it, for a bounded time.

A round asks before it deletes files and log entries of the table. Changes nothing itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.base.errors import first_line
from pipeline.base.texts import duration
from pipeline.data.derived.definitions import Definition
from pipeline.data.derived.kinds import read_version
from pipeline.data.maintenance.report import TableReport
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import commit_file, log_folder
from pipeline.settings.tree import Paths, Settings

Streams: TypeAlias = Callable[[], Sequence[Definition] | None]
"""Returns the derived streams in force; None where they are not known."""

_DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Unread:
    """What is kept of a table's versions and of the files that they added."""

    version: int  # the versions after it are kept
    since: float  # Unix seconds: when the first of them was committed
    reader: str  # the stream furthest behind, for people

    def note(self, report: TableReport) -> None:
        """Report that something is kept that would have gone."""
        text = f"versions after {self.version} wait for {self.reader}"
        if text not in report.notes:
            report.notes.append(text)


def unread(
    streams: Sequence[Definition] | None, settings: Settings, paths: Paths, key: str, table_id: str, now: float
) -> Unread | None:
    """Return what of a game's table is kept; None where nothing waits for a derived stream.

    A stream keeps nothing if it begins a new generation anyway, or has not read a version that is too old. Where the
    streams or a position are not known, all versions that are young enough are kept.

    Args:
        streams: the derived streams in force; None: they are not known.
        settings: of the environment.
        paths: where its tables are.
        key: of the game.
        table_id: of the game's table.
        now: Unix seconds.
    """
    oldest = now - settings.maintenance.derived_days * _DAY_SECONDS
    if oldest >= now:
        return None
    if streams is None:
        return Unread(_last_before(paths, key, oldest), oldest, "derived streams, which the control store would name")
    waiting = []
    for each in streams:
        if each.game_key != key:
            continue
        name = f"{each.kind} {each.name}"
        try:
            version = read_version(each, paths, settings.environment, table_id)
        except DeltaError as error:
            reader = f"{name}, whose position is unknown: {first_line(error)}"
            waiting.append(Unread(_last_before(paths, key, oldest), oldest, reader))
            continue
        following = None if version is None else commit_file(paths.table(key), version + 1).entry()
        if version is not None and following is not None and following.modified >= oldest:
            behind = duration(now - following.modified)
            waiting.append(Unread(version, following.modified, f"{name}, which is {behind} behind"))
    return min(waiting, key=lambda each: each.version, default=None)


def _last_before(paths: Paths, key: str, moment: float) -> int:
    """Return the last version that was committed before a moment, by the commits that the log has; -1: none."""
    entries = log_folder(paths.table(key)).files()
    stems = [each.name.removesuffix(".json") for each in entries if each.modified < moment]
    return max((int(each) for each in stems if each.isdigit()), default=-1)
