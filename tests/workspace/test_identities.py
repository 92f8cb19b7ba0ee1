"""As whom turnout speaks to a workspace: a token's owner, or the service principal that the environment names."""

import pytest

from grants.catalogs.opening import open_catalog
from pipeline.base.errors import Refused
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths
from tests.workspace.running import StandIn


@pytest.fixture
def access() -> Access:
    return Access(catalog="databricks", catalog_name="main", schema_name="games")


def test_an_app_speaks_as_its_service_principal(
    workspace: StandIn, access: Access, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: an app has no token, so its client id and secret decide who it is, and the secret is in no text."""
    workspace.add_principal("dashboard")
    app = workspace.identity("dashboard")
    assert app.client_secret is not None
    given = {"DATABRICKS_HOST": workspace.url, "DATABRICKS_CLIENT_ID": app.name}
    given["DATABRICKS_CLIENT_SECRET"] = app.client_secret
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    catalog = open_catalog(access, Paths(tmp_path_factory.mktemp("env")), given)
    assert catalog.executor == app.name
    assert app.client_secret not in repr(vars(catalog))


def test_without_token_and_principal_the_sentence_names_what_is_missing(
    access: Access, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: half a credential is none, and the sentence says so before anything is sent."""
    given = {"DATABRICKS_HOST": "x.example.com", "DATABRICKS_CLIENT_ID": "app"}
    with pytest.raises(Refused, match="set DATABRICKS_TOKEN in the environment"):
        open_catalog(access, Paths(tmp_path_factory.mktemp("env")), given)
