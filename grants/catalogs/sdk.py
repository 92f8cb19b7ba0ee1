"""databricks-sdk as `rest` uses it: a client with a time limit, and what its errors mean to us.

Only `rest` imports this, when it first sends something: the SDK takes seconds to import.
"""

import logging

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.clock import Clock as SdkClock
from databricks.sdk.config import Config
from databricks.sdk.core import ApiClient
from databricks.sdk.errors import platform
from databricks.sdk.errors.base import DatabricksError

from grants.catalog import CatalogUnavailable, Denied, NotFound, Unauthenticated
from grants.catalogs.proven import ProvenAdapter
from grants.catalogs.rate_limit import Clock
from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.workspace.client import said_by


def client(
    url: str, token: str | None, timeouts: tuple[int, int], clock: Clock, *, local: bool, shared_token: str | None
) -> ApiClient:
    """Return the SDK's client for raw requests, as the caller whose `token` this is.

    Without one it is who the environment names to the SDK: a service principal by DATABRICKS_CLIENT_ID and
    DATABRICKS_CLIENT_SECRET, as in an app; a profile; or the identity of the run, in a job.

    `timeouts` are the seconds of all tries together and of one answer; `local` is a catalog on this machine. A server
    that has to know `shared_token` proves it on each connection, before anything else is sent there.

    Raises:
        Refused: the environment has settings of the SDK that contradict.
    """
    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)
    Config.attributes()  # finds the attributes of the class it is first called on: a subclass alone has none
    try:
        config = (Config if token is None else _Config)(  # how to get a token the host says
            host=url,
            token=token,
            auth_type=None if token is None else "pat",
            retry_timeout_seconds=timeouts[0],
            http_timeout_seconds=timeouts[1],
            product="turnout",
            product_version="0.1.0",
            clock=_Clock(clock),
        )
    except ValueError as error:  # a profile named by the environment that does not exist, and the like
        raise Refused(f"The client of the catalog at {url} cannot be created: {said_by(error)}.") from error
    api_client = WorkspaceClient(config=config).api_client
    session: requests.Session = api_client._api_client._session  # noqa: SLF001 - the SDK has no switch for what follows
    session.max_redirects = 0  # a request is answered where it was sent, or not at all
    if local:
        session.trust_env = False  # a proxy must not see what is said on this machine
    if shared_token is not None:
        session.mount("http://", ProvenAdapter(shared_token, timeouts[1]))
    return api_client


def translate_error(url: str, error: Exception) -> Refused | Transient:
    """Return what an error on the way means to us."""
    if not isinstance(error, DatabricksError):
        return CatalogUnavailable(f"The catalog at {url} does not answer: {said_by(error)}.")
    if "unable to parse response" in str(error):  # no JSON: the server that answers does not know the path
        return CatalogUnavailable(f"The server at {url} is no catalog, or does not know this request.")
    message = f"The catalog at {url} says: {said_by(error)}."
    if isinstance(error, platform.Unauthenticated):
        return Unauthenticated(message.replace(" says: ", " says 401: ", 1))
    if isinstance(error, platform.PermissionDenied):
        return Denied(message.replace(" says: ", " says 403: ", 1))
    if isinstance(error, platform.NotFound):
        return NotFound(message)
    if isinstance(error, platform.BadRequest | platform.ResourceConflict | platform.NotImplemented):
        return Refused(message)
    return CatalogUnavailable(message)


class _Clock(SdkClock):
    """Our clock as the SDK wants it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def time(self) -> float:
        return self._clock.time()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class _Config(Config):
    """The SDK's configuration without the request it makes to learn what a token's caller never needs."""

    def _resolve_host_metadata(self) -> None:
        return
