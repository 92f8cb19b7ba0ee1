"""Which catalog it is, and where: opens its client from settings and the environment. Nothing is asked of it yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grants.catalog import Catalog, Kind
from grants.catalogs.databricks import READS_PER_SECOND, Databricks
from grants.catalogs.embedded import Embedded, read_token
from grants.catalogs.members import Members
from grants.catalogs.rest import Rest
from grants.catalogs.unity import Unity
from grants.catalogs.unity_key import UnityKey
from grants.catalogs.warehouse import Warehouse
from grants.model import Securable
from pipeline.errors import Refused

TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name, in the embedded catalog's folder


@dataclass(frozen=True, slots=True)
class Access:
    """Which catalog knows the tables of games. Addresses and tokens are no settings; the environment has them."""

    kind: Kind = "embedded"
    catalog: str = "turnout"
    schema: str = "games"
    port: int = 8091  # where the embedded catalog listens
    statements: bool = False  # Databricks: change by SQL on the warehouse instead of by REST
    warehouse: str = ""  # Databricks: the warehouse's id, for statements and for trying to read
    probe_principal: str = ""  # Databricks: whose token DATABRICKS_PROBE_TOKEN is
    members: str = ""  # unity: the YAML file with the members of groups

    @property
    def securable(self) -> Securable:
        """The schema that the tables of games lie in."""
        return Securable((self.catalog, self.schema))


def open_catalog(access: Access, folder: Path, environ: Mapping[str, str], *, user_token: str | None = None) -> Catalog:
    """Open the client of the catalog; `folder` is the embedded one's.

    With `user_token`, statements on Databricks run with it, in that user's name.

    Raises:
        Refused: a variable of the environment is missing, or something named there cannot be used.
        CatalogAway: the embedded catalog was never started.
    """
    if access.kind == "embedded":
        return Embedded(Rest(f"http://127.0.0.1:{access.port}", read_token(folder / TOKEN_FILE)))
    if access.kind == "unity":
        rest = _rest(environ, "UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN")
        key = environ.get("UNITY_CATALOG_KEY_FOLDER")
        members = Members(Path(access.members) if access.members else None)
        return Unity(rest, members, UnityKey(Path(key)) if key else None)
    rest = _rest(environ, "DATABRICKS_HOST", "DATABRICKS_TOKEN")
    return Databricks(rest, warehouse=_warehouse(access, environ, user_token), prober=_prober(access, environ))


def _warehouse(access: Access, environ: Mapping[str, str], user_token: str | None) -> Warehouse | None:
    if not access.statements:
        return None
    if not access.warehouse:
        raise Refused("Grants by SQL need the id of a warehouse to run on.")
    token = {**environ, "DATABRICKS_TOKEN": user_token} if user_token else environ
    return Warehouse(_rest(token, "DATABRICKS_HOST", "DATABRICKS_TOKEN"), access.warehouse)


def _prober(access: Access, environ: Mapping[str, str]) -> tuple[str, Warehouse] | None:
    if not (access.warehouse and access.probe_principal and environ.get("DATABRICKS_PROBE_TOKEN")):
        return None
    rest = _rest(environ, "DATABRICKS_HOST", "DATABRICKS_PROBE_TOKEN")
    return access.probe_principal, Warehouse(rest, access.warehouse)


def _rest(environ: Mapping[str, str], url: str, token: str) -> Rest:
    missing = [name for name in (url, token) if not environ.get(name)]
    if missing:
        raise Refused(f"The environment is to have {' and '.join(missing)}, to reach the catalog.")
    address = environ[url] if "://" in environ[url] else f"https://{environ[url]}"
    return Rest(address, environ[token], reads_per_second=READS_PER_SECOND)
