"""What every catalog can do for us; `grants/catalogs/` has one client per dialect, all under one contract suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from grants.model import Directory, GameTable, Securable
from pipeline.base.errors import Refused, Transient


class CatalogUnavailable(Transient):
    """The catalog does not answer, or wants a pause; the outcome of the last call is unknown."""


class Denied(Refused):
    """The caller may not do this, or the catalog does not know the caller."""


class Unauthenticated(Denied):
    """The catalog rejects the token or does not know its owner."""


class NotFound(Refused):
    """A principal or a securable does not exist (any more)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of an attempt to read a table as a principal."""

    reads: bool | None  # None: it could not be tried
    message: str  # one sentence
    stand_in: str = ""  # the group that was let in for them, where the catalog itself does not know that they are in it


class Change(NamedTuple):
    """One principal's privileges on one securable: one request to the catalog."""

    securable: Securable
    principal: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


Kind = Literal["embedded", "unity", "databricks"]


class Catalog(Protocol):
    """A catalog's client. Every method may raise CatalogAway; names are sent escaped, part by part."""

    @property
    def kind(self) -> Kind:
        """The catalog's name for people."""

    @property
    def is_local(self) -> bool:
        """Whether the places that it shows are of this machine, so that they can be looked at here."""

    @property
    def executor(self) -> str:
        """The principal whose rights the client uses; it never gets or loses anything through turnout."""

    def tables(self, schema: Securable) -> Mapping[str, GameTable]:
        """Return all tables of a schema by name; all pages are read.

        Raises:
            Denied: the caller may not see the schema.
            NotFound: there is no such schema.
        """

    def table(self, securable: Securable) -> GameTable | None:
        """Return one table; None where the catalog has none of that name.

        Raises:
            Denied: the caller may not see it.
        """

    def owner(self, securable: Securable) -> str | None:
        """Return who owns it; None where the catalog does not tell.

        Raises:
            NotFound: there is no such securable.
        """

    def assignments(self, securable: Securable) -> Mapping[str, frozenset[str]]:
        """Return who was directly granted what on it, principal → privileges in our spelling; all pages are read.

        Raises:
            NotFound: there is no such securable.
        """

    def directory(self) -> Directory:
        """Return the principals, and the members of each group."""

    def change(self, change: Change) -> None:
        """Apply one change; done twice it is done once.

        Raises:
            Denied: the caller may not.
            NotFound: the principal or the securable does not exist.
        """

    def register(self, table: Securable, location: str, columns: Sequence[tuple[str, str]], comment: str = "") -> bool:
        """Make a game's table known, with its catalog and schema where these are missing; False: it was known.

        `location` is the table's URI, `columns` are names with Delta types, `comment` is for people and for `deploy`.

        Raises:
            Refused: the name is taken by a managed table, or by one that lies elsewhere.
        """

    def execute(self, statement: str) -> None:
        """Run a statement about a view; done twice it is done once.

        Raises:
            Denied: the caller may not.
            Refused: the catalog has no views, or does not take this one.
        """

    def probe(self, principal: str, table: GameTable) -> Probe:
        """Try to read a table as a principal, without reading a row."""
