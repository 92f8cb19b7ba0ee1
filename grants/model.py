"""The values of access: securables, principals, privileges, and one snapshot of a catalog.

Values only: nothing here reads a catalog or a clock. Privileges are spelled as Databricks spells them (`USE_SCHEMA`);
each catalog's dialect is its client's concern. A privilege nobody here knows is kept as it came, never dropped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from pipeline.base.errors import Refused
from pipeline.base.names import is_securable_part

SecurableType = Literal["catalog", "schema", "table"]
PrincipalKind = Literal["user", "group", "service_principal"]

SELECT: Final = "SELECT"
USE_SCHEMA: Final = "USE_SCHEMA"
USE_CATALOG: Final = "USE_CATALOG"
BROWSE: Final = "BROWSE"
ALL_PRIVILEGES: Final = "ALL_PRIVILEGES"
MANAGE: Final = "MANAGE"
MODIFY: Final = "MODIFY"

GRANTABLE: Final = frozenset({SELECT, USE_SCHEMA, USE_CATALOG, BROWSE})
"""What turnout gives and takes; the rest it shows and leaves alone."""

KNOWN: Final = GRANTABLE | {
    ALL_PRIVILEGES, MANAGE, MODIFY, "APPLY_TAG", "CREATE_TABLE", "CREATE_SCHEMA", "CREATE_FUNCTION", "CREATE_VOLUME",
    "CREATE_MODEL", "CREATE_MODEL_VERSION", "CREATE_VIEW", "CREATE_MATERIALIZED_VIEW", "EXECUTE", "READ_METADATA",
    "READ_VOLUME", "WRITE_VOLUME", "REFRESH", "EXTERNAL_USE_SCHEMA",
}  # fmt: skip
"""Privileges whose meaning for reading is known: none but SELECT, USE_*, ALL_PRIVILEGES and MANAGE has any."""

MOVED: Final = "If the environment's folder was moved from there, run `turnout catalog relocate`"
"""The remedy where the catalog shows a table in a folder that the environment has left."""

EVERYONE: Final = "account users"
"""The built-in group that everybody is in."""

_TYPES: Final[tuple[SecurableType, ...]] = ("catalog", "schema", "table")


@dataclass(frozen=True, slots=True, order=True)
class Securable:
    """A catalog, a schema or a table, by its path from the catalog down.

    Raises:
        Refused: a part of the path has another character than letters, digits, `_` and `-`, so that no name that
            comes from outside can address another object.
    """

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.path) <= len(_TYPES):
            raise Refused(f"{'.'.join(self.path)!r} names no catalog, schema or table. Give one to three parts.")
        for part in self.path:
            if not is_securable_part(part):
                raise Refused(f"{part!r} cannot be part of a securable's name. Use letters, digits, '_' and '-' only.")

    def __hash__(self) -> int:  # as a dataclass would, without a tuple around it: it is looked up very often
        return hash(self.path)

    @property
    def type(self) -> SecurableType:
        """Which of the three it is, as the REST API spells it."""
        return _TYPES[len(self.path) - 1]

    @property
    def full_name(self) -> str:
        """The name with dots, as the REST API and people write it."""
        return ".".join(self.path)

    @property
    def parent(self) -> "Securable | None":
        """What it lies in; None of a catalog."""
        return Securable(self.path[:-1]) if len(self.path) > 1 else None

    def chain(self) -> Iterator["Securable"]:
        """Yield it and all it lies in, from the inside out."""
        for length in range(len(self.path), 0, -1):
            yield Securable(self.path[:length])


@lru_cache(maxsize=4_096)
def securable(path: tuple[str, ...]) -> Securable:
    """Return the one object of a path, so that securables compare by identity.

    Raises:
        Refused: see Securable.
    """
    return Securable(path)


@dataclass(frozen=True, slots=True)
class Principal:
    """A user, group or service principal that can be granted to; its name is what grants carry.

    That is the e-mail of a user, the display name of a group, the application id of a service principal.
    """

    name: str
    kind: PrincipalKind
    active: bool = True
    principal_id: str = ""  # the directory's: another id under the same name is another person; empty: not known


@dataclass(frozen=True, slots=True)
class Directory:
    """The principals, and the direct members of each group; names are looked up by `folded`."""

    principals: Mapping[str, Principal] = field(default_factory=dict)  # folded name → it
    groups_of: Mapping[str, frozenset[str]] = field(default_factory=dict)  # folded name → folded names of its groups
    emulated_groups: bool = False  # the catalog knows no groups; these are kept beside it
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Folded name → the spellings of the several principals that share it; none of them is in `principals`."""
    doubtful: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Folded name → folded ambiguous names of groups, of which it is in one or several: it is not known in which."""
    hidden: frozenset[str] = frozenset()  # folded names of groups whose members the catalog did not show
    is_whole: bool = True  # False: it lists a workspace's principals, and others of the account may hold grants
    is_read: bool = True  # False: it could not be read, so nothing is known of anyone


class OwnTable(NamedTuple):
    """A table that turnout writes: a game's, or a silver or gold one."""

    uri: str
    game: str = ""  # as of a GameTable, likewise the next one
    follows: bool = False


@dataclass(frozen=True, slots=True)
class GameTable:
    """A game's table as the catalog knows it, or a silver or gold one."""

    key: str  # the game key, or that of a silver or gold table; also the table's name
    securable: Securable
    table_id: str  # another one means that the table was created again, and its grants are gone
    owner: str | None  # None: the catalog does not tell
    has_row_filter: bool = False
    masked_columns: tuple[str, ...] = ()
    is_managed: bool = False  # the catalog decides where it lies
    location: str = ""  # URI; empty: the catalog does not tell
    own: str = ""  # URI of turnout's own table; empty: it has none of this key, so nothing is compared
    game: str = ""  # of a silver or gold table in force: the key of its game
    follows: bool = False  # whether who may read its game may read it, too
    is_left: bool = False  # the embedded catalog shows it in an environment's folder, and nothing else lies there

    @property
    def hides(self) -> bool:
        """Whether the catalog hides rows or values of it from readers."""
        return self.has_row_filter or bool(self.masked_columns)

    def lies_at(self, place: str) -> bool | None:
        """Return whether it is the table at a URI; None where the catalog does not tell, as of a view."""
        return same_place(self.location, place) if self.location else None

    @property
    def other(self) -> str | None:
        """Why it is not known to be the game's own table, with both places; None: it is, or is no game's."""
        if not self.own or self.lies_at(self.own):
            return None
        shown = f"shows it at {self.location}" if self.location else "does not show where it lies"
        managed = ", managed by the catalog" if self.is_managed else ""
        left = ", where no other lies" if self.is_left else ""
        drop = f"{MOVED}; else drop or rename it" if self.is_left else "Drop or rename it"
        return (
            f"{self.securable.full_name} is another table than the game's: the catalog {shown}{managed}{left}, and the "
            f"table of {self.key} lies at {self.own}. {drop} in the catalog, and turnout registers the game's."
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """One snapshot of a catalog: the tables of games, who owns what, and every direct assignment."""

    schema: Securable  # the one all tables of games lie in
    tables: Mapping[str, GameTable]  # by key
    owners: Mapping[Securable, str | None]  # of the catalog, the schema and each table; None: not reported
    direct: Mapping[Securable, Mapping[str, frozenset[str]]]
    """Securable → principal as the catalog spells it → privileges. One that was not read is not in it: unknown."""
    directory: Directory
    read_at: float  # Unix seconds
    notes: tuple[str, ...] = ()  # what a person should know of it, one sentence each
    reader: str = ""  # the principal by whose rights it was read; empty: not known

    def is_other(self, key: str) -> bool:
        """Return whether the catalog shows another table in the place of a game's."""
        return key in self.tables and self.tables[key].other is not None

    def table(self, key: str) -> Securable:
        """Return where a game's table is, or would be if there is none."""
        table = self.tables.get(key)
        return Securable((*self.schema.path, key)) if table is None else table.securable


@lru_cache(maxsize=8_192)  # a plan over hundreds of games asks for the same few names hundreds of thousands of times
def folded(principal: str) -> str:
    """Return the form in which names of principals are compared: without regard to case."""
    return principal.casefold()


def same_place(one: str, other: str) -> bool:
    """Return whether two URIs are one place: `file:/a`, `file:///a/` and `/a` are."""
    return _plain(one) == _plain(other)


def is_far(location: str) -> bool:
    """Return whether a URI is of an object store, and of no folder of a machine."""
    scheme, colon, _ = location.partition("://")
    return bool(colon) and scheme != "file"


def _plain(location: str) -> str:
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "file":
        location = "/" + rest.lstrip("/")
    return location.rstrip("/")


def spelled(privilege: str) -> str:
    """Return a privilege as Databricks spells it, from whatever casing and spacing a catalog uses."""
    return privilege.strip().upper().replace(" ", "_")
