"""A flood of shapes on the small environment: each document has a key of its own, and is registered as drivers do."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.store.games import Game
from tests.tables.registering_world import arrive, need, resolve, supersets, world_of
from tests.tables.shapes_world import GAME, KEY
from tests.tables.value_world import ValueWorld

BATCH_ROWS = 5_000
PASS_SEQS = 1
"""Seqs that one task splits: 5,000 rows, one batch of its answer."""
USUAL_ROWS = 1_000
"""Documents of one shape before the flood: the rows of a first registration."""


@dataclass
class Cost:
    """CPU seconds of one kind of work, and the most memory that it held at one time, MiB."""

    seconds: float = 0.0
    mib: float = 0.0

    def of(self, work: Callable[[], Any]) -> None:
        """Do some work, and add its cost."""
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again with what is held now
        before, begun = _memory("VmRSS"), time.process_time()
        work()
        self.seconds += time.process_time() - begun
        self.mib = max(self.mib, _memory("VmHWM") - before)


@dataclass
class Flood:
    """The environment after a flood, and its cost."""

    world: ValueWorld
    registrations: int = 0
    landing: Cost = field(default_factory=Cost)
    registering: Cost = field(default_factory=Cost)


def flooded(folder: Path, rows: int) -> Flood:
    """Let a type with one usual shape send as many documents, each with a key that no other one has; land all rows."""
    world = world_of(folder, [("move", b'{"x":1}')] * USUAL_ROWS)
    for first in range(0, rows, BATCH_ROWS):
        arrive(world, [("move", b'{"x":1,"k%d":2}' % each) for each in range(first, min(rows, first + BATCH_ROWS))])
    flood, game = Flood(world), Game(KEY, GAME)
    flood.registering.of(partial(resolve, world, need("move")))
    while (cursor := world.stream(game).cursor) < world.seq:
        end = min(world.seq, cursor + PASS_SEQS)
        flood.landing.of(partial(world.split, game, end))
        if world.stream(game).cursor == cursor:
            lacking = need("move", supersets(world)[-1][1], (cursor + 1, 0))
            flood.registering.of(partial(resolve, world, lacking))
            flood.registrations += 1
            assert flood.registrations < 10, "the flood is never covered"
    return flood


def _memory(name: str) -> float:
    (kib,) = re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kib) / 1024
