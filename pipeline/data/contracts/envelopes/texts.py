"""Reads bytes as text, for all rows at once."""

import pyarrow as pa


def texts(values: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as text; null where they are no UTF-8."""
    encoded = values.dictionary_encode()
    decoded = [_decoded(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(decoded, pa.string()).take(encoded.indices)


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
