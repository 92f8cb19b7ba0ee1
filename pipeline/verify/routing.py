"""The key of the table that a row belongs in, computed from the game's name alone."""

import base64
import hashlib
import re
import unicodedata


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
