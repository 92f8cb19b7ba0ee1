"""An S3 server in a process of its own: this process and drivers that it starts reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.demo.object_server import REGION, ObjectServer


@contextmanager
def served(folder: Path, name: str = "turnout") -> Iterator[str]:
    """Run a server, and yield the URL of an empty place in a bucket, which this process and those it starts reach."""
    with ObjectServer.start(folder, "key", "secret") as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket(name)
        patch.setenv("AWS_ENDPOINT_URL", server.address)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield f"s3://{name}/prod"
