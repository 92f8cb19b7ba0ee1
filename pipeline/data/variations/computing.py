"""Computes the next supersets of event types from ranges of bronze, each with what it was computed from. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pipeline.base.names import GameKey
from pipeline.data.contracts.formats.json.choices import chosen
from pipeline.data.contracts.formats.json.gathering import Gathering
from pipeline.data.contracts.formats.json.growth import grown
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.shapes import NOTHING, Shape
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.supported import fingerprint
from pipeline.data.contracts.origins import Origin
from pipeline.data.contracts.schemas import Schema
from pipeline.data.variations.documents import Document, Span

ROUNDS: Final = 3
"""Most supersets of one event type that one range gives: a known key may get a kind that new keys decide about."""

_KEPT_BYTES: Final = 16 * 1024 * 1024  # of documents that are kept for the next round; more are read again

Read: TypeAlias = Callable[[Mapping[str, Span]], Iterator[Document]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A variation and its first document."""

    fingerprint: str
    shape: Shape
    document: Document


@dataclass(frozen=True, slots=True)
class Computed:
    """A superset to register."""

    superset: Superset
    schema: Schema  # its id is 0
    fingerprint: str
    origin: Origin
    variations: tuple[Begun, ...]


@dataclass(slots=True)
class RangeJob:
    """The registration of one event type."""

    type: str
    known: Superset
    previous: str  # the fingerprint of `known`; empty: there is none
    span: Span
    most_rows: int
    taken: frozenset[str] = frozenset()  # see `grown`
    steps: list[Computed] = field(default_factory=list)


def compute(key: GameKey, jobs: Iterable[RangeJob], read: Read, rounds: int = ROUNDS) -> None:
    """Add to each job its next supersets, until a further one would be the same."""
    waiting = {job.type: job for job in jobs}
    kept: list[Document] | None = None  # of the round before; None: they were too many
    for _ in range(rounds):
        if not waiting:
            return
        rounds_of = {name: _Round(job) for name, job in waiting.items()}
        again = kept if kept is not None else read({name: job.span for name, job in waiting.items()})
        kept, size = list[Document](), 0
        for document in again:
            if document.type in rounds_of:
                rounds_of[document.type].add(document)
                size += len(document.payload)
                kept += [document] if size <= _KEPT_BYTES else []
            if all(each.is_full for each in rounds_of.values()):
                break
        kept = kept if size <= _KEPT_BYTES else None
        waiting = {name: each.job for name, each in rounds_of.items() if each.end(key)}


def computed_by(key: GameKey, job: RangeJob, choice: tuple[str, ...]) -> Computed:
    """Return the superset of a job's event type after a person's choice."""
    after = chosen(job.known, choice)
    definition = dumps(after)
    first = job.span.first
    origin = Origin(key, first, job.span.through, 0, job.previous, after.caps, choice=choice)
    own = fingerprint(UNDECLARED, job.type, definition)
    return Computed(after, Schema(0, UNDECLARED, job.type, definition), own, origin, ())


class _Round:
    """One look at the range of a job."""

    def __init__(self, job: RangeJob) -> None:
        self.job = job
        self._gathering = Gathering(job.known, job.taken)
        self._begun = list[Begun]()
        self._rows = 0
        self._last = job.span.first

    @property
    def is_full(self) -> bool:
        return self._rows >= self.job.most_rows

    def add(self, document: Document) -> None:
        if self.is_full:
            return
        self._rows += 1
        self._last = document.place
        if (name := self._gathering.add(document.payload)) is not None:
            short = document._replace(payload=b"")
            self._begun.append(Begun(name, self._gathering.variations[name], short))

    def end(self, key: GameKey) -> bool:
        """Take what was gathered as the job's next superset; return whether there is a new one."""
        job, after = self.job, self._gathering.superset()
        if after is job.known:
            if job.known.version:
                return False
            after = grown(job.known, NOTHING)  # its documents hold nothing, or are refused: that is known from now on
        definition = dumps(after)
        own = fingerprint(UNDECLARED, job.type, definition)
        job.span = Span(job.span.first, self._last)
        taken = tuple(sorted(job.taken))
        origin = Origin(key, job.span.first, self._last, self._rows, job.previous, after.caps, taken)
        schema = Schema(0, UNDECLARED, job.type, definition)
        job.steps.append(Computed(after, schema, own, origin, tuple(self._begun)))
        job.known, job.previous = after, own
        return True
