"""Guards `turnout fleet` as a whole, with the committed bundle: see tests/workspace/fleets.py."""

from collections.abc import Iterator

import pytest
from databricks.sdk import WorkspaceClient

from tests.postgres import Postgres, postgres_server
from tests.workspace.fleets import Target, census, copy_bundle, prepare, sign_in
from tests.workspace.running import StandIn


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def workspace(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(tmp_path_factory.mktemp("workspace"), postgres.url()) as started:
        prepare(started)
        patch = sign_in(started)
        yield started
        patch.undo()


@pytest.fixture(scope="module")
def target(workspace: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The bundle, applied once."""
    made = Target(workspace, copy_bundle(tmp_path_factory.mktemp("bundle")))
    made.apply()
    return made


def test_an_apply_leaves_nothing_to_do(target: Target, admin: WorkspaceClient) -> None:
    """A plan after an apply is empty, and so is the drift."""
    assert target.changes() == []
    assert target.fleet().drift() == []
    assert {count for each in census(admin).values() for count in each.values()} == {1}
