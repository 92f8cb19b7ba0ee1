"""What a schema set lacks for rows of bronze: a writer's schema, or a source's profile (law L14).

A task reports the needs of its rows; their game waits, and neither writes nor refuses any of its rows meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pipeline.base.names import GameKey, shown
from pipeline.data.contracts.declared_types import SchemasByType
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.contracts.shape_needs import SHAPES, of_writer
from pipeline.data.contracts.writer_ids import shown_writer

MAX_NEEDS: Final = 100
"""Most needs of one game that a slice reports, those of the lowest seqs; later ones are met when its rows go on."""


class Need(NamedTuple):
    """One thing that is missing, and the place of the first row that needs it. Needs sort by place."""

    seq: int
    pos: int
    profile: int  # of the row
    # The generation of a registry, or SHAPES: undeclared documents lack a superset; None: the profile itself is missing
    registry: str | None = None
    writer: bytes = b""  # as on the wire, with its index path where it has one

    def as_json(self) -> list[Any]:
        """Return it for a task's report."""
        return [self.seq, self.pos, self.profile, self.registry, self.writer.hex()]

    @classmethod
    def of_json(cls, values: Sequence[Any]) -> "Need":
        """Return the need that a task reported."""
        seq, pos, profile, registry, writer = values
        return cls(seq, pos, profile, registry, bytes.fromhex(writer))

    def __str__(self) -> str:
        if self.registry is None:
            return f"profile {self.profile} of its source"
        if self.registry == SHAPES:
            name, version = of_writer(self.writer)
            of = f"the event type {shown(name)}" if name else "its documents"
            return f"{'new ' if version else ''}shapes of {of}"
        return f"schema {shown_writer(self.writer)} of registry {self.registry}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a stream waits for a newer schema set."""

    since: float  # Unix seconds: when the first need was met
    needs: tuple[Need, ...]  # at least one, in order
    after: int  # the game's seq before the first need: its rows up to there do not wait

    @property
    def first(self) -> Need:
        """The need of the lowest seq: while it is open, no row can follow the ones before it."""
        return self.needs[0]

    def sentence(self, troubles: Mapping[str, str]) -> str:
        """Return what the stream waits for, without a subject; `troubles` of registries by their generation."""
        first = self.first
        if first.registry is None:
            how = "which this driver has not read yet"
        else:
            doing = "are being registered" if first.registry == SHAPES else "is being looked up"
            how = f"which {troubles.get(first.registry, doing)}"
        others = len(self.needs) - 1
        behind = f"; {others} more {'is' if others == 1 else 'are'} needed after it" if others else ""
        return f"waits for {first}, {how}{behind}"


def lowest(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Return the distinct needs, each with the place of its first row, in order; at most MAX_NEEDS."""
    first: dict[tuple[int, str | None, bytes], Need] = {}
    for need in sorted(needs, key=lambda each: (each.seq, each.pos)):
        first.setdefault((need.profile, need.registry, need.writer), need)
    return tuple(first.values())[:MAX_NEEDS]


def is_indexed(need: Need, schemas: SchemaSet) -> bool:
    """Return whether the writer is known by now and has many messages, which rows name."""
    found = None if need.registry is None else schemas.writers.get((need.registry, need.writer))
    return found is not None and found.indexed


def is_open(need: Need, key: GameKey, schemas: SchemaSet) -> bool:
    """Return whether a schema set still lacks what a game needs."""
    if need.registry is None:
        return need.profile not in schemas.profiles
    if need.registry == SHAPES:
        name, version = of_writer(need.writer)
        known = SchemasByType(schemas.placed(key)).known_version(name)
        return known is not None and known <= version
    found = schemas.writers.get((need.registry, need.writer))
    if found is None:
        return True
    return found.schema_id is not None and found.schema_id not in schemas.games.get(key, ())
