"""Which game's table a row belongs into, worked out from the game's name alone."""

import base64
import hashlib
import re
import unicodedata


def key_of(game: str) -> str:
    """Return the key a game's rows must carry, worked out from the name alone (law: identity decides the route).

    A second implementation on purpose: it would tell if the one that routes ever changed.
    """
    letters = [
        letter if letter.isalnum() else "_"
        for letter in unicodedata.normalize("NFKD", game).lower()
        if letter.isascii()
    ]
    slug = re.sub("_+", "_", "".join(letters)).strip("_")[:40].rstrip("_")
    return f"{slug or 'game'}_{base64.b32encode(hashlib.sha256(game.encode()).digest())[:12].decode().lower()}"
