"""What a kind of object store is to `ObjectStore`, and how long clients wait. A further kind is one more module."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, Protocol

from pipeline.base.errors import Refused

RETRIES: Final = 5  # of a request
RETRY: Final[Any] = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=30)}
TIMEOUT: Final = timedelta(seconds=30)  # of a try
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
OPTIONS: Final = {
    "timeout": f"{TIMEOUT.seconds}s",
    "connect_timeout": f"{CONNECT_TIMEOUT.seconds}s",
    "max_retries": f"{RETRIES}",
}
"""The same for delta-rs, which else waits for minutes."""

Jars = Literal["s3", "azure", "gcs"]


class Cloud(Protocol):
    """A kind of object store, by its clients. They find address and credentials in the environment of their process.

    A bucket is what its URLs have between the scheme and the first slash.
    """

    @property
    def scheme(self) -> str:
        """Schemes of its URLs, without `://`."""

    @property
    def jars(self) -> Jars:
        """Name of the jars that Spark needs to read it; also the option of `./turnout setup` that fetches them."""

    def client(self, bucket: str) -> Any:
        """Return obstore's client of a bucket."""

    def arrow(self, bucket: str) -> tuple[Any, str]:
        """Return Arrow's file system, and what it calls the bucket."""

    def options(self) -> Mapping[str, str]:
        """Return what delta-rs needs."""

    def hadoop(self) -> Mapping[str, str]:
        """Return Hadoop's configuration, with which Spark reads; it names no secret's value."""

    def variables(self) -> Mapping[str, str]:
        """Return the variables without secrets by which executors reach the same store."""


def checked_address(variable: str, address: str) -> str:
    """Return an address from the environment, which may be empty.

    Raises:
        Refused: it has no scheme, with which clients do worse than to refuse it.
    """
    if address and not address.startswith(("http://", "https://")):
        raise Refused(f"{variable} is {address!r}. Set it to an address with http:// or https://.")
    return address


def patience(address: str) -> Any:
    """Return obstore's options of a client for an address, empty: the kind's own."""
    return {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT, "allow_http": address.startswith("http://")}
