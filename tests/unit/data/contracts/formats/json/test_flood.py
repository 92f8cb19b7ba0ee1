"""Bad documents and floods of shapes, of games that declared nothing: refused or contained, in bounded memory."""

import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

from pipeline.data.contracts.formats.json.gathering import Gathering, gathered
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder
from tests.checkout import ROOT
from tests.unit.data.contracts.formats.json.document_world import binary

GOOD: Final = b'{"a":1,"name":"Ann"}'
REFUSED: Final = {
    "text that is not UTF-8": b'{"name":"\xff"}',
    "a key that is not UTF-8": b'{"\xc3":1}',
    "half of a pair": b'{"name":"\\ud800"}',
    "half of a pair in a key": b'{"\\udc00":1}',
    "a key twice": b'{"a":1,"a":2}',
    "a new key twice inside": b'{"in":{"x":1,"x":2}}',
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":Infinity}',
    "10 MB": b'{"name":"' + b"x" * 10_000_000 + b'"}',
    "10,000 levels": b'{"deep":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "10,000 objects in each other": b'{"deep":' * 10_000 + b"1" + b"}" * 10_000,
    "a list": b'[{"a":1}]',
    "two documents": b'{"a":1}{"a":2}',
    "no end": b'{"a":1',
}
"""None of them opens a column, waits for a registration, or keeps another document from landing."""
CONTAINED: Final = {
    "columns of turnout's": b'{"_seq":1,"_pos":2,"_type":"x"}',
    "a path as a key": b'{"a.b":1,"a":{"b":1}}',
    "two cases of a key": b'{"A":1,"a":2}',
    "no name": b'{"":1}',
    "a number as a key": b'{"4711":1}',
    "a number beyond a double": b'{"a":1e400}',
    "100,000 random keys": b"{" + b",".join(b'"%05x":1' % number for number in range(100_000)) + b"}",
    "100,000 random keys inside": b'{"in":{' + b",".join(b'"%05x":1' % number for number in range(100_000)) + b"}}",
}
"""They land, each by itself."""


def grown(documents: list[bytes]) -> Superset:
    """Register until nothing is beyond the superset."""
    superset = Superset()
    for _ in range(4):
        before, superset = superset, gathered(superset, documents)
        if superset is before:
            return superset
    raise AssertionError("the documents are still not covered")


def test_bad_documents_are_refused_and_others_land_beside_them() -> None:
    """Laws L5, L6: a document has the outcome that it has alone, whatever stands beside it in its batch."""
    named = [*REFUSED.items(), *CONTAINED.items()]
    documents = [each for _, document in named for each in (document, GOOD)]
    superset = grown(documents)
    assert superset == grown([document for document in documents if document not in REFUSED.values()])
    together = UndeclaredDecoder(superset).decode(binary(documents))
    assert together.uncovered.tolist() == []
    assert [named[each.row // 2][0] for each in together.refused] == [*REFUSED]
    assert all(each.row % 2 == 0 and each.reason == "malformed_payload" and each.detail for each in together.refused)
    rows = together.batch.to_pylist()
    for place, document in enumerate(documents):
        alone = UndeclaredDecoder(superset).decode(binary([document])).batch.to_pylist()
        assert alone == [rows[at] for at in np.flatnonzero(together.rows == place)]


def flood(shapes: int) -> Iterator[bytes]:
    """Documents that each have keys that no other one has."""
    draw = random.Random(7)
    for number in range(shapes):
        keys = [f"k{draw.getrandbits(60):x}" for _ in range(4)]
        yield json.dumps({"a": number, keys[0]: 1, keys[1]: {keys[2]: [1.5], keys[3]: "x"}}).encode()


def require_bounded(shapes: int) -> None:
    """Gather documents, and refuse a superset or variations beyond the caps."""
    gathering = Gathering(gathered(Superset(), [GOOD]))
    for document in flood(shapes):
        gathering.add(document)
    superset = gathering.superset()
    assert gathering.closed
    assert len(gathering.variations) <= superset.caps.variations
    assert superset.columns() <= superset.caps.columns + 1
    assert len(dumps(superset)) < 1_000_000
    read = UndeclaredDecoder(superset).decode(binary([GOOD, next(flood(1)), document]))
    assert (len(read.refused), len(read.uncovered)) == (0, 0)
    usual, early, late = ({name for name, value in row.items() if value is not None} for row in read.batch.to_pylist())
    assert usual == {"a", "name"}
    (whole,) = late
    assert whole not in usual | early


def test_a_flood_of_shapes_closes_the_superset_and_moves_no_value() -> None:
    """The caps hold: what is beyond them lands whole, and what landed in columns still does."""
    require_bounded(5_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_shapes_take_bounded_memory() -> None:
    """The process takes no more memory for 1,000,000 shapes than for 20,000, but for 32 MiB."""
    peaks = []
    for shapes in (20_000, 1_000_000):
        command = [sys.executable, "-m", __name__, str(shapes)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=800)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 32 * 1024, f"{peaks} KiB"


if __name__ == "__main__":
    require_bounded(int(sys.argv[1]))
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
