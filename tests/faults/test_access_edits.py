"""Eight admins change access at once, on a catalog in trouble, while controller and catalog are killed."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Engine

from grants.applying import ledger, proposals
from grants.catalog import CatalogUnavailable
from grants.catalogs.embedded import Embedded
from grants.catalogs.opening import embedded
from grants.catalogs.people import add
from grants.model import SELECT, Securable, folded
from grants.planning.entitlements import AccessIntent
from pipeline.base.names import game_key
from pipeline.control.operations.definition import CHANGED
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen
from pipeline.store.operations import Operation, TargetsBusy, list_operations, operation, submit
from tests.faults import figures
from tests.unit.grants.catalog_world import register_own

ADMINS = 8
LIVES = 5
EDITS = int(os.environ.get("PROOF_EDITS", "125")) // LIVES  # of each admin, in one life
KEYS = [game_key(f"Game {number}") for number in range(20)]
PEOPLE = [f"reader{number}@example.com" for number in range(12)]  # few, so that admins meet
TROUBLES = {
    "busy_every": 41,
    "retry_after_seconds": 1,
    "failing_every": 53,
    "lost_every": 59,
    "slow_every": 997,
    "slow_seconds": 12,
}

pytestmark = pytest.mark.timeout(3600)


@dataclass
class Outcomes:
    """Outcomes of the edits."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    submitted: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, what: str, operation_id: str | None = None) -> None:
        with self.lock:
            self.counts[what] += 1
            if operation_id is not None:
                self.submitted.append(operation_id)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Killed:
    """A process that is started again whenever it dies."""

    def __init__(self, log: Path, command: list[str]) -> None:
        self._log, self._command = log, command
        self.kills = 0
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "turnout.toml").write_text(
        '[maintenance]\nbackend = "none"\n'
        f"[store]\nlease_seconds = 2\n[access]\nport = {free_port()}\nrefresh_seconds = 5\n"
    )
    return folder


@contextlib.contextmanager
def running(env: Path) -> Iterator[tuple[Killed, Killed]]:
    settings, paths = load(env, {})
    faulty = [sys.executable, "-m", "tests.unit.grants.catalog_faults", str(paths.catalog), str(settings.access.port)]
    catalog = Killed(env / "catalog.log", faulty)
    controller = Killed(env / "controller.log", turnout("controller", "run", "--env-dir", str(env)))
    try:
        yield catalog, controller
    finally:
        controller.stop()
        catalog.stop()


def tried(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            what()
        except CatalogUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def edit(name: str, seed: int, settings: Settings, paths: Paths, engine: Engine, outcomes: Outcomes) -> None:
    """Make one admin's edits: submit each, again where its targets are busy, and wait until it has ended."""
    chance = random.Random(seed)
    for _ in range(EDITS):
        cells = [(chance.choice(PEOPLE), chance.choice(KEYS)) for _ in range(chance.choice([1, 1, 2]))]
        read = chance.random() < 0.6
        intents = [AccessIntent(who, key, read=read, reason=f"edit of {name}") for who, key in dict.fromkeys(cells)]
        submitted = _submitted(name, intents, settings, paths, engine, outcomes)
        if submitted is None:
            continue
        while operation(engine, submitted.operation_id).is_open:
            time.sleep(0.05)


def _submitted(
    name: str, intents: list[AccessIntent], settings: Settings, paths: Paths, engine: Engine, outcomes: Outcomes
) -> Operation | None:
    while True:
        try:
            prepared = proposals.prepare(engine, embedded(settings.access, paths), settings.access, paths, intents)
            if prepared.plan.is_empty:
                outcomes.count("nothing to do")
                return None
            made = submit(engine, prepared.to_intent(name, "an edit"))
        except CatalogUnavailable:
            outcomes.count("catalog away")
        except TargetsBusy:
            outcomes.count("conflict")
        else:
            outcomes.count("asked", made.operation_id)
            return made
        time.sleep(0.1)


def in_catalog(catalog: Embedded, schema: Securable) -> set[tuple[str, str]]:
    tables = catalog.tables(schema)
    return {
        (folded(who), key)
        for key, table in tables.items()
        for who, had in catalog.assignments(table.securable).items()
        if SELECT in had
    }


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.proves("G125", "H6", "H8")
def test_no_edit_is_lost_whoever_is_killed(env: Path, life: int) -> None:
    """H6, H8: what the ledger holds, the catalog grants and the edits came to are one; audit is one to one."""
    settings, paths = load(env, {})
    engine = open_store(settings, paths)
    record_seen(engine, {key: f"Game {number}" for number, key in enumerate(KEYS)}, 1, placing())
    schema, outcomes, chance = proposals.schema_of(settings.access), Outcomes(), random.Random(7 + life)

    def client() -> Embedded:
        return embedded(settings.access, paths)

    def trouble() -> None:
        client().rest.write("PUT", "/turnout/troubles", TROUBLES)

    def populate() -> None:
        for name in PEOPLE:
            add(client(), name, [])
        for key in KEYS:
            register_own(client(), paths, schema, key)

    with running(env) as (catalog, controller):
        tried(populate)
        tried(trouble)
        admins = [
            threading.Thread(target=edit, args=(f"admin{n}", life * ADMINS + n, settings, paths, engine, outcomes))
            for n in range(ADMINS)
        ]
        for admin in admins:
            admin.start()
        while any(admin.is_alive() for admin in admins):
            time.sleep(chance.uniform(10, 30))  # the pace of the kills; nothing waits for it
            chance.choice([controller, controller, catalog]).kill()
            tried(trouble)  # a catalog that starts has none
        for admin in admins:
            admin.join()
        kills = (controller.kills, catalog.kills)
        granted: set[tuple[str, str]] = set()
        tried(lambda: granted.update(in_catalog(client(), schema)))
    ended = [operation(engine, each) for each in outcomes.submitted]
    states = Counter(each.state for each in ended)
    _record(kills)
    killed = f"killed: controller {kills[0]}, catalog {kills[1]}"
    sys.stdout.write(f"{dict(outcomes.counts)}; {dict(states)}; {killed}\n")
    assert outcomes.counts["asked"] + outcomes.counts["nothing to do"] == ADMINS * EDITS
    assert not list_operations(engine, only_open=True)
    failed = [each.outcome for each in ended if each.state != "succeeded" and each.outcome != CHANGED]
    assert not failed
    assert granted == {(folded(each.principal), each.game_key) for each in ledger.held(engine)}
    assert granted == come_to(ended)
    reported = Counter(
        (each.operation_id, each.phase) for each in audit.entries(engine) if each.action == proposals.KIND
    )
    assert reported == Counter((each.operation_id, phase) for each in ended for phase in ("begun", "ended"))
    verdict = audit.verify(engine)
    assert verdict.intact
    assert verdict.unended == ()


def _record(kills: tuple[int, int]) -> None:
    figures.record_faults(sum(kills))
    figures.record({"events": ADMINS * EDITS})


def come_to(ended: list[Operation]) -> set[tuple[str, str]]:
    """Return who reads what after these operations: of one principal they came one after the other."""
    reads: set[tuple[str, str]] = set()
    for each in sorted(ended, key=lambda each: each.ended_at or 0.0):
        if each.state == "succeeded":
            for intent in proposals.intents_of(each.parameters["intents"]):
                (reads.add if intent.read else reads.discard)((folded(intent.principal), intent.key))
    return reads
