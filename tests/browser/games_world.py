"""Names that wait, a proposal, rules, retired and rejected games among the forty, with a controller and drivers.

Used by the tests of the Games page and for a look by hand: `python -m tests.browser.games_world DIR`, until Ctrl-C.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.ingest import name_sketch
from pipeline.data.ingest.name_sketch import NameCount, Sketch
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import read_assignments, retire
from pipeline.store.database.engine import open_store
from pipeline.store.game_proposals import GameProposal, propose
from pipeline.store.onboarding import RefusedName, refuse, write_sketch
from tests.browser.drivers import steered
from tests.browser.seed import HOSTILE, Seeded, fleet_of_forty, heartbeats, seed
from tests.onboarding_world import give_rules, rule
from tests.unit.data.contracts.catalogue_world import avro

PROPOSED: Final = "Lantern quest"
"""A game that a person proposes with its schema; nothing of it has arrived."""

WAITS: Final = "kestrel arena"
RETIRED: Final = "Dune racer"


def fill(store: Engine, now: float) -> None:
    """Write what the page shows beside the fleet."""
    studio = rule(
        "Otter tactics", name="studio-a", prefixes=("Kestrel ", "Lark "), group="b", priority="high",
        policies=(("incompatible", "quarantine"),), readers=("analysts", "bob@example.com"), max_new_per_hour=20,
    )  # fmt: skip
    give_rules(store, studio, rule(name="web-games", prefixes=("web/",)))
    names = (WAITS, "Chess ", *HOSTILE, "Moth arena", "Unknown " + "very " * 40 + "long name")
    counts = {
        name: NameCount(48_000 // (place + 1), 12 if place == 5 else 0, now - 86_400 * 2, now - 9)
        for place, name in enumerate(names)
    }
    write_sketch(
        store, Sketch(counts, sum(each.rows for each in counts.values()), 3, name_sketch.EMPTY.registers).dumps()
    )
    schema = avro(player="string", score="long")
    propose(
        store,
        GameProposal(
            game_key(PROPOSED), PROPOSED, "ann@example.com", "opens with the season of spring", 240.0, "b", "high",
            ("analysts",), "avro", "t.M", schema,
        ),
    )  # fmt: skip
    refuse(store, RefusedName("Chess (test)", "bob@example.com", "a build of the QA team", now - 86_400))
    wanted = {key: each.epoch for key, each in read_assignments(store).items() if each.game == RETIRED}
    with store.begin() as connection:
        retire(connection, wanted)


@contextmanager
def games_world(folder: Path) -> Iterator[Engine]:
    """Fill a folder, and run its controller and drivers while the block runs."""
    now = time.time()
    fleet = [Seeded(game.name, game.group, game.reported or {}) for game in fleet_of_forty()]
    seed(folder, fleet, now=now, heartbeat_ages={"ingest": 0.0}, history=False)
    store = open_store(Settings(), Paths(folder))
    fill(store, now)
    store.dispose()
    with heartbeats(folder, ("ingest",)), steered(folder) as running:
        yield running


if __name__ == "__main__":
    with games_world(Path(sys.argv[1])):
        threading.Event().wait()
