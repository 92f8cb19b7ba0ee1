"""Three producers append to one landing table with a long log, each twice a second, while ingest reads it.

How long is `SOAK_MINUTES`, ten by default.
"""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.lake.delta.log import commit_file
from pipeline.lake.storage.places import located
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
ENTRIES = 10_000
PRODUCERS = 3
GAMES = 5
RATE = 200  # events per second of each
_MAX_STILL_SECONDS = 10.0
_READY_SECONDS = 300.0
_WARM_COMMITS = 5

pytestmark = pytest.mark.timeout(int(MINUTES * 60 + 3 * _READY_SECONDS))


def make_long_log(landing: Path, entries: int) -> None:
    """Make a landing table whose log has `entries` commits, without rows."""
    DeltaTable.create(landing, Schema.from_arrow(LANDING))
    entry = json.dumps({"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}})
    for version in range(1, entries):
        Path(commit_file(located(landing), version)).write_text(entry)
    DeltaTable(landing).create_checkpoint()


def commits(table: Path) -> list[float]:
    """Return when each commit of a table was written."""
    return sorted(file.stat().st_mtime for file in (table / "_delta_log").glob("*.json"))


def count(table: Path) -> int:
    """Return the number of rows of a table."""
    return sum(pa.table(DeltaTable(table).get_add_actions(flatten=True))["num_records"].to_pylist())


def require_alive(children: Children) -> None:
    assert not children.dead(), "\n".join(children.tail(child.name) for child in children.dead())


@pytest.mark.proves("G6")
def test_three_producers_beside_a_long_log_never_hold_up_ingest(tmp_path: Path) -> None:
    """Law L1: however busy and long the landing log is, ingest never ends, stands still for 10 s, or misses a row."""
    env = tmp_path / "env"
    settings, paths = load(env, {})
    open_store(settings, paths).dispose()
    make_long_log(Path(paths.landing), ENTRIES)
    ingest = turnout("ingest", "run", "--env-dir", str(env))
    with Children(env / "children") as children:
        children.start("ingest", ingest)
        for number in range(PRODUCERS):
            log = str(env / f"acknowledged-{number}.jsonl")
            options = [str(each) for each in (env, log, GAMES, GAMES, RATE, number)]
            children.start(f"producer-{number}", [sys.executable, "-m", "tests.soak.producing", *options])
        deadline = time.monotonic() + _READY_SECONDS
        while not (paths.bronze / "_delta_log").is_folder() or len(commits(Path(paths.bronze))) < _WARM_COMMITS:
            require_alive(children)
            assert time.monotonic() < deadline, children.tail("ingest")
            time.sleep(0.5)
        began = time.time()
        while time.time() - began < MINUTES * 60:
            require_alive(children)
            time.sleep(1.0)
        ended = time.time()
    written = [at for at in commits(Path(paths.bronze)) if began <= at <= ended]
    still = max(after - before for before, after in pairwise([began, *written, ended]))
    landed = len(commits(Path(paths.landing))) - ENTRIES
    sys.stdout.write(
        f"\n{landed} commits by {PRODUCERS} producers, {len(written)} of bronze, which "
        f"stood still for at most {still:.1f} s\n"
    )
    assert still <= _MAX_STILL_SECONDS
    subprocess.run([*ingest, "--once"], check=True, timeout=_READY_SECONDS)
    assert count(Path(paths.bronze)) == count(Path(paths.landing))
