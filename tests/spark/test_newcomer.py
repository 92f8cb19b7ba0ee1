"""A game that nobody knows appears in a running demo, and its readers have it within 30 s without a person."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from grants.applying.proposals import schema_of
from grants.catalogs.opening import open_catalog
from grants.model import Securable
from pipeline.base.names import GameKey, game_key
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.demo.newcomer import GROUP, READERS, RULE
from pipeline.demo.server_process import free_ports
from pipeline.demo.simulator import game_names
from pipeline.health.facts.fleet import read_fleet
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.onboarding import onboarded
from pipeline.store.operations import list_operations
from tests.spark.demo_world import last_line, turnout

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

GAMES, RATE, TYPES = 4, 40, 5
APPEARS: Final = 150  # seconds after the others: by then drivers run, on a busy machine, too
CHANGES: Final = 25  # seconds between its first versions
LIVE_SECONDS: Final = 30.0
HEALTHY: Final = {"RUNNING", "CATCHING_UP"}
NAME: Final = game_names(GAMES, 1)[-1]
KEY: Final = game_key(NAME)


@contextmanager
def live_demo(env: Path, framing: str) -> Iterator[None]:
    dashboard, catalog = free_ports(None, 1)
    env.mkdir()
    (env / "turnout.toml").write_text(f"[dashboard]\nport = {dashboard}\n[access]\nport = {catalog}\n")
    options = (
        *("--games", str(GAMES), "--versions", "3", "--rate", str(RATE), "--bad-share", "0", "--skew", "0"),
        *("--formats", "json", "--framing", framing, "--event-types", str(TYPES)),
        *("--appear-after", str(APPEARS * RATE), "--version-every", str(CHANGES * RATE), "--env-dir", str(env)),
    )
    with (env / "demo.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "pipeline", "demo", *options], stderr=log)
        try:
            yield
            assert process.poll() is None, (env / "demo.log").read_text()
        finally:
            process.terminate()
            process.wait(timeout=90)


def first_record(landing: Path, known: set[str]) -> float | None:
    """Return when the landing table got the first record of the game; `known` are the files that have none."""
    names = {each.name for each in landing.iterdir()} if landing.exists() else set[str]()
    for name in sorted(names - known):
        if name.endswith(".parquet"):
            file = landing / name
            try:
                keys = pq.read_table(file, columns=["key"])["key"]
            except pa.ArrowInvalid:
                continue  # it is being written
            if pc.any(pc.equal(keys, NAME.encode())).as_py():
                return file.stat().st_mtime
            known.add(name)
    return None


def seen_in(watched: dict[str, Callable[[], bool]], since: float, seconds: float) -> dict[str, float]:
    """Return after how many seconds each of these was seen."""
    found: dict[str, float] = {}
    while len(found) < len(watched) and time.time() - since < seconds:
        for name, holds in watched.items():
            if name not in found and holds():
                found[name] = round(time.time() - since, 1)
                sys.stderr.write(f"{name}: {found[name]} s\n")
        time.sleep(0.2)
    return found


def changes_twice(engine: Engine) -> bool:
    """Return whether two of its event types have three schemas each."""
    versions = read_versions(engine, KEY)
    counts = Counter(each.message for each in versions[KEY].versions) if KEY in versions else Counter[str]()
    return sum(count >= 3 for count in counts.values()) >= 2


@pytest.mark.parametrize("framing", ["type", "confluent"])
def test_an_unknown_game_is_live_for_its_readers_within_30_s(
    tmp_path: Path, framing: str, record_property: Callable[[str, object], None]
) -> None:
    """A rule makes the name a game with types, group and readers; its types change twice, and no value is wrong."""
    env = tmp_path / "env"
    with live_demo(env, framing):
        settings, paths = load(env)
        engine, without = open_store(settings, paths), set[str]()
        began = time.monotonic()
        while (since := first_record(Path(str(paths.landing)), without)) is None:
            assert time.monotonic() - began < 500, (env / "demo.log").read_text()
            time.sleep(0.1)
        catalog = open_catalog(settings.access, paths, os.environ)
        schema = schema_of(settings.access)

        def granted() -> bool:
            if KEY not in catalog.tables(schema):
                return False
            table = Securable((*schema.path, KEY))
            return all("SELECT" in catalog.assignments(table).get(each, ()) for each in READERS)

        def on_dashboard() -> bool:
            row = read_fleet(engine).row(KEY)
            return row is not None and row.reported is not None and row.reported.rows_total > 0

        def well() -> bool:
            row = read_fleet(engine).row(KEY)
            return row is not None and row.verdict.status in HEALTHY

        watched = {
            "game": lambda: any(each.candidate.game_key == KEY for each in onboarded(engine)),
            "typed": lambda: KEY in read_versions(engine, KEY),
            "table": lambda: Path(str(paths.table(GameKey(KEY)))).exists(),
            "granted": granted,
            "dashboard": on_dashboard,
        }
        found = seen_in(watched, since, 120)
        record_property("seconds", json.dumps(found))
        assert found.keys() == watched.keys(), found
        assert max(found.values()) <= LIVE_SECONDS, found
        then = seen_in({"changed": lambda: changes_twice(engine), "well": well}, time.time(), 180)
        assert then.keys() == {"changed", "well"}, (then, read_versions(engine, KEY), read_fleet(engine).row(KEY))
        (made,) = [each for each in onboarded(engine) if each.candidate.game_key == KEY]
        assert (made.candidate.how, made.candidate.rule) == ("prefix", RULE)
        row = read_fleet(engine).row(KEY)
        assert row is not None
        assert row.group == GROUP
        onboardings = [each for each in list_operations(engine) if each.kind == "onboard" and KEY in str(each.targets)]
        assert [each.state for each in onboardings] == ["succeeded"]
        engine.dispose()
    proof = turnout("verify", "--values", "--json", "--env-dir", str(env))
    result = last_line(proof)
    assert proof.returncode == 0, proof.stdout
    assert result["ok"], result
