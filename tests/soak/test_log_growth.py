"""Days of a game that commits all the time, on a simulated clock: how large its log and its checkpoints become.

`TURNOUT_LOG_DAYS` and `TURNOUT_LOG_SECONDS_BETWEEN` choose another length and rate; the figures are printed.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pipeline.lake.delta.checkpoint import pointed_to
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from tests.tables.log_growth_world import Game, Peak, bytes_of_a_checkpoint, bytes_of_a_log, simulated

ROUND: Final = Maintenance().interval_minutes * 60
HOUR: Final = 3600.0
MAX_BYTES: Final = Maintenance().log_megabytes * 1_000_000
# Files that left the table are no part of a log, and a day of them is quicker to look through than a week.
SETTINGS: Final = Settings(environment="test", maintenance=Maintenance(file_retention_hours=24))

pytestmark = pytest.mark.timeout(7200)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is one, as there are some millions of files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


def days(game: Game, number: float, round_seconds: float) -> list[Peak]:
    """Live `number` days and return the peaks of each; a reader looks every six hours."""
    peaks = []
    rounds = int(number * 86_400 / round_seconds)
    for at in range(rounds):
        if at % int(86_400 / round_seconds) == 0:
            peaks.append(Peak())
        game.live(round_seconds)
        peaks[-1].take(game.measured())
        game.round()
        if at % int(6 * 3600 / round_seconds) == 0:
            game.check()
    game.check()
    return peaks


def held(game: Game, peaks: list[Peak], round_seconds: float, began: float) -> None:
    """Check the peaks against what is allowed at this rate, and print them."""
    whole = Peak()
    for peak in peaks:
        whole.take(peak)
    log = bytes_of_a_log(game, MAX_BYTES, round_seconds, whole)
    checkpoint = bytes_of_a_checkpoint(game.seconds_between, round_seconds, 50)
    window = (game.table.version - game.first_version()) * game.seconds_between
    sys.stdout.write(
        f"\n{game.seq} commits in {len(peaks)} days, one every {game.seconds_between:g} s, simulated in "
        f"{time.monotonic() - began:.0f} s: log at most {whole.log_on_disk / 1e6:.1f} MB on disk"
        f" ({whole.log_bytes / 1e6:.1f} MB of content, {whole.log_files} files), by formula {log / 1e6:.1f} MB;"
        f" checkpoint at most {whole.checkpoint_bytes / 1e3:.0f} kB, by formula {checkpoint / 1e3:.0f} kB;"
        f" a reader may be {window / 3600:.1f} hours behind; last checkpoint {pointed_to(located(game.path))}\n"
    )
    assert whole.log_on_disk <= log <= 50_000_000
    assert whole.checkpoint_bytes <= checkpoint <= 300_000
    if len(peaks) > 4:
        first, last = peaks[len(peaks) // 2], peaks[-1]
        assert last.log_on_disk <= 1.02 * first.log_on_disk, "it grows with time"
        assert last.checkpoint_bytes <= 1.05 * first.checkpoint_bytes, "it grows with time"


@pytest.mark.proves("G146")
def test_ten_days_at_a_commit_in_twenty_seconds(memory: Path) -> None:
    """What a log fills does not depend on how long the game has been there: day 10 is as day 6.

    A round each hour, so that it takes minutes; more files are then there between two rounds. A month of the same was
    tried once, see docs/guarantees.md.
    """
    began = time.monotonic()
    number = float(os.environ.get("TURNOUT_LOG_DAYS", "10"))
    between = float(os.environ.get("TURNOUT_LOG_SECONDS_BETWEEN", "20"))
    with simulated(memory, SETTINGS, between) as game:
        held(game, days(game, number, HOUR), HOUR, began)


@pytest.mark.proves("G146")
def test_a_day_at_a_commit_a_second(memory: Path) -> None:
    """At the full rate the same formulas hold, so a month of it, or a year, is as this day."""
    began = time.monotonic()
    with simulated(memory, SETTINGS, 1.0) as game:
        peaks = days(game, 1, ROUND)
        assert game.first_version() > 70_000
        held(game, peaks, ROUND, began)
