"""`python -m bench.shapes`: what JSON that nobody declared costs where shapes are new, or values have side columns.

A registration gathers the documents of a range; in a flood each has a shape of its own. See docs/performance.md.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import machine
from bench.command import keep
from bench.decode import json_payloads, values
from bench.text import number, table
from pipeline.data.contracts.formats.json.gathering import Gathering
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder


def gathered(known: Superset, documents: Iterable[bytes]) -> Superset:
    """Return the superset after a range of documents."""
    gathering = Gathering(known)
    for document in documents:
        gathering.add(document)
    return gathering.superset()


def flood(count: int) -> Iterator[bytes]:
    """Yield documents of about 455 bytes, each with keys that no other one has."""
    for place in range(count):
        yield b'{"a":1,"k%d":{"x%d":%d},"pad":"%s"}' % (place, place, place, b"x" * 400)


def measure(most: int) -> dict[str, dict[str, float]]:
    """Return documents, CPU seconds and MiB of each kind of work."""
    plain = json_payloads(values(min(most, 20_000)), maps=False)
    odd = [one.replace(b'"lap":', b'"lap":"x","round":') if row % 2 else one for row, one in enumerate(plain)]
    known, mixed = gathered(Superset(), plain[:1_000]), gathered(Superset(), odd[:1_000])
    held, decode = pa.array(odd, pa.binary()), UndeclaredDecoder(mixed).decode
    many = (plain[place % len(plain)] for place in range(most))
    works: dict[str, tuple[int, Callable[[], Any]]] = {
        "first registration": (1_000, lambda: gathered(Superset(), plain[:1_000])),
        "later registration, all shapes known": (most, lambda: gathered(known, many)),
        "flood, each document a shape": (most, lambda: gathered(Superset(), flood(most))),
        "decoding, half with a side column": (len(odd), lambda: decode(held)),
    }
    return {name: {"documents": count, **_cost(work)} for name, (count, work) in works.items()}


def _cost(work: Callable[[], Any]) -> dict[str, float]:
    begun = time.process_time()
    work()
    return {"cpu_seconds": time.process_time() - begun}


def most_memory(most: int) -> float:
    """Return the most MiB that gathering a flood held; it is slower while Python counts them."""
    tracemalloc.start()
    gathered(Superset(), flood(most))
    held = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return held


def main() -> None:
    """Measure, print a table and JSON, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.shapes")
    parser.add_argument("--documents", type=int, default=100_000, help="of a later registration, and of the flood")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    costs, held = measure(options.documents), most_memory(options.documents)
    result = {"machine": machine.describe(), "load": machine.load_average(), "costs": costs, "flood_mib": held}
    print(json.dumps(result, indent=1))
    rows = [
        [name, number(of["documents"]), number(of["cpu_seconds"]), number(of["cpu_seconds"] / of["documents"] * 1e6)]
        for name, of in costs.items()
    ]
    print(table(["documents that nobody declared", "documents", "CPU s", "µs each"], rows))
    print(f"The flood held {held:.1f} MiB at most.")
    keep(result, options.out)


if __name__ == "__main__":
    main()
