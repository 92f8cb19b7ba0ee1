"""The envelope `none`: a record's value is its payload. Its game's name is elsewhere in the record."""

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.envelopes.envelope import COLUMNS, TOMBSTONE, Opened, spread


class Bare:
    """No envelope."""

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:  # noqa: ARG002 - nothing to check
        """Return the values as payloads; an empty one is an empty payload."""
        columns = [values if each.name == "payload" else pa.nulls(len(values), each.type) for each in COLUMNS]
        batch = pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        rows = np.arange(len(values))
        reasons = dict.fromkeys(np.flatnonzero(missing).tolist(), TOMBSTONE)
        return spread(
            batch if not reasons else batch.take(pa.array(rows[~missing])), rows[~missing], len(rows), reasons
        )
