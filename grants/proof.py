"""How the embedded catalog proves to its client who it is, before the client sends a token.

Both know the token in the catalog's folder, which only its owner can read. The client sends a number it has never sent
before, and the server answers with what only that token makes of it. Another program on that port learns nothing by it.
"""

import hashlib
import hmac
from typing import Final

PROOF_PATH: Final = "/turnout/proof/"
"""What follows is the client's number, of `NONCE_BYTES` bytes in hexadecimal digits."""

NONCE_BYTES: Final = 32


def proof(token: str, port: int, nonce: str) -> str:
    """Return what the server at a port of this machine answers; it counts for no other port and no other number."""
    message = f"turnout catalog at 127.0.0.1:{port} answers {nonce}"
    return hmac.new(token.encode(), message.encode(), hashlib.sha256).hexdigest()
