"""The quarantine table: refused rows with reason, position and raw bytes; a set keyed by (game_key, seq, pos)."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from pipeline.lake.delta.opening import rows_of
from pipeline.lake.storage.location import Location

REASONS: Final = (
    "malformed_wrapper",  # the wrapper is not valid protobuf, or is truncated
    "tombstone",  # the record has no value, like a tombstone in a compacted topic
    "invalid_name",  # the game's name is empty, longer than 256 bytes or has a NUL
    "impossible_time",  # the record's time is outside of 64-bit microseconds
    "malformed_framing",  # the bytes that name the payload's schema are cut off, or are none
    "bad_compression",  # the payload's compression is unknown, damaged, or inflates to more than a payload may have
    "unknown_game",  # no schema is registered for the game
    "unknown_schema",  # the game has schemas, but not this one
    "empty_payload",  # the wrapper has no payload
    "malformed_payload",  # the payload does not parse with its schema
    "quarantined_schema",  # the policy of a schema change keeps its rows out of the game's table
    "other_type",  # the payload's schema is of another event type than the game's
    "pinned_type",  # the payload has something new, and a person pinned its event type
    "refused_variation",  # the payload has what a person refuses
    "contract",  # the row breaks a rule of an output contract
    "kills_worker",  # a worker that read this record died
)

UNKNOWN_GAME: Final = "unknown_game"
"""The reason of rows that have no game's key: a replay finds them by the exact name once the game is known."""

QUARANTINE: Final = pa.schema(
    [
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("seq", pa.int64()),
        ("pos", pa.int32()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("schema_id", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("source_time", pa.timestamp("us", "UTC")),
        ("quarantined_at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("event_id", pa.string()),
        ("field", pa.string()),  # that is wrong, as `payload.price`; null where only the reason says it
    ]
)


_KEY: Final = ("game_key", "seq", "pos")


def without_present(rejects: pa.Table, quarantine: Location) -> pa.Table:
    """Return the rejects whose key is not in the quarantine table yet.

    Called where rows may have been written before (a replayed batch, a catch-up), so that nothing is duplicated on
    purpose. Readers deduplicate by key all the same, as two owners may write at the same moment (law L5).
    """
    if rejects.num_rows == 0:
        return rejects
    low, high = pc.min_max(rejects.column("seq")).as_py().values()
    return without(rejects, present_between(quarantine, low, high))


def without(rejects: pa.Table, present: pa.Table) -> pa.Table:
    """Return the rejects whose key is not among these."""
    return rejects.join(present, _KEY, join_type="left anti") if present.num_rows else rejects


def present_between(quarantine: Location, low: int, high: int) -> pa.Table:
    """Return the keys of the quarantined rows of these seqs, both ends included."""
    try:
        dataset = rows_of(quarantine)
    except TableNotFoundError:
        return pa.schema([QUARANTINE.field(name) for name in _KEY]).empty_table()
    within = (pc.field("seq") >= low) & (pc.field("seq") <= high)
    return dataset.to_table(columns=list(_KEY), filter=within)
