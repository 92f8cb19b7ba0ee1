"""The one commit of a rebuild: all files out, the new ones in, the new generation's cursor set (law L12)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.base import names
from pipeline.base.errors import Refused
from pipeline.data.repair import damaged_log
from pipeline.lake.delta.accepted_gaps import VersionOf
from pipeline.lake.delta.commits import overwrite
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.errors import CommitFailedError, DeltaError
from pipeline.lake.delta.generation import RETIRED
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.storage.location import Location
from pipeline.store.games import Game


@dataclass(frozen=True, slots=True)
class Switch:
    """The change of a game's table from one generation to the next."""

    environment: str
    game: Game
    repairs: int | None  # number of repairs of the table when the rebuild began
    generation: int  # the generation to replace
    cursor: int  # of the new one
    through: int  # the last bronze seq read
    files: Sequence[DataFile]
    columns: pa.Schema
    # Whether the schemas and gaps behind the files still hold, for a freshly opened table.
    holds: Callable[[VersionOf], bool]

    @property
    def old_app(self) -> str:
        """The application id of the old generation's cursor."""
        return names.stream_app_id(self.environment, self.game.key, self.generation)

    @property
    def new_app(self) -> str:
        """The application id of the new generation's cursor."""
        return names.stream_app_id(self.environment, self.game.key, self.generation + 1)


def publish(folder: Location, switch: Switch) -> bool:
    """Commit a switch; return False, with nothing done, when the table has moved on and bronze must be read further.

    The old generation's cursor becomes RETIRED in the same commit. Every commit between the read and the switch, by a
    pass, a compaction or a repair, makes it fail and read again.

    Raises:
        TableConflict: another replay or rebuild changed the table since this one began, or its schemas and gaps
            have changed.
        Refused: the table has features that only Spark can write.
    """
    while True:
        table = open_table(folder)
        _require_unchanged(folder, switch, table.transaction_version)
        cursor = table.transaction_version(switch.old_app)
        if cursor is not None and cursor > switch.through:
            return False
        try:
            _commit(folder, table, switch)
        except CommitFailedError as error:
            if "Unsupported table features" in str(error):
                raise Refused(
                    f"The table of {folder.name} has features that only Spark can write: {error}. Drop them with "
                    f"Spark, then rebuild."
                ) from error
            if open_table(folder).version() == table.version():
                raise  # no other writer was first: storage is the cause
            continue
        return True


def publish_anew(folder: Location, switch: Switch) -> bool:
    """Commit a switch to a table whose log is damaged, which restarts the log; otherwise like `publish`.

    A process with the earlier table in memory finds this commit in the place of its own, and with it the retired cursor
    and the repair; but not if the newest earlier commits are lost as well.

    Raises:
        TableConflict: the table can be opened again, another rebuild changed it since this one began, or its
            schemas and gaps have changed.
        Refused: the log can no longer be read.
    """
    repair_app = names.repair_app_id(switch.environment, switch.game.key)
    apps = [names.stream_app_id(switch.environment, switch.game.key, each + 1) for each in range(switch.generation)]
    while True:
        try:
            open_table(folder)
        except DeltaError as error:
            remains = damaged_log.read(folder, switch.game.key, error)
        else:
            raise TableConflict(f"{folder.name}: its log was repaired meanwhile")
        _require_unchanged(folder, switch, remains.transaction_version)
        if max(remains.transaction_version(app) or 0 for app in apps) > switch.through:
            return False
        # Each commit counts at most one repair, so this exceeds all that the damaged commits may have counted.
        repairs = (switch.repairs or 0) + remains.version + 2
        moved = {**dict.fromkeys(apps, RETIRED), switch.new_app: switch.cursor, repair_app: repairs}
        note, description = f"rebuild: generation {switch.generation + 1}", f"turnout game {switch.game.name}"
        if damaged_log.publish(folder, remains, switch.columns, list(switch.files), moved, note, description):
            return True


def _require_unchanged(folder: Location, switch: Switch, version_of: VersionOf) -> None:
    if version_of(names.repair_app_id(switch.environment, switch.game.key)) != switch.repairs:
        raise TableConflict(f"{folder.name}: another process repaired it meanwhile")
    if not switch.holds(version_of):
        raise TableConflict(f"{folder.name}: a schema was registered for it, or a gap accepted, meanwhile")
    if not all((folder / file.path).exists() for file in switch.files):  # as maintenance does after its retention
        raise TableConflict(f"{folder.name}: files of this rebuild were deleted meanwhile")


def _commit(folder: Location, table: DeltaTable, switch: Switch) -> None:
    moved = {
        switch.old_app: RETIRED,
        switch.new_app: switch.cursor,
        names.repair_app_id(switch.environment, switch.game.key): (switch.repairs or 0) + 1,
    }
    overwrite(folder, table, switch.files, switch.columns, moved, f"rebuild: generation {switch.generation + 1}")
