"""The client of the embedded catalog, which `grants/server` serves: Databricks' dialect, and reads tried for real."""

from pathlib import Path
from typing import Final

from grants.catalog import CatalogUnavailable, Denied, Kind, NotFound, Probe
from grants.catalogs.databricks import Databricks
from grants.catalogs.rest import Rest, text_of
from grants.model import GameTable
from pipeline.base.errors import Refused

CREDENTIALS_PATH: Final = "/api/2.0/unity-catalog/temporary-table-credentials"
_TOKENS_PATH: Final = "/turnout/tokens"
_RELOCATIONS_PATH: Final = "/turnout/relocations"
_PROBE_SECONDS: Final = 60


class Embedded(Databricks):
    """The catalog of a laptop."""

    shows_all = True
    is_local = True

    def __init__(self, rest: Rest) -> None:
        super().__init__(rest)
        self.rest = rest

    @property
    def kind(self) -> Kind:
        """Which catalog it is."""
        return "embedded"

    def token_of(self, principal: str, seconds: int = _PROBE_SECONDS) -> str:
        """Return a new token of a user or service principal, which lasts for some seconds.

        Raises:
            NotFound: there is no such principal.
            Refused: it is a group, or not active.
        """
        minted = self.rest.write("POST", _TOKENS_PATH, {"principal": principal, "seconds": seconds})
        return text_of(minted, "token")

    def location(self, token: str, table_id: str) -> str:
        """Return where a table lies, if the token's principal may read it.

        Raises:
            Denied: it may not; the sentence says what is missing.
            NotFound: there is no table of that id.
        """
        body_fields = {"table_id": table_id, "operation": "READ"}
        return text_of(self.rest.as_caller(token).write("POST", CREDENTIALS_PATH, body_fields), "url")

    def relocate(self, table: GameTable) -> None:
        """Register a table at the place of the game's own, with its id and all grants on it.

        Raises:
            NotFound: there is no table of that id any more.
            Refused: it lies elsewhere by now, or another table is registered at that place.
        """
        places = {"from": table.location, "to": table.own}
        self.rest.write("POST", _RELOCATIONS_PATH, {"table_id": table.table_id, **places})

    def probe(self, principal: str, table: GameTable) -> Probe:
        """Try to read a table as a principal, with a token made for that."""
        try:
            token = self.token_of(principal)
        except NotFound:
            return Probe(False, f"The catalog does not know {principal!r}.")
        except Denied:
            raise
        except Refused as error:
            return Probe(None, f"Nobody can read as {principal!r}: {error}")
        try:
            location = self.location(token, table.table_id)
        except Denied as error:
            return Probe(False, str(error))
        except NotFound:
            return Probe(
                None, f"{table.securable.full_name} was recreated or dropped meanwhile; read the catalog again."
            )
        return Probe(True, f"The catalog gave {principal} credentials for {location}.")


def read_token(file: Path) -> str:
    """Return the token that the embedded catalog keeps for us.

    Raises:
        CatalogUnavailable: the catalog has never been started here.
        Refused: the file cannot be read.
    """
    try:
        return file.read_text("utf-8").strip()
    except FileNotFoundError as error:
        raise CatalogUnavailable(f"The embedded catalog was never started: {file} does not exist.") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error}. Only the owner of the catalog's folder may read it.") from error
