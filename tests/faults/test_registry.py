"""Whole drivers while their schema registry, a real Apicurio, is killed or slow, and while they die themselves."""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from sqlalchemy import select

from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.demo.registry import Registry
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import streams
from pipeline.store.games import generations, register_group
from pipeline.store.writers import read_writers
from tests.faults import figures
from tests.faults.driver_world import Drivers, Place, wait_for
from tests.faults.faults import Faults
from tests.onboarding_world import give_rules, rule
from tests.registry_proxy import RegistryProxy, lying, proxied

KILLS = int(os.environ.get("PROOF_REGISTRY_KILLS", "6"))
ROWS = 50  # of each game in one landing commit

pytestmark = pytest.mark.timeout(1200 + KILLS * 150)


class FramedPlace(Place):
    """An environment whose records have Confluent's framing, and a producer that registers versions of a schema."""

    def __init__(self, root: Path, url: str) -> None:
        self.env = root / "env"
        self.env.mkdir()
        (self.env / "turnout.toml").write_text(
            "[ingest]\ntrigger_seconds = 1\n[demux]\ntrigger_seconds = 1\n"
            '[maintenance]\nbackend = "none"\n'
            '[source]\nenvelope = "none"\nrouting = "key"\nframing = "confluent"\nregistry = "main"\n'
            f'[registries.main]\nkind = "confluent"\nurl = "{url}"\ntimeout_seconds = 2\n'
        )
        self.settings, self.paths = load(self.env, {})
        self.engine = open_store(self.settings, self.paths)
        give_rules(self.engine, rule("laps", "cars"))
        self.sent: dict[str, list[int]] = {"laps": [], "cars": []}
        count: Any = SimpleNamespace(count=lambda: sum(map(len, self.sent.values())))
        self.log = count
        self.versions: list[tuple[int, Any]] = []  # id and schema

    def register(self, client: SchemaRegistryClient) -> None:
        """Give the producers a new version, with one more field."""
        fields: list[dict[str, Any]] = [{"name": "n", "type": "int"}]
        added = range(len(self.versions))
        fields += [{"name": f"f{number}", "type": ["null", "int"], "default": None} for number in added]
        schema = {"type": "record", "name": "Lap", "namespace": "acme", "fields": fields}
        number = client.register_schema("laps-value", Schema(json.dumps(schema), "AVRO"))
        self.versions.append((number, fastavro.parse_schema(schema)))

    def send(self, game: str, version: int) -> None:
        """Land rows of a version in one commit."""
        number, schema = self.versions[version]
        first = len(self.sent[game])
        values = []
        for n in range(first, first + ROWS):
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, {"n": n})
            values.append(b"\0" + number.to_bytes(4) + body.getvalue())
        rows = pa.table({"key": [game.encode()] * ROWS, "value": values}, schema=LANDING)
        write_deltalake(Path(self.paths.landing), rows, mode="append")
        self.sent[game] += range(first, first + ROWS)

    def has(self, game: str) -> bool:
        """Return whether the game's table has each row that was sent, once."""
        folder = self.paths.table(game_key(game))
        if not (folder / "_delta_log").is_folder():
            return False
        found = sorted(DeltaTable(folder).to_pyarrow_table(columns=["n"]).column("n").to_pylist())
        assert len(found) == len(set(found))
        return found == self.sent[game]

    def cause(self, game: str) -> tuple[str | None, str]:
        """Return status and cause of a game, as its driver reported them."""
        with self.engine.connect() as connection:
            query = select(streams.c.status, streams.c.waits_for).where(streams.c.game_key == game_key(game))
            row = connection.execute(query).one_or_none()
        return (None, "") if row is None else (row.status, row.waits_for or "")

    def wait_for_cause(self, said: str) -> None:
        waits = f"waits for schema {self.versions[-1][0]} of registry main, which does not answer since"

        def is_told() -> bool:
            status, cause = self.cause("laps")
            return status == "LAGGING" and cause.startswith(waits) and said in cause

        wait_for(is_told, f"the cause is not told: {said}")

    def prove(self) -> None:
        """Require that all rows are in the tables with their values, and each answer in the store once."""
        assert self.has("laps")
        assert self.has("cars")
        with self.engine.connect() as connection:
            answers = Counter(row.writer for row in read_writers(connection, 0, 10_000))
        assert set(answers.values()) == {1}
        assert len(answers) == len(self.versions)
        wanted = Wanted(LocalRegistry(self.engine, self.paths.bronze).snapshot)
        balance = verify(self.paths, self.settings.environment, generations(self.engine), wanted=wanted)
        assert balance.complete, balance.problems
        assert balance.values is not None
        assert (balance.values.rows, balance.values.mismatches) == (self.log.count(), 0)


@contextmanager
def begun(root: Path) -> Iterator[tuple[FramedPlace, Drivers, Registry, RegistryProxy]]:
    """Run ingest and group a beside a registry, with the first rows of two games in their tables."""
    with Registry.start(root / "registry") as registry, proxied(registry.url) as (proxy, url):
        place = FramedPlace(root, url)
        register_group(place.engine, "a", placing())
        drivers = Drivers(place, Faults(root / "failpoints"))
        try:
            with client(registry) as opened:
                place.register(opened)
            for game in place.sent:
                place.send(game, 0)
            for kind in ("ingest", "group"):
                drivers.start(kind)
            rest(place)
            yield place, drivers, registry, proxy
            drivers.stop()
        finally:
            drivers.force()
            place.engine.dispose()


@contextmanager
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as opened:
        yield opened


def rest(place: FramedPlace) -> None:
    for game in place.sent:
        wait_for(lambda game=game: place.has(game), f"rows of {game} do not land")  # type: ignore[misc]


def kill(registry: Registry) -> None:
    registry._process.kill()
    registry._process.wait()


@pytest.mark.proves("G191")
def test_games_wait_while_their_registry_is_killed_slow_or_talks_nonsense(tmp_path: Path) -> None:
    """Law L14: the waiting game's status names the registry and since when, others go on, and all rows land once."""
    with begun(tmp_path) as (place, _, registry, proxy):
        for said, hurt, heal in (
            ("did not answer in time", proxy.open.clear, proxy.open.set),
            ("answers 429", lambda: lie(proxy, 429), lambda: lie(proxy, None)),
            ("answers 500", lambda: lie(proxy, 500), lambda: lie(proxy, None)),
            ("something else than a schema", lambda: lie(proxy, 200), lambda: lie(proxy, None)),
        ):
            with client(registry) as opened:
                place.register(opened)
            hurt()
            place.send("laps", -1)
            place.send("cars", 0)
            place.wait_for_cause(said)
            wait_for(lambda: place.has("cars"), "the other game waits too")
            heal()
            rest(place)
        with client(registry) as opened:
            place.register(opened)
        kill(registry)
        place.send("laps", -1)
        place.send("cars", 0)
        place.wait_for_cause("does not answer")
        wait_for(lambda: place.has("cars"), "the other game waits too")
        with Registry.start(tmp_path / "registry", registry.port):
            rest(place)
            place.prove()
    figures.record_faults(5)


def lie(proxy: RegistryProxy, status: int | None) -> None:
    proxy.instead = (lambda _path: None) if status is None else lying(b"<html>", status)


@pytest.mark.proves("G191")
def test_drivers_killed_while_they_resolve_lose_and_double_nothing(tmp_path: Path) -> None:
    """Laws L13 and L5: a driver dies with a registry's answer in its hand, and the next one goes on from the store."""
    killed: Counter[str] = Counter()
    with begun(tmp_path) as (place, drivers, registry, _):
        for _ in range(KILLS):
            with client(registry) as opened:
                place.register(opened)
            drivers.faults.arm("after_registry_answer", "crash")
            place.send("laps", -1)
            place.send("cars", -1)
            kind = drivers.wait_for_death()
            killed[kind] += 1
            drivers.start(kind)
            rest(place)
        place.prove()
    figures.record_faults(KILLS)
    assert killed.total() == sum(drivers.faults.fired().values()) == KILLS
