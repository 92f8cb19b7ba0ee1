"""A demo's tables in a bucket, and its drivers on a cluster: the servers, and the variables by which all find them."""

import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from pipeline.base import private_files
from pipeline.base.errors import Refused
from pipeline.demo.object_server import ObjectServer

BUCKET: Final = "turnout"
VARIABLES: Final = "s3.env"
"""The name of the file of variables for other terminals, in the environment's folder."""


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server for a demo's environment, and let this process and its children keep tables there.

    Yields the variables. Another terminal reads them by `. FOLDER/s3.env`, a file that only its user can read.

    Raises:
        Refused: the server cannot be started, or the tables of an earlier demo ended with it.
    """
    keeps = folder / "objects"
    if (folder / "control.db").exists() and not ObjectServer.is_kept():
        raise Refused(
            f"The tables of {folder} ended with the S3 server of the last demo, which holds them in memory. Give "
            f"--env-dir an empty folder, or install versitygw, which keeps them."
        )
    keeps.mkdir(parents=True, exist_ok=True)
    key, secret = "turnout", secrets.token_urlsafe(24)
    with ObjectServer.start(keeps, key, secret) as server:
        server.make_bucket(BUCKET)
        variables = {
            "AWS_ENDPOINT_URL": server.address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "TURNOUT_STORAGE__ROOT": f"s3://{BUCKET}/demo",
        }
        export(folder / VARIABLES, variables)
        with _set(variables):
            yield variables


@contextmanager
def clustered(folder: Path, storage: Mapping[str, str]) -> Iterator[None]:
    """Run a Spark master and two workers for a demo's environment, and let its drivers start there.

    `storage` has the variables by which executors reach the tables.

    Raises:
        Refused: one of them cannot be started.
    """
    from pipeline.demo.cluster import SparkMaster

    with SparkMaster.start(folder / "cluster") as master, ExitStack() as workers:
        for name in ("worker-1", "worker-2"):
            workers.enter_context(master.start_worker(name, storage))
        with _set({**master.environ, "TURNOUT_SPARK__MASTER": master.url}):
            yield


def export(file: Path, variables: Mapping[str, str]) -> None:
    """Keep variables in a file that a shell reads by `. FILE`, and that only its user can read."""
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    private_files.write_file(file, lines)


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process, and what it starts, these variables while the block runs."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
