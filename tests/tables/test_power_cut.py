"""The power is cut at some effects; `tests/faults/test_power_cut.py` cuts it at each."""

import shutil
from pathlib import Path

import pytest

from tests.tables.power_world import ACTS, begun, problems


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("template") / "env")


@pytest.mark.parametrize("act", ["land", "replay"])
@pytest.mark.proves("G250")
def test_a_cut_loses_and_doubles_nothing(template: Path, tmp_path: Path, act: str) -> None:
    """Laws L1, L3 and L5: rows that a cut takes are read again, and what was on disk stays."""
    shutil.copytree(template, tmp_path / "env")
    assert not problems(tmp_path, ACTS[act], most=4)
