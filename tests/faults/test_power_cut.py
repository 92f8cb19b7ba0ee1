"""The power is cut at each effect: what was not synced is gone, and going on loses and doubles nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.ingest import checkpoint
from pipeline.lake.delta import log, table
from pipeline.lake.storage.folder import Folder
from tests.tables.power_world import ACTS, begun, problems

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("template") / "env")


@pytest.mark.parametrize("act", list(ACTS))
@pytest.mark.proves("G250")
def test_a_cut_at_any_effect_loses_and_doubles_nothing(template: Path, tmp_path: Path, act: str) -> None:
    """Laws L1, L3 and L5: rows that a cut takes are read again, and what was on disk stays."""
    shutil.copytree(template, tmp_path / "env")
    found = problems(tmp_path, ACTS[act])
    assert not found, "\n".join(found)


def _nothing(*_: Any, **__: Any) -> None:
    """Sync nothing."""


def _unsettled(*arguments: Any, **named: Any) -> bool:
    return log.publish_commit(*arguments, **{**named, "settled": False})


@pytest.mark.parametrize("left_out", ["files", "entries", "plans"])
@pytest.mark.proves("G250")
def test_each_sync_that_is_left_out_is_seen(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    """The cuts are proven: without syncs of data files, of log entries or of Spark's plans they find a loss."""
    if left_out == "files":
        monkeypatch.setattr(Folder, "settle", _nothing)
    elif left_out == "entries":
        monkeypatch.setattr(table, "publish_commit", _unsettled)
    else:
        monkeypatch.setattr(checkpoint, "settle", _nothing)
    shutil.copytree(template, tmp_path / "env")
    assert problems(tmp_path, ACTS["land"])
