"""Decodes JSON documents of one schema into columns of Delta's types; bad ones become refusals, never exceptions.

Most documents are read together, by Arrow's parser with the schema's own types. What fails there, or may hold what that
parser reads otherwise, is decided alone by the scalar decoder. A screen finds most of it, so that few are parsed twice.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Decoded, Refusal, Rows, malformed, one_line
from pipeline.data.contracts.formats.batches import held, joined, one_batch, parts, sized
from pipeline.data.contracts.formats.json.columns import columns_of
from pipeline.data.contracts.formats.json.definitions import describe
from pipeline.data.contracts.formats.json.parser import DocumentParser
from pipeline.data.contracts.formats.json.pockets import pockets_of
from pipeline.data.contracts.formats.json.scalar import DocumentDecoder, Misfit
from pipeline.data.contracts.formats.json.screen import Misfits, Screen, with_a_key_twice
from pipeline.data.contracts.schemas import Schema

_PRESENT: Final = "present"  # the column of a schema without columns
_FEW: Final = 16  # rows that are decided one by one where they do not parse together
_PIECES: Final = 32  # into which more rows are cut
_SCALAR_BYTES: Final = 512 * 1024  # of documents whose values are held as Python objects


class Decoder:
    """Decodes documents of one schema. Whether a document is refused depends on it alone.

    Refused are: null (`empty_payload`), and as `malformed_payload` bytes that are not one JSON object in UTF-8, are
    larger than MAX_PAYLOAD_BYTES, nest deeper than 32 levels, have a key twice, a key that the schema does not declare,
    a value of another type, a symbol outside of its enum, a time that is not RFC 3339, NaN or infinity, an integer
    beyond 64 bits or a number of which a double does not hold every digit, or lack what the schema requires.
    """

    def __init__(self, schema: Schema) -> None:
        """Prepare for a schema.

        Raises:
            Refused: its definition is not valid.
        """
        root = describe(schema.message, schema.definition)
        self.arrow_schema: pa.Schema = pa.schema(columns_of(root))
        self._schema = self.arrow_schema if len(self.arrow_schema) else pa.schema([(_PRESENT, pa.bool_())])
        self._scalar = DocumentDecoder(root)
        pockets = pockets_of(root)
        together = pockets is not None and len(self.arrow_schema)
        self._parser = DocumentParser(root, self.arrow_schema, pockets or {}) if together else None
        self._screen = Screen(root)

    def decode(self, payloads: pa.BinaryArray, most: int = MAX_PAYLOAD_BYTES) -> Decoded:
        """Decode documents; null is a row without one. `most` is the number of bytes of the largest one."""
        sizes, rows, refused = sized(payloads, most)
        batches, good = list[pa.RecordBatch](), [np.empty(0, dtype=np.int64)]
        for part in parts(rows, sizes):
            batch, places, bad = self._part(held(payloads, part))
            batches.append(batch)
            good.append(part[places])
            refused += [each._replace(row=int(part[each.row])) for each in bad]
        batch = joined(batches or [self._batch([])], self._schema)
        if not len(self.arrow_schema):
            batch = batch.select([])  # which still knows its number of rows
        return Decoded(batch, np.concatenate(good), sorted(refused))

    def _part(self, documents: pa.BinaryArray) -> tuple[pa.RecordBatch, Rows, list[Refusal]]:
        """Return the columns and places of the good documents of a part, in order, and why each other one is bad."""
        found = self._together(documents)
        batches, places = found.batches, found.places
        late, late_places, bad = self._one_by_one(documents, found)
        both = np.concatenate([*places, late_places])
        batch = joined([*batches, *late] or [self._batch([])], self._schema)
        if len(batches) > 1 or late:
            order = np.argsort(both)
            batch, both = one_batch(pa.Table.from_batches([batch]).take(pa.array(order))), both[order]
        return batch, both, bad

    def together(self, documents: pa.BinaryArray) -> tuple[list[pa.RecordBatch], list[Rows], Rows]:
        """Return columns and places of documents that were read together, and the places of those that were not.

        Numbers that are read together as integers are written without fraction and exponent.
        """
        found = self._together(documents)
        return found.batches, found.places, found.others

    def _together(self, documents: pa.BinaryArray) -> "_Found":
        rows, found = np.arange(len(documents), dtype=np.int64), _Found([], [], [], {})
        if self._parser is None:
            found.doubtful.append(rows)
            return found
        for screen in (None, self._screen.misfits, with_a_key_twice):
            if screen is not None:
                misfits = screen(held(documents, rows))
                misplaced = rows[list(misfits)]
                found.doubtful.append(misplaced)
                found.why.update(zip(misplaced.tolist(), misfits.values(), strict=True))
                rows = np.delete(rows, list(misfits))
            if not len(rows) or self._takes(documents, rows, found):
                break
        else:
            self._cut(documents, rows, found)
        return found

    def _takes(self, documents: pa.BinaryArray, rows: Rows, found: "_Found") -> bool:
        """Parse some documents together; return whether that succeeded."""
        assert self._parser is not None
        made = self._parser.parse(held(documents, rows))
        if made is None:
            return False
        batches, places, doubtful = _split(made, rows)
        found.batches.extend(batches)
        found.places.extend(places)
        found.doubtful.append(doubtful)
        return True

    def _cut(self, documents: pa.BinaryArray, rows: Rows, found: "_Found") -> None:
        """Parse in ever smaller pieces what fails together though no screen says why."""
        if len(rows) <= _FEW:
            found.doubtful.append(rows)
            return
        for piece in np.array_split(rows, min(_PIECES, len(rows) // _FEW + 1)):
            if not self._takes(documents, piece, found):
                self._cut(documents, piece, found)

    def _one_by_one(
        self, documents: pa.BinaryArray, found: "_Found"
    ) -> tuple[list[pa.RecordBatch], Rows, list[Refusal]]:
        batches: list[pa.RecordBatch] = []
        rows: list[dict[str, Any]] = []
        good: list[int] = []
        bad: list[Refusal] = []
        size = 0
        places = found.others
        unseen = places[[place not in found.why for place in places.tolist()]]
        why = found.why | dict(zip(unseen.tolist(), self._reasons(documents, unseen), strict=True))
        for place in places.tolist():
            if (sure := why[place]) is not None:
                bad.append(malformed(place, one_line(str(sure)), sure.field))
                continue
            content = documents[place].as_py()
            try:
                rows.append(self._scalar.decode(content))
                good.append(place)
            except Misfit as error:
                bad.append(malformed(place, one_line(str(error)), error.field))
            size += len(content)
            if size > _SCALAR_BYTES:
                batches.append(self._batch(rows))
                rows, size = [], 0
        if rows:
            batches.append(self._batch(rows))
        return batches, np.array(good, dtype=np.int64), bad

    def _reasons(self, documents: pa.BinaryArray, places: Rows) -> list[Misfit | None]:
        """Return why documents are refused that no screen has seen yet, None where that is not sure."""
        misfits = self._screen.misfits(held(documents, places)) if len(places) else {}
        return [misfits.get(place) for place in range(len(places))]

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [pa.array([row.get(each.name) for row in rows], each.type) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read together, and what was not."""

    batches: list[pa.RecordBatch]
    places: list[Rows]  # of each batch
    doubtful: list[Rows]
    why: Misfits  # of some that are doubtful

    @property
    def others(self) -> Rows:
        """The places of the documents that were not read together, in order."""
        return np.sort(np.concatenate(self.doubtful))


def _split(made: tuple[pa.RecordBatch, Rows], rows: Rows) -> tuple[list[pa.RecordBatch], list[Rows], Rows]:
    """Return the rows of a parsed batch that are sure, their places, and the places of the others."""
    batch, doubts = made
    if not len(doubts):
        return [batch], [rows], doubts
    sure = np.delete(np.arange(len(rows)), doubts)
    return [batch.take(pa.array(sure))], [rows[sure]], rows[doubts]
