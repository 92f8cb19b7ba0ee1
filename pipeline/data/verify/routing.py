"""The table that a row belongs in: its key, computed from the game's name alone, and the home of late rows.

Ingest refused rows that came before their game was known, and a replay landed them later. Bronze and quarantine keep
such a row under the key of no game; its place counts with the game of its name once it is in that game's table.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from pipeline.base.names import MALFORMED
from pipeline.data.verify import readings
from pipeline.lake.delta.scratch import Database


def key_of(game: str) -> str:
    """Return the key of a game's rows, computed from the name alone (law: identity decides the route).

    A second implementation on purpose: it would notice a change in the one that routes.
    """
    letters = [
        letter if letter.isalnum() else "_"
        for letter in unicodedata.normalize("NFKD", game).lower()
        if letter.isascii()
    ]
    slug = re.sub("_+", "_", "".join(letters)).strip("_")[:40].rstrip("_")
    return f"{slug or 'game'}_{base64.b32encode(hashlib.sha256(game.encode()).digest())[:12].decode().lower()}"


# Places in tables that bronze lacks under that key: only those can belong to such rows.
_STRANGE: Final = """
CREATE TEMP TABLE strange AS
SELECT DISTINCT ord, seq, pos FROM entries WHERE side = 'table' AND seq >= 0
EXCEPT SELECT ord, seq, pos FROM entries WHERE side = 'bronze'
"""

_UNKNOWN: Final = """
FROM files(?) AS f JOIN strange USING (seq, pos) WHERE f.game_key = ? AND f.refused = 'unknown_game'
"""
_NAMES: Final = f"SELECT DISTINCT f.game {_UNKNOWN} AND f.game IS NOT NULL"
_OF_NAME: Final = f"""
CREATE TEMP TABLE moved AS
SELECT DISTINCT seq, pos, strange.ord {_UNKNOWN}
    AND strange.ord IN (SELECT ord FROM places WHERE game_key = ?) AND f.game = ?
"""  # noqa: S608 - made of constants
_MOVE: Final = """
UPDATE entries SET ord = moved.ord FROM moved, places
WHERE entries.seq = moved.seq AND entries.pos = moved.pos AND entries.side <> 'table'
    AND entries.ord = places.ord AND places.game_key = ?
"""


def reassign_rows(database: Database, bronze: readings.TableSnapshot, key_of: Callable[[str], str]) -> None:
    """Count rows that were refused as of no known game with the game they name, if they have landed in its table.

    Raises:
        Refused: a data file of bronze cannot be read.
    """
    database.execute(_STRANGE)
    (strange,) = database.execute("SELECT count(*) FROM strange").fetchall()[0]
    if not strange:
        return
    for (game,) in readings.execute(database, _NAMES, bronze, bronze, MALFORMED):
        readings.execute(database, _OF_NAME, bronze, bronze, MALFORMED, key_of(game), game)
        database.execute(_MOVE, [MALFORMED])
        database.execute("DROP TABLE moved")
