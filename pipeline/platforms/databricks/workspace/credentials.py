"""Tokens that a Lakebase endpoint takes as passwords, renewed before they end.

The control store's engine takes one for each new connection. No token is in a text of this module: not in a repr, an
error or a log.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.workspace.client import Workspace

_log = logging.getLogger("turnout")
_PATH: Final = "/api/2.0/postgres/credentials"
_MAX_LIFE_SECONDS: Final = 3600.0
"""The longest life that a workspace gives (databricks-sdk 0.156, `postgres.generate_database_credential`); an end that
is later by our clock only says that our clock is late."""
_MARGIN_SECONDS: Final = 300.0
_MARGIN_SHARE: Final = 0.25  # of a life shorter than 20 minutes
_TRIES_IN_MARGIN: Final = 8


@dataclass(frozen=True, slots=True)
class _Token:
    secret: str = field(repr=False)
    made_at: float  # by the clock that only goes forward, as the next two
    renew_at: float
    ends_at: float
    ends_at_wall: float  # Unix seconds; the other clock stands still while a laptop sleeps

    @property
    def margin(self) -> float:
        return self.ends_at - self.renew_at


class DatabaseCredentials:
    """The token of one endpoint, for all connections of this process. Safe in threads: one of them renews it."""

    def __init__(
        self,
        workspace: Workspace,
        endpoint: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare tokens for an endpoint, `projects/P/branches/B/endpoints/E`; sends nothing yet."""
        self._workspace, self._endpoint = workspace, endpoint
        self._clock, self._wall = clock, wall
        self._renewing = threading.Lock()
        self._token: _Token | None = None
        self._tries = 0  # that have ended
        self._failure: Refused | Transient | None = None  # of the last try
        self._again_at = 0.0  # no earlier than this after a try that failed beside a living token

    def password(self) -> str:
        """Return a token that lives; it is renewed where its end is near.

        A thread waits for another's request only where no token lives. If a renewal fails, the old token serves until
        its end.

        Raises:
            Refused: the workspace gives this identity no token.
            Transient: the workspace does not answer, and no token lives.
        """
        tries, token = self._tries, self._token
        lives = token is not None and self._lives(token)
        if token is not None and lives and not self._is_due(token):
            return token.secret
        if not self._renewing.acquire(blocking=not lives):
            assert token is not None
            return token.secret
        try:
            return self._renewed(tries)
        finally:
            self._renewing.release()

    def doubt(self, password: str) -> bool:
        """Drop a token that a login refused; return whether another try makes sense.

        None does after a token that was just made: then the identity has no role, or another fault that stays.
        """
        with self._renewing:
            token = self._token
            if token is None or token.secret != password:
                return True
            if self._clock() - token.made_at < token.margin:
                return False
            self._token = None
            return True

    def _renewed(self, tries: int) -> str:
        """Return the token, renewed unless another thread has ended a try since `tries` were counted."""
        token = self._token
        if token is not None and self._lives(token) and (self._tries != tries or not self._is_due(token)):
            return token.secret
        if self._failure is not None and self._tries != tries:
            raise type(self._failure)(str(self._failure))
        try:
            self._token = self._request()
            self._failure = None
        except (Refused, Transient) as error:
            self._failure = error
            if token is None or not self._lives(token):
                raise
            self._again_at = self._clock() + token.margin / _TRIES_IN_MARGIN
            _log.warning("could not renew the control store's token, the old one serves until its end: %s", error)
            return token.secret
        finally:
            self._tries += 1
        return self._token.secret

    def _request(self) -> _Token:
        now, wall = self._clock(), self._wall()  # before: what the answer takes is part of the life
        secret, ends_at = _read(self._workspace.send("POST", _PATH, {"endpoint": self._endpoint}))
        life = max(0.0, min(ends_at - wall, _MAX_LIFE_SECONDS))
        margin = min(_MARGIN_SECONDS, life * _MARGIN_SHARE)
        return _Token(secret, now, now + life - margin, now + life, wall + life)

    def _lives(self, token: _Token) -> bool:
        return self._clock() < token.ends_at and self._wall() < token.ends_at_wall

    def _is_due(self, token: _Token) -> bool:
        return self._clock() >= max(token.renew_at, self._again_at)


def _read(answer: Mapping[str, Any]) -> tuple[str, float]:
    """Return the token of an answer, and its end in Unix seconds.

    Raises:
        Transient: the answer is not what the API promises.
    """
    secret, ends = answer.get("token"), answer.get("expire_time")
    if not isinstance(secret, str) or not secret.isprintable() or not secret:
        raise Transient("the workspace answered without a token for the control store")
    try:
        return secret, datetime.fromisoformat(str(ends)).timestamp()
    except ValueError:
        raise Transient("the workspace answered with a token whose expire_time is not a time") from None
