"""S3, and what speaks like it: `s3://bucket`, by the variables `AWS_…`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from obstore.store import S3Store

from pipeline.lake.storage import cloud


@dataclass(frozen=True, slots=True)
class S3:
    """See `Cloud`."""

    @property
    def scheme(self) -> str:
        """See `Cloud`."""
        return "s3"

    @property
    def jars(self) -> cloud.Jars:
        """See `Cloud`."""
        return "s3"

    def client(self, bucket: str) -> S3Store:
        """See `Cloud`."""
        return _client(_endpoint(), _region(), bucket)

    def arrow(self, bucket: str) -> tuple[Any, str]:
        """See `Cloud`."""
        return _arrow(_endpoint(), _region()), bucket

    def options(self) -> Mapping[str, str]:
        """See `Cloud`."""
        return {"aws_region": _region(), **_addressed(_endpoint()), **cloud.OPTIONS}

    def hadoop(self) -> Mapping[str, str]:
        """See `Cloud`; credentials are looked for where every client does."""
        address = _endpoint()
        conf = {
            "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "fs.s3a.endpoint.region": _region(),
            # A store that is away fails a read after 42 s, and not after 332: the query is then started again.
            "fs.s3a.attempts.maximum": "3",
            "fs.s3a.retry.limit": "4",
            "fs.s3a.performance.flags": "create,mkdir,delete",  # no look at folders, which a bucket has not
            "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        }
        if address:
            conf |= {"fs.s3a.endpoint": address, "fs.s3a.path.style.access": "true"}
            conf["fs.s3a.connection.ssl.enabled"] = "false" if address.startswith("http://") else "true"
        return conf

    def variables(self) -> Mapping[str, str]:
        """See `Cloud`."""
        address = _endpoint()
        return {"AWS_REGION": _region(), **({"AWS_ENDPOINT_URL": address} if address else {})}


def _endpoint() -> str:
    """Return the store's address, empty: AWS's own."""
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return cloud.checked_address("AWS_ENDPOINT_URL", address)


def _region() -> str:
    """Return the store's region; servers of one's own do not look at it."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


@cache  # per process: a client keeps its connections
def _client(address: str, area: str, name: str) -> S3Store:
    given: Any = {"aws_region": area, **_addressed(address)}
    return S3Store(name, config=given, client_options=cloud.patience(address), retry_config=cloud.RETRY)


@cache
def _arrow(address: str, area: str) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    scheme, _, host = address.rpartition("://")
    return S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme or "https",
        region=area,
        request_timeout=cloud.TIMEOUT.total_seconds(),  # else 3 s, which a busy store needs at times
        connect_timeout=cloud.CONNECT_TIMEOUT.total_seconds(),
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1 + cloud.RETRIES),
    )


def _addressed(address: str) -> dict[str, str]:
    if not address:
        return {}
    plain = {"aws_allow_http": "true"} if address.startswith("http://") else {}
    return {"aws_endpoint": address, "aws_virtual_hosted_style_request": "false", **plain}
