"""Finds refused rows whose schema is registered today: a replay lands those that decode.

Called by `balance` on the files it has pinned. Reads no payloads; `--values` does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.verify import readings
from pipeline.lake.delta.scratch import Database

_LOAD: Final = "INSERT INTO registered SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])"

# Rows that came before their game was known have the malformed key, so they are found by the game's name.
_FOUND: Final = """
SELECT registered.game_key, count(*) FROM (
    SELECT DISTINCT places.ord, f.seq, f.pos, f.game, f.schema_id
    FROM files(?) AS f JOIN places ON places.game_key = coalesce(f.game_key, '')
    JOIN odd ON odd.ord = places.ord AND odd.seq = f.seq AND odd.pos = f.pos
    WHERE odd.quarantined = 1 AND f.reason IN ('unknown_schema', 'quarantined_schema', 'other_type', 'unknown_game')
) JOIN registered USING (game, schema_id) GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class LandableSchema:
    """A schema whose rows land today: a replay lands a game's refused rows of it."""

    game_key: str
    game: str
    schema_id: int


def landing(schemas: SchemaSet, names: Mapping[str, str], retired: Collection[str]) -> list[LandableSchema]:
    """Return the schemas whose rows a replay lands; it skips retired games. `names` is key to exact name."""
    return [
        LandableSchema(key, names[key], schema.schema_id)
        for key in sorted(schemas.games.keys() & names.keys() - set(retired))
        for schema, placement in schemas.placed(GameKey(key))
        if placement.quarantined is None
    ]


def count(
    database: Database, quarantine: readings.TableSnapshot | None, registered: Collection[LandableSchema]
) -> dict[str, int]:
    """Return by game key how many places in quarantine have a schema that lands today.

    Args:
        database: the entries of the reading, judged: `rules.ODD` has been run.
        quarantine: its later reading.
        registered: the schemas whose rows land today, read after the tables were pinned.

    Raises:
        Refused: a data file is missing or damaged.
    """
    if quarantine is None or not registered:
        return {}
    database.execute("CREATE TABLE registered (game_key VARCHAR, game VARCHAR, schema_id BIGINT)")
    columns = zip(*((each.game_key, each.game, each.schema_id) for each in registered), strict=True)
    database.execute(_LOAD, [list(column) for column in columns])
    return dict(readings.execute(database, _FOUND, quarantine, quarantine))
