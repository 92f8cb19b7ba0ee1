"""The columns of a protobuf message's payloads."""

from functools import lru_cache

import pyarrow as pa

from pipeline.contracts.columns import delta_schema
from pipeline.contracts.formats.protobuf.messages import with_distinct_names
from pipeline.contracts.formats.protobuf.parsing import Parser
from pipeline.contracts.schemas import Schema


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads.

    Raises:
        Refused: the definition has no form as columns.
    """
    parser = Parser(with_distinct_names(schema.message, schema.definition))
    return delta_schema(parser.schema)
