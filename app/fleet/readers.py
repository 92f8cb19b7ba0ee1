"""What the Fleet page reads besides the fleet and its incidents: loads of groups, registered schemas.

Each is read by itself: a reading that fails leaves the others on screen.
"""

from collections.abc import Mapping
from typing import Final

from app import formatting
from app.components import group_load
from app.state.series import series
from app.state.services import Environment, cached
from pipeline.api import fleet
from pipeline.api import runs as run_queries
from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import Fleet
from pipeline.health.verdicts.placement.capacity import GroupLoad

_RECENT_SECONDS: Final = 900


_loads: Final = cached(fleet.loads, seconds=15)
registered: Final = cached(fleet.registered, seconds=30, most=8)
runs: Final = cached(run_queries.runs, seconds=5, most=8)


def loads(environment: Environment, seen: Fleet) -> Mapping[str, str]:
    """Return the load of each group as a text: as its driver measured it, else as estimated, which is named.

    A group of whose load nothing is known now is left out, such as that of a driver which is starting.
    """
    try:
        recent = series(environment, _RECENT_SECONDS)
    except Refused:  # the page says so where it shows them
        recent = None
    known = _loads(environment)
    measured = {} if recent is None else group_load.all_measured_now(recent, seen)
    return {
        name: _load(known.get(name, GroupLoad(name)), measured.get(name))
        for name in {*known, *measured}
        if not group_load.why_unknown(seen, name, measured.get(name))
    }


def _load(group: GroupLoad, measured: float | None) -> str:
    about, used = ("load", measured) if measured is not None else ("estimated load", group.cores)
    limit = group.capacity_cores
    return f"{about} {formatting.cores(used) if limit is None else f'{100 * used / limit:.0f} %'}"
