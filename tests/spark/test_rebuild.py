"""Rebuild of a game's table beside the group that owns it."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.base.failpoints import ENVIRON
from pipeline.base.names import game_key
from pipeline.demo.simulator import game_names
from pipeline.store.games import generations
from tests import repairing

NAME = game_names(4, 7, hostile=True)[1]
KEY = game_key(NAME)


def _rebuild(world: Any, failpoints: Path | None = None) -> int:
    command = repairing.command(world.paths.root, "rebuild", KEY)
    environ = {**os.environ, **({ENVIRON: str(failpoints)} if failpoints else {})}
    return subprocess.run(command, env=environ, start_new_session=True, timeout=120).returncode


def _count(world: Any, version: int | None = None) -> int:
    reader = world.spark.read.format("delta")
    at = reader if version is None else reader.option("versionAsOf", version)
    return int(at.load(str(world.paths.table(KEY))).count())


def _go_on(world: Any, group: Any) -> None:
    world.simulate(500, games=4)
    world.ingest()
    world.split(group)


@pytest.mark.long
@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(None, id="done"),
        pytest.param(1, id="killed before the switch"),
        pytest.param(2, id="killed after the switch"),
    ],
)
@pytest.mark.proves("A8", "G154")
def test_the_group_goes_on_by_itself(world: Any, tmp_path: Path, crash: int | None) -> None:
    """A8 and law L12: the owner finds the new generation, whether or not the rebuild lived to tell of it."""
    world.simulate(1_500, games=4, bad_share=0.1)
    world.ingest()
    group = world.group("a")
    world.split(group)
    before, rows = DeltaTable(world.paths.table(KEY)), _count(world)
    folder = tmp_path / "failpoints"
    folder.mkdir()
    (folder / "armed").write_text(f"in_rebuild_switch crash {crash}\n" if crash else "")
    assert _rebuild(world, folder) == (-signal.SIGKILL if crash else 0)
    switched = crash != 1
    assert _count(world) == rows
    assert DeltaTable(world.paths.table(KEY)).version() == before.version() + switched
    assert world.verify().complete
    _go_on(world, group)
    assert world.verify().complete
    assert group.streams[KEY].error is None
    assert generations(world.engine)[KEY] == (1 if crash else 2)
    assert _rebuild(world) == 0
    assert generations(world.engine)[KEY] == (3 if switched else 2)
    _go_on(world, group)
    assert world.verify().complete
    after = DeltaTable(world.paths.table(KEY))
    assert after.metadata().id == before.metadata().id
    assert _count(world, before.version()) == rows
