"""A driver's streams while a registry is away, slow or lying: they wait with their cause, and land afterwards."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from listeners.sample import StreamState
from pipeline.base.failpoints import Injected
from pipeline.base.names import bronze_app_id
from pipeline.control.registering.giving_up import propose
from pipeline.data.contracts.registries.confluent import ConfluentResolver
from pipeline.data.contracts.registries.notes import Need as Wanted
from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.registries.recording import give_up
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.ingest.profiles import Profiles
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.lookup import Lookup
from pipeline.data.streams.outage import CachedRegistry
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.watchdog import Watchdog
from pipeline.data.verify import values
from pipeline.data.verify.balance import Balance, verify
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.health.verdicts.status import IMPROVE_AFTER
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Demux, Settings
from pipeline.store.games import Game, generations
from pipeline.store.schema_needs import read_needs, trust_again
from pipeline.store.stream_control import decided
from pipeline.store.writers import read_writers
from tests.game_streams import roster_of
from tests.registry_proxy import RegistryProxy, Said, lying, proxied
from tests.tables import foreign_world
from tests.tables.foreign_world import (
    EIGHT,
    PROFILES,
    SEVEN,
    Foreign,
    ForeignWorld,
    catch_up_by,
    foreign,
    passes,
    points,
    read_all,
    world,
)
from tests.tables.repair_world import CHESS, FIRST, GO, arming, good
from tests.unit.store.outage_world import away

__all__ = ["passes", "world"]  # fixtures

TEXT = 'syntax = "proto3"; package t; message M { int64 points = 1; }'
OTHER = 'syntax = "proto3"; package t; message M { string points = 1; }'
JOINED = 'syntax = "proto3"; package acme; message Joined { string player = 1; int64 session_seconds = 2; }'
SOLD = 'syntax = "proto3"; package acme; message Sold { string item = 1; int64 price = 2; }'
QUICK = Patience(away=0.0, away_most=0.0, absent=0.0, absent_for=0.0, sample=1e12)
SECONDS = 0.4  # in which a registry must answer


def lap(number: int, writer: bytes = SEVEN) -> Foreign:
    """Return a record with the first message of its writer's file."""
    return foreign(number, writer, payload=b"\0" + FIRST.payload(points=number))


def schema(text: str) -> Callable[[str], Said]:
    return lying({"schema": text, "schemaType": "PROTOBUF", "references": []})


@dataclass
class Driver:
    """A group's driver without Spark: catch-up, its look-ups, and the watchdog."""

    roster: Roster
    catch_up: CatchUp
    lookup: Lookup
    watchdog: Watchdog
    states: dict[str, StreamState] = field(default_factory=dict)

    def round(self) -> None:
        """Read what is due, ask registries once, and read what they gave; then judge."""
        self.roster.sync()
        read_all(self.catch_up)
        self.lookup.ask_once()
        read_all(self.catch_up)
        self.watchdog.evaluate(active=True)

    def state(self, game: Game = CHESS) -> tuple[str, str]:
        """Return a stream's status and its cause."""
        for _ in range(IMPROVE_AFTER):  # a better status counts after some looks
            self.watchdog.evaluate(active=True)
        state = self.states[game.key]
        return state.status, str(state.waits_for)


def driver_of(world: ForeignWorld, passes: Passes, url: str, patience: Patience = QUICK) -> Driver:
    """Return a driver that starts now."""
    resolution = Resolution(world.engine, {"main": ConfluentResolver(url, seconds=SECONDS)}, patience=patience)
    lookup = Lookup(world.engine, resolution)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    roster = roster_of(Settings(), world.paths, world.engine)
    schemas = CachedRegistry(LocalRegistry(world.engine, world.paths.bronze))
    context = DemuxContext(spark, Settings(demux=Demux(catchup_seqs=100)), roster, schemas, lambda _: None, lookup.want)
    catch_up = catch_up_by(context, world, passes)
    group: Any = SimpleNamespace(
        name="a",
        streams=roster.streams,
        frontier_seq=9,
        pass_since=None,
        registry_troubles=lookup.troubles,
        schema_sets=dict,
    )
    states: dict[str, StreamState] = {}

    def tell(reported: list[StreamState], _changes: object, _sample: object) -> None:
        states.update({state.game_key: state for state in reported})

    return Driver(roster, catch_up, lookup, Watchdog(Settings(), world.engine, group, tell), states)


@pytest.fixture
def registry(world: ForeignWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RegistryProxy, str]]:
    """A registry that says what the test wants; bronze's properties have the profile of the rows."""
    world.ingest(good(5), good(5, GO))
    bronze = CursorTable.open(world.paths.bronze, bronze_app_id(world.environment))
    assert bronze is not None
    (profile,) = PROFILES.values()
    number = Profiles(world.engine, bronze, profile).numbers[0]
    monkeypatch.setattr(foreign_world, "CONFLUENT", number)
    with proxied("http://127.0.0.1:9") as made:
        yield made


LIES: dict[str, tuple[Callable[[str], Said | None], str]] = {
    "killed": (lambda _: None, "disconnected without sending"),
    "429": (lying({"error_code": 42901, "message": "slow down"}, 429), "answers 429"),
    "500": (lying({"error_code": 50001}, 500), "answers 500"),
    "garbage": (lying(b"<html>"), "something else than a schema"),
    "an empty page": (lying(b""), "something else than a schema"),
    "a proxy's 404": (lying(b"not here", 404), "404 without saying"),
}


@pytest.mark.proves("G191")
def test_rows_wait_with_their_cause_while_a_registry_does_not_answer(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str]
) -> None:
    """Law L14: no outage refuses a row or stops another game; the status names the registry, and rows land later."""
    proxy, url = registry
    world.ingest(lap(1), good(1, GO))
    driver = driver_of(world, passes, url)
    for instead, said in LIES.values():
        proxy.instead = instead
        driver.round()
        status, cause = driver.state()
        assert status == "LAGGING"
        assert cause.startswith("waits for schema 7 of registry main, which does not answer since 20")
        assert said in cause
    proxy.open.clear()
    driver.round()
    assert "did not answer in time" in driver.state()[1]
    proxy.open.set()
    assert (points(world), points(world, GO), world.refused(), decided(world.engine)) == ([5], [5, 1], [], {})
    assert driver.state(GO)[0] == "RUNNING"
    proxy.instead = schema(TEXT)
    driver.round()
    assert points(world) == [5, 1]
    assert driver.state() == ("RUNNING", "None")
    assert driver.lookup.troubles() == {}


@pytest.mark.proves("G191")
def test_a_lying_registry_changes_nothing_and_is_named(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Law L13: its first answer counts for ever; new ids wait with the reason until a person trusts it again."""
    proxy, url = registry
    proxy.instead = schema(TEXT)
    world.ingest(lap(1))
    driver = driver_of(world, passes, url, replace(QUICK, sample=1e-9))
    driver.round()
    assert points(world) == [5, 1]
    before = LocalRegistry(world.engine).snapshot()
    proxy.instead = schema(OTHER)
    driver.round()
    assert "Registry main gave another content for schema 7" in caplog.text
    world.ingest(lap(2), good(2, GO))
    world.ingest(lap(3, EIGHT), good(3, GO))
    driver.round()
    assert (points(world), points(world, GO), world.refused()) == ([5, 1, 2], [5, 2, 3], [])
    status, cause = driver.state()
    assert status == "LAGGING"
    assert cause.startswith("waits for schema 8 of registry main, which is not trusted since 20")
    assert LocalRegistry(world.engine).snapshot().writers == before.writers
    assert list(read_controller_metrics(world.engine, read_fleet(world.engine)).mistrusted) == ["main"], "an alert"
    proxy.instead = schema(TEXT)
    driver.round()
    assert points(world) == [5, 1, 2], "an honest answer later ends no mistrust"
    assert trust_again(world.engine, "main", time.time())
    driver.round()
    assert points(world) == [5, 1, 2, 3]
    assert read_controller_metrics(world.engine, read_fleet(world.engine)).mistrusted == {}
    assert driver.state() == ("RUNNING", "None")


@pytest.mark.proves("G240")
def test_another_event_type_waits_until_a_person_says_that_it_is_a_rename(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str]
) -> None:
    """An item never lies in `player`: a game has the type of its first row, whatever else its topic carries."""
    proxy, url = registry
    proxy.instead = lambda path: schema(SOLD if path.endswith("/7") else JOINED)(path)
    joined, sold = (foreign(0, each, payload=b"\0\x0a\x05" + text + b"\x10\5") for each, text in (
        (EIGHT, b"alice"), (SEVEN, b"sword"),
    ))  # fmt: skip
    world.ingest(joined, sold)
    world.forget(CHESS)
    driver = driver_of(world, passes, url)
    for _ in range(2):  # ids of files with several messages are asked for twice
        driver.round()
    assert [(row["player"], row["session_seconds"]) for row in world.contents()] == [("alice", 5)]
    assert {"item", "price"}.isdisjoint(world.contents()[0])
    reasons = DeltaTable(world.paths.quarantine).to_pyarrow_table().column("reason").to_pylist()
    assert sorted(reasons) == ["other_type", "unknown_schema"]
    registered = LocalRegistry(world.engine, world.paths.bronze)

    def check() -> Balance:
        return verify(
            world.paths, world.environment, generations(world.engine), wanted=values.Wanted(registered.snapshot())
        )

    balance = check()
    assert (balance.problems, balance.values.undecodable) == ((), {"unknown_schema": 1, "other_type": 1})  # type: ignore[union-attr]
    content = descriptor_set(SOLD, {}).SerializeToString()
    registered.register_many([Registration(CHESS.name, "acme.Sold", content, continues="acme.Joined", actor="ann")])
    replay_all(world.paths, world.environment, registered.snapshot, world.known(), Selection(), dry_run=False)
    assert [(row["player"], row["item"], row["price"]) for row in world.contents()] == [
        ("alice", None, None), (None, "sword", 5),
    ]  # fmt: skip
    assert check().problems == ()


@pytest.mark.proves("G191")
def test_the_next_driver_goes_on_where_one_was_killed_while_it_resolved(
    world: ForeignWorld,
    passes: Passes,
    registry: tuple[RegistryProxy, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Laws L13 and L5: between answer and write, and within the write: no row is lost or twice, no number either."""
    proxy, url = registry
    proxy.instead = schema(TEXT)
    world.ingest(lap(1), lap(2, EIGHT))
    driver = driver_of(world, passes, url)
    read_all(driver.catch_up)
    for number, point in enumerate(("after_registry_answer", "before_store_commit", "after_store_commit")):
        with monkeypatch.context() as patch:
            armed = arming(tmp_path / f"failpoints-{number}", patch, point)
            armed(2 if point == "before_store_commit" else 1)
            with pytest.raises(Injected):
                driver.lookup.ask_once()
        driver = driver_of(world, passes, url)
    driver.round()
    assert points(world) == [5, 1, 2]
    assert world.refused() == []
    with world.engine.connect() as connection:
        assert read_needs(connection) == []
        rows = [(row.writer, row.schema_id) for row in read_writers(connection, 0, 1000)]
    assert len(rows) == len(set(rows)) == 4, "each id, and the message in its file"


def test_a_profile_that_only_bronze_has_is_waited_for_by_name(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str]
) -> None:
    """Law L14: a row whose profile nobody knows is neither guessed nor refused."""
    proxy, url = registry
    proxy.instead = schema(TEXT)
    world.ingest(replace_profile(lap(1), 999))
    driver = driver_of(world, passes, url)
    driver.round()
    assert driver.state() == ("LAGGING", "waits for profile 999 of its source, which this driver has not read yet")
    assert proxy.asked == [], "no registry knows a profile"


def replace_profile(record: Foreign, number: int) -> Foreign:
    object.__setattr__(record, "profile", number)
    return record


def test_without_registries_nobody_asks_and_the_cause_is_told(world: ForeignWorld, passes: Passes) -> None:
    """Law L14: another driver may have the registry, so this one's streams wait and say for what."""
    lookup = Lookup(world.engine, None)
    lookup.start()
    lookup.note([Wanted(CHESS.key, CHESS.name, "main", SEVEN, 1, 0)])
    assert lookup.ask_once() == math.inf
    assert lookup.troubles() == {}
    with world.engine.connect() as connection:
        assert read_needs(connection) == []
    lookup.stop()


def test_a_lookup_asks_in_threads_that_end_with_it(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str]
) -> None:
    """Law L14: a registry that hangs keeps no driver waiting, neither to want, nor to stop."""
    proxy, url = registry
    proxy.instead, proxy.open = schema(TEXT), threading.Event()
    world.ingest(lap(1))
    driver = driver_of(world, passes, url)
    before = set(threading.enumerate())
    driver.lookup.start()
    read_all(driver.catch_up)
    assert proxy.waiting.wait(30)
    (asking,) = (each for each in set(threading.enumerate()) - before if each.name == "registry-main")
    driver.lookup.stop()
    proxy.open.set()
    asking.join(30)
    assert not asking.is_alive()


def test_a_lookup_that_rests_ends_at_once(world: ForeignWorld, registry: tuple[RegistryProxy, str]) -> None:
    """A driver ends within seconds, and a thread with nothing to ask rests for half a minute."""
    rests = threading.Event()

    class Wake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.set()
            return super().wait(timeout)

    resolution = Resolution(world.engine, {"main": ConfluentResolver(registry[1])})
    resolution._asking["main"].wake = Wake()
    lookup = Lookup(world.engine, resolution)
    before = set(threading.enumerate())
    lookup.start()
    assert rests.wait(30)
    (resting,) = {each for each in threading.enumerate() if each.name == "registry-main"} - before
    lookup.stop()
    resting.join(15)
    assert not resting.is_alive()


def test_troubles_are_unknown_while_the_store_is_away(world: ForeignWorld, registry: tuple[RegistryProxy, str]) -> None:
    """B3: a driver goes on without the store, and says that it does not know why a registry gives nothing."""
    lookup = Lookup(world.engine, Resolution(world.engine, {}))
    with away(world.engine):
        assert lookup.troubles() == {}


def test_a_person_who_gives_up_lets_the_rows_go_to_quarantine(
    world: ForeignWorld, passes: Passes, registry: tuple[RegistryProxy, str]
) -> None:
    """Law L15: rows of a registry that will never answer keep their bytes, and the game goes on."""
    world.ingest(lap(1), good(2))
    driver = driver_of(world, passes, registry[1])
    driver.round()
    assert points(world) == [5]
    assert give_up(world.engine, "main", propose(world.engine, "main").writers, time.time()) == 1
    driver.round()
    assert (points(world), world.refused()) == ([5, 2], [(2, 0)])
    assert driver.state() == ("RUNNING", "None")
