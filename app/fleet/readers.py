"""What the Fleet page reads besides the fleet itself: incidents, loads of groups, registered schemas.

Each is read by itself: a reading that fails leaves the others on screen.
"""

from collections.abc import Mapping
from typing import Final

from app import formatting
from app.state import services
from app.state.services import Environment, cached, kept
from pipeline.api import fleet
from pipeline.api import incidents as incident_queries
from pipeline.api import runs as run_queries
from pipeline.health.incidents.incidents import Incident


@kept(seconds=2)
def incidents(environment: Environment) -> tuple[Incident, ...]:
    """Read the open incidents and those that ended within a day.

    Raises:
        Refused: nobody has judged causes lately: what was judged then is no news.
    """
    return incident_queries.read_current(services.opened(environment), services.fleet(environment))


_loads: Final = cached(fleet.loads, seconds=15)
registered: Final = cached(fleet.registered, seconds=30, most=8)
runs: Final = cached(run_queries.runs, seconds=5, most=8)


def loads(environment: Environment) -> Mapping[str, str]:
    """Return the load of each group as a text; a group of which no game's load is known is left out."""
    return {
        name: f"load {formatting.rate(group.cores)} cores"
        if group.capacity_cores is None
        else f"load {100 * group.share:.0f} %"
        for name, group in _loads(environment).items()
    }
