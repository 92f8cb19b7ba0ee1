"""Records of a source, as a task has them."""

from collections.abc import Sequence

import pyarrow as pa

from pipeline.data.contracts.envelopes.envelope import Records

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Header = tuple[str, bytes | None]


def binary(values: Sequence[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def records(
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"from key",
    headers: list[Header] | None = None,
    topic: str = "from topic",
) -> Records:
    pairs = None if headers is None else [{"key": name, "value": value} for name, value in headers]
    return Records(
        value=binary(values),
        key=binary([key] * len(values)),
        headers=pa.array([pairs] * len(values), HEADERS),
        topic=pa.array([topic] * len(values), pa.string()),
    )
