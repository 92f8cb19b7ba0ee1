"""Identifiers: how a game's name becomes the one key used in tables, paths, query names and labels.

Every other module calls these functions; none writes a key, an application id or a table path by itself.
"""

import base64
import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import Final, Literal, NewType

GameKey = NewType("GameKey", str)

Backend = Literal["none", "local", "databricks"]
"""Who starts a group's driver: not turnout, or the controller, as a process beside it or as a job of a workspace."""

LAYERS: Final = ("silver", "gold")
"""The kinds of tables that follow from games' tables, each a folder."""

MAX_NAME_BYTES: Final = 256
MALFORMED: Final = GameKey("malformed_wrapper")
"""Key of rows with a malformed wrapper. It has no hash part, so no game can ever own it."""

_SLUG_LENGTH: Final = 40
_HASH_LENGTH: Final = 12
_TYPE_LENGTH: Final = 24
_MAX_SHOWN: Final = 80
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_BRONZE_APP: Final = re.compile(r"turnout/([^/]+)/bronze")
# Hangul fillers, the Braille cell without dots and the notehead without ink:
_BLANK_LETTERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
GAME_KEY: Final = re.compile(rf"[a-z0-9_]{{1,{_SLUG_LENGTH}}}_[a-z2-7]{{{_HASH_LENGTH}}}")
"""What game keys look like, in a text too."""

_RULE_TABLE: Final = re.compile(rf"{GAME_KEY.pattern}__[a-z0-9_]{{1,{_TYPE_LENGTH}}}_[a-z2-7]{{{_HASH_LENGTH}}}")
_SECURABLE_PART: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")


@lru_cache(maxsize=65_536)
def game_key(name: str) -> GameKey:
    """Return the key of a game: a readable slug, then 12 base32 characters of SHA-256 of the exact name.

    The hash distinguishes names with equal slugs (case twins, spaces, other scripts).
    """
    slug = _folded(name).strip("_")[:_SLUG_LENGTH].rstrip("_") or "game"
    return GameKey(f"{slug}_{_hashed(name)}")


def rule_table_name(game: str, event_type: str) -> str:
    """Return the name of the silver table that a rule makes for an event type of a game.

    Its readable parts are those of the game's key and the type's last segment; the hash tells types apart as the key's
    tells games.
    """
    slug = _folded(event_type.rpartition(".")[2]).strip("_")[:_TYPE_LENGTH].rstrip("_") or "type"
    return f"{game_key(game)}__{slug}_{_hashed(event_type)}"


def is_rule_table_name(text: str) -> bool:
    """Return whether a table that a rule makes may have this name, so that no other one takes it."""
    return _RULE_TABLE.fullmatch(text) is not None


def derived_table_key(kind: str, name: str) -> str:
    """Return the key by which the catalog knows a silver or gold table: no game's key has two `_` in a row."""
    return f"{kind}__{name}"


def parted_table_key(key: str) -> tuple[str, str] | None:
    """Return the kind and the name of a silver or gold table by its key; None where the key is no such one."""
    kind, _, name = key.partition("__")
    return (kind, name) if kind in LAYERS and name else None


def key_pattern(text: str) -> str | None:
    """Return a regular expression (RE2) for the keys of the games that a text names; None where it names none.

    A text with `*` stands for all games whose readable part of the key fits, so also for games to come; a key stands
    for itself, any other text for the game of exactly this name.
    """
    if "*" not in text:
        return text if GAME_KEY.fullmatch(text) else str(game_key(text)) if is_game_name(text) else None
    parts = text.split("*")
    folded = [_folded(part) for part in parts]
    folded[0] = folded[0].lstrip("_")
    is_readable = all(new.strip("_") or not old for old, new in zip(parts, folded, strict=True))
    if not is_readable or sum(map(len, folded)) > _SLUG_LENGTH or not text.isascii():
        return None
    return f"{'.*'.join(folded)}_[a-z2-7]{{{_HASH_LENGTH}}}"


def _hashed(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:_HASH_LENGTH]


def _folded(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", folded)


def is_game_name(name: str) -> bool:
    """Return whether a name may identify a game: 1 to 256 bytes of UTF-8 without NUL."""
    return "\0" not in name and 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES


def is_group_name(text: str) -> bool:
    """Return whether a text may name a cluster group: 1 to 40 of a-z, 0-9 and '-', not starting with '-'."""
    return _GROUP.fullmatch(text) is not None


def is_securable_part(text: str) -> bool:
    """Return whether a text may name a catalog, a schema or a table: 1 to 255 letters, digits, '_' and '-'."""
    return _SECURABLE_PART.fullmatch(text) is not None


def stream_app_id(environment: str, key: GameKey, generation: int) -> str:
    """Return the Delta transaction id under which a game's table keeps the stream's cursor (law L3)."""
    return f"turnout/{environment}/{key}/{generation}"


def generation_id(table_id: str, generation: int) -> str:
    """Return the id of a generation of a Delta table; no other table has it, also of the same name and number."""
    return f"{table_id}@{generation}"


def silver_key(name: str) -> GameKey:
    """Return the key of a silver table's stream, for its application ids; no game's key has a dot."""
    return GameKey(f"silver.{name}")


def gold_key(name: str) -> GameKey:
    """Return the key of a gold table's stream, likewise."""
    return GameKey(f"gold.{name}")


def closings_key(name: str, window: int, lateness: int) -> GameKey:
    """Return the key of the closing seqs of a gold table's windows, likewise; both numbers are seconds."""
    return GameKey(f"closings.{name}.{window}.{lateness}")


def closed_app_id(environment: str, key: GameKey) -> str:
    """Return the Delta transaction id of the number of a game's last closing: in its closed days, and in the ledger."""
    return f"turnout/{environment}/{key}/closed"


def bronze_app_id(environment: str) -> str:
    """Return the Delta transaction id of bronze's last seq: two writers cannot give one seq twice."""
    return f"turnout/{environment}/bronze"


def environment_of_bronze(app_id: str) -> str | None:
    """Return the environment in a Delta transaction id of bronze's last seq; None for every other id."""
    match = _BRONZE_APP.fullmatch(app_id)
    return None if match is None else match[1]


def ingest_app_id(environment: str, generation: int) -> str:
    """Return the Delta transaction id of bronze's last ingested batch (law L1)."""
    return f"turnout/{environment}/ingest/{generation}"


def attempt_app_ids(batch_app: str) -> tuple[str, str, str]:
    """Return the Delta transaction ids of an ingest generation's last batch with refused rows.

    Quarantine keeps its first and its last seq under the first two; bronze keeps the last seq of the newest abandoned
    attempt under the third.
    """
    return f"{batch_app}/quarantine/first", f"{batch_app}/quarantine/last", f"{batch_app}/given-up"


def repair_app_id(environment: str, key: GameKey) -> str:
    """Return the Delta transaction id that counts the repairs of a game's table, so that they exclude each other."""
    return f"turnout/{environment}/{key}/repair"


def gap_app_id(environment: str, key: GameKey, number: int, end: Literal["above", "through"]) -> str:
    """Return the Delta transaction id of one end of an accepted gap, in a game's table."""
    return f"turnout/{environment}/{key}/gap/{number}/{end}"


def remade_app_id(environment: str, key: GameKey) -> str:
    """Return the Delta transaction id of the last seq that a removed table had, in the log of the one made again."""
    return f"turnout/{environment}/{key}/remade"


def lost_seqs_app_id(environment: str, number: int, end: Literal["after", "before"]) -> str:
    """Return the Delta transaction id of one end of a range of seqs that bronze lost."""
    return f"turnout/{environment}/bronze/lost/{number}/{end}"


def is_utf8(text: str) -> bool:
    """Return whether a text from the system, such as an argument, is valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_said(text: str) -> bool:
    """Return whether a text, such as a required reason, has at least one visible character."""
    return any(unicodedata.category(each)[0] in "LNPS" and each not in _BLANK_LETTERS for each in text)


def plain(text: str | None) -> str:
    """Return a text as one printable piece: control, direction and other invisible characters are escaped."""
    if text is None:
        return "-"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shown(text: str) -> str:
    """Return a text from outside for use in a sentence: quoted, escaped, cut when long."""
    quoted = ascii(text)
    return quoted if len(quoted) <= _MAX_SHOWN else f"{quoted[: _MAX_SHOWN - 4]}...'"
