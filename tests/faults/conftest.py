"""Fixtures of the proof by crashes: the session and world of the Spark tests, and the fail-points' folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.failpoints import ENVIRON
from tests.faults.faults import Faults
from tests.spark.conftest import spark, world  # noqa: F401 - fixtures


@pytest.fixture(scope="session", autouse=True)
def _failpoints_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Name the folder before the session's JVM starts: its Python workers inherit it."""
    os.environ[ENVIRON] = str(tmp_path_factory.mktemp("failpoints"))
    yield
    del os.environ[ENVIRON]


@pytest.fixture
def faults() -> Faults:
    armed = Faults(Path(os.environ[ENVIRON]))
    armed.disarm()
    return armed
