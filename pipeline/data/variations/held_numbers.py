"""Looks into a game's table: may the whole numbers of a column become doubles?"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.formats.json.scalar import Whole
from pipeline.data.contracts.formats.json.shapes import number_kind
from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_SURELY = 2**53  # below it a double holds each whole number


def doubles_hold(folder: Location, column: Iterable[str]) -> bool:
    """Return whether doubles hold each whole number that a table has in a column, given by its path, to all digits.

    False also where the column lies in lists, whose elements are not looked at.
    """
    if not exists(folder):
        return True
    table, parts = open_table(folder), list(column)
    held = pa.schema(table.schema().to_arrow())
    kind: pa.DataType = pa.struct(list(held))
    for name in parts:
        if not pa.types.is_struct(kind):
            return False
        if (place := kind.get_field_index(name)) < 0:
            return True
        kind = kind.field(place).type
    files = files_with(table, folder, "_seq", range(2**62))
    if not files:
        return True
    rows = parquet.dataset(files, held).scanner(columns={"value": pc.field(*parts)})
    return all(_are_held(batch.column("value")) for batch in rows.to_batches())


def _are_held(values: pa.Array) -> bool:
    numbers = pc.drop_null(values).to_numpy()
    large = np.unique(numbers[(numbers > _SURELY) | (numbers < -_SURELY)])
    return all(number_kind(Whole(each)) == "whole" for each in large.tolist())
