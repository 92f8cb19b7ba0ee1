"""Reads headers of records, for all rows at once."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def header_values(headers: pa.ListArray | None, name: str, count: int) -> pa.BinaryArray:
    """Return the value of each record's first header of a name; null without one, as for a header without a value.

    Kafka's headers repeat: the first one counts, as in Confluent's client.
    """
    if headers is None or not len(headers):
        return pa.nulls(count, pa.binary())
    pairs = headers.flatten()
    named = pc.fill_null(pc.equal(pc.struct_field(pairs, "key"), name), False)
    hits = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    rows, first = np.unique(pc.list_parent_indices(headers).to_numpy()[hits], return_index=True)
    places = np.full(count, -1, dtype=np.int64)
    places[rows] = hits[first]
    return pc.struct_field(pairs, "value").take(pa.array(places, mask=places < 0))
