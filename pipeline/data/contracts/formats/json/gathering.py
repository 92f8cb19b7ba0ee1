"""Gathers what is new in a range of documents: the variations, and the next superset. Pure, in bounded memory.

Documents come in bronze's order. The next superset depends on the set of their shapes only, until a cap is reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.data.contracts.formats.json.choices import Unwanted, require_wanted
from pipeline.data.contracts.formats.json.columns import collisions
from pipeline.data.contracts.formats.json.growth import grown
from pipeline.data.contracts.formats.json.scalar import Misfit
from pipeline.data.contracts.formats.json.shapes import (
    MOST_WEIGHT,
    NOTHING,
    Shape,
    beyond,
    count,
    fingerprint,
    joined,
    weight,
)
from pipeline.data.contracts.formats.json.superset import WHOLE_DOCUMENT, Superset


@dataclass(slots=True)
class Gathering:
    """What documents have beyond a superset.

    A document that alone has too many facts lands whole, and closes nothing. One that has too many together with those
    before closes the superset.
    """

    known: Superset
    taken: frozenset[str] = frozenset()  # see `grown`
    new: Shape = NOTHING  # the facts beyond `known`, joined
    variations: dict[str, Shape] = field(default_factory=dict)  # by fingerprint, in order of first documents
    other: bool = False  # some document lands whole
    closed: bool = False  # a cap was reached
    _columns: int = field(init=False)  # at most; counted as documents come
    _weight: int = field(init=False)

    def __post_init__(self) -> None:
        self._columns, self._weight = self.known.columns(), self.known.weight()

    def add(self, document: bytes) -> str | None:
        """Add a document; return the fingerprint of the variation that it begins, None where it begins none.

        Bytes that are no JSON object, or are beyond the caps, add nothing: they are refused in any case. So do all
        documents of a pinned type, and those of a refused variation.
        """
        try:
            read = self.known.read(document)
            require_wanted(self.known, read)
            shape = self.known.beyond(read, len(document))
        except (Misfit, Unwanted):
            return None
        if self.known.pinned:
            return None
        if shape is WHOLE_DOCUMENT:
            self.other = True
        return None if not shape or shape is WHOLE_DOCUMENT else self._add(shape)

    def _add(self, shape: Shape) -> str | None:
        more = beyond(shape, self.new)
        if not more or self.closed:
            return None
        full = self._columns + count(more) > self.known.caps.columns
        heavy = self._weight + weight(more) > MOST_WEIGHT
        if full or heavy or self.known.variations + len(self.variations) >= self.known.caps.variations:
            self.closed = True
            return None
        self.new = joined(self.new, more)
        self._columns += count(more)
        self._weight += weight(more)
        name = fingerprint(more)
        self.variations[name] = more
        return name

    def superset(self) -> Superset:
        """Return the next superset; the known one where nothing is new."""
        if not (self.new or self.other or self.closed):
            return self.known
        found = grown(self.known, self.new, other=self.other, closed=self.closed, taken=self.taken)
        if collisions(found.declared()):  # of hashes, so a producer looked for them
            found = grown(self.known, NOTHING, closed=True)
        return replace(found, variations=self.known.variations + len(self.variations))


def gathered(known: Superset, documents: Mapping[int, bytes] | list[bytes]) -> Superset:
    """Return the superset after a range of documents."""
    gathering = Gathering(known)
    for document in documents if isinstance(documents, list) else documents.values():
        gathering.add(document)
    return gathering.superset()
