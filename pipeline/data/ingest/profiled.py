"""Opens the records of a source with a profile: game, event columns, and the writer of each payload's schema.

Called in tasks, instead of the quick way of turnout's own wrapper. Registries are not asked here: rows carry the id as
on the wire, and the task reports which ones it met.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.envelopes.envelope import COLUMNS, Records
from pipeline.data.contracts.envelopes.framing import FRAMINGS, Given
from pipeline.data.contracts.envelopes.opening import open_records
from pipeline.data.contracts.envelopes.routing import event_types
from pipeline.data.contracts.profile import SourceProfile
from pipeline.lake.delta.bronze import FRAMED, whole

_MOST_NEEDS: Final = 1_000  # of one slice; the rows that wait report further ones again
_OWN_COLUMNS: Final = [name for name in COLUMNS.names if name not in {"payload", "type"}]

NeedId = tuple[str, bytes]
"""A game's key and a writer."""


@dataclass(frozen=True, slots=True)
class NumberedProfile:
    """A profile with its number, and the writers that the driver knows to be needed already."""

    number: int
    profile: SourceProfile
    noted: AbstractSet[NeedId] = frozenset()


@dataclass(frozen=True, slots=True)
class ProfiledRows:
    """One row for each record, in order."""

    columns: dict[str, pa.Array]  # of bronze: what the envelope gives, profile, registry and writer
    refused: pa.StringArray
    detail: pa.StringArray


def open_profiled(rows: pa.Table, numbered: NumberedProfile) -> ProfiledRows:
    """Open records with the columns of `INPUT`. Refused: envelopes, names and framings that cannot be read."""
    profile, count = numbered.profile, rows.num_rows
    columns = {name: whole(rows.column(name)) for name in ("value", "key", "headers", "topic")}
    records = Records(**columns)
    opened = open_records(records, profile)
    game, schema_id = opened.batch.column("game"), opened.batch.column("schema_id")
    types = event_types(records, opened, profile)
    given = Given(columns["topic"], game, schema_id, columns["headers"], profile.headers, types)
    read = FRAMINGS[profile.framing].read(opened.batch.column("payload"), given)
    fine = opened.refused.is_null()
    refused = pc.if_else(fine, read.refused, opened.refused)
    given_columns = {name: opened.batch.column(name) for name in _OWN_COLUMNS}
    registry = pa.repeat(pa.scalar(profile.registry, pa.string()), count)
    if read.own is not None:
        registry = pc.if_else(read.own, pa.scalar(None, pa.string()), registry)
    given_columns["schema_id"] = pc.if_else(registry.is_null(), schema_id, pa.scalar(None, pa.int64()))
    framed = (
        pa.repeat(pa.scalar(numbered.number, pa.int32()), count),
        registry,
        pc.if_else(refused.is_null(), read.writers, pa.scalar(None, pa.binary())),
    )
    given_columns |= dict(zip(FRAMED, framed, strict=True))
    return ProfiledRows(given_columns, refused, pc.if_else(fine, read.detail, opened.detail))


def needs_of(bronze: pa.Table, numbered: NumberedProfile) -> list[list[Any]]:
    """Return key, game, registry, writer (hexadecimal), seq and pos of what these rows need that is not noted yet.

    The rows are of one seq; pos is that of the first row with the writer.
    Only writers of a foreign registry: turnout's own ids need nobody's answer.
    """
    registry = numbered.profile.registry
    if registry is None:
        return []
    is_foreign = pc.and_(pc.is_null(bronze.column("refused")), pc.is_valid(bronze.column("registry")))
    met = bronze.filter(is_foreign).group_by(["game_key", "game", "writer"]).aggregate([("seq", "min"), ("pos", "min")])
    names = ("game_key", "game", "writer", "seq_min", "pos_min")
    distinct = zip(*(met.sort_by("pos_min").column(name).to_pylist() for name in names), strict=True)
    new = [
        [key, game, registry, writer.hex(), seq, pos]
        for key, game, writer, seq, pos in distinct
        if (key, writer) not in numbered.noted
    ]
    return new[:_MOST_NEEDS]
