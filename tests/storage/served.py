"""An S3 server in a process of its own: this process and drivers that it starts reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.demo.object_server import REGION, ObjectServer

KEY, SECRET = "key", "secret"


@contextmanager
def served(folder: Path, name: str = "turnout") -> Iterator[str]:
    """Run a server, and yield the URL of an empty place in a bucket, which this process and those it starts reach."""
    with ObjectServer.start(folder, KEY, SECRET) as server, reached(server, name) as url:
        yield url


@contextmanager
def reached(server: ObjectServer, name: str) -> Iterator[str]:
    """Make a bucket of a running server, and yield the URL of a place in it, which is reached as with `served`."""
    server.make_bucket(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.address)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield f"s3://{name}/prod"
