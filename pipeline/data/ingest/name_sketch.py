"""A bounded sketch of unbounded names: the busiest with their counts, and an estimate of their number.

Each ingest task makes one of the names that it refused; the ingest driver adds them up. Space-saving keeps the counts,
HyperLogLog the number, so a million names need as much room as a thousand. No clock, no I/O.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused

_INDEX_BITS: Final = 12
_REGISTERS: Final = 1 << _INDEX_BITS  # one byte each; the standard error is 1.04 / sqrt(registers) = 1.6 %
_ALPHA: Final = 0.7213 / (1 + 1.079 / _REGISTERS)


NO_SOURCES: Final[Mapping[str, Sequence[str]]] = {}

MOST_SOURCES: Final = 3
"""Sources that are kept for a name, the first ones."""


class NameCount(NamedTuple):
    """The count of a name. The true number of its rows lies between `rows - error` and `rows`."""

    rows: int
    error: int
    first_seen: float  # Unix seconds; since when it is in the list
    last_seen: float
    sources: tuple[str, ...] = ()  # topics and landing tables from which it came, a few


@dataclass(frozen=True, slots=True)
class Sketch:
    """The names seen, within bounds."""

    names: Mapping[str, NameCount]
    rows: int  # of all names, exact
    floor: int  # the most rows that a name outside of `names` had
    registers: bytes

    @property
    def distinct(self) -> int:
        """The estimated number of different names: two of three times within 1.6 % of the truth."""
        ranks = np.frombuffer(self.registers, np.uint8)
        estimate = _ALPHA * _REGISTERS**2 / float(np.sum(np.ldexp(1.0, -ranks.astype(np.int64))))
        unused = int(np.count_nonzero(ranks == 0))
        if estimate <= 2.5 * _REGISTERS and unused:
            estimate = _REGISTERS * math.log(_REGISTERS / unused)  # counts small numbers better
        return round(estimate)

    def without(self, names: Sequence[str]) -> "Sketch":
        """Return the sketch with these names removed from the list; their rows stay counted."""
        gone = set(names) & self.names.keys()
        if not gone:
            return self
        kept = {name: seen for name, seen in self.names.items() if name not in gone}
        return Sketch(kept, self.rows, self.floor, self.registers)

    def dumps(self) -> str:
        """Return the sketch as JSON."""
        registers = base64.b64encode(self.registers).decode()
        return json.dumps({"names": self.names, "rows": self.rows, "floor": self.floor, "registers": registers})


EMPTY: Final = Sketch({}, 0, 0, bytes(_REGISTERS))


def loads(text: str | None) -> Sketch:
    """Return a sketch from its JSON, an empty one from None.

    Raises:
        Refused: the text is not a sketch, such as after an edit by hand.
    """
    if text is None:
        return EMPTY
    try:
        kept: dict[str, Any] = json.loads(text)
        names = {name: _name_count(*seen) for name, seen in kept["names"].items()}
        "".join(names).encode()  # half a character is no name, and fails where it is shown
        sketch = Sketch(names, kept["rows"], kept["floor"], base64.b64decode(kept["registers"]))
        numbers = [sketch.rows, sketch.floor, *(number for seen in names.values() for number in seen[:4])]
        is_one = len(sketch.registers) == _REGISTERS and all(math.isfinite(number) for number in numbers)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        is_one = False
    if not is_one:
        raise Refused(
            "The sketch of names without a game, a row of table name_sketches in the control store, cannot be read. "
            "Delete the row: counting starts again."
        )
    return sketch


def _name_count(rows: int, error: int, first_seen: float, last_seen: float, sources: Sequence[str] = ()) -> NameCount:
    return NameCount(rows, error, first_seen, last_seen, tuple(map(str, sources)))


def sketched(
    names: pa.Array, rows: pa.Array, at: float, limit: int, sources: Mapping[str, Sequence[str]] = NO_SOURCES
) -> Sketch:
    """Return the sketch of distinct names and their rows, all at one moment; at most `limit` are listed.

    `sources` says where names came from.
    """
    order = pc.sort_indices(pa.table({"rows": rows, "name": names}), [("rows", "descending"), ("name", "ascending")])
    listed = order[:limit]
    busiest = zip(names.take(listed).to_pylist(), rows.take(listed).to_pylist(), strict=True)
    return Sketch(
        names={
            name: NameCount(count, 0, at, at, tuple(sources.get(name, ())[:MOST_SOURCES])) for name, count in busiest
        },
        rows=pc.sum(rows).as_py() or 0,
        floor=rows[order[limit].as_py()].as_py() if len(order) > limit else 0,
        registers=_registers(names.to_pylist()),
    )


def merged(one: Sketch, other: Sketch, limit: int) -> Sketch:
    """Return the sketch of all names of both; at most `limit` are listed.

    A name that only one of them lists may be unlisted in the other, with up to its floor of rows.
    """
    together = {name: _added(one.names.get(name), other.names.get(name), one.floor, other.floor) for name in one.names}
    together |= {
        name: _added(None, seen, one.floor, other.floor) for name, seen in other.names.items() if name not in one.names
    }
    order = sorted(together.items(), key=lambda item: (-item[1].rows, item[1].error, item[1].first_seen, item[0]))
    floor = order[limit][1].rows if len(order) > limit else one.floor + other.floor
    registers = np.maximum(np.frombuffer(one.registers, np.uint8), np.frombuffer(other.registers, np.uint8))
    return Sketch(dict(order[:limit]), one.rows + other.rows, floor, registers.tobytes())


def _added(one: NameCount | None, other: NameCount | None, one_floor: int, other_floor: int) -> NameCount:
    if one is not None and other is not None:
        return NameCount(
            one.rows + other.rows,
            one.error + other.error,
            min(one.first_seen, other.first_seen),
            max(one.last_seen, other.last_seen),
            tuple(dict.fromkeys((*one.sources, *other.sources)))[:MOST_SOURCES],
        )
    seen, floor = (one, other_floor) if one is not None else (other, one_floor)
    assert seen is not None
    return seen._replace(rows=seen.rows + floor, error=seen.error + floor)


def _registers(names: Sequence[str]) -> bytes:
    """Return the HyperLogLog registers of names: each keeps the longest run of zeros that a hash began with."""
    registers = np.zeros(_REGISTERS, np.uint8)
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    hashes = np.frombuffer(digests, np.uint64)
    tails = hashes << np.uint64(_INDEX_BITS)
    # A float has 53 bits, enough for a tail of 52; an empty tail counts as the longest run.
    _, exponents = np.frexp((tails >> np.uint64(_INDEX_BITS)).astype(np.float64))
    ranks = (64 - _INDEX_BITS - exponents + 1).astype(np.uint8)
    np.maximum.at(registers, (hashes >> np.uint64(64 - _INDEX_BITS)).astype(np.int64), ranks)
    return registers.tobytes()
