"""One tuned Spark session for the tests of all folders: a process has one, whoever asks for it first."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from pipeline.failpoints import ENVIRON
from pipeline.settings import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

hypothesis.settings.register_profile("turnout", deadline=None)  # on a busy machine every example may be slow
hypothesis.settings.load_profile("turnout")


@pytest.fixture(scope="session")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name the fail-points' folder before the session's JVM starts, so that its Python workers inherit it."""
    folder = tmp_path_factory.mktemp("failpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRON, str(folder))
        yield folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, failpoints: Path) -> Iterator["SparkSession"]:
    from pipeline.session import spark_session  # not for those who need none: it takes a second

    settings, paths = load(tmp_path_factory.mktemp("session"), {})
    session = spark_session(settings, paths, "turnout-tests", light=True)
    yield session
    session.stop()
