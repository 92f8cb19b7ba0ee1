"""One stand-in for all tests of a file."""

from collections.abc import Iterator

import pytest
from databricks.sdk import WorkspaceClient

from tests.workspace.fixtures import client
from tests.workspace.running import StandIn


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(tmp_path_factory.mktemp("workspace")) as started:
        yield started


@pytest.fixture(scope="module")
def admin(workspace: StandIn) -> WorkspaceClient:
    return client(workspace)


@pytest.fixture(autouse=True)
def _calm(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "workspace" in request.fixturenames:
        request.getfixturevalue("workspace").calm()
