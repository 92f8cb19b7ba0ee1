"""The kinds of columns that an output contract may promise. Wide on purpose: a widening of a column breaks none."""

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from pyarrow import types

KINDS: Final[Mapping[str, Callable[[pa.DataType], bool]]] = {
    "boolean": types.is_boolean,
    "integer": lambda kind: types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0),
    "number": lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
    "string": types.is_string,
    "binary": types.is_binary,
    "date": types.is_date,
    "timestamp": types.is_timestamp,
    "list": types.is_list,
    "map": types.is_map,
    "struct": types.is_struct,
}
"""Each kind, and the test of a column's type for it."""
