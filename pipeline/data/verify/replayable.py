"""Finds refused rows whose schema is registered today: a replay lands those that decode.

Called by `balance` on the files it has pinned. Reads no payloads; `--values` does.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.base.names import GameKey
from pipeline.data.contracts.declared_types import SchemasByType
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.verify import readings
from pipeline.lake.delta.scratch import Database

_SCHEMA: Final = """
CREATE TABLE registered (game_key VARCHAR, game VARCHAR, schema_id BIGINT);
CREATE TABLE waiting (ord INTEGER, seq BIGINT, pos BIGINT, game VARCHAR, schema_id BIGINT);
"""
_LOAD: Final = "INSERT INTO registered SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])"

_REFUSED: Final = """
INSERT INTO waiting SELECT DISTINCT places.ord, f.seq, f.pos, f.game, f.schema_id
FROM files(?) AS f JOIN places ON places.game_key = coalesce(f.game_key, '')
JOIN odd ON odd.ord = places.ord AND odd.seq = f.seq AND odd.pos = f.pos
WHERE odd.quarantined = 1 AND f.reason IN ('unknown_schema', 'quarantined_schema', 'other_type', 'unknown_game')
"""

# Rows that came before their game was known have the malformed key, so they are found by the game's name.
_BY_ID: Final = "SELECT registered.game_key, count(*) FROM waiting JOIN registered USING (game, schema_id) GROUP BY ALL"

# Others' rows have a writer in bronze instead of an id: of their registry, or their event type.
_WRITERS: Final = """
SELECT waiting.game, f.profile, f.registry, f.writer, count(*) FROM files(?) AS f JOIN waiting USING (seq, pos)
WHERE waiting.schema_id IS NULL AND f.writer IS NOT NULL GROUP BY ALL
"""
_COLUMNS: Final = ("seq", "pos", "profile", "registry", "writer")


@dataclass(frozen=True, slots=True)
class LandingToday:
    """The schemas whose rows land today: a replay lands a game's refused rows of them."""

    schemas: SchemaSet
    games: Mapping[str, str]  # exact name by key, of those that a replay takes
    _held: dict[str, tuple[SchemasByType, frozenset[int]]] = field(
        default_factory=dict, compare=False
    )  # by key, once asked

    def ids(self) -> Iterator[tuple[str, str, int]]:
        """Yield the key, the name and the id of each game's schemas."""
        for key, name in sorted(self.games.items()):
            for schema, placement in self.schemas.placed(GameKey(key)):
                if placement.quarantined is None:
                    yield key, name, schema.schema_id

    def lands(self, key: str, profile: int, registry: str | None, writer: bytes) -> bool:
        """Return whether rows of a writer land; one whose payloads begin with an index path is left out."""
        held = self._held.get(key)
        if held is None:  # once: a game may have hundreds of types, and rows of thousands of names
            placed = self.schemas.placed(GameKey(key))
            landing = frozenset(schema.schema_id for schema, at in placed if at.quarantined is None)
            held = self._held[key] = SchemasByType(placed), landing
        types, landing = held
        known = self.schemas.profiles.get(profile)
        if known is not None and known.framing == "type":
            ids: Collection[int | None] = types.candidates(writer.decode(errors="replace"))
        else:
            found = self.schemas.writers.get((registry or "", writer))
            ids = () if found is None else (found.schema_id,)
        return not landing.isdisjoint(ids)


def landing(schemas: SchemaSet, names: Mapping[str, str], retired: Collection[str]) -> LandingToday:
    """Return the schemas whose rows a replay lands; it skips retired games. `names` is key to exact name."""
    return LandingToday(schemas, {key: names[key] for key in schemas.games.keys() & names.keys() - set(retired)})


def count(database: Database, reading: readings.PinnedTables, today: LandingToday) -> dict[str, int]:
    """Return by game key how many places in quarantine have a schema that lands today.

    Args:
        database: the entries of the reading, judged: `rules.ODD` has been run.
        reading: the tables.
        today: what lands, read after the tables were pinned.

    Raises:
        Refused: a data file is missing or damaged.
    """
    registered, bronze, quarantine = list(today.ids()), reading.bronze, reading.quarantine_after
    if quarantine is None or not registered:
        return {}
    database.execute(_SCHEMA)
    database.execute(_LOAD, [list(column) for column in zip(*registered, strict=True)])
    readings.execute(database, _REFUSED, quarantine, quarantine)
    found = Counter(dict(database.execute(_BY_ID).fetchall()))
    if database.execute("SELECT 1 FROM waiting WHERE schema_id IS NULL LIMIT 1").fetchall():
        keys = {name: key for key, name in today.games.items()}
        writers = readings.execute(database, _WRITERS, bronze, bronze, columns=_COLUMNS)
        for game, profile, registry, writer, rows in writers:
            if game in keys and today.lands(keys[game], profile, registry, writer):
                found[keys[game]] += rows
    return dict(sorted(found.items()))
