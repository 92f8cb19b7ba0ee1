"""Opens the catalog's client from settings and the environment. Sends no request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from grants.catalog import Catalog
from grants.catalogs.databricks import Databricks
from grants.catalogs.embedded import Embedded, read_token
from grants.catalogs.members import Members
from grants.catalogs.rest import Rest
from grants.catalogs.unity import Unity
from grants.catalogs.unity_key import UnityKey
from grants.catalogs.warehouse import Warehouse
from pipeline.base.errors import Refused
from pipeline.lake.storage.mounts import is_databricks
from pipeline.platforms.databricks.workspace.client import host_of_run
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths

PORT_FILE: Final = "port"
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name, in the embedded catalog's folder


def open_catalog(access: Access, paths: Paths, environ: Mapping[str, str]) -> Catalog:
    """Open the client of the catalog that the settings name.

    Raises:
        Refused: a variable of the environment is missing, or something named there cannot be used.
        CatalogUnavailable: the embedded catalog was never started.
    """
    if access.catalog == "embedded":
        return embedded(access, paths)
    if access.catalog == "unity":
        rest = _rest(access, environ, "UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN")
        key = environ.get("UNITY_CATALOG_KEY_FOLDER")
        members = Members(Path(access.members_file) if access.members_file else None)
        return Unity(rest, members, UnityKey(Path(key)) if key else None)
    rest = _workspace(access, environ)
    sql = Warehouse(_workspace(access, environ), access.warehouse) if access.warehouse else None
    return Databricks(rest, warehouse=_warehouse(access, environ), prober=_prober(access, environ), sql=sql)


def embedded(access: Access, paths: Paths) -> Embedded:
    """Open the client of this environment's embedded catalog.

    Raises:
        Refused: the settings name another catalog.
        CatalogUnavailable: it was never started.
    """
    if access.catalog != "embedded":
        raise Refused(f"This needs the embedded catalog, but the setting access.catalog is {access.catalog!r}.")
    token = read_token(paths.catalog / TOKEN_FILE)
    return Embedded(Rest(f"http://127.0.0.1:{_port(paths, access.port)}", token, shared_token=token))


def _port(paths: Paths, otherwise: int) -> int:
    """Return the port that the catalog last had: a demo moves it where another process has the one of the settings."""
    try:
        return int((paths.catalog / PORT_FILE).read_text("ascii"))
    except (OSError, ValueError):
        return otherwise


def _warehouse(access: Access, environ: Mapping[str, str]) -> Warehouse | None:
    if not access.sql_grants:
        return None
    return Warehouse(_workspace(access, environ), access.warehouse)


def _prober(access: Access, environ: Mapping[str, str]) -> tuple[str, Warehouse] | None:
    if not (access.warehouse and access.probe_principal and environ.get("DATABRICKS_PROBE_TOKEN")):
        return None
    rest = _rest(access, environ, "DATABRICKS_HOST", "DATABRICKS_PROBE_TOKEN")
    return access.probe_principal, Warehouse(rest, access.warehouse)


def _workspace(access: Access, environ: Mapping[str, str]) -> Rest:
    """Return requests to the workspace, as the token's owner, or as who the environment names to the SDK."""
    is_named = environ.get("DATABRICKS_CLIENT_ID") and environ.get("DATABRICKS_CLIENT_SECRET")
    if environ.get("DATABRICKS_TOKEN") or not (is_named or is_databricks(environ)):
        return _rest(access, environ, "DATABRICKS_HOST", "DATABRICKS_TOKEN")
    host = environ.get("DATABRICKS_HOST") or host_of_run()
    return Rest(host if "://" in host else f"https://{host}", None, reads_per_second=access.reads_per_second)


def _rest(access: Access, environ: Mapping[str, str], url: str, token: str) -> Rest:
    missing = [name for name in (url, token) if not environ.get(name)]
    if missing:
        raise Refused(f"The catalog cannot be reached: set {' and '.join(missing)} in the environment.")
    address = environ[url] if "://" in environ[url] else f"https://{environ[url]}"
    return Rest(address, environ[token], reads_per_second=access.reads_per_second)
