"""An S3 server in a process of its own, for tests whose drivers are processes, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.demo.object_server import REGION, ObjectServer


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run a server, and yield the URL of an empty place in it, which this process and those it starts reach."""
    with ObjectServer.start(folder, "key", "secret") as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket("turnout")
        patch.setenv("AWS_ENDPOINT_URL", server.address)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield "s3://turnout/prod"
