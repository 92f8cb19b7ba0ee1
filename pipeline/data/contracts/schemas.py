"""One payload schema, and the schemas of every game at one version of the registry.

Plain data, small and picklable: a pass pins a SchemaSet and sends parts of it to its tasks.
"""

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

from pipeline.base.names import GameKey
from pipeline.data.contracts.parts import split
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.output_contracts.rules import OutputContract


@dataclass(frozen=True, slots=True)
class Schema:
    """One definition of a payload; equal definitions share one id, whichever games use them."""

    schema_id: int
    format: str  # a name in `pipeline.data.contracts.formats.supported`
    message: str  # full name of the payload's message
    definition: bytes  # canonical, see `pipeline.data.contracts.formats`


@dataclass(frozen=True, slots=True)
class FieldPlacement:
    """The columns of one schema's fields in one game's table: those of their names, with these exceptions."""

    names: tuple[tuple[str, str], ...] = ()  # (the field's path, the name of its column or member), sorted
    quarantined: str | None = None  # why all rows of this schema go to quarantine; None: they land
    other_type: bool = False  # they do, as its event type is not the game's
    continues: str | None = None  # the game's event type that a person, or an alias, says was renamed to this one
    struct: str | None = None  # the column that holds its event type's fields; None: they are columns of the table
    landed: bool = False  # the game took its rows before a person withdrew it; registrations in their order say so

    @property
    def withdrawn(self) -> bool:
        """Whether its rows wait since a person withdrew its event type; those that landed before stay."""
        return self.other_type and self.struct is not None

    @property
    def undeclared(self) -> bool:
        """Whether a person withdrew it as the declared schema of its type: the type's superset reads documents again.

        Rows that landed by it stay until a rebuild.
        """
        return self.landed and self.quarantined is not None and not self.other_type

    @property
    def has_columns(self) -> bool:
        """Whether the table has its columns: rows of it land, or have landed."""
        return self.quarantined is None or self.withdrawn

    @property
    def reason(self) -> str:
        """The reason of its rows in quarantine."""
        return "other_type" if self.other_type else "quarantined_schema"


PLAIN: Final = FieldPlacement()

WriterId: TypeAlias = tuple[str, bytes]
"""The generation of a registry, and a writer's id there as on the wire, followed by its index path where it has one."""


@dataclass(frozen=True, slots=True)
class Writer:
    """What a writer's id means, once its registry has answered."""

    schema_id: int | None = None  # ours; None: it has no schema, or is `indexed`
    refused: str | None = None  # why all its rows go to quarantine: absent from its registry, or not usable
    indexed: bool = False  # an index path follows the id, and both together are the id of a writer


@dataclass(frozen=True, slots=True)
class SchemaSet:
    """The schemas of each game, as of one registration."""

    version: int  # the highest number of a registration, writer, profile or contract in it; 0 is the empty set
    games: Mapping[GameKey, tuple[int, ...]]  # schema ids in the order of their registration
    schemas: Mapping[int, Schema]
    placements: Mapping[GameKey, Mapping[int, FieldPlacement]] = field(
        default_factory=dict
    )  # by schema id; only those that are not PLAIN
    writers: Mapping[WriterId, Writer] = field(default_factory=dict)  # of foreign registries
    profiles: Mapping[int, SourceProfile] = field(default_factory=dict)  # by number
    fingerprints: Mapping[int, str] = field(default_factory=dict)  # of the schemas, by id
    mark: str = ""  # another one where an older control store was restored, and gave the version away again
    lost: Mapping[int, str] = field(default_factory=dict)  # ids that the control store has lost, with what they mean
    contracts: Mapping[GameKey, tuple[OutputContract, ...]] = field(default_factory=dict)  # of games that have any
    _packed: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle each part of definitions once, whichever schemas have it, and pack them: supersets are alike.

        A set is packed once, and a process reads it once: the tasks of many passes have the same one.
        """
        if self._packed is None:
            numbers, listed = dict[bytes, int](), []
            for schema in self.schemas.values():
                parts = [numbers.setdefault(part, len(numbers)) for part in split(schema.definition)]
                listed.append((schema.schema_id, schema.format, schema.message, parts))
            rest = {
                each.name: getattr(self, each.name) for each in fields(self) if each.init and each.name != "schemas"
            }
            held = _codec().compress(b"".join(numbers), asbytes=True)
            packed = pickle.dumps((held, list(map(len, numbers)), listed, rest), pickle.HIGHEST_PROTOCOL)
            object.__setattr__(self, "_packed", packed)
        return _unpacked, (self._packed,)

    def of(self, key: GameKey) -> tuple[Schema, ...]:
        """Return a game's schemas in the order of their registration; none when the game is unknown."""
        return tuple(self.schemas[schema_id] for schema_id in self.games.get(key, ()))

    def placement(self, key: GameKey, schema_id: int) -> FieldPlacement:
        """Return the columns of a schema's fields in a game's table."""
        return self.placements.get(key, {}).get(schema_id, PLAIN)

    def placed(self, key: GameKey) -> tuple[tuple[Schema, FieldPlacement], ...]:
        """Return a game's schemas with their placements, in the order of their registration."""
        return tuple((schema, self.placement(key, schema.schema_id)) for schema in self.of(key))

    def judges_as(self, earlier: "SchemaSet", key: GameKey) -> bool:
        """Return whether a game's rows for which an earlier set lacked nothing have the same outcome with this one."""
        return (
            self.placed(key) == earlier.placed(key)
            and self.contracts.get(key) == earlier.contracts.get(key)
            and all(self.writers.get(each) == writer for each, writer in earlier.writers.items())
        )

    def only(self, keys: Collection[GameKey]) -> "SchemaSet":
        """Return what decides about the rows of these games, for a task.

        A writer whose schema none of them has is left out: its rows wait as those of an unknown one do.
        """
        games = {key: self.games[key] for key in keys if key in self.games}
        used = {schema_id for held in games.values() for schema_id in held}
        return replace(
            self,
            games=games,
            schemas={schema_id: self.schemas[schema_id] for schema_id in sorted(used)},
            fingerprints={},
            placements={key: self.placements[key] for key in games if key in self.placements},
            contracts={key: self.contracts[key] for key in games if key in self.contracts},
            writers={
                each: writer
                for each, writer in self.writers.items()
                if writer.schema_id is None or writer.schema_id in used
            },
        )


@lru_cache(maxsize=1)
def _codec() -> Any:
    """Return zstd: its window holds many texts of supersets, zlib's not one of the largest."""
    from pyarrow import Codec

    return Codec("zstd", 1)


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> SchemaSet:
    held, lengths, listed, rest = pickle.loads(packed)  # noqa: S301 - of a driver of ours, as the whole task is
    texts, ends = _codec().decompress(held, sum(lengths), asbytes=True), list(accumulate(lengths, initial=0))
    parts = [texts[start:end] for start, end in pairwise(ends)]
    schemas = {
        schema_id: Schema(schema_id, format_name, message, b"".join([parts[number] for number in numbers]))
        for schema_id, format_name, message, numbers in listed
    }
    return SchemaSet(schemas=schemas, **rest)
