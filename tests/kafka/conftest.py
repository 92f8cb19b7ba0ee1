"""One real broker for all tests of this folder."""

from collections.abc import Iterator

import pytest

from pipeline.ingest.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("broker")) as running:
        yield running
