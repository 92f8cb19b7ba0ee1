"""Requests to a catalog over databricks-sdk, as raw JSON: its typed objects drop what they do not know.

Every client of a catalog sends through here; this is the only place that knows what may go wrong on the way.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

from grants.catalog import CatalogUnavailable
from grants.catalogs.rate_limit import BoundedClock, Clock, WallClock, limiter_for
from pipeline.base.errors import Refused

_MAX_PAGES: Final = 10_000
_SCIM_OF_OPEN_SOURCE: Final = "/scim2/"


class Rest:
    """Requests as one caller to one catalog.

    429 and 503 are waited for as the catalog asks, as long as that fits into the budget; then, and on any other
    failure that may pass, CatalogAway. All clients of this process for one address send no more than `reads_per_second`
    together; None is no limit. With `shared_token` nothing is sent on a connection before the server has proven on it
    that it knows that token. Without `token` the SDK finds in the environment who asks.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        shared_token: str | None = None,
        reads_per_second: float | None = None,
        budget_seconds: int = 10,
        timeout_seconds: int = 10,
        clock: Clock | None = None,
    ) -> None:
        parts = _parts(url)
        self.url = f"{parts.scheme}://{parts.netloc}"
        local = parts.hostname in {"127.0.0.1", "localhost", "::1"}
        if parts.scheme == "http" and not local:
            raise Refused(f"{self.url!r} would send the token unencrypted. Use an https address.")
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise Refused(f"The token for the catalog at {self.url} is missing or invalid.")
        self._token, self._shared_token, self._local = token, shared_token, local
        self._budget_seconds, self._timeout_seconds = budget_seconds, timeout_seconds
        self._clock = clock or WallClock()
        self._bucket = limiter_for(self.url, reads_per_second) if reads_per_second else None

    def as_caller(self, token: str) -> "Rest":
        """Return requests to the same server as another caller."""
        return Rest(self.url, token, shared_token=self._shared_token)

    def read(self, path: str, query: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """Return what a path answers.

        Raises:
            CatalogUnavailable: there is no answer, or none that can be understood.
            Denied: the caller is not known, or may not.
            NotFound: there is no such thing.
            Refused: the catalog takes the request for wrong.
        """
        if self._bucket is not None:
            _ = self._client  # made before its turn: the first one takes seconds, and the next would come at once
            self._bucket.take()
        return self._do("GET", path, query, None)

    def write(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change, which may be sent again when its answer is lost; return what is answered. Raises as `read`."""
        return self._do(method, path, None, body)

    def pages(self, path: str, key: str, query: Mapping[str, str | int] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the objects under `key` of all pages; a page may be empty and still not the last. Raises as `read`."""
        token: str | None = None
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            page = self.read(path, {**(query or {}), "max_results": 0, **({"page_token": token} if token else {})})
            yield from listed(page, key)
            token = page.get("next_page_token")
            if not token:
                return
            if not isinstance(token, str) or token in seen:
                break
            seen.add(token)
        raise CatalogUnavailable(f"The catalog at {self.url} repeats its pages endlessly.")

    def resources(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield all resources of a SCIM list. Raises as `read`."""
        start = 1
        while True:
            page = self.read(path, {"startIndex": start, "count": 100})
            page_items, total = listed(page, "Resources"), page.get("totalResults")
            yield from page_items
            start += len(page_items)
            if not isinstance(total, int):
                raise CatalogUnavailable(f"The catalog at {self.url} does not report the total at {path}.")
            if start > total:
                return
            if not page_items:
                raise CatalogUnavailable(
                    f"The catalog at {self.url} reports {total} entries at {path}, but lists {start - 1}."
                )

    def shown(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield all resources of a SCIM list that counts only those it shows: until it shows none. Raises as `read`."""
        start, seen = 1, set[str]()
        while page_items := listed(self.read(path, {"startIndex": start, "count": 100}), "Resources"):
            ids = {text_of(each, "id") for each in page_items}
            if ids <= seen:
                raise CatalogUnavailable(f"The catalog at {self.url} repeats its pages of {path} endlessly.")
            yield from page_items
            seen |= ids
            start += len(page_items)

    @cached_property
    def _client(self) -> Any:
        from grants.catalogs import sdk  # takes seconds to import, and not every command asks a catalog

        patience = BoundedClock(self._budget_seconds, self._clock)
        timeouts = (self._budget_seconds, self._timeout_seconds)
        return sdk.client(self.url, self._token, timeouts, patience, local=self._local, shared_token=self._shared_token)

    def _do(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        from grants.catalogs import sdk

        try:
            answer = self._client.do(
                method,
                path,
                query=dict(query) if query is not None else None,
                headers={"Accept": _accepted(path)},
                body=dict(body) if body is not None else None,
            )
        except (OSError, ValueError) as error:  # the SDK's errors, timeouts, answers that are no JSON
            raise sdk.translate_error(self.url, error) from error
        if not isinstance(answer, dict):
            raise CatalogUnavailable(f"The catalog at {self.url} answered without a JSON object.")
        return answer


def path_of(prefix: str, *segments: str) -> str:
    """Return a path whose last segments are names: no part of a name becomes part of the path.

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
        CatalogUnavailable: what is there is no list of objects.
    """
    items = answer.get(key)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise CatalogUnavailable(f"The catalog's {key} is malformed.")
    return items


def text_of(answer: Mapping[str, Any], key: str) -> str:
    """Return a text that must be there.

    Raises:
        CatalogUnavailable: it is not.
    """
    value = answer.get(key)
    if not isinstance(value, str):
        raise CatalogUnavailable(f"The catalog's answer lacks {key}.")
    return value


def _accepted(path: str) -> str:
    """Return the media type to ask for: an open-source server answers 500 to requests for users as plain JSON."""
    return "application/scim+json" if _SCIM_OF_OPEN_SOURCE in path else "application/json"


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and "@" not in url and parts.port != 0
    except ValueError:  # no network of IPv6, or no number as port
        usable = False
    if not usable:  # not shown: there may be a password in it
        raise Refused("The catalog's address is invalid. Use https://HOST:PORT, without a user.")
    return parts
