"""Decodes Avro payloads of one schema into columns of Delta's types; bad ones become refusals, never exceptions.

Most payloads are read together (`readers`). Those that fail there, or are slow there because they have many more
items than the others, are decided alone by the scalar decoder.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import Decoded, Refusal, Rows, malformed, one_line
from pipeline.data.contracts.formats.avro.columns import columns_of
from pipeline.data.contracts.formats.avro.cursor import ALL, Cursor
from pipeline.data.contracts.formats.avro.definitions import describe
from pipeline.data.contracts.formats.avro.readers import reader
from pipeline.data.contracts.formats.avro.scalar import PRESENT, Malformed, ScalarDecoder
from pipeline.data.contracts.formats.batches import held, joined, one_batch, parts, sized
from pipeline.data.contracts.schemas import Schema

_SCALAR_BYTES: Final = 512 * 1024  # of payloads whose values are held as Python objects, a few hundred for a byte


class Decoder:
    """Decodes payloads of one schema. Whether a payload is refused depends on it alone.

    Refused are: null (`empty_payload`), and as `malformed_payload` bytes that are not the record, have bytes left
    over, are larger than MAX_PAYLOAD_BYTES, have a key of a map twice, a decimal beyond its precision or the place for
    it, or a time or date outside the years 1 to 9999 (no reader of the table could show it).
    """

    def __init__(self, schema: Schema) -> None:
        """Prepare for a schema.

        Raises:
            Refused: its definition is not valid.
        """
        record = describe(schema.message, schema.definition)
        self.arrow_schema: pa.Schema = pa.schema(columns_of(record))
        self._schema = self.arrow_schema if len(self.arrow_schema) else pa.schema([(PRESENT, pa.bool_())])
        self._read = reader(record)
        self._scalar = ScalarDecoder(record)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode payloads; null is a row without one, which is the whole payload where the schema has no columns."""
        if not len(self.arrow_schema):
            payloads = pc.fill_null(payloads, b"")
        sizes, rows, refused = sized(payloads)
        batches, good = [], []
        for part in parts(rows, sizes):
            batch, places, bad = self._part(held(payloads, part))
            batches.append(batch)
            good.append(part[places])
            refused += [each._replace(row=int(part[each.row])) for each in bad]
        if len(batches) == 1:
            return Decoded(self._of_table(batches[0]), good[0], sorted(refused))
        whole = joined(batches, self._schema)
        return Decoded(self._of_table(whole), np.concatenate([np.empty(0, dtype=np.int64), *good]), sorted(refused))

    def _of_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if len(self.arrow_schema) else batch.select([])  # which still knows its number of rows

    def _part(self, payloads: pa.BinaryArray) -> tuple[pa.RecordBatch, Rows, list[Refusal]]:
        """Return the columns and places of the good payloads of a part, in order, and why each other one is bad."""
        cursor = Cursor(payloads)
        values = self._read(cursor, ALL)
        batch = pa.RecordBatch.from_arrays(
            values.flatten() if len(self.arrow_schema) else [values], schema=self._schema
        )
        places = np.arange(len(payloads), dtype=np.int64)
        doubtful = cursor.finish()
        if not len(doubtful):
            return batch, places, []
        clear = np.delete(places, doubtful)
        late, late_places, bad = self._one_by_one(payloads, doubtful)
        batch = batch.take(pa.array(clear))
        if not len(late_places):
            return batch, clear, bad
        both = np.concatenate([clear, late_places])
        order = np.argsort(both)
        table = pa.Table.from_batches([batch, *late], self._schema).take(pa.array(order))
        return one_batch(table), both[order], bad

    def _one_by_one(self, payloads: pa.BinaryArray, places: Rows) -> tuple[list[pa.RecordBatch], Rows, list[Refusal]]:
        batches: list[pa.RecordBatch] = []
        held: list[dict[str, Any]] = []
        good: list[int] = []
        bad: list[Refusal] = []
        size = 0
        for place in places.tolist():
            content = payloads[place].as_py()
            try:
                held.append(self._scalar.decode(content))
                good.append(place)
            except Malformed as error:
                bad.append(malformed(place, one_line(str(error)), error.field))
            size += len(content)
            if size > _SCALAR_BYTES:
                batches.append(self._batch(held))
                held, size = [], 0
        if held:
            batches.append(self._batch(held))
        return batches, np.array(good, dtype=np.int64), bad

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [pa.array([row[each.name] for row in rows], each.type) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
