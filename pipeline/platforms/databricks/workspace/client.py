"""A Databricks workspace as turnout reaches it: databricks-sdk with time limits of ours, and its errors as sentences.

The SDK is imported where something is first sent: that takes seconds.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pipeline.base.errors import Refused, Transient, Unclear

_MAX_LETTERS: Final = 300  # of what the workspace says, as far as people see it
_SDK_NOTES: Final = re.compile(r"\. (?:Config: |Env: ).*", re.DOTALL)  # what the SDK adds to 401 and 403
_ANSWER_SECONDS: Final = 30


def host_of_run() -> str:
    """Return the address of the workspace in which this process runs as a job.

    Raises:
        Refused: the SDK finds none.
    """
    return open_workspace().address


class Absent(Refused):
    """The workspace does not have what was named."""


class AlreadyThere(Refused):
    """The workspace has something of this name already."""


class Workspace:
    """Sends requests to one workspace. Safe in threads."""

    def __init__(self, client: Any, address: str) -> None:
        """Wrap the SDK's client."""
        self._client, self.address = client, address

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Read something; tried again by the SDK for some seconds.

        Raises:
            Refused: we may not, or the request is wrong; `Absent` where it does not exist.
            Transient: the workspace does not answer.
        """
        return self.send("GET", path, query=query)

    def listed(self, path: str, field: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield what all pages of a list have under `field`, page by page.

        Raises:
            Refused: as `get`, at the first page or at a later one.
            Transient: likewise.
        """
        token: str | None = None
        while True:
            page = self.get(path, {**(query or {}), **({} if token is None else {"page_token": token})})
            yield from page.get(field, [])
            if not (token := page.get("next_page_token")):
                return

    def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send one request; the SDK sends it again after a lost connection, whatever the method.

        Raises:
            Refused: we may not, or the request is wrong; `Absent`, `AlreadyThere`.
            Transient: the workspace does not answer, or has too much to do; `Unclear` where it may have done it.
        """
        try:
            answer = self._client.do(
                method, path, query=dict(query or {}), body=None if body is None else dict(body),
                headers={"Accept": "application/json", "Content-Type": "application/json"},
            )  # fmt: skip
        except Exception as error:
            raise translate_error(self.address, error) from error
        return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def open_workspace(*, patience_seconds: int = 20, answer_seconds: int = _ANSWER_SECONDS) -> Workspace:
    """Return a client of the workspace that the environment names, which has answered at least once.

    Whose rights count follows the SDK's order: DATABRICKS_HOST with DATABRICKS_TOKEN or a service principal's
    DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, a profile, or the identity of the run inside a job. The SDK tries
    for `patience_seconds` again what got no answer within `answer_seconds`.

    Raises:
        Refused: the environment names no workspace, or contradicts itself.
    """
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    from databricks.sdk.config import Config
    from databricks.sdk.core import ApiClient

    try:
        config = Config(
            retry_timeout_seconds=max(1, patience_seconds),  # 0 means 300 to the SDK
            http_timeout_seconds=answer_seconds,
            product="turnout",
            product_version="0.1.0",
        )
    except ValueError as error:
        raise Refused(
            f"No workspace can be reached: {said_by(error)}. Set DATABRICKS_HOST and DATABRICKS_TOKEN, or name a "
            "profile with DATABRICKS_CONFIG_PROFILE."
        ) from error
    return Workspace(ApiClient(config), str(config.host))


def translate_error(address: str, error: Exception) -> Refused | Transient:
    """Return what an error on the way means to us."""
    from databricks.sdk.errors import platform
    from databricks.sdk.errors.base import DatabricksError

    said = said_by(error)
    if not isinstance(error, DatabricksError):
        return Unclear(f"the workspace at {address} does not answer: {said}")
    if isinstance(error, platform.NotFound):
        return Absent(f"The workspace at {address} says: {said}.")
    if isinstance(error, platform.AlreadyExists | platform.ResourceAlreadyExists):
        return AlreadyThere(f"The workspace at {address} says: {said}.")
    if isinstance(error, platform.TooManyRequests | platform.InternalError | platform.TemporarilyUnavailable):
        return Unclear(f"the workspace at {address} has too much to do: {said}")
    if isinstance(error, platform.Unauthenticated):
        return Refused(f"The workspace at {address} does not know this token or principal: {said}.")
    if isinstance(error, platform.PermissionDenied):
        return Refused(f"The workspace at {address} does not permit this: {said}.")
    if isinstance(error, platform.BadRequest | platform.ResourceConflict | platform.NotImplemented):
        return Refused(f"The workspace at {address} refuses this: {said}.")
    return Unclear(f"the workspace at {address} does not answer: {said}")


def said_by(error: Exception) -> str:
    """Return an error's text for people: one line, without what the SDK adds, which names its settings."""
    text = _SDK_NOTES.sub("", str(error))
    text = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return " ".join(text.split())[:_MAX_LETTERS].rstrip(".") or type(error).__name__
