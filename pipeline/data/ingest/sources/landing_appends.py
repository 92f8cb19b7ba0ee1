"""Opens a landing table for writers of turnout's own: the edge and the simulator."""

from typing import Final

from pipeline.base.errors import Refused, first_line
from pipeline.data.ingest.sources.landing_files import names_in_files
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location

_CHECKPOINT_EVERY: Final = 50  # commits; without checkpoints each opening of the table reads its whole log


def landing_for_appends(path: Location, *, create: bool) -> CursorTable:
    """Open a landing table for `CursorTable.append`; `create` makes it where there is none.

    Raises:
        Refused: the path has another table or, without `create`, none; or it cannot be opened.
    """
    try:
        if create:
            path.make()
            # Not `write_deltalake`: each of its commits costs more with every file that is there already.
            about = "wrappers as they came"
            table: CursorTable | None = CursorTable.create(path, LANDING, "producer", _CHECKPOINT_EVERY, about)
        else:
            table = CursorTable.open(path, "producer", _CHECKPOINT_EVERY)
        if table is None:
            raise Refused(f"There is no landing table {path}. Create it, or correct its path.")
        read = open_table(path)
        names = [field.name for field in read.schema().fields]
        in_files, partitions = names_in_files(read), read.metadata().partition_columns
    except (DeltaError, OSError) as error:
        raise Refused(
            f"The landing table {path} cannot be opened: {first_line(error)}. Choose another folder."
        ) from error
    if names != LANDING.names:
        raise Refused(
            f"{path} is a Delta table with the columns {', '.join(names)}, not a landing table. Choose another."
        )
    if partitions or any(name != file for name, file in in_files.items()):
        raise Refused(f"The landing table {path} has partitions or mapped columns. Choose one without.")
    return table
