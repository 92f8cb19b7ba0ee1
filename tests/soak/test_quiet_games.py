"""An hour of traffic in which most games are quiet most of the time, while everything is moved, repaired and restarted.

Real processes: a producer, ingest, maintenance and the controller with two group drivers under it. What is done to
them follows from a seed; how long it lasts is `SOAK_MINUTES`.
"""

import os
import random
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.platforms.local.child_processes import Children
from pipeline.store.operations import list_operations
from tests.faults import figures
from tests.faults.oracle import judge
from tests.soak.producing import weights
from tests.soak.soaking import READY_SECONDS, REST_SECONDS, SETTINGS, Soak

MINUTES = float(os.environ.get("SOAK_MINUTES", "20"))
RATE = float(os.environ.get("SOAK_RATE", "4000"))
GAMES = int(os.environ.get("SOAK_GAMES", "200"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
PAUSE_SECONDS = float(os.environ.get("SOAK_PAUSE_SECONDS", "20"))  # between two acts, on average
BUSY = max(1, GAMES // 20)

pytestmark = pytest.mark.timeout(int(MINUTES * 60 + READY_SECONDS + REST_SECONDS + 3600))


@pytest.mark.proves("G164")
def test_an_hour_with_quiet_games_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """All laws over many orders: games that are quiet when drivers start, rejoin or change queries stay exact."""
    env = tmp_path / "env"
    env.mkdir()
    (env / "turnout.toml").write_text(SETTINGS)
    producer = [str(each) for each in (GAMES, BUSY, RATE, SEED)]
    with Children(env / "logs") as children, closing(Soak(env, children, random.Random(SEED), [producer])) as soak:
        soak.start()
        began = time.monotonic()
        while time.monotonic() - began < MINUTES * 60:
            time.sleep(soak.draw.uniform(0.0, 2 * PAUSE_SECONDS))  # how people act; nothing is waited for
            soak.act()
        soaked = time.monotonic() - began
        soak.rest()
        rested = time.monotonic() - began - soaked
        operations = Counter(each.state for each in list_operations(soak.store, limit=100_000))
    verdict = judge(env, soak.log)
    figures.record_faults(sum(soak.did[name] for name in ("kill_group", "end_group", "kill_child", "end_ingest")))
    quiet = sum(each <= 0.1 for each in weights(GAMES, BUSY, RATE))
    rate = verdict.events / soaked
    lines = (
        f"seed {SEED}: {soaked / 60:.1f} minutes, {verdict.events:,} events, {rate:,.0f} per second",
        f"{GAMES} games, of which {len(soak.game_assignments())} sent; {quiet} send at most one event in 10 s",
        f"did: {dict(soak.did)}; refused: {dict(soak.refused)}; processes started again: {soak.restarts}",
        f"operations: {dict(operations)}; at rest after {rested:.0f} s; table versions: {_versions(soak)}",
        str(verdict),
    )
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert verdict.clean, verdict


def _versions(soak: Soak) -> int:
    return sum(DeltaTable(each.parent).version() for each in Path(soak.paths.tables).glob("*/_delta_log"))
