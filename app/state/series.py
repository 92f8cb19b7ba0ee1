"""Numbers by slots of time for the pages: one reader per environment, shared by all viewers."""

from app.state import services
from app.state.readings import Reading, outdated
from app.state.services import Environment, kept
from listeners.series import Series
from pipeline.api import series as queries
from pipeline.api.series import SeriesReader
from pipeline.base.errors import Refused
from pipeline.base.texts import short_moment


@kept(seconds=3, most=8)
def series(environment: Environment, range_seconds: int) -> Series:
    """Read the closed minutes of a range (a key of RANGES), at most 3 s old; before the first report it has no games.

    The range of an environment that is younger is its age.

    All viewers share its arrays, which are read-only: a copy for each would take longer than the reading.

    Raises:
        Refused: the minute tables cannot be read.
    """
    found = queries.read(_reader(environment), environment.settings.metrics, environment.paths, range_seconds)
    try:
        begun_at = services.fleet(environment).begun_at
    except Refused:
        return found
    return found if begun_at is None else found.begun(begun_at)


def about(seen: Reading[Series], now: float) -> str:
    """Return how old the numbers of a panel are, and why, to stand in its head; empty where they are new and whole."""
    if old := outdated(seen, now):
        return old
    replaced = None if seen.value is None else seen.value.replaced_at
    if seen.value is None or replaced is None or replaced < seen.value.since:
        return ""
    return f" · since {short_moment(replaced, now)} from other tables: the metrics folder was moved or made again"


@kept()
def _reader(environment: Environment) -> SeriesReader:
    return queries.open_reader(environment.paths)
