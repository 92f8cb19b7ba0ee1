"""Decodes payloads of one schema into columns of Delta's types; a bad payload becomes a refusal, never an exception."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.columns import cast, delta_schema, holds_type
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Decoded, Refusal, Rows, malformed
from pipeline.data.contracts.formats.protobuf.arrow_definition import for_arrow
from pipeline.data.contracts.formats.protobuf.dates import impossible_date
from pipeline.data.contracts.formats.protobuf.messages import describe, with_distinct_names
from pipeline.data.contracts.formats.protobuf.mistyped import Flaw
from pipeline.data.contracts.formats.protobuf.parsing import Parser
from pipeline.data.contracts.formats.protobuf.pools import expect
from pipeline.data.contracts.formats.protobuf.required import has_required, missing_required
from pipeline.data.contracts.nested import union_rows
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.times import is_time, rows_with, unreal_times


def prepare(schema: Schema) -> None:
    """Add a definition to those that decoders made after this share.

    Raises:
        Refused: as of `Decoder`.
    """
    expect(for_arrow(with_distinct_names(schema.message, schema.definition)))


class Decoder:
    """Decodes payloads of one schema. Whether a payload is refused depends on it alone.

    Refused are: null (`empty_payload`); bytes that are not the message, lack a required field, give a field another
    wire type, are larger than MAX_PAYLOAD_BYTES, or hold a time outside the years 1 to 9999, a duration beyond 10,000
    years (no reader of the table could show them), an impossible date, or in a Struct a number that JSON lacks
    (`malformed_payload`). All others have the values of protobuf's rules.
    """

    def __init__(self, schema: Schema) -> None:
        """Prepare for a schema.

        Raises:
            Refused: its definition is not valid or has no form as columns.
        """
        self._message = with_distinct_names(schema.message, schema.definition)
        self._given = describe(schema.message, schema.definition)
        given = self._given.fields_by_number
        self._names: Final = {each.name: given[each.number].name for each in self._message.fields}
        self._parser = Parser(self._message, exact=True)
        self.arrow_schema: pa.Schema = delta_schema(self._parser.schema)
        self._timed: Final = [field.name for field in self._parser.schema if holds_type(field.type, is_time)]

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode payloads; null is a row without one, which is the whole payload where the schema has no columns."""
        if not len(self.arrow_schema):
            payloads = pc.fill_null(payloads, b"")
        sizes = pc.fill_null(pc.binary_length(payloads), -1).to_numpy(zero_copy_only=False)
        refused = [Refusal(row, "empty_payload", "the payload is empty") for row in np.flatnonzero(sizes < 0).tolist()]
        refused += [
            malformed(row, f"larger than {MAX_PAYLOAD_BYTES} bytes: {sizes[row]}")
            for row in np.flatnonzero(sizes > MAX_PAYLOAD_BYTES).tolist()
        ]
        rows = np.flatnonzero((sizes >= 0) & (sizes <= MAX_PAYLOAD_BYTES)).astype(np.int64)
        parsed = self._parser.parse(payloads.take(pa.array(rows)) if refused else payloads)
        refused += [self._refusal(int(rows[row]), flaw) for row, flaw in parsed.bad]
        batch, rows = parsed.batch, rows[parsed.rows]
        if flaws := self._flaws(batch, payloads, rows):
            refused += [self._refusal(int(rows[row]), flaw) for row, flaw in flaws.items()]
            kept = np.setdiff1d(np.arange(len(rows)), list(flaws), assume_unique=True)
            batch, rows = batch.take(pa.array(kept)), rows[kept]
        return Decoded(cast(batch, self.arrow_schema), rows, sorted(refused))

    def _refusal(self, row: int, flaw: Flaw) -> Refusal:
        """Return a refusal that names the field as the definition does."""
        first, dot, rest = flaw.path.partition(".")
        return malformed(row, flaw.detail, f"{self._names.get(first, first)}{dot}{rest}")

    def _flaws(self, batch: pa.RecordBatch, payloads: pa.BinaryArray, rows: Rows) -> dict[int, Flaw]:
        """Return the parsed rows that are refused nevertheless, each with the reason."""
        doubtful = union_rows([rows_with(batch.column(name), _doubtful_date) for name in self._timed])
        plain = {row: self._parser.plain(payloads[int(rows[row])].as_py()) for row in doubtful.tolist()}
        dates = {row: impossible_date(self._message, parsed) for row, parsed in plain.items()}
        flaws = {row: Flaw(f"an impossible date in {name}", name) for row, name in dates.items() if name is not None}
        unreal = unreal_times(batch, self._timed)
        flaws |= {row: Flaw(f"a time out of range in {name}", name) for row, name in unreal.items()}
        if has_required(self._given):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            missing = missing_required(self._given, self._message, columns)
            flaws |= {row: Flaw(f"the required field {path} is missing", path) for row, path in missing.items()}
        return flaws


def _doubtful_date(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which dates may be impossible, None without any: the Arrow parser turns those into day 0."""
    if not pa.types.is_date(values.type):
        return None
    return np.asarray(pc.fill_null(values.cast(pa.int32()), 1).to_numpy(zero_copy_only=False) == 0)
