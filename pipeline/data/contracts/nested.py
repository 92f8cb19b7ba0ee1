"""Maps findings deep in nested arrays back to their rows."""

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows


def union_rows(rows: list[Rows]) -> Rows:
    """Return rows found in several places, each once."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *rows]))


def parents(values: pa.ListArray | pa.MapArray, children: Rows) -> Rows:
    """Return the rows whose entries the children are."""
    rows = np.unique(parent_of_each(values, children))
    return rows[(rows >= 0) & (rows < len(values))]


def parent_of_each(values: pa.ListArray | pa.MapArray, children: Rows) -> Rows:
    """Return the row of each child; a child outside of a sliced array's rows gets a number beyond all rows."""
    # Arrow's own list_parent_indices aborts the process on a map.
    offsets = values.offsets.to_numpy(zero_copy_only=False)
    rows: Rows = np.searchsorted(offsets, children, side="right").astype(np.int64) - 1
    return rows
