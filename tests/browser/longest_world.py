"""The longest values that people really meet: names of 60 characters and more, numbers of many digits, long reasons.

Used by the test that looks for clipped text, and for a look by hand: `python -m tests.browser.longest_world DIR`, until
Ctrl-C.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine

from grants.applying import requests
from grants.catalogs.embedded import Embedded
from grants.catalogs.people import add
from grants.catalogs.rest import Rest
from pipeline.base.names import derived_table_key, game_key
from pipeline.data.books.days import MICROS, Closing, Sums
from pipeline.data.books.ledger import Ledger
from pipeline.settings.tree import Paths, load
from pipeline.store import game_proposals, reopenings
from pipeline.store.books import write_report
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.edge_producers import EdgeProducer, apply
from pipeline.store.game_proposals import GameProposal
from pipeline.store.operations import Intent, change
from pipeline.store.operations import submit as submit_store
from tests.browser.access_world import SCHEMA, Catalogued
from tests.browser.game_world import failing_game, with_contract, with_derived, with_gold
from tests.browser.seed import Seeded, heartbeats
from tests.unit.grants.catalog_world import register_own, served

LONG: Final = "The Extraordinary Chronicles of the Seventh Amber Kingdom: Remastered Anniversary Edition"
UNBROKEN: Final = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichenfabrik2026"
"""No blank in 70 characters."""

GROUP: Final = "europe-central-latency-critical-games-01"
"""40 characters, as many as a group may have."""

PERSON: Final = "maximiliane.von-und-zu-hohenstein-oettingen@analytics.games.example.com"
REASON: Final = (
    "Finance closes the quarter on Friday and needs the complete turnover of all premium currencies by region, device "
    "and acquisition channel; agreed with the data protection officer in ticket DATA-2026-004711 on November 27"
)
_ERROR: Final = (
    "SchemaMismatch: field 'acquisition_channel_of_first_purchase' is decimal(38,10) in the table and string in schema "
    "1204, written by producer europe-central-07; another writer moved the cursor from 987654321 to 987654399"
)
_DAY: Final = 20_000 * 86_400 * MICROS


@dataclass
class LongestWorld:
    """The environment, its store and its catalog."""

    folder: Path
    store: Engine


@contextmanager
def longest(folder: Path) -> Iterator[LongestWorld]:
    """Fill a folder, and keep its drivers beating and its catalog served while the block runs."""
    now = time.time()
    made = failing_game(folder, now, _fleet(), heartbeat_ages={"ingest": 0.0, GROUP: 0.0, "b": 0.0})
    with_contract(made, now)
    with_derived(made, now)
    with_gold(made, now)
    made.engine.dispose()
    with served(folder / "catalog") as server, heartbeats(folder, ("ingest", GROUP, "b")):
        (folder / "turnout.toml").write_text(f"[access]\nport = {server.port}\n", "utf-8")
        settings, paths = load(folder, {})
        store = open_store(settings, paths)
        catalog = Embedded(Rest(server.url, server.token, shared_token=server.token))
        for name in (LONG, UNBROKEN, "Chess"):
            register_own(catalog, paths, SCHEMA, game_key(name))
        for name in ("moves", "moves_late"):
            register_own(catalog, paths, SCHEMA, derived_table_key("silver", name))
        for name in (PERSON, "bob@example.com"):
            add(catalog, name, ["analysts-of-premium-currencies-in-europe-and-the-middle-east"])
        world = Catalogued(folder, settings, store, server, catalog)
        world.grant(PERSON, LONG)
        world.use(PERSON)
        world.look()
        _ask(store)
        _operate(store)
        _close(store, paths, settings.environment)
        _produce(store)
        try:
            yield LongestWorld(folder, store)
        finally:
            store.dispose()


def _fleet() -> tuple[Seeded, ...]:
    sick: dict[str, Any] = {
        "status": "FAILED", "lane": "QUARANTINED", "status_since_age": 9 * 86_400.0, "last_commit_age": 9 * 86_400.0,
        "backlog_age_seconds": 9 * 86_400.0, "rows_per_second": None, "latency_p95_seconds": None, "last_error": _ERROR,
        "rows_total": 987_654_321_012, "rejects_total": 123_456_789,
    }  # fmt: skip
    late = {"status": "LAGGING", "backlog_age_seconds": 98_765.0, "last_error": _ERROR, "rows_per_second": 9_876_543.2}
    busy = {"rows_per_second": 9_876_543.2, "rows_total": 987_654_321_012}
    others = [Seeded(f"{LONG}, volume {number:03}", (GROUP, "b")[number % 2], busy) for number in range(20)]
    return (Seeded(LONG, GROUP, sick), Seeded(UNBROKEN, GROUP, late), *others)


def _ask(store: Engine) -> None:
    """Let people ask for access, a reopened day and a new game."""
    wish = {"principal": PERSON, "key": game_key(UNBROKEN), "read": True}
    requests.submit(store, PERSON, [wish], REASON)
    reopenings.submit(store, game_key(LONG), _DAY, 86_400, 1, PERSON, REASON)
    game_proposals.propose(
        store, GameProposal(game_key(f"{LONG} II"), f"{LONG} II", PERSON, REASON, 98_765.0, GROUP, "high", (PERSON,))
    )


def _operate(store: Engine) -> None:
    """Leave an operation for a person, and a failed one."""
    keys = [game_key(f"{LONG}, volume {number:03}") for number in range(4)]
    first, second = (
        submit_store(store, Intent("pause", tuple(f"game:{key}" for key in each), PERSON, REASON, {"games": each}))
        for each in (keys[:2], keys[2:])
    )
    change(store, change(store, first, OperationState.RUNNING), OperationState.NEEDS_HUMAN, _ERROR)
    change(store, second, OperationState.FAILED, _ERROR)


def _close(store: Engine, paths: Paths, environment: str) -> None:
    """Close a day with sums of many digits, and leave the next day to a person."""
    key = game_key(LONG)
    sums = Sums(123_456_789, 98_765_432, 12_345_678, 987_654_321_012, 5)
    closing = Closing(
        key, LONG, 1, _DAY, 86_400, 1, sums, 0, 0, 9, 9, "t", 4, (), (), "", "1abcdef1" * 8, True,
        int(time.time()) * MICROS, PERSON, REASON, (),
    )  # fmt: skip
    Ledger(paths.books, environment, key).add(closing)
    day = {
        "day": _DAY + 86_400 * MICROS, "sums": asdict(sums), "without_event_time": 0, "clock_errors": 0,
        "reasons": [REASON], "needs": [_ERROR], "notes": [],
    }  # fmt: skip
    write_report(store, key, None, None, [day])
    write_report(store, game_key(UNBROKEN), None, _ERROR, [])


def _produce(store: Engine) -> None:
    soon = time.time() + 3 * 86_400
    certificate = "uri:spiffe://producers.games.example.com/europe-central/latency-critical/collector-0007"
    producers = [
        EdgeProducer("collector-of-premium-currencies-in-eu-01", "ab" * 32, (LONG, UNBROKEN), (), soon, 9_876_543),
        EdgeProducer("b", "", (), ("The Extraordinary Chronicles",), None, None, certificate=certificate),
        EdgeProducer("gone", "cd" * 32, ("Chess",), revoked=True),
    ]
    apply(store, producers, 0, PERSON, REASON, action="apply edge producers", target="producers")


if __name__ == "__main__":
    with longest(Path(sys.argv[1])):
        threading.Event().wait()
