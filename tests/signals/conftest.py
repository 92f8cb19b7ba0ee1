"""One Prometheus and one Alertmanager for a module of tests of alerts that arrive: each 50 ms they cost CPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.signals.fleet import Fleet
from tests.signals.servers import Servers, running


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signals")


@pytest.fixture(scope="module")
def fleet(_folder: Path) -> Iterator[Fleet]:
    shown = Fleet(_folder / "targets")
    yield shown
    shown.stop()


@pytest.fixture(scope="module")
def servers(_folder: Path, fleet: Fleet) -> Iterator[Servers]:
    with running(_folder) as started:
        started.wait_for(lambda: started.scraped() == fleet.processes, "Prometheus does not reach every process")
        yield started
