"""`python -m bench.access_reads`: how fast the controller reads a catalog of 500 games while it takes its snapshot.

The embedded catalog is served by a process of its own. It is read in one whole round of the controller's steward, once
as the catalog it is, which has no limit, and once over its other name, as a Databricks workspace, to which
`access.reads_per_second` applies. Counted is each request when it is sent. See docs/performance.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.command import keep
from bench.numbers import spread
from bench.text import ranged, table
from grants.catalogs.opening import embedded
from grants.catalogs.people import add
from grants.model import Securable
from grants.observing import snapshot
from grants.reconciler import AccessReconciler
from pipeline.control.operations.definition import ControlContext
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store

_ROOT: Final = Path(__file__).parents[1]
_SERVE: Final = (
    "import sys; from pathlib import Path; from grants.server.serving import serve; serve(Path(sys.argv[1]), 0)"
)


class Sent:
    """The moments (seconds) at which this process sends HTTP requests, as Python's own auditing tells."""

    def __init__(self) -> None:
        self.at: list[float] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "http.client.send" and bytes(arguments[1][:4]) == b"GET ":
            self.at.append(time.monotonic())


def max_in_a_second(moments: Sequence[float]) -> int:
    """Return how many lie in the fullest second, wherever that begins."""
    ordered, most, first = sorted(moments), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """Serve a catalog in a process of its own; yield its port."""
    command = [sys.executable, "-c", _SERVE, str(folder)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().strip().rpartition(":")[2])
        finally:
            process.terminate()


def read_rounds(games: int, principals: int, runs: int) -> dict[str, list[tuple[int, float, int]]]:
    """Return requests, seconds and the most requests in a second of each round, by the assumed kind of catalog."""
    found: dict[str, list[tuple[int, float, int]]] = {}
    sent = Sent()
    with tempfile.TemporaryDirectory() as name:
        paths = Paths(Path(name))
        with served(paths.catalog) as port:
            settings = Settings()
            ours = replace(settings, access=replace(settings.access, port=port))
            theirs = replace(settings, access=replace(settings.access, catalog="databricks"))
            catalog, schema = embedded(ours.access, paths), ("turnout", "games")
            for number in range(games):
                where = Securable((*schema, f"game_{number:04}"))
                catalog.register(where, f"file:///nowhere/{number}", [("seq", "long")])
            for number in range(principals):
                add(catalog, f"user{number}@example.com", [])
            environ = {**os.environ, "DATABRICKS_HOST": catalog.rest.url,
                       "DATABRICKS_TOKEN": (paths.catalog / "token").read_text("utf-8").strip()}  # fmt: skip
            limit = f"limited to {settings.access.reads_per_second:g} a second"
            for what, taken_for in (("embedded, no limit", ours), (f"as a workspace, {limit}", theirs)):
                world = ControlContext(taken_for, open_store(taken_for, paths), paths)
                found[what] = [_round(sent, AccessReconciler(world, environ), world, games) for _ in range(runs)]
                world.engine.dispose()
    return found


def _round(sent: Sent, steward: AccessReconciler, world: ControlContext, games: int) -> tuple[int, float, int]:
    sent.at.clear()
    began = time.monotonic()
    steward.run_round()
    took = time.monotonic() - began
    steward.stop()
    kept = snapshot.read(world.engine)
    if kept.observed is None or kept.problem is not None or len(kept.observed.tables) != games:
        raise AssertionError(f"no whole snapshot was taken: {kept.problem}")
    return len(sent.at), took, max_in_a_second(sent.at)


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.access_reads")
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--principals", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = read_rounds(options.games, options.principals, options.runs)
    rows = [
        (what, *(ranged(spread(list(each))) for each in zip(*rounds, strict=True))) for what, rounds in found.items()
    ]
    print(table(("catalog assumed as", "requests", "seconds", "most in any 1 s"), rows))
    reported = [
        {"catalog": what, "requests": requests, "seconds": seconds, "max_in_a_second": most}
        for what, rounds in found.items()
        for requests, seconds, most in rounds
    ]
    keep({"machine": machine.describe(), "load": machine.load_average(), "rounds": reported}, options.out)


if __name__ == "__main__":
    main()
