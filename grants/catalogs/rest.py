"""Requests to a catalog over databricks-sdk, as raw JSON: its typed objects drop what they do not know.

Every client of a catalog sends through here; this is the only place that knows what may go wrong on the way.
"""

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.clock import Clock
from databricks.sdk.config import Config
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.errors.platform import (
    BadRequest,
    NotFound,
    NotImplemented,  # noqa: A004 - the SDK's name for 501
    PermissionDenied,
    ResourceConflict,
    Unauthenticated,
)

from grants.catalog import CatalogAway, Denied, Gone
from pipeline.errors import Refused

_MOST_LETTERS: Final = 300  # of what a catalog says, as far as people see it
_MOST_PAGES: Final = 10_000
_SDK_NOTES: Final = re.compile(r"\. (?:Config: |Env: ).*", re.DOTALL)  # what the SDK adds to 401 and 403

logging.getLogger("databricks.sdk").setLevel(logging.ERROR)  # its warnings are about what is not asked for here


class Rest:
    """Requests as one caller to one catalog.

    429 and 503 are waited for as the catalog asks, as long as that fits into the budget; then, and on any other
    failure that may pass, CatalogAway. No more than `reads_per_second` are sent on average; None is no limit.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        reads_per_second: float | None = None,
        budget_seconds: int = 10,
        timeout_seconds: int = 10,
        clock: Clock | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise Refused(f"{url!r} is no address of a catalog: give one such as https://HOST.")
        local = parts.hostname in {"127.0.0.1", "localhost", "::1"}
        if parts.scheme == "http" and not local:
            raise Refused(f"{url!r} would send the token unprotected: give an address with https.")
        if not token or not token.isascii() or not token.isprintable():
            raise Refused(f"There is no usable token for the catalog at {url}.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._patience = _Patience(budget_seconds, clock or _WallClock())
        self._bucket = _Bucket(reads_per_second, clock or _WallClock()) if reads_per_second else None
        self._client = _client(self.url, token, budget_seconds, timeout_seconds, self._patience, local=local)

    def read(self, path: str, query: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """Return what a path answers.

        Raises:
            CatalogAway: there is no answer, or none that can be understood.
            Denied: the caller is not known, or may not.
            Gone: there is no such thing.
            Refused: the catalog takes the request for wrong.
        """
        if self._bucket is not None:
            self._bucket.take()
        return self._do("GET", path, query, None)

    def write(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change, which may be sent again when its answer is lost; return what is answered. Raises as `read`."""
        return self._do(method, path, None, body)

    def pages(self, path: str, key: str, query: Mapping[str, str | int] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the objects under `key` of all pages; a page may be empty and still not the last. Raises as `read`."""
        token: str | None = None
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            page = self.read(path, {**(query or {}), "max_results": 0, **({"page_token": token} if token else {})})
            yield from listed(page, key)
            token = page.get("next_page_token")
            if not token:
                return
            if not isinstance(token, str) or token in seen:
                break
            seen.add(token)
        raise CatalogAway(f"The catalog at {self.url} gives its pages in a circle.")

    def resources(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield all resources of a SCIM list. Raises as `read`."""
        start = 1
        while True:
            page = self.read(path, {"startIndex": start, "count": 100})
            found, total = listed(page, "Resources"), page.get("totalResults")
            yield from found
            start += len(found)
            if not isinstance(total, int):
                raise CatalogAway(f"The catalog at {self.url} does not say how many there are at {path}.")
            if start > total:
                return
            if not found:
                raise CatalogAway(f"The catalog at {self.url} counts {total} at {path}, and shows {start - 1}.")

    def _do(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            answer = self._client.api_client.do(
                method,
                path,
                query=dict(query) if query is not None else None,
                headers={"Accept": "application/json"},
                body=dict(body) if body is not None else None,
            )
        except DatabricksError as error:
            raise self._meant(error) from error
        except (OSError, ValueError) as error:  # timeouts, broken connections, answers that are no JSON
            raise CatalogAway(f"The catalog at {self.url} does not answer: {_short(error)}.") from error
        if not isinstance(answer, dict):
            raise CatalogAway(f"The catalog at {self.url} answered something that is no JSON object.")
        return answer

    def _meant(self, error: DatabricksError) -> Exception:
        """Return what an error of the SDK means to us."""
        message = str(error)
        if "unable to parse response" in message:  # no JSON: whoever answers does not know the path
            return CatalogAway(f"What answers at {self.url} is no catalog, or not one that knows this request.")
        said = f"The catalog at {self.url} says: {_short(error)}."
        if isinstance(error, Unauthenticated | PermissionDenied):
            return Denied(said)
        if isinstance(error, NotFound):
            return Gone(said)
        if isinstance(error, BadRequest | ResourceConflict | NotImplemented):
            return Refused(said)
        return CatalogAway(said)


def path_of(prefix: str, *segments: str) -> str:
    """Return a path whose last segments are names: nothing in a name is taken for part of the path.

    Raises:
        Refused: a name is empty or only dots, which no escaping keeps from changing the path, or is not UTF-8.
    """
    for segment in segments:
        if not segment.strip(".") or any(0xD800 <= ord(letter) < 0xE000 for letter in segment):
            raise Refused(f"{segment!r} cannot be part of a path.")
    return "/".join([prefix, *(quote(segment, safe="") for segment in segments)])


def listed(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects under a key; none where the key is missing, as catalogs leave out what is empty.

    Raises:
        CatalogAway: what is there is no list of objects.
    """
    found = answer.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise CatalogAway(f"The catalog's {key} cannot be understood.")
    return found


def text_of(found: Mapping[str, Any], key: str) -> str:
    """Return a text that must be there.

    Raises:
        CatalogAway: it is not.
    """
    value = found.get(key)
    if not isinstance(value, str):
        raise CatalogAway(f"The catalog gives no {key} where one belongs.")
    return value


class _WallClock(Clock):
    def time(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Patience(Clock):
    """The SDK's clock: it would sleep as long as a catalog says, however long that is."""

    def __init__(self, budget_seconds: float, clock: Clock) -> None:
        self._budget, self._clock = budget_seconds, clock

    def time(self) -> float:
        return self._clock.time()

    def sleep(self, seconds: float) -> None:
        if seconds > self._budget + 1:  # the SDK adds up to a second
            raise CatalogAway(f"The catalog asks to be left alone for {seconds:.0f} s.")
        self._clock.sleep(seconds)


class _Bucket:
    """Tokens that come back with time: at most a second's worth at once."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._rate, self._clock = per_second, clock
        self._left, self._filled_at = 1.0, clock.time()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Wait until one more may be sent."""
        with self._lock:
            now = self._clock.time()
            self._left = min(1.0, self._left + (now - self._filled_at) * self._rate) - 1.0
            self._filled_at = now
            wait = -self._left / self._rate
        if wait > 0:
            self._clock.sleep(wait)


class _Config(Config):
    """The SDK's configuration without the request it makes to learn what a token's caller never needs."""

    def _resolve_host_metadata(self) -> None:
        return


def _client(
    url: str, token: str, budget_seconds: int, timeout_seconds: int, clock: Clock, *, local: bool
) -> WorkspaceClient:
    Config.attributes()  # finds the attributes of the class it is first called on: a subclass alone has none
    try:
        config = _Config(
            host=url,
            token=token,
            auth_type="pat",
            retry_timeout_seconds=budget_seconds,
            http_timeout_seconds=timeout_seconds,
            product="turnout",
            product_version="0.1.0",
            clock=clock,
        )
    except ValueError as error:  # a profile named by the environment that does not exist, and the like
        raise Refused(f"The client of the catalog at {url} cannot be made: {_short(error)}.") from error
    client = WorkspaceClient(config=config)
    session: requests.Session = client.api_client._api_client._session  # noqa: SLF001 - the SDK has no switch for it
    session.max_redirects = 0  # a request is answered where it was sent, or not at all
    if local:
        session.trust_env = False  # a proxy must not see what is said on this machine
    return client


def _short(error: Exception) -> str:
    """Return an error's text for people: one line, without what the SDK adds."""
    text = _SDK_NOTES.sub("", str(error))
    text = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return " ".join(text.split())[:_MOST_LETTERS].rstrip(".") or type(error).__name__
