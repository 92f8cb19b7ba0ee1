"""Replay of quarantine in a real environment: real ingest, real passes, a real process, really killed."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.failpoints import ENVIRON
from pipeline.base.names import game_key
from tests import repairing
from tests.spark.late_world import LATE, register_late


def _replay(world: Any, failpoints: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = repairing.command(world.paths.root, "replay")
    environ = {**os.environ, **({ENVIRON: str(failpoints)} if failpoints else {})}
    return subprocess.run(command, env=environ, capture_output=True, text=True, start_new_session=True, timeout=120)


@pytest.mark.long  # tests/tables kill a replay for real, too, without Spark
@pytest.mark.proves("A29", "G152")
def test_a_game_that_was_not_known_gets_its_past_back_though_the_replay_is_killed_twice(
    world: Any, tmp_path: Path
) -> None:
    """A29 and law L5: rows refused before the game was known land once, beside its live stream; verify never fails."""
    world.simulate(3_000, games=6, bad_share=0.3)
    world.ingest()
    group = world.group("a")
    world.split(group)
    before = world.verify()
    assert before.complete
    assert before.by_reason["unknown_game"] > 100
    register_late(world)
    folder = tmp_path / "failpoints"
    folder.mkdir()
    (folder / "armed").write_text("in_replay crash 1\nin_replay crash 3\n")
    for _ in range(2):
        assert _replay(world, folder).returncode == -signal.SIGKILL
        assert world.verify().complete
    assert (folder / "fired").read_text() == "in_replay crash 1\nin_replay crash 3\n"
    done = _replay(world, folder)
    assert done.returncode == 0, done.stderr
    after = world.verify()
    assert after.complete
    assert after.totals.stale_twins == 0
    gained = after.totals.landed - before.totals.landed
    assert gained == world.spark.read.format("delta").load(str(world.paths.table(game_key(LATE)))).count() > 0
    world.simulate(1_000, games=6, bad_share=0.3)
    world.ingest()
    world.split(group)
    assert world.verify().complete
    assert game_key(LATE) in group.streams
