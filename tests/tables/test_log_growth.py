"""The growth of a table's log, on a simulated clock; days of it are in tests/soak."""

from pathlib import Path

import pytest

from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from tests.tables.log_growth_world import Peak, bytes_of_a_checkpoint, bytes_of_a_log, simulated

ROUND = 900.0


@pytest.mark.proves("G146")
def test_a_log_stops_growing(tmp_path: Path) -> None:
    """However long a game commits, its log and checkpoints are as large as at the beginning, and it can be read."""
    settings = Settings(environment="test", maintenance=Maintenance(log_megabytes=1, file_retention_hours=24))
    peaks = []
    with simulated(tmp_path, settings, 20.0) as game:
        for rounds in (6, 5, 5):
            peaks.append(Peak())
            for _ in range(rounds):
                game.live(ROUND)
                peaks[-1].take(game.measured())
                game.round()
            game.check()
        assert game.first_version() > 400
        allowed = bytes_of_a_log(game, 1_000_000, ROUND, peaks[-1])
    assert peaks[1].log_on_disk <= allowed <= 2_000_000
    assert peaks[2].log_on_disk <= 1.05 * peaks[1].log_on_disk
    assert peaks[2].checkpoint_bytes <= bytes_of_a_checkpoint(20.0, ROUND, 10)
