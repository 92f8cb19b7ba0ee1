"""What turnout asks of an envelope: the bytes of a record around its payload. `opening` lists all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.names import is_game_name
from pipeline.data.contracts.decoded import Rows

COLUMNS: Final = pa.schema(
    [
        ("game", pa.string()),
        ("schema_id", pa.int64()),  # uint32 on the wire of wrappers
        ("payload", pa.binary()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("event_id", pa.string()),
        ("producer_id", pa.string()),
        ("sequence", pa.int64()),
        ("type", pa.string()),  # the event type, by which the framing `type` finds the schema
    ]
)
"""The columns of opened records."""

PAYLOADS: Final = ("payload", "event_time", "event_id")
"""The columns that a split needs; ingest has taken the others."""

MALFORMED: Final = "malformed_wrapper"
TOMBSTONE: Final = ("tombstone", "the record has no value")
NO_NAME: Final = ("invalid_name", "a game's name has 1 to 256 bytes of UTF-8 without NUL")

Reasons = Mapping[int, tuple[str, str]]
"""Row → the reason code and the detail of its refusal."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records as their source has them, one row each."""

    value: pa.BinaryArray
    key: pa.BinaryArray
    headers: pa.ListArray  # of (key, value); null and empty both mean none
    topic: pa.StringArray


@dataclass(frozen=True, slots=True)
class Opened:
    """One row for each given record, in order."""

    batch: pa.RecordBatch  # COLUMNS; all null where a record was refused
    refused: pa.StringArray  # the reason code, null where the record is fine
    detail: pa.StringArray  # one line, null where the record is fine


class Envelope(Protocol):
    """One kind of envelope. `tests/unit/data/contracts/envelopes/test_envelopes.py` is the contract of all of them."""

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:
        """Open records by their values; null is refused as `tombstone`. `game` is the envelope's, null without one.

        Names are not checked here, as another part of the record may route it. `known_good`: the same envelope opened
        all of them before and refused none, and only the columns PAYLOADS are asked: others may be null.
        """
        ...


def valid_names(games: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return which names may identify a game; null may not."""
    encoded = games.dictionary_encode()
    verdicts = [is_game_name(name) for name in encoded.dictionary.to_pylist()]
    codes: Rows = encoded.indices.fill_null(len(verdicts)).to_numpy(zero_copy_only=False)
    return np.array([*verdicts, False], dtype=np.bool_)[codes]


def spread(batch: pa.RecordBatch, rows: Rows, count: int, reasons: Reasons) -> Opened:
    """Return the good rows at their places; the others are null and have a reason."""
    if not reasons:
        nothing = pa.nulls(count, pa.string())
        return Opened(batch, nothing, nothing)
    places = np.full(count, -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    why = [reasons.get(row, (None, None)) for row in range(count)]
    return Opened(
        batch.take(pa.array(places, mask=places < 0)),
        pa.array([reason for reason, _ in why], pa.string()),
        pa.array([detail for _, detail in why], pa.string()),
    )
