"""Opens records by their source's profile: at ingest with routing, at split for the payload alone. Called in tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.envelopes.bare import Bare
from pipeline.data.contracts.envelopes.document import DocumentEnvelope
from pipeline.data.contracts.envelopes.envelope import COLUMNS, NO_NAME, Envelope, Opened, Records, valid_names
from pipeline.data.contracts.envelopes.message import MessageEnvelope
from pipeline.data.contracts.envelopes.routing import routed
from pipeline.data.contracts.envelopes.wrapper import WrapperEnvelope
from pipeline.data.contracts.profile import SourceProfile

ENVELOPES: Final[Mapping[str, Callable[[SourceProfile], Envelope]]] = MappingProxyType(
    {
        "wrapper": lambda _: WrapperEnvelope(),
        "none": lambda _: Bare(),
        "protobuf": MessageEnvelope,
        "avro": MessageEnvelope,
        "json": DocumentEnvelope,
    }
)
"""Envelopes by the name that `SourceProfile.envelope` and the setting `source.envelope` use."""


@dataclass(frozen=True, slots=True)
class Payloads:
    """What a split needs of each record; null where the record cannot be opened, or has none."""

    payload: pa.BinaryArray
    event_time: pa.TimestampArray
    event_id: pa.StringArray


def open_records(records: Records, profile: SourceProfile) -> Opened:
    """Open records and name their games. Refused: null (`tombstone`), envelopes that are not one, and invalid names."""
    opened = _envelope(profile).open(records.value)
    games = routed(records, opened, profile.routing)
    fine = opened.refused.is_null()
    nameless = pc.and_(fine, pa.array(~valid_names(games)))
    if nameless.true_count == 0 and fine.true_count == len(fine):
        return Opened(_with_games(opened.batch, games), opened.refused, opened.detail)
    kept = pc.and_not(fine, nameless).to_numpy(zero_copy_only=False)
    places = np.arange(len(kept))
    batch = _with_games(opened.batch, games).take(pa.array(places, mask=~kept))
    reason, detail = (pa.scalar(each, pa.string()) for each in NO_NAME)
    return Opened(batch, pc.if_else(nameless, reason, opened.refused), pc.if_else(nameless, detail, opened.detail))


def payloads_of(raw: pa.BinaryArray, profile: SourceProfile) -> Payloads:
    """Return the payloads of records that `open_records` opened by this very profile and did not refuse."""
    batch = _envelope(profile).open(raw, known_good=True).batch
    return Payloads(batch.column("payload"), batch.column("event_time"), batch.column("event_id"))


@lru_cache(maxsize=64)
def _envelope(profile: SourceProfile) -> Envelope:
    return ENVELOPES[profile.envelope](profile)


def _with_games(batch: pa.RecordBatch, games: pa.StringArray) -> pa.RecordBatch:
    columns = [games if name == "game" else batch.column(name) for name in COLUMNS.names]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
