"""Tokens of users of an open-source Unity Catalog server, made with its own key: only to see what a user can read."""

import base64
import json
import time
import uuid
from pathlib import Path
from typing import Any, Final

from pipeline.base.errors import Refused

_SECONDS: Final = 60


class UnityKey:
    """The key of a server that lies in its folder `etc/conf`."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key

        try:
            self._id = (folder / "key_id.txt").read_text("utf-8").strip()
            key = load_der_private_key((folder / "private_key.der").read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise Refused(f"{folder} holds no usable key of a Unity Catalog server: {error}.") from error
        if not isinstance(key, RSAPrivateKey):
            raise Refused(f"The key in {folder} is not a Unity Catalog server's: those are RSA keys.")
        self._key = key

    def token(self, user: str) -> str:
        """Return a token of a user, for a minute."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA512

        now = int(time.time())
        head = {"alg": "RS512", "typ": "JWT", "kid": self._id}
        claims = {"sub": user, "iss": "internal", "type": "ACCESS", "jti": str(uuid.uuid4()), "iat": now}
        signed = f"{_part(head)}.{_part({**claims, 'exp': now + _SECONDS})}"
        return f"{signed}.{_text(self._key.sign(signed.encode(), PKCS1v15(), SHA512()))}"


def _part(content: dict[str, Any]) -> str:
    return _text(json.dumps(content).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
