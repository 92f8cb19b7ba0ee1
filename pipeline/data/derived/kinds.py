"""The kinds of derived streams: how each is carried, which columns its table has, and what its logs say of it.

A new kind is a definition, a carrier, and one more case in each function here.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from pipeline.base.names import shown
from pipeline.base.texts import in_utc
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import Definition, GoldDefinition, SilverDefinition
from pipeline.data.derived.flat import flat_type
from pipeline.data.derived.gold import Gold
from pipeline.data.derived.gold_account import gold_account
from pipeline.data.derived.gold_columns import gold_schema
from pipeline.data.derived.held_ids import IdRoom, SilverMemory
from pipeline.data.derived.silver import Silver
from pipeline.data.derived.silver_through import silver_read, silver_through
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings


class DerivedPosition(Protocol):
    """Where a derived stream's table is."""

    @property
    def generation(self) -> int:
        """The number of its generation."""

    @property
    def version(self) -> int:
        """The version that it has read of the table that it follows from."""

    @property
    def head(self) -> int:
        """The newest version there."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

    @property
    def table_id(self) -> str:
        """The id of its Delta table."""

    @property
    def duplicates(self) -> int | None:
        """How many rows its generation left out as second ones of an event; None: none, or unknown."""

    @property
    def is_level(self) -> bool:
        """Whether it has nothing more to read now."""


class Carrier(Protocol):
    """Carries one derived stream on, commit by commit."""

    def step(self, replaces: str | None = None) -> DerivedPosition | None:
        """Carry it on by one commit at most; return where it is, None where it follows from no table yet.

        If its table's generation has the id `replaces`, that commit begins a new generation.

        Raises:
            TableConflict: another owner was first; nothing was added.
        """

    def has_next(self, version: int) -> bool:
        """Return whether there may be more to read behind a version: that costs one look at a name (law L8)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What carriers work in."""

    settings: Settings
    paths: Paths
    schemas: Callable[[], SchemaSet]  # returns the newest schema set
    clock: Callable[[], float]  # returns the time by the control store's clock
    ids: IdRoom  # of all silver tables


def carrier(definition: Definition, within: Surroundings, holds: Callable[[], bool]) -> Carrier:
    """Return what carries a stream; `holds` says whether its definition is still in force (law L15)."""
    settings, paths = within.settings, within.paths
    rows, interval = settings.derived.step_rows, settings.demux.checkpoint_interval
    match definition:
        case SilverDefinition():
            return Silver(
                paths.table(definition.game_key), paths.silver / definition.name, settings.environment, definition,
                within.schemas, memory=SilverMemory(rows, within.ids), checkpoint_interval=interval, holds=holds,
            )  # fmt: skip
        case GoldDefinition():
            return Gold(
                paths, settings.environment, definition, within.clock,
                file_rows=rows, checkpoint_interval=interval, holds=holds,
            )  # fmt: skip


def columns(definition: Definition, table: pa.Schema, schemas: SchemaSet) -> pa.Schema:
    """Return the columns that a stream's table has where its game's table has these.

    Raises:
        Refused: the definition names a column or an event type that is not there, or that does not suit.
    """
    match definition:
        case SilverDefinition():
            return flat_type(table, schemas, definition).schema
        case GoldDefinition():
            return gold_schema(flat_type(table, schemas, definition.silver).schema, definition)


def table_of(definition: Definition, paths: Paths) -> Location:
    """Return where a stream's table is."""
    match definition:
        case SilverDefinition():
            return paths.silver / definition.name
        case GoldDefinition():
            return paths.gold / definition.name


def read_version(definition: Definition, paths: Paths, environment: str, table_id: str) -> int | None:
    """Return the version of its game's table behind which a stream reads on; None: it needs no version to stay.

    `table_id` is that of the game's table. A damaged log of the stream's table raises as in `open_table`.
    """
    match definition:
        case SilverDefinition():
            return silver_read(paths, environment, definition, table_id)
        case GoldDefinition():  # reads its silver table as it is
            return None


@dataclass(frozen=True, slots=True)
class Described:
    """What a definition and the logs say of a stream."""

    follows: str  # what it follows from, for people
    through_time: float | None  # the time through which its table is complete; None: unknown
    fields: Mapping[str, Any]  # for JSON
    parts: tuple[str, ...] = ()  # for people


def described(definition: Definition, paths: Paths, environment: str, now: float | None) -> Described:
    """Describe a stream; `now` is the time by the control store's clock, None: without a look at its tables."""
    match definition:
        case SilverDefinition():
            at = None if now is None else silver_through(paths, environment, definition, now).at
            known = "no known time" if at is None else f"{in_utc(at)} UTC"
            return Described(shown(definition.game), at, {}, (f"complete through {known}",))
        case GoldDefinition():
            found = None if now is None else gold_account(paths, environment, definition)
            follows, fields = definition.silver.name, {"source": definition.silver.name}
            if found is None:
                names = ("until", "counted", "late", "open", "undated")
                return Described(follows, None, {**fields, **dict.fromkeys(names)}, ("no known window",))
            parts = (
                f"windows up to {in_utc(found.until)} UTC", f"{found.late:,} late rows left out",
                f"{found.open:,} rows in open windows", f"{found.undated:,} without an event time",
            )  # fmt: skip
            return Described(follows, None, {**fields, **asdict(found)}, parts)
