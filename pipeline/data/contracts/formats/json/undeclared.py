"""Decodes documents that nobody declared into the columns of a superset.

Most documents fit its declared schema as they are, and are read together. The others are written again one by one.
"""

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import Decoded, Refusal, Rows, malformed, one_line
from pipeline.data.contracts.formats.batches import held, joined, one_batch, parts, sized
from pipeline.data.contracts.formats.json.choices import Unwanted, may_be_unwanted
from pipeline.data.contracts.formats.json.coverage import first_versions
from pipeline.data.contracts.formats.json.decoder import Decoder
from pipeline.data.contracts.formats.json.definitions import rendered
from pipeline.data.contracts.formats.json.glance import Bytes, Places, rows_with, where
from pipeline.data.contracts.formats.json.nothing import without_nothing
from pipeline.data.contracts.formats.json.scalar import Misfit
from pipeline.data.contracts.formats.json.shapes import MARK
from pipeline.data.contracts.formats.json.splitting import MOST_WRITTEN, NotCovered, written_again
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.schemas import Schema

_ESCAPED: Final = np.frombuffer(b"\\u007f", np.uint8)
assert chr(0x7F) == MARK


def declared_schema(message: str, superset: Superset, schema_id: int = 0) -> Schema:
    """Return the declared schema by which a superset's documents are decoded."""
    definition = json.dumps({"title": message, **rendered(superset.declared())}, sort_keys=True, separators=(",", ":"))
    return Schema(schema_id, "json", message, definition.encode())


class UndeclaredDecoder:
    """Decodes documents by one superset. Whether a document lands, waits or is refused depends on it alone."""

    def __init__(self, superset: Superset) -> None:
        """Prepare for a superset."""
        self._superset, self._unwanted = superset, may_be_unwanted(superset)
        self._decoder = Decoder(declared_schema("", superset))
        self.arrow_schema = self._decoder.arrow_schema

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode documents; null is a row without one."""
        sizes, rows, refused = sized(payloads, self._superset.caps.bytes)
        batches, good, uncovered = list[pa.RecordBatch](), [np.empty(0, np.int64)], list[int]()
        for part in parts(rows, sizes):
            documents = held(payloads, part)
            usual = self._unless_refused(documents, self._usual(documents))
            made, places, _ = self._decoder.together(held(documents, usual)) if len(usual) else ([], [], usual)
            batches += [_emptied(each) for each in made]
            read = [usual[each] for each in places]
            good += [part[each] for each in read]
            odd = np.delete(np.arange(len(documents)), np.concatenate([usual[:0], *read]))
            if len(odd):
                late, kept = self._again(documents, odd, part, refused, uncovered)
                batches.append(late)
                good.append(kept)
        batch, rows = self._in_order(batches, np.concatenate(good))
        versions = first_versions(self._superset, batch, lambda row: payloads[rows[row]].as_py())
        return Decoded(batch, rows, sorted(refused), np.array(sorted(uncovered), np.int64), versions)

    def _again(
        self, documents: pa.BinaryArray, odd: Rows, part: Rows, refused: list[Refusal], uncovered: list[int]
    ) -> tuple[pa.RecordBatch, Rows]:
        """Decode documents that are written again; return their columns and rows, and note those that do not land."""
        again: list[bytes] = []
        kept: list[int] = []
        for place in odd.tolist():
            row = int(part[place])
            try:
                again.append(written_again(self._superset, documents[place].as_py()))
                kept.append(row)
            except NotCovered:
                uncovered.append(row)
            except Unwanted as error:
                refused.append(Refusal(row, error.reason, one_line(str(error))))
            except Misfit as error:
                refused.append(malformed(row, one_line(str(error)), error.field))
        late = self._decoder.decode(pa.array(again, pa.binary()), MOST_WRITTEN)
        refused += [each._replace(row=kept[each.row]) for each in late.refused]
        return late.batch, np.array(kept, np.int64)[late.rows]

    def _unless_refused(self, documents: pa.BinaryArray, usual: Rows) -> Rows:
        """Return the places without those of documents that may have a fact of a refused variation."""
        if self._unwanted is None:
            return usual
        doubtful = pc.match_substring_regex(documents, self._unwanted).to_numpy(zero_copy_only=False)
        kept: Rows = usual[~doubtful[usual]]
        return kept

    def _usual(self, documents: pa.BinaryArray) -> Rows:
        """Return the places of documents that may be read together."""
        small = pc.less(pc.binary_length(documents), self._superset.least_bytes_of_whole)
        usual = small.to_numpy(zero_copy_only=False)
        usual[rows_with(documents, _marks)] = False
        return np.flatnonzero(usual)

    def _in_order(self, batches: list[pa.RecordBatch], rows: Rows) -> tuple[pa.RecordBatch, Rows]:
        if not len(self.arrow_schema):
            return self._decoder.decode(pa.array([b"{}"] * len(rows), pa.binary())).batch, np.sort(rows)
        batch = joined(batches, self.arrow_schema) if batches else self._decoder.decode(pa.array([], pa.binary())).batch
        if np.all(rows[1:] > rows[:-1]):
            return batch, rows
        order = np.argsort(rows, kind="stable")
        return one_batch(pa.Table.from_batches([batch]).take(pa.array(order))), rows[order]


def _emptied(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [without_nothing(each) if pa.types.is_nested(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _marks(content: Bytes) -> Places:
    """Return where a key that may be a property of ours has its mark: the character itself, or an escape of it."""
    escapes = where(content == _ESCAPED[0])
    for away, wanted in enumerate(_ESCAPED[1:], 1):
        letters = content[np.minimum(escapes + away, len(content) - 1)]
        escapes = escapes[(letters | 0x20 if away == 5 else letters) == wanted]
    return np.concatenate([escapes, where(content == ord(MARK))])
